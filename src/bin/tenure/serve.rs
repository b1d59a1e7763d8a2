//! `tenure serve`: schedules, workers and HTTP, until it is told to stop.

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Serve: schedules, workers and HTTP, until it is told to stop
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tenure serve --config tenure.toml --listen 127.0.0.1:8000")]
pub(crate) struct ServeArgs {}

pub(crate) async fn serve(args: ServeArgs, _global: &Global, _output: Output) -> Result<Exit, Failure> {
    Err(Failure::usage(format!("{args:?}")))
}
