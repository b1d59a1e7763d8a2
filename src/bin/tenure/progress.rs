//! `tenure progress`: a command agent tells how far it is.

use crate::exit::{Exit, Failure};

/// From within a command agent: tell how far it is
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tenure progress 40 \"indexed 400 files\"")]
pub(crate) struct ProgressArgs {
    /// How far, from 0 to 100
    pub(crate) percent: u8,
    /// In words
    pub(crate) text: Vec<String>,
}

pub(crate) fn tell(args: &ProgressArgs) -> Result<Exit, Failure> {
    Err(Failure::usage(format!("{args:?}")))
}
