//! Listings: what a filter lets through, page by page, and nothing twice.

use std::time::Duration;

use super::support::{A, done, ids, run_id, task_id};
use super::{Fixture, list};
use crate::model::{AgentId, Run, RunStatus, Trigger};
use crate::rules;
use crate::store::{Counted, PageRequest, RefusedKind, RunFilter, StoreError};
use serde_json::json;

list! {
    runs_are_listed_newest_first,
    pages_of_runs_are_stable_under_inserts,
    each_filter_of_runs_holds,
    filters_hold_together,
    filters_by_several_names_hold_together,
    states_that_are_alike_are_told_apart,
    a_text_is_found_whatever_it_looks_like,
    field_d3_a_few_finished_among_many_waiting_are_found,
    what_is_rare_is_found_by_going_on,
    a_cursor_of_another_listing_is_refused,
    a_page_of_nothing_is_refused,
    a_page_that_is_full_and_last_has_no_cursor,
    runs_are_counted_by_status_and_task,
    what_a_filter_lets_through_is_counted_as_it_is_listed,
    no_more_is_counted_than_is_wanted,
}

async fn some(f: &Fixture, count: usize) {
    let task = f.task(json!({ "overlap_policy": "allow_parallel" })).await;
    for n in 0..count {
        f.queue(&task, &format!("r{n}")).await;
    }
}

async fn runs_are_listed_newest_first(f: Fixture) {
    some(&f, 3).await;
    assert_eq!(ids(&f.list(RunFilter::default()).await), ["r2", "r1", "r0"], "queued in one millisecond too");
}

async fn pages_of_runs_are_stable_under_inserts(f: Fixture) {
    some(&f, 7).await;
    let task = f.task(json!({ "task_id": "new", "overlap_policy": "allow_parallel" })).await;
    let mut page = PageRequest { limit: 3, cursor: None };
    let mut seen = Vec::new();
    loop {
        let answer = f.store.runs(RunFilter::default(), page.clone()).await.unwrap();
        assert!(answer.items.len() <= 3 && answer.corrupt.is_empty());
        seen.extend(answer.items.iter().map(|run| run.run_id.to_string()));
        assert!(seen.len() <= 7, "none is seen twice: {seen:?}");
        f.queue(&task, &format!("new{}", seen.len())).await;
        page.cursor = answer.next;
        if page.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]);
}

/// A run that begins and one that waits, different in all that can be asked for; each filter, with what it lets
/// through.
async fn filtered(f: &Fixture) -> (Run, Vec<(RunFilter, Vec<&'static str>)>) {
    let start = f.now().await;
    let one = f.task(json!({ "task_id": "one", "query": "Buy Milk" })).await;
    let fields = json!({ "task_id": "two", "agent_id": "other",
        "session_policy": { "type": "fixed", "session_id": "s" } });
    let two = f.task(fields).await;
    f.queue(&one, "a").await;
    f.later(Duration::from_millis(1));
    let mut wanted = f.wanted("b").await;
    wanted.trigger = Trigger::Schedule;
    f.queue_as(&two, wanted).await;
    let running = f.begin(A).await;
    let any = RunFilter::default;
    let middle = Some(start.plus(Duration::from_millis(1)));
    let cases = [
        (any(), vec!["b", "a"]),
        (RunFilter { task_id: Some(task_id("one")), ..any() }, vec!["a"]),
        (RunFilter { agent_id: Some(two.spec.agent_id.clone()), ..any() }, vec!["b"]),
        (RunFilter { session_id: Some("s".into()), ..any() }, vec!["b"]),
        (RunFilter { session_id: Some("S".into()), ..any() }, vec![]),
        (RunFilter { statuses: vec![RunStatus::Running], ..any() }, vec!["a"]),
        (RunFilter { statuses: vec![RunStatus::Running, RunStatus::Queued], ..any() }, vec!["b", "a"]),
        (RunFilter { statuses: vec![RunStatus::Running, RunStatus::Running], ..any() }, vec!["a"]),
        (RunFilter { statuses: vec![RunStatus::Failed], ..any() }, vec![]),
        (RunFilter { trigger: Some(Trigger::Schedule), ..any() }, vec!["b"]),
        (RunFilter { created_after: middle, ..any() }, vec!["b"]),
        (RunFilter { created_before: middle, ..any() }, vec!["a"]),
        (RunFilter { text: Some("bUY m".into()), ..any() }, vec!["a"]),
    ];
    (running, cases.into())
}

async fn each_filter_of_runs_holds(f: Fixture) {
    let (running, cases) = filtered(&f).await;
    for (filter, expected) in cases {
        assert_eq!(ids(&f.list(filter.clone()).await), expected, "{filter:?}");
    }
    f.finish(&running, done("x")).await;
    let ended = RunFilter { statuses: vec![RunStatus::Completed], ..RunFilter::default() };
    assert_eq!(ids(&f.list(ended).await), ["a"]);
}

async fn filters_hold_together(f: Fixture) {
    some(&f, 6).await;
    f.claim(A, 3).await;
    let filter = RunFilter {
        task_id: Some(task_id("t")),
        statuses: vec![RunStatus::Queued],
        text: Some("do".into()),
        ..RunFilter::default()
    };
    let mut page = PageRequest { limit: 2, cursor: None };
    let first = f.store.runs(filter.clone(), page.clone()).await.unwrap();
    assert_eq!(ids(&first.items), ["r5", "r4"]);
    page.cursor = first.next;
    let second = f.store.runs(filter, page).await.unwrap();
    assert_eq!((ids(&second.items), second.next), (vec!["r3"], None));
}

async fn filters_by_several_names_hold_together(f: Fixture) {
    let session = json!({ "type": "fixed", "session_id": "s" });
    for (task, agent) in [("one", "agent"), ("two", "other"), ("three", "agent")] {
        let fields = json!({ "task_id": task, "agent_id": agent, "session_policy": session });
        let task = f.task(fields).await;
        f.queue(&task, task.spec.task_id.as_str()).await;
    }
    let task = |name: &str| Some(task_id(name));
    let agent = |name: &str| Some(super::support::agent(name));
    let any = || RunFilter { session_id: Some("s".into()), ..RunFilter::default() };
    let cases = [
        (any(), vec!["three", "two", "one"]),
        (RunFilter { task_id: task("two"), ..any() }, vec!["two"]),
        (RunFilter { agent_id: agent("agent"), ..any() }, vec!["three", "one"]),
        (RunFilter { task_id: task("one"), agent_id: agent("other"), ..any() }, vec![]),
        (RunFilter { task_id: task("one"), agent_id: agent("other"), ..RunFilter::default() }, vec![]),
        (RunFilter { task_id: task("one"), session_id: Some("t".into()), ..any() }, vec![]),
    ];
    for (filter, expected) in cases {
        assert_eq!(ids(&f.list(filter.clone()).await), expected, "{filter:?}");
        let counted = f.store.count(filter.clone(), 100).await.unwrap();
        assert_eq!(counted, Counted { count: expected.len() as u64, exact: true }, "{filter:?}");
    }
}

async fn states_that_are_alike_are_told_apart(f: Fixture) {
    some(&f, 4).await;
    let running = f.begin(A).await;
    f.finish(&running, done("x")).await;
    let running = f.begin(A).await;
    f.finish(&running, rules::Outcome::Cancelled(None)).await;
    f.begin(A).await;
    f.claim_one(A).await;
    use RunStatus::{Cancelled, Claimed, Completed, Running};
    for (status, expected) in [(Completed, "r0"), (Cancelled, "r1"), (Running, "r2"), (Claimed, "r3")] {
        let filter = RunFilter { statuses: vec![status], ..RunFilter::default() };
        assert_eq!(ids(&f.list(filter).await), [expected], "{status}");
    }
}

async fn a_text_is_found_whatever_it_looks_like(f: Fixture) {
    let texts = ["100%", "1000", "a_b", "axb", "it's", "\\", "\u{c9}t\u{e9}", "a\0z"];
    for (n, text) in texts.iter().enumerate() {
        let task = f.task(json!({ "task_id": format!("t{n}"), "query": text })).await;
        f.queue(&task, &format!("r{n}")).await;
    }
    let cases = [("0%", "r0"), ("_", "r2"), ("'", "r4"), ("\\", "r5"), ("T\u{e9}", "r6"), ("\0Z", "r7")];
    for (text, expected) in cases {
        let filter = RunFilter { text: Some(text.to_owned()), ..RunFilter::default() };
        assert_eq!(ids(&f.list(filter).await), [expected], "{text:?}");
    }
    let ascii_only = RunFilter { text: Some("\u{e9}T".into()), ..RunFilter::default() };
    assert_eq!(ids(&f.list(ascii_only).await), Vec::<&str>::new(), "only ASCII letters are folded");
}

async fn what_is_rare_is_found_by_going_on(f: Fixture) {
    some(&f, 1).await;
    let fields = json!({ "task_id": "many", "query": "another", "overlap_policy": "allow_parallel",
        "session_policy": { "type": "fixed", "session_id": "s" } });
    let task = f.task(fields).await;
    f.queue_many(&task, "w", 4200).await;
    let any = RunFilter::default;
    let rare = [
        RunFilter { text: Some("do it".into()), ..any() },
        RunFilter { session_id: Some("background:agent:t".into()), ..any() },
        RunFilter { text: Some("do it".into()), agent_id: Some(task.spec.agent_id.clone()), ..any() },
    ];
    for filter in rare {
        let (mut page, mut pages, mut found) = (PageRequest { limit: 2, cursor: None }, 0, Vec::new());
        loop {
            let answer = f.store.runs(filter.clone(), page.clone()).await.unwrap();
            found.extend(ids(&answer.items).iter().map(ToString::to_string));
            pages += 1;
            assert!(pages < 10, "{pages} pages");
            page.cursor = answer.next;
            if page.cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["r0"], "{filter:?}");
    }
    let all = f.list(RunFilter { text: Some("other".into()), ..any() }).await;
    assert_eq!(all.len(), 4200);
}

async fn field_d3_a_few_finished_among_many_waiting_are_found(f: Fixture) {
    some(&f, 5).await;
    for _ in 0..5 {
        let running = f.begin(A).await;
        f.finish(&running, done("x")).await;
    }
    let task = f.task(json!({ "task_id": "many", "overlap_policy": "allow_parallel" })).await;
    f.queue_many(&task, "w", 3000).await;
    let filter = RunFilter { statuses: vec![RunStatus::Completed], ..RunFilter::default() };
    let page = PageRequest { limit: 10, cursor: None };
    let found = f.store.runs(filter, page).await.unwrap();
    assert_eq!((ids(&found.items), found.next), (vec!["r4", "r3", "r2", "r1", "r0"], None));
}

fn is_invalid<T>(answer: Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Refused { kind: RefusedKind::Invalid, .. }))
}

async fn a_cursor_of_another_listing_is_refused(f: Fixture) {
    some(&f, 3).await;
    f.task(json!({ "task_id": "another" })).await;
    let one = || PageRequest { limit: 1, cursor: None };
    let of_runs = f.store.runs(RunFilter::default(), one()).await.unwrap().next.unwrap();
    let of_tasks = f.store.tasks(one()).await.unwrap().next.unwrap();
    let with = |cursor: &str| PageRequest { limit: 1, cursor: Some(cursor.to_owned()) };
    let odd = ["", "x", "0", "-1", "99999999999999999999999", "\0", "' OR 1=1 --", "\u{1F600}"];
    for cursor in odd.into_iter().chain([of_tasks.as_str()]) {
        assert!(is_invalid(f.store.runs(RunFilter::default(), with(cursor)).await), "{cursor:?}");
    }
    for cursor in odd.into_iter().chain([of_runs.as_str()]) {
        assert!(is_invalid(f.store.occurrences(&task_id("t"), with(cursor)).await), "{cursor:?}");
        assert!(is_invalid(f.store.tasks(with(cursor)).await), "{cursor:?}");
    }
}

async fn a_page_of_nothing_is_refused(f: Fixture) {
    some(&f, 1).await;
    let nothing = || PageRequest { limit: 0, cursor: None };
    assert!(is_invalid(f.store.runs(RunFilter::default(), nothing()).await));
    assert!(is_invalid(f.store.tasks(nothing()).await));
    assert!(is_invalid(f.store.occurrences(&task_id("t"), nothing()).await));
    let all = PageRequest { limit: usize::MAX, cursor: None };
    assert_eq!(f.store.runs(RunFilter::default(), all).await.unwrap().items.len(), 1);
}

async fn a_page_that_is_full_and_last_has_no_cursor(f: Fixture) {
    some(&f, 4).await;
    let page = PageRequest { limit: 2, cursor: None };
    let first = f.store.runs(RunFilter::default(), page).await.unwrap();
    let page = PageRequest { limit: 2, cursor: first.next };
    assert_eq!(f.store.runs(RunFilter::default(), page).await.unwrap().next, None);
}

async fn runs_are_counted_by_status_and_task(f: Fixture) {
    some(&f, 3).await;
    let other = f.task(json!({ "task_id": "other", "agent_id": "nobody" })).await;
    f.queue(&other, "other").await;
    let running = f.begin(A).await;
    f.finish(&running, done("x")).await;
    f.begin(A).await;
    use RunStatus::{Completed, Queued, Running};
    assert_eq!(f.counts(None).await, [(Queued, 2), (Running, 1), (Completed, 1)].into());
    assert_eq!(f.counts(Some(&task_id("t"))).await, [(Queued, 1), (Running, 1), (Completed, 1)].into());
    assert_eq!(f.counts(Some(&task_id("other"))).await, [(Queued, 1)].into());
    assert!(f.counts(Some(&task_id("none"))).await.is_empty());
    assert_eq!(f.read(&run_id("r2")).await.status, Queued);
}

async fn what_a_filter_lets_through_is_counted_as_it_is_listed(f: Fixture) {
    let (_, cases) = filtered(&f).await;
    let owned = |owned| RunFilter { owned: Some(owned), ..RunFilter::default() };
    let unknown = RunFilter { agent_id: AgentId::new("unknown").ok(), ..RunFilter::default() };
    let more = [(owned(true), vec![]), (owned(false), vec!["b", "a"]), (unknown, vec![])];
    for (filter, expected) in cases.into_iter().chain(more) {
        let counted = f.store.count(filter.clone(), 100).await.unwrap();
        assert_eq!(counted, Counted { count: expected.len() as u64, exact: true }, "{filter:?}");
    }
}

async fn no_more_is_counted_than_is_wanted(f: Fixture) {
    some(&f, 5).await;
    let texts = [None, Some("do it".to_owned())];
    let counts = [(0, 0, false), (1, 1, false), (4, 4, false), (5, 5, true), (u64::MAX, 5, true)];
    for text in texts {
        for (most, count, exact) in counts {
            let filter = RunFilter { text: text.clone(), ..RunFilter::default() };
            assert_eq!(f.store.count(filter, most).await.unwrap(), Counted { count, exact }, "{most}");
        }
    }
    f.claim(A, 2).await;
    let waiting = RunFilter { statuses: vec![RunStatus::Queued], ..RunFilter::default() };
    assert_eq!(f.store.count(waiting.clone(), 3).await.unwrap(), Counted { count: 3, exact: true });
    assert_eq!(f.store.count(waiting, 2).await.unwrap(), Counted { count: 2, exact: false });
}
