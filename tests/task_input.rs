//! What users write of a task: taken as it is, or refused with every field that is wrong.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::fmt::Write as _;

use tenure::model::{Cron, TaskPatch, TaskSpec};

/// What becomes of the text: the task as it is stored, or the problems, one a line.
fn read(json: &str) -> String {
    match TaskSpec::parse(json) {
        Ok(spec) => serde_json::to_string(&spec).unwrap(),
        Err(invalid) => {
            let lines =
                invalid.problems.iter().map(|problem| format!("{}: {}", problem.field, problem.expected));
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

/// A task with these further fields.
fn with(fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!("{{\"task_id\":\"t\",\"agent_id\":\"a\",\"query\":\"q\"{comma}{fields}}}")
}

fn table(cases: &[&str]) -> String {
    let mut table = String::new();
    for case in cases {
        writeln!(table, "{case}").unwrap();
        for line in read(&with(case)).lines() {
            writeln!(table, "  {line}").unwrap();
        }
    }
    table
}

#[test]
fn a_task_needs_little_and_defaults_are_the_contracts() {
    insta::assert_snapshot!(read(&with("")));
}

#[test]
fn every_problem_is_told_at_once() {
    insta::assert_snapshot!(read(
        r#"{"task_id":"..","agent_id":"a b","query":" \n","timeout_seconds":0,"deadline_seconds":0,
            "schedule":{"type":"cron","seconds":5,"expression":"0 61 * * *","timezone":"Mars/Base",
                "start_at":"2026-02-01T00:00:00Z","end_at":"2026-01-01T00:00:00Z","catch_up_limit":0},
            "retry_policy":{"max_retries":1001,"initial_delay_seconds":10,"max_delay_seconds":5,"jitter":1.5,
                "retry_on":[""]},
            "session_policy":{"type":"fixed"},
            "workspace_policy":{"namespace_template":"../{run_id}"},
            "concurrency_limit":0,"metadata":[1]}"#
    ));
}

#[test]
fn what_has_a_wrong_form_is_named_by_its_path() {
    insta::assert_snapshot!(table(&[
        r#""enabled":"yes""#,
        r#""colour":1"#,
        r#""retry_policy":{"colour":1}"#,
        r#""retry_policy":{"max_retries":-1}"#,
        r#""retry_policy":{"backoff":"linear"}"#,
        r#""retry_policy":{"retry_on":["timeout",7]}"#,
        r#""overlap_policy":"queue one""#,
        r#""schedule":{"type":"weekly"}"#,
        r#""schedule":{"every":3}"#,
        r#""schedule":7"#,
        r#""schedule":"weekly""#,
        r#""schedule":{"type":"once","run_at":"tomorrow"}"#,
        r#""schedule":{"type":"interval","seconds":"60"}"#,
        r#""schedule":{"type":"interval","seconds":-60}"#,
        r#""schedule":{"type":"interval","seconds":1e300}"#,
        r#""session_policy":{"type":"mine"}"#,
        r#""session_policy":"mine""#,
        r#""workspace_policy":{"root":"x"}"#,
        r#""priority":99999999999"#,
        r#""concurrency_limit":-1"#,
        r#""task_id":"u""#,
        r#""metadata":{"#,
    ]));
}

#[test]
fn a_schedule_that_nobody_names_is_the_default() {
    let task = TaskSpec::parse(r#"{ "task_id": "t", "agent_id": "a", "query": "q" }"#).unwrap();
    assert_eq!(task.schedule, tenure::model::Schedule::default());
}

#[test]
fn schedules_are_checked() {
    let schedules = [
        r#""manual""#,
        r#"{}"#,
        r#"{"type":"manual","seconds":5,"start_at":"2026-01-01T00:00:00Z","misfire_policy":"run_once"}"#,
        r#"{"type":"interval"}"#,
        r#"{"type":"interval","seconds":0}"#,
        r#"{"type":"interval","seconds":0.0001}"#,
        r#"{"type":"interval","seconds":1.5,"timezone":"Europe/Berlin"}"#,
        r#"{"type":"interval","seconds":60,"expression":"* * * * *","dst_gap":"skip","dst_fold":"both"}"#,
        r#"{"type":"cron"}"#,
        r#"{"type":"cron","expression":"@daily","dst_gap":"skip","dst_fold":"both","jitter_seconds":30}"#,
        r#"{"type":"cron","expression":"0 0 30 2 *"}"#,
        r#"{"type":"once"}"#,
        r#"{"type":"once","run_at":"2026-01-01T09:00:00+02:00","end_at":"2027-01-01T00:00:00Z"}"#,
        r#"{"type":"once","run_at":"2026-01-01T09:00:00+02:00"}"#,
        r#"{"type":"interval","seconds":1,"catch_up_limit":1001,"catch_up_window_seconds":0}"#,
    ];
    let schedules: Vec<String> =
        schedules.iter().map(|schedule| format!("\"schedule\":{schedule}")).collect();
    let cases: Vec<&str> = schedules.iter().map(String::as_str).collect();
    insta::assert_snapshot!(table(&cases));
}

#[test]
fn sessions_workspaces_and_keys_are_checked() {
    insta::assert_snapshot!(table(&[
        r#""session_policy":"run""#,
        r#""session_policy":"fixed""#,
        r#""session_policy":{"type":"fixed","session_id":""}"#,
        r#""session_policy":{"type":"fixed","session_id":"s"}"#,
        r#""session_policy":{"type":"run","session_id":"s"}"#,
        r#""workspace_policy":{"namespace_template":"/{run_id}"}"#,
        r#""workspace_policy":{"namespace_template":"a//{run_id}"}"#,
        r#""workspace_policy":{"namespace_template":"a/{run_id}/"}"#,
        r#""workspace_policy":{"namespace_template":"a/../{run_id}"}"#,
        r#""workspace_policy":{"namespace_template":"a/{user}/{run_id}"}"#,
        r#""workspace_policy":{"namespace_template":"a\\..\\{run_id}"}"#,
        r#""workspace_policy":{"namespace_template":"a\u0000/{run_id}"}"#,
        r#""workspace_policy":{"namespace_template":"a/{task_id}"}"#,
        r#""workspace_policy":{"namespace_template":""}"#,
        r#""concurrency_key":"","concurrency_limit":2"#,
        r#""concurrency_key":"gpu","concurrency_limit":2"#,
        r#""concurrency_key":"gpu""#,
    ]));
}

#[test]
fn cron_expressions_are_refused_with_the_column() {
    let mut table = String::new();
    for text in [
        "",
        "   ",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "*/60 * * * *",
        "5/10 * * * *",
        "/5 * * * *",
        "9-5 * * * *",
        "1,,2 * * * *",
        ", * * * *",
        "1- * * * *",
        "-1 * * * *",
        "1-2-3 * * * *",
        "L * * * *",
        "JAN * * * *",
        "* * * MON *",
        "* * * * JAN",
        "* * * * MONDAY",
        "* * * * FRI-0",
        "* * * * SAT-MON",
        "* * 32W * *",
        "* * L-3 * *",
        "* * * * 5#6",
        "* * * * L",
        "* * * * +1",
        "@reboot",
        "@daily x",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 30,31 2 *",
        "٣ * * * *",
        "* * * * *\u{0}",
        "0 0 * * é",
        "99999999999999999999 * * * *",
    ] {
        let error = Cron::parse(text).unwrap_err();
        writeln!(table, "{text:?}\n  column {}: {}", error.column, error.expected).unwrap();
    }
    insta::assert_snapshot!(table);
    assert!(Cron::parse(&"*,".repeat(1000)).unwrap_err().expected.contains("256 bytes"));
}

#[test]
fn cron_expressions_name_what_they_say() {
    let mut table = String::new();
    for text in [
        "* * * * *",
        "*/15 * * * *",
        "30 2 * * *",
        "0 9-17/2 * * MON-FRI",
        "0 0 13 * 5",
        "0 0 */2 * 1",
        "0 0 L * *",
        "0 0 LW * *",
        "0 0 15W * *",
        "0 0 * * 5L",
        "0 0 * * FRI#2",
        "0 0 * * 7",
        "0 0 * * FRI-SUN",
        "0 0 ? * 1",
        "0 0 29 2 *",
        "*/20 * * * * *",
        "@hourly",
        "@DAILY",
        "@weekly",
        "@monthly",
        "@yearly",
        "0 0 1 jan,JUL *",
    ] {
        let cron = Cron::parse(text).unwrap();
        let mut at = jiff::civil::date(2026, 1, 1).at(0, 0, 1, 0);
        write!(table, "{text:22}").unwrap();
        for _ in 0..4 {
            at = cron.at_or_after(at).unwrap();
            write!(table, "  {}", at.strftime("%Y-%m-%d %a %H:%M:%S")).unwrap();
            at = at.checked_add(jiff::Span::new().seconds(1)).unwrap();
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_stored_task_is_read_back_exactly() {
    let text = with(
        r#""schedule":{"type":"cron","expression":"0 9 * * MON","timezone":"Australia/Lord_Howe",
           "jitter_seconds":0.001},
           "timeout_seconds":1.25,"retry_policy":{"jitter":0.1,"max_delay_seconds":400},"concurrency_key":"k",
           "session_policy":{"type":"fixed","session_id":"s"},
           "metadata":{"n":1.10000000000000000000000001, "big":123456789012345678901234567890,"e":1E+2}"#,
    );
    let spec = TaskSpec::parse(&text).unwrap();
    let stored = serde_json::to_string(&spec).unwrap();
    let again: TaskSpec = serde_json::from_str(&stored).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), stored);
    assert_eq!(again.schedule, spec.schedule);
    assert_eq!(
        again.metadata.as_json(),
        r#"{"n":1.10000000000000000000000001, "big":123456789012345678901234567890,"e":1E+2}"#
    );
    let value: serde_json::Value = serde_json::from_str(&with(r#""priority":7"#)).unwrap();
    assert_eq!(TaskSpec::from_value(&value).unwrap().priority, 7);
}

#[test]
fn a_query_is_kept_byte_for_byte() {
    let query = "  line\r\n\u{0}tab\t\u{feff}é\u{1f980} ";
    let json = serde_json::json!({ "task_id": "t", "agent_id": "a", "query": query }).to_string();
    assert_eq!(&*TaskSpec::parse(&json).unwrap().query, query);
}

#[test]
fn what_is_too_large_or_too_deep_is_refused_by_name() {
    let json = |query: usize| {
        serde_json::json!({ "task_id": "t", "agent_id": "a", "query": "q".repeat(query) }).to_string()
    };
    assert!(TaskSpec::parse(&json(1 << 20)).is_ok());
    assert_eq!(read(&json((1 << 20) + 1)), "query: at most 1048576 bytes, found 1048577");

    let nested = |levels: usize| format!("\"metadata\":{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert!(TaskSpec::parse(&with(&nested(64))).is_ok());
    assert_eq!(read(&with(&nested(65))), "metadata: at most 64 levels, found 65");
    // Brackets in text are no levels.
    assert!(TaskSpec::parse(&with(&format!("\"metadata\":{{\"a\":\"\\\"{}\"}}", "[".repeat(200)))).is_ok());
    assert_eq!(read(&with(&nested(20_000))), "metadata: at most 64 levels, found 20000");
    let large = with(&format!("\"metadata\":{{\"a\":\"{}\"}}", "x".repeat(300_000)));
    assert_eq!(read(&large), "metadata: at most 262144 bytes, found 300008");

    for deep in
        ["[".repeat(200_000), "{\"query\":".repeat(200_000), with(&format!("\"x\":{}", "[".repeat(200_000)))]
    {
        assert!(TaskSpec::parse(&deep).is_err());
    }
}

#[test]
fn a_change_replaces_fields_and_null_puts_back_the_default() {
    let before = TaskSpec::parse(&with(
        r#""timeout_seconds":5,"concurrency_key":"k","concurrency_limit":3,"priority":4,"metadata":{"n":1.10}"#,
    ))
    .unwrap();
    let patch = |json: &str| TaskPatch::parse(json).and_then(|patch| patch.apply(&before));

    let same = patch("{}").unwrap();
    assert_eq!(serde_json::to_string(&same).unwrap(), serde_json::to_string(&before).unwrap());

    let changed =
        patch(r#"{"query":"other","timeout_seconds":null,"concurrency_key":null,"priority":null}"#).unwrap();
    assert_eq!(&*changed.query, "other");
    assert_eq!((changed.timeout, changed.concurrency_key, changed.priority), (None, None, 0));
    assert_eq!(changed.metadata.as_json(), r#"{"n":1.10}"#);

    let refused = |json: &str| patch(json).unwrap_err().to_string();
    insta::assert_snapshot!(
        [
            refused(r#"{"colour":1,"size":2}"#),
            refused(r#"{"task_id":"u"}"#),
            refused(r#"{"query":null,"retry_policy":{"jitter":2}}"#),
            refused(r#"{"schedule":{"type":"cron","expression":"x"}}"#),
            refused("[]"),
        ]
        .join("\n")
    );
}

/// Some readers take half of a surrogate pair for JSON. No text can be made of it: it is refused before anything is
/// stored, by the field that has it.
#[test]
fn half_of_a_surrogate_pair_is_refused_by_name() {
    let expected = "text of whole characters, found half of a surrogate pair";
    for half in [r"\ud800", r"\udfff", r"\ud83d \ude00"] {
        let task =
            |query: &str, rest: &str| format!(r#"{{"task_id":"t","agent_id":"a","query":"{query}"{rest}}}"#);
        assert_eq!(read(&task(half, "")), format!("query: {expected}"));
        for metadata in [format!(r#"{{"a":["{half}"]}}"#), format!(r#"{{"{half}":1}}"#)] {
            let refused = read(&task("q", &format!(r#","metadata":{metadata}"#)));
            assert_eq!(refused, format!("metadata: {expected}"));
        }
        let session = format!(r#","session_policy":{{"type":"fixed","session_id":"{half}"}}"#);
        assert_eq!(read(&task("q", &session)), format!("session_policy.session_id: {expected}"));
        let before = TaskSpec::parse(&task("q", "")).unwrap();
        let patch = TaskPatch::parse(&format!(r#"{{"query":"{half}"}}"#)).unwrap();
        assert_eq!(patch.apply(&before).unwrap_err().to_string(), format!("\"query\": {expected}"));
    }
    let whole = r#"{"task_id":"t","agent_id":"a","query":"\ud83d\ude00","metadata":{"a":"\uD83D\uDE00"}}"#;
    let task = TaskSpec::parse(whole).unwrap();
    assert_eq!((&*task.query, task.metadata.as_json()), ("\u{1f600}", r#"{"a":"\uD83D\uDE00"}"#));
}
