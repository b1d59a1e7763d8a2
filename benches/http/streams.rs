//! What open event streams cost: the runs meanwhile, and memory. The host is a fresh OS process each time.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::caller::{Caller, get, post, stream};
use crate::calls::delays;
use crate::delays::percentile;
use crate::measure::{Samples, interleave, number};
use crate::options::{Plan, SERVE};
use crate::served::{Agent, Served, callers, runtime};
use crate::stores::{Bench, Kind};
use crate::table::{Goal, Row, Table, Unit, show};

/// What is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Connections that asked once.
    Idle,
    /// Streams of all events.
    All,
    /// Streams of a run each, which waits.
    Own,
}

/// What was measured with one host.
struct Sample {
    without: Vec<Duration>,
    with: Vec<Duration>,
    /// Resident bytes, for each that was opened.
    bytes: f64,
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    // A descriptor for each end of what is open; the copy inherits the limit.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("as many as are allowed");
    let of = |open: Open| move || sample(plan, open);
    let (idle, all, own) = (of(Open::Idle), of(Open::All), of(Open::Own));
    let [idle, all, own] = interleave(plan.rounds, [&idle as &dyn Fn() -> Sample, &all, &own]);
    let idle = bytes(&idle);
    let streams = show(plan.streams);
    for (what, samples) in [("of all events", all), ("of a run each", own)] {
        for percent in [50, 90] {
            let of = |part: fn(&Sample) -> &Vec<Duration>| {
                Samples(samples.iter().map(|sample| percentile(&mut part(sample).clone(), percent)).collect())
            };
            let (with, without) = (of(|sample| &sample.with), of(|sample| &sample.without));
            let figure = format!("POST run with wait, {streams} streams {what} open: p{percent}");
            let row = Row::new(figure, Kind::Full.name(), &with, Unit::Milliseconds).beside(
                "the same host before, none open",
                &without,
                Unit::Milliseconds,
            );
            table.print(row.ratio_goal(Goal::AtMost(1.1), &with.over(&without)));
        }
        let bytes = bytes(&samples);
        let row =
            Row::new(format!("resident bytes of a stream {what}"), Kind::Full.name(), &bytes, Unit::Bytes)
                .beside("a connection that asked once", &idle, Unit::Bytes)
                .compared(&bytes.minus(&idle), Unit::MoreBytes);
        table.print(row.goal(Goal::AtMost(20_000.0), &bytes, Unit::Bytes));
    }
}

fn bytes(samples: &[Sample]) -> Samples {
    Samples(samples.iter().map(|sample| sample.bytes).collect())
}

fn sample(plan: &Plan, open: Open) -> Sample {
    let host = Host::start();
    let (callers, readers) = (callers(), readers());
    let (mut caller, requests) = callers.block_on(async {
        let mut caller = Caller::connect(host.address).await;
        let requests = requests(&mut caller, open, plan.streams).await;
        // Caches fill, which is not to count against what is opened later.
        delays(&mut caller, plan.one).await;
        (caller, requests)
    });
    let without = callers.block_on(delays(&mut caller, plan.one));
    let before = host.resident_bytes();
    readers.block_on(async {
        for request in &requests {
            let connection = Caller::connect(host.address).await;
            drop(tokio::spawn(connection.open(request).await));
        }
    });
    let with = callers.block_on(delays(&mut caller, plan.one));
    let bytes = (host.resident_bytes() - before) / number(plan.streams);
    Sample { without, with, bytes }
}

/// Streams are read on a thread of their own.
fn readers() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn requests(caller: &mut Caller, open: Open, count: usize) -> Vec<Vec<u8>> {
    match open {
        Open::Idle => vec![get("/healthz"); count],
        Open::All => vec![stream("/background/events"); count],
        Open::Own => {
            let task =
                r#"{"task_id":"later","agent_id":"nobody","query":"q","overlap_policy":"allow_parallel"}"#;
            caller.ask(&post("/background/tasks", task), 201).await;
            let run = post("/background/tasks/later/run", "{}");
            let mut requests = Vec::with_capacity(count);
            for _ in 0..count {
                let answer = caller.ask(&run, 202).await;
                let answer: serde_json::Value = serde_json::from_slice(answer).expect("JSON");
                let run_id = answer["run_id"].as_str().expect("a name");
                requests.push(stream(&format!("/background/runs/{run_id}/events")));
            }
            requests
        }
    }
}

// --- the host -----------------------------------------------------------------------------------------------

/// A copy of this program that serves, until this value is gone.
struct Host {
    child: Child,
    address: SocketAddr,
    input: Option<ChildStdin>,
}

impl Host {
    fn start() -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        let mut child =
            command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a copy");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().parse().expect("its address");
        let input = child.stdin.take();
        Self { child, address, input }
    }

    /// Linux only.
    fn resident_bytes(&self) -> f64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("what it weighs");
        let kilobytes = line.trim().trim_end_matches("kB").trim().parse::<u32>().expect("a number");
        f64::from(kilobytes) * 1024.0
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().expect("it ends");
    }
}

/// What the copy does: it serves until its input ends.
pub(crate) fn serve() {
    let host = runtime();
    let served = host.block_on(async { Served::open(Bench::open(Kind::Full).await, Agent::Noop).await });
    println!("{}", served.address);
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("the end");
    host.block_on(served.end());
}
