//! The program itself: how soon it serves, and what it adds to a command that it runs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tenure::clock::SystemClock;
use tenure::store::{SqliteOptions, SqliteStore};
use tenure::{Settings, Tenure};

use crate::delays::percentile;
use crate::measure::interleave_numbers;
use crate::options::Plan;
use crate::served::runtime;
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

/// The program as a user starts it, in a folder.
fn tenure(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["TENURE", "OMNICORE", "RUST_LOG"].iter().any(|ours| name.starts_with(ours)) {
            command.env_remove(name);
        }
    }
    command.args(words).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The median of so many, in milliseconds.
fn median(count: usize, mut one: impl FnMut() -> Duration) -> f64 {
    let mut all: Vec<Duration> = (0..count).map(|_| one()).collect();
    percentile(&mut all, 50)
}

pub(crate) fn measure_start(plan: &Plan, table: &Table) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("bench.db");
    runtime().block_on(async {
        let bench = Bench::at(Kind::Full, &path).await;
        bench.finished(plan.existing, 1_000).await;
    });
    let program = || median(plan.starts, || until_ready(folder.path()));
    let in_process = || median(plan.starts, || until_open(&path));
    let [ours, facade] = interleave_numbers(plan.rounds, [&program as &dyn Fn() -> f64, &in_process]);
    let figure = format!("`tenure serve` until it listens, on {} finished runs", show(plan.existing));
    let row = Row::new(figure, Kind::Full.name(), &ours, Unit::Milliseconds)
        .beside("store and facade opened in process", &facade, Unit::Milliseconds)
        .compared(&ours.over(&facade), Unit::Times);
    table.print(row.goal(Goal::AtMost(100.0), &ours, Unit::Milliseconds));
}

fn until_ready(folder: &Path) -> Duration {
    let words = ["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:bench.db"];
    let clock = Instant::now();
    let mut child = tenure(folder, &words).stdout(Stdio::piped()).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let ready = lines.by_ref().any(|line| line.expect("a line").starts_with("listening on "));
    let took = clock.elapsed();
    assert!(ready, "the program serves");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("it is told to stop");
    assert!(child.wait().expect("it ends").success(), "it stops well");
    took
}

fn until_open(path: &Path) -> Duration {
    runtime().block_on(async {
        let clock = Instant::now();
        let options = SqliteOptions::new(path.to_owned(), Arc::new(SystemClock));
        let store = Arc::new(SqliteStore::open(options).expect("a store"));
        let tenure = Tenure::open(store, Settings::default()).await.expect("a host");
        let took = clock.elapsed();
        tenure.shutdown().await.expect("a shutdown");
        took
    })
}

const FILE: &str = r#"
[agents.nothing]
kind = "command"
command = ["true"]

[tasks.nothing]
agent_id = "nothing"
query = "do nothing"
"#;

pub(crate) fn measure_run(plan: &Plan, table: &Table) {
    let used = TempDir::new().expect("a temporary folder");
    let folder = used.path();
    std::fs::write(folder.join("tenure.toml"), FILE).expect("a file");
    let alone = || median(plan.starts, || timed(Command::new("true").current_dir(folder)));
    let again = || median(plan.starts, || timed(&mut tenure(folder, &["run", "tenure.toml"])));
    let first = || {
        median(plan.starts, || {
            let fresh = TempDir::new().expect("a temporary folder");
            std::fs::write(fresh.path().join("tenure.toml"), FILE).expect("a file");
            timed(&mut tenure(fresh.path(), &["run", "tenure.toml"]))
        })
    };
    let [alone, again, first] = interleave_numbers(plan.rounds, [&alone as &dyn Fn() -> f64, &again, &first]);
    for (figure, ours) in [
        ("`tenure run` of `true`, the store is there", again),
        ("`tenure run` of `true`, the store is made", first),
    ] {
        let more = ours.minus(&alone);
        let row = Row::new(figure, Kind::Full.name(), &ours, Unit::Milliseconds)
            .beside("`true` alone", &alone, Unit::Milliseconds)
            .compared(&more, Unit::Milliseconds);
        table.print(row.goal(Goal::AtMost(150.0), &more, Unit::Milliseconds));
    }
}

fn timed(command: &mut Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let clock = Instant::now();
    let status = command.status().expect("a command");
    let took = clock.elapsed();
    assert!(status.success(), "{status}");
    took
}
