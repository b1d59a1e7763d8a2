//! `tenure completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tenure completions bash >~/.local/share/bash-completion/completions/tenure\n  \
    tenure completions fish >~/.config/fish/completions/tenure.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn print(asked: &Completions, output: Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut Args::command(), "tenure", &mut script);
    output.bytes(&script)?;
    Ok(Exit::Ok)
}
