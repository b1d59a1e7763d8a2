//! What durable runs cost, each figure beside its baseline in the same run: `cargo bench -p tenure --bench durable`.
//!
//! Prints Markdown: facts about the machine, then one table. `-- cycles host` measures those groups alone,
//! `-- --quick` is over in seconds and checks only that everything still runs; so does `cargo test --benches`.
//! How baselines are made and why they are fair: `docs/PERFORMANCE.md`.

#![allow(clippy::expect_used, reason = "a measurement that cannot be made must stop the run")]
#![allow(clippy::print_stdout, reason = "the table is the purpose of the program")]
#![allow(dead_code, reason = "shares its table with the benchmark of the kernel")]

#[path = "../actors/benches/kernel/arguments.rs"]
mod arguments;
#[path = "durable/bare.rs"]
mod bare;
#[path = "durable/bare_postgres.rs"]
mod bare_postgres;
#[path = "durable/bare_redis.rs"]
mod bare_redis;
#[path = "durable/bytes.rs"]
mod bytes;
#[path = "durable/cycles.rs"]
mod cycles;
#[path = "durable/delays.rs"]
mod delays;
#[path = "../actors/benches/kernel/facts.rs"]
mod facts;
#[path = "durable/host.rs"]
mod host;
#[path = "durable/kept.rs"]
mod kept;
#[path = "durable/leases.rs"]
mod leases;
#[path = "../actors/benches/kernel/measure.rs"]
mod measure;
#[path = "durable/options.rs"]
mod options;
#[path = "durable/prompt.rs"]
mod prompt;
#[path = "durable/reached.rs"]
mod reached;
#[path = "durable/replicas.rs"]
mod replicas;
#[path = "../tests/support/servers.rs"]
mod servers;
#[path = "durable/stores.rs"]
mod stores;
#[path = "../actors/benches/kernel/table.rs"]
mod table;

use crate::options::{Group, Plan};
use crate::stores::Kind;
use crate::table::Table;

fn main() {
    match options::parse(std::env::args().skip(1)) {
        Ok(plan) => measure_all(&plan),
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
    // Servers are started, and the missing ones named, before the table begins.
    let stores: Vec<&str> = plan.stores(Kind::ALL).map(Kind::name).collect();
    println!("- stores: {}", stores.join("; "));
    facts::print(plan, ALLOCATED_BY);
    let table = Table::begin(plan.judges);
    let all: [(Group, Measure); 11] = [
        (Group::Cycles, cycles::measure),
        (Group::Callers, cycles::measure_callers),
        (Group::Host, host::measure),
        (Group::Two, host::measure_two),
        (Group::Full, host::measure_full),
        (Group::Prompt, prompt::measure),
        (Group::Idle, prompt::measure_idle),
        (Group::Kept, kept::measure),
        (Group::Leases, leases::measure),
        (Group::Replicas, replicas::measure),
        (Group::Bytes, bytes::measure),
    ];
    for (group, measure) in all {
        if plan.wants(group) {
            measure(plan, &table);
        }
    }
}
