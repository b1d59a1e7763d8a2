//! What the server keeps: to the last decision, as long as it is wanted, and nothing after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::model::{AgentId, Run, RunId, RunStatus, Subject};
use tenure::store::{ClaimRequest, PruneRequest, RedisOptions, RedisStore, Store, StoreError};

use super::{Named, block_on, redis_server, room};
use crate::room::runs;

pub(super) const TESTS: &[Named] = &[
    ("own_p13_the_keys_are_back_to_what_they_were_when_runs_are_pruned", pruned),
    ("own_p13_events_of_a_run_that_was_pruned_are_gone_though_others_of_their_entry_stay", events_pruned),
    ("own_f1_what_a_script_did_before_it_failed_is_not_said_to_be_undone", half_a_script),
    ("own_i1_two_claims_that_are_answered_at_once_take_no_more_room_than_there_is", no_more_room),
    ("field_g16_the_clock_is_that_of_the_server", the_clock_is_that_of_the_server),
    ("a_server_that_forgot_the_scripts_is_given_them_again", forgot_the_scripts),
    ("a_hint_that_was_missed_is_made_up_for_when_the_channel_is_back", channel_is_back),
];

fn pruned() {
    block_on(async {
        let (store, options) = room::store().await;
        let fields =
            json!({ "overlap_policy": "allow_parallel", "concurrency_key": "k", "concurrency_limit": 1000 });
        let task = runs::task(&store, fields).await;
        let before = room::keys(&options).await;
        for round in 0..3 {
            let now = store.now().await.unwrap();
            let names = (0..200).map(|n| tenure::model::RunId::new(format!("r{round}.{n}")).unwrap());
            let decisions = names.map(|name| runs::queued(&task, name, now, Duration::ZERO)).collect();
            assert!(store.commit(decisions).await.unwrap().iter().all(Result::is_ok));
            let claimed = store.claim(runs::claim(200)).await.unwrap();
            assert_eq!(claimed.len(), 200);
            runs::finish(&store, claimed).await;
            let before = now.plus(Duration::from_secs(3600));
            let request = PruneRequest { before, keep: 0, limit: 1000 };
            assert_eq!(store.prune(request).await.unwrap().runs, 200);
        }
        let after = room::keys(&options).await;
        // How far blocks of numbers are used up is kept, until they are.
        let left = ["blocks", "gone", "events"].map(|key| format!("{}:{key}", room::prefix(&options)));
        let more: Vec<_> =
            after.keys().filter(|key| !before.contains_key(*key) && !left.contains(key)).collect();
        assert_eq!(more, Vec::<&String>::new());
        assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new());
    });
}

/// Events of one call are kept together: a part of them goes with its runs, the rest stays where it was.
fn events_pruned() {
    block_on(async {
        let (store, options) = room::store().await;
        let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
        let now = store.now().await.unwrap();
        let names = ["a", "b", "c", "d", "e"].map(|name| RunId::new(name).unwrap());
        let decisions = names.map(|name| runs::queued(&task, name, now, Duration::ZERO)).to_vec();
        assert!(store.commit(decisions).await.unwrap().iter().all(Result::is_ok));
        let all = store.events(Subject::All, 0, 100).await.unwrap();
        let queued = &all[all.len() - 5..];
        assert_eq!(store.events(Subject::All, queued[1].cursor, 100).await.unwrap(), queued[2..]);
        assert_eq!(store.events(Subject::All, queued[1].cursor, 2).await.unwrap(), queued[2..4]);

        let before = now.plus(Duration::from_secs(3600));
        let prune = PruneRequest { before, keep: 0, limit: 1000 };
        let claimed = store.claim(runs::claim(2)).await.unwrap();
        let ended: Vec<RunId> = claimed.iter().map(|run| run.run_id.clone()).collect();
        runs::finish(&store, claimed).await;
        assert_eq!(store.prune(prune).await.unwrap().runs, 2);
        let left: Vec<_> =
            queued.iter().filter(|event| !ended.contains(event.run_id.as_ref().unwrap())).collect();
        let kept = store.events(Subject::All, queued[0].cursor - 1, 100).await.unwrap();
        assert_eq!(kept.iter().collect::<Vec<_>>(), left, "in their places, and no others");
        assert_eq!(store.events(Subject::All, queued[0].cursor - 1, 1).await.unwrap(), kept[..1]);
        let one = kept[1].run_id.clone().unwrap();
        assert_eq!(store.events(Subject::Run(one), 0, 10).await.unwrap(), kept[1..2]);

        let claimed = store.claim(runs::claim(3)).await.unwrap();
        runs::finish(&store, claimed).await;
        assert_eq!(store.prune(prune).await.unwrap().runs, 3);
        assert_eq!(
            room::ask(&options.url, &["XLEN", &format!("{}:events", room::prefix(&options))]),
            "int(0)"
        );
        let faded = format!("{}:faded", room::prefix(&options));
        assert_eq!(room::ask(&options.url, &["EXISTS", &faded]), "int(0)");
    });
}

fn the_clock_is_that_of_the_server() {
    block_on(async {
        let (store, _) = room::store().await;
        let task = runs::task(&store, json!({})).await;
        let before = store.now().await.unwrap();
        runs::queue(&store, &task, "r").await.unwrap();
        let claimed = store.claim(runs::claim(1)).await.unwrap().remove(0);
        let after = store.now().await.unwrap();
        let at = claimed.claimed_at.unwrap();
        assert!(before <= at && at <= after, "{before} {at} {after}");
    });
}

fn forgot_the_scripts() {
    block_on(async {
        let mut server = redis_server::Server::start(&["--appendonly", "no"]).unwrap();
        let store = RedisStore::open(RedisOptions::new(server.url())).await.unwrap();
        let task = runs::task(&store, json!({})).await;
        room::ask(&server.url(), &["SCRIPT", "FLUSH"]);
        runs::queue(&store, &task, "r").await.unwrap();
        room::ask(&server.url(), &["SCRIPT", "FLUSH"]);
        assert_eq!(store.counts(None).await.unwrap().len(), 1);
        server.kill();
    });
}

fn channel_is_back() {
    block_on(async {
        let server = redis_server::Server::start(&["--appendonly", "no"]).unwrap();
        let store = Arc::new(RedisStore::open(RedisOptions::new(server.url())).await.unwrap());
        let mut watcher = store.watch();
        room::ask(&server.url(), &["CLIENT", "KILL", "TYPE", "pubsub"]);
        let heard =
            tokio::time::timeout(Duration::from_secs(20), watcher.recv()).await.expect("a hint").unwrap();
        assert!(heard.ready && heard.agenda && heard.agents, "anything may have changed: {heard:?}");
    });
}

/// Both claims are told who can be had before either is granted: each names the run of its own agent, and the lane has
/// room for one.
fn no_more_room() {
    block_on(async {
        let (store, _) = room::store().await;
        for agent in ["one", "two"] {
            let fields = json!({ "task_id": agent, "agent_id": agent, "concurrency_key": "k" });
            let task = runs::task(&store, fields).await;
            runs::queue(&store, &task, agent).await.unwrap();
        }
        let of =
            |agent: &str| ClaimRequest { agents: [AgentId::new(agent).unwrap()].into(), ..runs::claim(1) };
        let (one, two) = tokio::join!(store.claim(of("one")), store.claim(of("two")));
        let granted: Vec<Run> = [one.unwrap(), two.unwrap()].concat();
        assert_eq!(granted.len(), 1, "{granted:?}");
        assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new());
        runs::finish(&store, granted).await;
        let (one, two) = tokio::join!(store.claim(of("one")), store.claim(of("two")));
        assert_eq!([one.unwrap(), two.unwrap()].concat().len(), 1, "the other one, when there is room");
    });
}

/// Another program has written to a key that is looked at after the records.
fn half_a_script() {
    block_on(async {
        let (store, options) = room::store().await;
        let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
        runs::queue(&store, &task, "a").await.unwrap();
        let claimed_runs = format!("{}:claimed", room::prefix(&options));
        room::ask(&options.url, &["SET", &claimed_runs, "x"]);
        let claim = runs::claim(1);
        let answer = store.claim(claim.clone()).await;
        let granted = store.run(&RunId::new("a").unwrap()).await.unwrap().unwrap();
        assert_eq!(granted.status, RunStatus::Claimed, "so far the script came");
        assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
        room::ask(&options.url, &["DEL", &claimed_runs]);
        store.check(true).await.unwrap();
        let again = store.claim(ClaimRequest { repeat: true, ..claim }).await.unwrap();
        assert_eq!(again, [granted]);
    });
}
