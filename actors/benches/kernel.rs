//! What the kernel costs, each figure beside its baseline in the same run: `cargo bench -p tenure-actors`.
//!
//! Prints Markdown: facts about the machine, then one table. `-- close get` measures those groups alone,
//! `-- --quick` is over in seconds and checks only that everything still runs; so does `cargo test --benches`,
//! which runs this without the word `--bench`. How baselines are made and why they are fair:
//! `docs/PERFORMANCE.md`.

#![allow(clippy::expect_used, reason = "a measurement that cannot be made must stop the run")]
#![allow(clippy::print_stdout, reason = "the table is the purpose of the program")]

#[path = "kernel/allocator.rs"]
mod allocator;
#[path = "kernel/arguments.rs"]
mod arguments;
#[path = "kernel/baseline.rs"]
mod baseline;
#[path = "kernel/commit.rs"]
mod commit;
#[path = "kernel/facts.rs"]
mod facts;
#[path = "kernel/flavour.rs"]
mod flavour;
#[path = "kernel/keys.rs"]
mod keys;
#[path = "kernel/life.rs"]
mod life;
#[path = "kernel/lookup.rs"]
mod lookup;
#[path = "kernel/measure.rs"]
mod measure;
#[path = "kernel/memory.rs"]
mod memory;
#[path = "kernel/options.rs"]
mod options;
#[path = "kernel/ours.rs"]
mod ours;
#[path = "kernel/reserve.rs"]
mod reserve;
#[path = "kernel/table.rs"]
mod table;

use crate::options::{Command, Group, Plan};
use crate::table::Table;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

fn main() {
    match options::parse(std::env::args().skip(1)) {
        Ok(Command::Measure(plan)) => measure_all(&plan),
        Ok(Command::WeighOne(load)) => memory::weigh_here(load),
        Ok(Command::LiveOne(load)) => life::live_here(load),
        Err(problem) => {
            println!("{problem}");
            std::process::exit(2);
        }
    }
}

type Measure = fn(&Plan, &Table);

fn measure_all(plan: &Plan) {
    facts::print(plan, "the system's");
    let table = Table::begin(plan.judges);
    if plan.wants(Group::Start) || plan.wants(Group::Close) {
        life::measure(plan, &table);
    }
    let others: [(Group, Measure); 5] = [
        (Group::Memory, memory::measure),
        (Group::Get, lookup::measure),
        (Group::Commit, commit::measure),
        (Group::Reserve, reserve::measure),
        (Group::Keys, keys::measure),
    ];
    for (group, measure) in others {
        if plan.wants(group) {
            measure(plan, &table);
        }
    }
}
