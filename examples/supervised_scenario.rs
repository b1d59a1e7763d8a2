//! Tests a plugin by its supervised scenario. Run it with `cargo run --example supervised_scenario`: it
//! prints the transcript that `tests/supervised_scenario.rs` compares as a snapshot.
//!
//! `plugin.rs` is what a plugin author writes, and `scenario.rs` how its author tests it: a story on a virtual
//! clock, told several times with shuffled ready queues, whose text has to come out the same.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "supervised_scenario/plugin.rs"]
mod plugin;
#[path = "supervised_scenario/scenario.rs"]
mod scenario;

fn main() {
    println!("{}", scenario::replaced_while_the_provider_works());
}
