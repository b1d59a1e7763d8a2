//! The commands that look or act. Each speaks the HTTP interface, of a server or of this process.

use clap::Subcommand;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Look at tasks, make and change them
#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {}

/// Look at runs, wait for them, cancel, retry or answer them
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {}

/// What happened, and what happens
#[derive(Debug, clap::Args)]
pub(crate) struct Events {}

/// The agents that execute tasks
#[derive(Debug, clap::Args)]
pub(crate) struct Agents {}

/// The live supervision tree
#[derive(Debug, clap::Args)]
pub(crate) struct Tree {}

/// How the host is
#[derive(Debug, clap::Args)]
pub(crate) struct Status {}

/// Look for what is wrong with the set-up
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {}

/// Look after the store
#[derive(Debug, Subcommand)]
pub(crate) enum Store {}

/// Completions for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {}

/// Any of them.
#[derive(Debug)]
pub(crate) enum Asked {
    Tasks(Tasks),
    Runs(Runs),
    Events(Events),
    Agents(Agents),
    Tree(Tree),
    Status(Status),
    Doctor(Doctor),
    Store(Store),
    Completions(Completions),
}

/// Does what is asked.
pub(crate) async fn execute(asked: Asked, _global: &Global, _output: Output) -> Result<Exit, Failure> {
    Err(Failure::usage(format!("{asked:?} is not there yet")))
}
