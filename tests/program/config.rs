//! Configurations that cannot be, each with what is said of it. Nothing is stored of any.

use crate::kit::*;

const AGENT: &str = "[agents.a]\nkind = \"command\"\ncommand = [\"true\"]\n";

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_was_expected() {
    let cases: &[(&str, String)] = &[
        ("not toml", "[server\n".into()),
        ("an unknown section", "[sever]\nlisten = \"127.0.0.1:0\"\n".into()),
        ("an unknown key", "[worker]\nconcurency = 3\n".into()),
        ("a wrong type", "[worker]\nconcurrency = \"many\"\n".into()),
        ("a length that is none", "[worker]\nlease = \"soon\"\n".into()),
        ("a heartbeat that comes too late", "[worker]\nlease = 10\nheartbeat = 9\n".into()),
        ("no worker at all", "[worker]\nconcurrency = 0\n".into()),
        ("an address that is none", "[server]\nlisten = \"8000\"\n".into()),
        ("a store that is none", "[store]\nurl = \"tenure.db\"\n".into()),
        ("a token that is no text", "[server]\ntoken = 4711\n".into()),
        ("a token that is not set", "[server]\ntoken_env = \"TENURE_TEST_NO_SUCH_TOKEN\"\n".into()),
        ("an agent of no kind", "[agents.a]\nkind = \"oracle\"\n".into()),
        ("an agent with an unknown key", format!("{AGENT}shell = true\n")),
        ("a name that is none", "[agents.\"a b\"]\nkind = \"command\"\ncommand = [\"true\"]\n".into()),
        ("a task without a query", format!("{AGENT}[tasks.t]\n")),
        ("a task with an unknown key", format!("{AGENT}[tasks.t]\nquery = \"q\"\ntimeout = 3\n")),
        ("a task that names itself otherwise", format!("{AGENT}[tasks.t]\nquery = \"q\"\ntask_id = \"u\"\n")),
        (
            "two that are wrong",
            format!(
                "{AGENT}[tasks.t]\nquery = \"q\"\nschedule = {{ type = \"cron\", expression = \"61 * * * *\" }}\n\
                 [tasks.u]\nquery = \"q\"\n[tasks.u.schedule]\ntype = \"interval\"\nseconds = \"often\"\n"
            ),
        ),
        (
            "a zone that is none",
            format!(
                "{AGENT}[tasks.t]\nquery = \"q\"\n\
                 schedule = {{ type = \"cron\", expression = \"0 9 * * *\", timezone = \"Mars/Olympus\" }}\n"
            ),
        ),
        (
            "a folder that leads out",
            format!(
                "{AGENT}[tasks.t]\nquery = \"q\"\nworkspace_policy = {{ namespace_template = \"../{{run_id}}\" }}\n"
            ),
        ),
        ("no agent for a task", "[tasks.t]\nquery = \"q\"\n".into()),
        ("a token that is empty", "[server]\ntoken = \"\"\n".into()),
        ("a token that no header can hold", "[server]\ntoken = \"hunter2 \\u00e9\"\n".into()),
        ("no connection at all", "[server]\nmax_connections = 0\n".into()),
        ("a name with a port", "[server]\nallowed_hosts = [\"tasks.example\", \"tasks.example:8443\"]\n".into()),
        ("a folder of no name", "[workspace]\nroot = \"\"\n".into()),
        (
            "all that is wrong",
            "[server]\nlisten = \"8000\"\nmax_page = 0\nport = 80\n[worker]\nlease = \"soon\"\nconcurrency = 0\n\
             [sever]\nx = 1\n[agents.a]\nkind = \"command\"\ncommand = \"true\"\nshell = true\n\
             [agents.b]\nkind = \"chat\"\nmodel = \"m\"\n\
             [tasks.t]\nagent_id = \"a\"\nquery = 7\ntask_id = \"u\"\npriority = \"high\"\ntimeout_seconds = 0\n\
             [tasks.u]\nquery = \"q\"\nschedule = { type = \"interval\", secs = 5 }\n"
                .into(),
        ),
        ("not toml in two places", "[server]\nlisten =\nmax_page = = 3\n".into()),
    ];
    let mut said = String::new();
    for (what, config) in cases {
        let place = Place::with(config);
        let done = place.tenure(&["serve"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{what}: {done:?}");
        assert!(!place.path(".tenure").exists(), "{what}: something was stored");
        said.push_str(&format!("--- {what}\n{}", done.err));
    }
    assert!(!said.contains("hunter2") && !said.contains("4711"), "{said}");
    insta::assert_snapshot!("bad_configurations", said);
}

#[cfg(not(feature = "mongodb"))]
#[test]
fn a_store_that_was_not_built_in_names_its_feature() {
    let place = Place::with("[store]\nurl = \"mongodb://u:hunter2@db/tenure\"\n");
    let done = place.tenure(&["serve"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
    let told = "error: tenure.toml:2:7: expected one of the stores that this build has: memory, sqlite, postgres, \
                redis; it was built without the feature \"mongodb\"\n";
    assert_eq!(done.err, told);
}

#[test]
fn what_is_wrong_around_the_file_is_said_too() {
    let place = Place::with(AGENT);
    let mut said = String::new();
    let mut case = |what: &str, code: i32, done: Done| {
        assert_eq!((done.code, done.out.as_str()), (Some(code), ""), "{what}: {done:?}");
        said.push_str(&format!("--- {what}\n{}", redacted(&done.err, &place)));
    };
    case("no such file", 3, place.tenure(&["serve", "--config", "nothing.toml"]));
    case("a folder", 2, place.tenure(&["serve", "--config", "."]));
    place.write("bytes.toml", b"a = 1\nb = \"\xff\"\n");
    case("other bytes", 2, place.tenure(&["serve", "--config", "bytes.toml"]));
    case("what has no end", 2, place.tenure(&["serve", "--config", "/dev/zero"]));
    case("a flag that makes no sense", 2, place.tenure(&["serve", "--concurrency", "0"]));
    let mut variable = place.command(&["serve"]);
    let output = variable.env("TENURE_LEASE", "never").output().unwrap();
    let code = output.status.code();
    let (out, err) = (String::new(), String::from_utf8(output.stderr).unwrap());
    case("a variable that makes no sense", 2, Done { code, out, err });
    case("open to others without a token", 2, place.tenure(&["serve", "--listen", "0.0.0.0:0"]));
    case(
        "a level that is none",
        2,
        place.tenure(&["serve", "--log", "tenure=loud", "--listen", "127.0.0.1:0"]),
    );
    place.write(
        "lone.toml",
        "[agents.a]\nkind = \"command\"\ncommand = [\"true\"]\n[tasks.t]\nquery = \"q\"\nagent_id = \"b\"\n",
    );
    case("an agent that is missing", 3, place.tenure(&["run", "lone.toml", "--store", "memory:"]));
    insta::assert_snapshot!("bad_surroundings", said);
}

#[test]
fn a_store_that_cannot_be_used_is_said() {
    let place = Place::with("[store]\nbusy_timeout = 0.1\n");
    let serve = |store: &str| place.tenure(&["serve", "--listen", "127.0.0.1:0", "--store", store]);
    place.write("corrupt.db", "this is no database, but it is long enough to be taken for one".repeat(100));
    place.write("file", "");
    let conn = rusqlite::Connection::open(place.path("locked.db")).unwrap();
    conn.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let other = rusqlite::Connection::open(place.path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE somebody (else_s);").unwrap();
    let mut said = String::new();
    for (store, code) in [
        ("sqlite:corrupt.db", 7),
        ("sqlite:locked.db", 7),
        ("sqlite:other.db", 2),
        ("sqlite:file/tenure.db", 7),
        ("sqlite:.", 2),
    ] {
        let done = serve(store);
        assert_eq!((done.code, done.out.as_str()), (Some(code), ""), "{store}: {done:?}");
        said.push_str(&format!("--- {store}\n{}", redacted(&done.err, &place)));
    }
    insta::assert_snapshot!("bad_stores", said);
}

#[test]
fn a_port_that_is_taken_is_said() {
    let place = Place::with("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = place.tenure(&["serve", "--listen", &address]);
    assert_eq!(done.code, Some(7), "{done:?}");
    assert!(done.err.contains(&format!("\"{address}\" cannot be listened on")), "{done:?}");
    assert!(done.err.contains("hint: another program may use the port"), "{done:?}");
    assert!(!place.path(".tenure").exists(), "the store is not touched");
}

#[test]
fn the_settings_are_shown_with_where_they_come_from_and_without_secrets() {
    let place = Place::with(
        "[server]\ntoken = \"hunter2\"\n[worker]\nconcurrency = 3\nlease = \"1m\"\n\
         [agents.a]\nkind = \"command\"\ncommand = [\"true\"]\n[tasks.t]\nquery = \"q\"\n",
    );
    let mut command = place.command(&["config", "--json", "--listen", "127.0.0.1:9000"]);
    command.env("TENURE_LEASE", "2m").env("OMNICOREAGENT_BACKGROUND_TASK_STORE", "sql");
    command.env("OMNICOREAGENT_BACKGROUND_TASK_STORE_URL", "sqlite:///data/background.db");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    let find = |key: &str| {
        let settings = shown["settings"].as_array().unwrap();
        let setting = settings.iter().find(|setting| setting["key"] == key).unwrap();
        let part = |name: &str| setting[name].as_str().unwrap_or("none").to_owned();
        (part("value"), part("source"))
    };
    let pair = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    assert_eq!(find("server.token"), pair("***", "file"));
    assert_eq!(find("server.listen"), pair("127.0.0.1:9000", "--listen"));
    assert_eq!(find("worker.concurrency"), pair("3", "file"));
    assert_eq!(find("worker.lease"), pair("2m", "TENURE_LEASE"));
    assert_eq!(find("worker.poll"), pair("1s", "default"));
    let store = pair("sqlite:data/background.db", "OMNICOREAGENT_BACKGROUND_TASK_STORE_URL");
    assert_eq!(find("store.url"), store);
    assert_eq!((&shown["agents"][0], &shown["tasks"][0]), (&"a".into(), &"t".into()));
    let table = place.tenure(&["config"]);
    assert_eq!(table.code, Some(0));
    assert!(!table.out.contains("hunter2") && table.out.contains("***"), "{}", table.out);
}

#[test]
fn the_example_configuration_can_be_read() {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tenure.toml");
    let done = Place::with("").tenure(&["config", "--config", example.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("3 agents, 3 tasks"), "{done:?}");
}
