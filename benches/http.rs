//! What the program and its HTTP interface cost, beside the same work without them in the same run:
//! `cargo bench -p tenure --bench http`.
//!
//! Prints Markdown: facts about the machine, then one table. `-- one many` measures those groups alone,
//! `-- --quick` is over in seconds and checks only that everything still runs; so does `cargo test --benches`.
//! How baselines are made and why they are fair: `docs/PERFORMANCE.md`.

#![allow(clippy::expect_used, reason = "a measurement that cannot be made must stop the run")]
#![allow(clippy::print_stdout, reason = "the table is the purpose of the program")]
#![allow(dead_code, reason = "shares its table and its stores with other benchmarks")]

#[path = "../actors/benches/kernel/arguments.rs"]
mod arguments;
#[path = "http/caller.rs"]
mod caller;
#[path = "http/calls.rs"]
mod calls;
#[path = "durable/delays.rs"]
mod delays;
#[path = "../actors/benches/kernel/facts.rs"]
mod facts;
#[path = "http/lists.rs"]
mod lists;
#[path = "../actors/benches/kernel/measure.rs"]
mod measure;
#[path = "http/million.rs"]
mod million;
#[path = "http/options.rs"]
mod options;
#[path = "http/program.rs"]
mod program;
#[path = "durable/reached.rs"]
mod reached;
#[path = "http/served.rs"]
mod served;
#[path = "../tests/support/servers.rs"]
mod servers;
#[path = "durable/stores.rs"]
mod stores;
#[path = "http/streams.rs"]
mod streams;
#[path = "../actors/benches/kernel/table.rs"]
mod table;

use crate::options::{Command, Group, Plan};
use crate::table::Table;

fn main() {
    match options::parse(std::env::args().skip(1)) {
        Ok(Command::Measure(plan)) => measure_all(&plan),
        Ok(Command::Serve) => streams::serve(),
        Err(problem) => {
            println!("{problem}");
            std::process::exit(2);
        }
    }
}

/// As the program.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ALLOCATED_BY: &str =
    if cfg!(feature = "mimalloc") { "mimalloc, as the program has it" } else { "the system's" };

type Measure = fn(&Plan, &Table);

fn measure_all(plan: &Plan) {
    facts::print(plan, ALLOCATED_BY);
    let table = Table::begin(plan.judges);
    let all: [(Group, Measure); 6] = [
        (Group::Start, program::measure_start),
        (Group::Run, program::measure_run),
        (Group::One, calls::measure_one),
        (Group::Many, calls::measure_many),
        (Group::Streams, streams::measure),
        (Group::Lists, lists::measure),
    ];
    for (group, measure) in all {
        if plan.wants(group) {
            measure(plan, &table);
        }
    }
}
