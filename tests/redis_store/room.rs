//! How much room a run takes, and what the tests ask the server itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tenure::model::RunId;
use tenure::store::{RedisOptions, RedisStore, Store};

use super::{Named, block_on, redis, redis_server};

#[path = "../support/runs.rs"]
pub(crate) mod runs;

pub(super) const TESTS: &[Named] = &[(
    "field_g04_a_scheduled_run_takes_less_than_600_bytes",
    field_g04_a_scheduled_run_takes_less_than_600_bytes,
)];

/// A store that goes by the clock of the server.
pub(super) async fn store() -> (RedisStore, RedisOptions) {
    let url = redis_server::redis().clone().unwrap();
    let options = RedisOptions { namespace: redis::namespace(), ..RedisOptions::new(url) };
    (RedisStore::open(options.clone()).await.unwrap(), options)
}

pub(super) fn prefix(options: &RedisOptions) -> String {
    format!("{{tenure:{}}}", options.namespace)
}

/// Asks the server something; the answer as text.
pub(super) fn ask(url: &str, words: &[&str]) -> String {
    let mut connection = ::redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut cmd = ::redis::Cmd::new();
    for word in words {
        cmd.arg(*word);
    }
    match cmd.query::<::redis::Value>(&mut connection).unwrap() {
        ::redis::Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        ::redis::Value::SimpleString(text) => text,
        other => format!("{other:?}"),
    }
}

/// A line of `INFO`.
pub(super) fn info(url: &str, name: &str) -> String {
    let all = ask(url, &["INFO"]);
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// The keys of a namespace, with how many bytes each takes.
pub(super) async fn keys(options: &RedisOptions) -> BTreeMap<String, i64> {
    let mut connection = ::redis::Client::open(options.url.as_str()).unwrap().get_connection().unwrap();
    let pattern = format!("{}*", prefix(options));
    let names: Vec<String> = ::redis::cmd("KEYS").arg(pattern).query(&mut connection).unwrap();
    let mut size = |name: &String| -> i64 {
        ::redis::cmd("MEMORY").arg("USAGE").arg(name).arg("SAMPLES").arg(0).query(&mut connection).unwrap()
    };
    names.iter().map(|name| (name.clone(), size(name))).collect()
}

const RUNS: usize = 20_000;

fn field_g04_a_scheduled_run_takes_less_than_600_bytes() {
    block_on(async {
        let server = redis_server::Server::start(&["--appendonly", "no"]).unwrap();
        let options = RedisOptions::new(server.url());
        let store = RedisStore::open(options.clone()).await.unwrap();
        let task =
            runs::task(&store, json!({ "query": "look through the mail of the day and say what is urgent" }))
                .await;
        let used = || info(&server.url(), "used_memory").parse::<usize>().unwrap();
        let before = used();
        let now = store.now().await.unwrap();
        for _ in 0..RUNS / 1000 {
            let decision = |n| runs::queued(&task, RunId::generate(), now, Duration::from_secs(3600 + n));
            let answers = store.commit((0..1000_u64).map(decision).collect()).await.unwrap();
            assert!(answers.iter().all(Result::is_ok));
        }
        let each = (used() - before) / RUNS;
        assert!(each < 600, "{each} bytes for a run: {:?}", keys(&options).await);
    });
}
