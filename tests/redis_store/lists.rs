//! Listings that are led to what they are asked for, past any number of other runs.

use std::time::Duration;

use serde_json::json;
use tenure::model::{AgentId, RunId, Task};
use tenure::store::{Page, PageRequest, RedisStore, RunFilter, Store};

use super::{Named, block_on, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] =
    &[("a_few_runs_of_an_agent_or_a_session_are_on_one_page_whatever_there_is_besides", few_among_many)];

/// More than a page looks at.
const OTHERS: usize = 21_000;

async fn first_page(store: &RedisStore, filter: RunFilter) -> Page<tenure::model::Run> {
    store.runs(filter, PageRequest { limit: 10, cursor: None }).await.unwrap()
}

fn of_agent(agent: &str) -> RunFilter {
    RunFilter { agent_id: Some(AgentId::new(agent).unwrap()), ..RunFilter::default() }
}

fn of_session(session: &str) -> RunFilter {
    RunFilter { session_id: Some(session.into()), ..RunFilter::default() }
}

/// The names of the runs of each listing that are on its first page, and whether that is all.
async fn found(store: &RedisStore, filter: RunFilter) -> (Vec<String>, bool) {
    let page = first_page(store, filter).await;
    (page.items.iter().map(|run| run.run_id.to_string()).collect(), page.next.is_none())
}

async fn queue(store: &RedisStore, task: &Task, names: impl Iterator<Item = RunId>) {
    let now = store.now().await.unwrap();
    let decisions = names.map(|name| runs::queued(task, name, now, Duration::from_secs(3600))).collect();
    assert!(store.commit(decisions).await.unwrap().iter().all(Result::is_ok));
}

/// Runs of three tasks: in a session of all, in one for each run, and in one with a name.
async fn rare(store: &RedisStore) -> RunId {
    let own = RunId::generate();
    for (task, session, name) in [
        ("all", json!("task"), RunId::new("first").unwrap()),
        ("each", json!("run"), own.clone()),
        ("each-by-name", json!("run"), RunId::new("named").unwrap()),
        ("fixed", json!({ "type": "fixed", "session_id": "chat" }), RunId::new("last").unwrap()),
    ] {
        let task =
            runs::task(store, json!({ "task_id": task, "agent_id": "rare", "session_policy": session }))
                .await;
        queue(store, &task, [name].into_iter()).await;
    }
    own
}

async fn are_found(store: &RedisStore, own: &RunId) {
    let all = ["last", "named", own.as_str(), "first"].map(str::to_owned).to_vec();
    assert_eq!(found(store, of_agent("rare")).await, (all, true));
    for (session, run) in [
        ("background:rare:all".to_owned(), "first"),
        (format!("background:{own}"), own.as_str()),
        ("background:named".to_owned(), "named"),
        ("chat".to_owned(), "last"),
    ] {
        assert_eq!(found(store, of_session(&session)).await, (vec![run.to_owned()], true), "{session}");
        assert_eq!(store.count(of_session(&session), 100).await.unwrap().count, 1);
    }
    for nobody in
        [of_agent("nobody"), of_session("none"), of_session(&format!("background:{}", RunId::generate()))]
    {
        assert_eq!(found(store, nobody).await, (vec![], true));
    }
}

fn few_among_many() {
    block_on(async {
        let (store, _) = room::store().await;
        let own = rare(&store).await;
        let task = runs::task(&store, json!({})).await;
        for _ in 0..OTHERS / 1000 {
            queue(&store, &task, (0..1000).map(|_| RunId::generate())).await;
        }
        are_found(&store, &own).await;
    });
}
