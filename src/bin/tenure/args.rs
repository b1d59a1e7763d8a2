//! What is typed: the commands and their flags.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands;
use crate::config::{GivenFlags, HostFlags};
use crate::output::Colour;

/// Runs background work under supervision, and keeps what became of it.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Begin with `tenure run examples/health-report.toml`. \
                  Each command has an example: `tenure help COMMAND`."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The configuration file [default: tenure.toml, if there is one]
    #[arg(long, short = 'c', value_name = "FILE", env = "TENURE_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Whether there are colours: auto, always or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        global = true,
        hide_possible_values = true
    )]
    pub(crate) color: Colour,
    /// Settings that are given as flags: they win over the environment and the file.
    #[command(flatten)]
    pub(crate) flags: GivenFlags,
}

impl Global {
    /// The same with the flags of a host.
    pub(crate) fn and(&self, host: &HostFlags) -> Self {
        Self { flags: self.flags.and(host), ..self.clone() }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // --- a host -----------------------------------------------------------------------------------------
    /// Run a task of a file now, and watch it
    Run(crate::run::RunArgs),
    /// Serve: schedules, workers and HTTP, until it is told to stop
    Serve(crate::serve::ServeArgs),
    // --- tasks and runs ---------------------------------------------------------------------------------
    /// Look at tasks, make and change them
    #[command(subcommand)]
    Tasks(commands::Tasks),
    /// Look at runs, wait for them, cancel, retry or answer them
    #[command(subcommand)]
    Runs(commands::Runs),
    /// What happened, and what happens
    Events(commands::Events),
    /// The agents that execute tasks
    Agents(commands::Agents),
    /// The live supervision tree
    Tree(commands::Tree),
    /// How the host is
    Status(commands::Status),
    // --- around them ------------------------------------------------------------------------------------
    /// The settings as they come out, and where each comes from
    Config(crate::config::ConfigArgs),
    /// Look for what is wrong with the set-up
    Doctor(commands::Doctor),
    /// From within a command agent: tell how far it is
    Progress(crate::progress::ProgressArgs),
    /// Look after the store
    #[command(subcommand)]
    Store(commands::Store),
    /// Completions for a shell
    Completions(commands::Completions),
    /// Print the reference of the command line
    #[command(hide = true)]
    Reference(commands::Reference),
}
