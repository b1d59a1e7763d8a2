//! The program `tenure`.

mod args;
mod client;
mod commands;
mod config;
mod declare;
mod exit;
mod given;
mod logging;
mod orphans;
mod output;
mod progress;
mod render;
mod run;
mod serve;
mod signals;
mod stores;
mod when;
mod who;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Runtime;

use args::{Args, Command, Global};
use commands::Asked;
use exit::{Exit, Failure};
use output::Output;
use signals::Signals;

/// Runs are many small blocks that one thread makes and another frees, on which the system's allocator has its threads
/// wait for each other.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: who is told to read its configuration again must not end by that.
    let begun = is_host(std::env::args_os().skip(1)).then(begin);
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(said) => return usage(&said),
    };
    let output = Output::new(args.global.color);
    let done = match begun.transpose() {
        Ok(begun) => execute(args.command, &args.global, output, begun),
        Err(failure) => Err(failure),
    };
    done.unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.exit
    })
    .into()
}

/// Help and versions were asked for; anything else was not understood.
fn usage(said: &clap::Error) -> ExitCode {
    // Who cannot be told cannot be helped.
    drop(said.print());
    if said.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
}

/// What a host has from its first moment.
struct Begun {
    runtime: Runtime,
    signals: Signals,
}

fn begin() -> Result<Begun, Failure> {
    let runtime = runtime()?;
    let signals = {
        let _within = runtime.enter();
        Signals::listen()?
    };
    Ok(Begun { runtime, signals })
}

/// Whether a host is to be started that serves. Of the words of the command line the first counts that is no flag, and
/// does not belong to one.
fn is_host(words: impl Iterator<Item = OsString>) -> bool {
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            return word == "serve";
        }
        if takes_a_word(&word) {
            words.next();
        }
    }
    false
}

fn takes_a_word(flag: &str) -> bool {
    let of_settings = |name: &str| config::TABLE.iter().any(|it| it.everywhere && it.flag == Some(name));
    match flag.strip_prefix("--") {
        Some(name) => matches!(name, "config" | "color") || of_settings(name),
        None => flag == "-c",
    }
}

fn execute(command: Command, global: &Global, output: Output, begun: Option<Begun>) -> Result<Exit, Failure> {
    let asked = match command {
        Command::Config(args) => {
            commands::warn_of_variables(output);
            return config::show(&args, global, output);
        }
        Command::Progress(args) => return on_runtime(progress::tell(args)),
        Command::Run(args) => return on_runtime(orphans::with(run::run(args, global, output))),
        Command::Serve(args) => {
            raise_open_files();
            let Begun { runtime, signals } = begun.map_or_else(begin, Ok)?;
            return on(runtime, orphans::with(serve::serve(args, global, output, signals)));
        }
        Command::Tasks(args) => Asked::Tasks(args),
        Command::Runs(args) => Asked::Runs(args),
        Command::Events(args) => Asked::Events(args),
        Command::Agents(args) => Asked::Agents(args),
        Command::Tree(args) => Asked::Tree(args),
        Command::Status(args) => Asked::Status(args),
        Command::Doctor(args) => Asked::Doctor(args),
        Command::Store(args) => Asked::Store(args),
        Command::Completions(args) => Asked::Completions(args),
        Command::Reference(args) => Asked::Reference(args),
    };
    on_runtime(commands::execute(asked, global, output))
}

/// Runs to the end on a runtime of its own.
fn on_runtime(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    on(runtime()?, work)
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(Exit::Failed, format!("the threads of the program could not be started: {error}"))
    })
}

fn on(runtime: Runtime, work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    use_ring();
    let done = runtime.block_on(work);
    // What still runs holds no authority. It is dropped, so that programs which were started end with it.
    runtime.shutdown_timeout(Duration::from_millis(500));
    done
}

/// Enough open files for all connections that may be open, and not so many that programs suffer that count through
/// them.
const MOST_FILES: u64 = 65_536;

/// As many open files as are of use and this user may have: each connection and each program of a run takes some.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = maximum.map_or(MOST_FILES, |most| most.min(MOST_FILES));
    // What is refused leaves the limit as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum });
}

/// The HTTP client takes its cryptography from the OS process: said once, before there is one.
fn use_ring() {
    // An error says that it was said before.
    drop(rustls::crypto::ring::default_provider().install_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_its_first_word() {
        let is = |line: &str| is_host(line.split_whitespace().map(OsString::from));
        for line in ["serve", "-c x serve", "--config x --log debug serve --listen y", "--config=x serve"] {
            assert!(is(line), "{line}");
        }
        for line in ["", "tasks show serve", "run serve", "--config serve", "-c serve tree", "--help"] {
            assert!(!is(line), "{line}");
        }
    }
}
