//! `tenure progress`: a command agent tells how far it is.

use tenure::agents::progress::{self, ADDRESS_VARIABLE, ProgressError, TOKEN_VARIABLE};

use crate::exit::{Exit, Failure};

/// From within a command agent: tell how far it is
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The agent's environment says which run it is. The same can be written as a line to file \
                        descriptor 3: echo \"40 indexed 400 files\" >&3\n\n\
                        Example:\n  tenure progress 40 \"indexed 400 files\""
)]
pub(crate) struct ProgressArgs {
    /// How far, from 0 to 100
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: u8,
    /// In words
    text: Vec<String>,
}

/// `tenure progress`.
pub(crate) async fn tell(args: ProgressArgs) -> Result<Exit, Failure> {
    let variable = |name: &str| {
        std::env::var(name).map_err(|_| {
            Failure::usage(format!("{name} is not set: this is no command agent of a run"))
                .hint("call it from the program of an agent of the kind \"command\"")
        })
    };
    let (address, token) = (variable(ADDRESS_VARIABLE)?, variable(TOKEN_VARIABLE)?);
    let told = progress::tell(&address, &token, Some(args.percent), &args.text.join(" ")).await;
    told.map(|()| Exit::Ok).map_err(|error| {
        let exit = match &error {
            ProgressError::Address(_) => Exit::Usage,
            ProgressError::Unreachable(_) => Exit::Unavailable,
            ProgressError::Refused(_) => Exit::NotAllowed,
        };
        Failure::new(exit, error.to_string())
    })
}
