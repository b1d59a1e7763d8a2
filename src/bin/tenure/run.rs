//! `tenure run`: a task of a file, now, watched to its end.

use std::path::PathBuf;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Run a task of a file now, and watch it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tenure run examples/health-report.toml")]
pub(crate) struct RunArgs {
    /// The file with agents and tasks
    pub(crate) file: PathBuf,
    /// The task, if the file has several
    pub(crate) task: Option<String>,
}

pub(crate) async fn run(args: RunArgs, _global: &Global, _output: Output) -> Result<Exit, Failure> {
    Err(Failure::usage(format!("{args:?}")))
}
