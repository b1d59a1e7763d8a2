//! Records that this program cannot read: damaged, or of a newer one. They are left where they are, and hide no others.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::clock::ManualClock;
use tenure::model::{RunId, SchedulePlace, Timestamp};
use tenure::store::{Decision, RedisOptions, RedisStore, ScheduleWrite, Store};

use super::room::runs;
use super::{Named, block_on, redis, redis_server, room};

pub(super) const TESTS: &[Named] = &[
    ("field_x01_a_ready_run_that_cannot_be_read_stops_no_claim", claims),
    ("field_x01_a_run_that_cannot_be_read_holds_up_nobody_behind_it_in_its_lane", lanes),
    ("field_l08_a_run_that_cannot_be_read_hides_none_that_is_due", due_runs),
    ("field_s11_a_schedule_that_cannot_be_read_hides_none_that_is_due", due_schedules),
];

/// Makes the own part of a run one of a form that nobody knows.
fn spoil(options: &RedisOptions, name: &str) {
    let script = r"
        local key = ARGV[1] .. ':runs'
        local rid = redis.call('HGET', ARGV[1] .. ':ids', ARGV[2])
        local record = redis.call('HGET', key, rid)
        local at = string.find(record, ARGV[2], 1, true)
        return redis.call('HSET', key, rid, record:sub(1, at) .. '/' .. record:sub(at + 2))";
    let words = ["EVAL", script, "0", &room::prefix(options), &format!("s{name}")];
    assert_eq!(room::ask(&options.url, &words), "int(0)");
}

fn names(found: &[tenure::model::Run]) -> Vec<&str> {
    found.iter().map(|run| run.run_id.as_str()).collect()
}

fn claims() {
    block_on(async {
        let (store, options) = room::store().await;
        let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
        for name in ["a", "b", "c", "d"] {
            runs::queue(&store, &task, name).await.unwrap();
        }
        spoil(&options, "a");
        spoil(&options, "c");
        assert!(store.run(&RunId::new("a").unwrap()).await.is_err());
        assert_eq!(names(&store.claim(runs::claim(1)).await.unwrap()), ["b"]);
        assert_eq!(names(&store.claim(runs::claim(2)).await.unwrap()), ["d"]);
        assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new(), "who can read them finds them");
    });
}

fn lanes() {
    block_on(async {
        let (store, options) = room::store().await;
        let task = runs::task(&store, json!({ "overlap_policy": "queue_next" })).await;
        for name in ["first", "a", "b", "c"] {
            runs::queue(&store, &task, name).await.unwrap();
        }
        let first = store.claim(runs::claim(4)).await.unwrap();
        assert_eq!(names(&first), ["first"]);
        spoil(&options, "a");
        runs::finish(&store, first).await;
        for next in ["b", "c"] {
            let claimed = store.claim(runs::claim(4)).await.unwrap();
            assert_eq!(names(&claimed), [next]);
            assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new());
            runs::finish(&store, claimed).await;
        }
    });
}

/// A store with a clock of its own.
async fn with_clock() -> (RedisStore, RedisOptions, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_769_850_000_000)));
    let url = redis_server::redis().clone().unwrap();
    let own = Some(Arc::clone(&clock) as _);
    let options = RedisOptions { namespace: redis::namespace(), clock: own, ..RedisOptions::new(url) };
    (RedisStore::open(options.clone()).await.unwrap(), options, clock)
}

fn due_runs() {
    block_on(async {
        let (store, options, clock) = with_clock().await;
        let task = runs::task(&store, json!({ "overlap_policy": "allow_parallel" })).await;
        for name in ["a", "b", "c", "d"] {
            runs::queue(&store, &task, name).await.unwrap();
        }
        assert_eq!(store.claim(runs::claim(4)).await.unwrap().len(), 4);
        clock.advance(Duration::from_secs(60));
        spoil(&options, "a");
        spoil(&options, "c");
        assert_eq!(names(&store.due_runs(None, 1).await.unwrap()), ["b"]);
        assert_eq!(names(&store.due_runs(None, 2).await.unwrap()), ["b", "d"]);
        assert_eq!(names(&store.due_runs(None, 3).await.unwrap()), ["b", "d"]);
        assert_eq!(names(&store.due_runs(None, 0).await.unwrap()), [""; 0]);
    });
}

fn due_schedules() {
    block_on(async {
        let (store, options, clock) = with_clock().await;
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            let task = runs::task(&store, json!({ "task_id": name })).await;
            let (_, mut state) = store.task(&task.spec.task_id).await.unwrap().unwrap();
            let due_at = store.now().await.unwrap().plus(Duration::from_secs(n as u64));
            state.place = SchedulePlace::Waiting { due_at, fire_at: due_at };
            let schedule = Some(ScheduleWrite { expect: Some(state.version), state });
            let answers = store.commit(vec![Decision { schedule, ..Decision::default() }]).await.unwrap();
            assert!(answers[0].is_ok(), "{answers:?}");
        }
        clock.advance(Duration::from_secs(60));
        room::ask(&options.url, &["HSET", &format!("{}:schedules", room::prefix(&options)), "a", "x"]);
        let due = store.due_schedules(1).await.unwrap();
        assert_eq!(due.iter().map(|(task, _)| task.spec.task_id.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(store.due_schedules(10).await.unwrap().len(), 2);
    });
}
