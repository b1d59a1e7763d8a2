//! `tenure run`: a task of a file, now, in this process, watched to its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::Global;
use crate::config::{FileTask, Loaded};
use crate::exit::{Exit, Failure};
use crate::given::text_or_stdin;
use crate::logging::{self, Reader};
use crate::output::Output;
use crate::signals::Signals;

mod host;
mod left;
mod live;
mod missing;
mod say;
mod summary;
mod tail;
mod view;
mod watch;

use host::Host;

/// Run a task of a file now, and watch it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing else of the file is run, and no schedule fires. A run of the task that an earlier start \
                        left behind is continued if it asks the same, and else finished first. Ctrl-C cancels the \
                        run; a second one by force. The exit code says what became of it: 0 completed, 1 failed, 4 \
                        skipped, 5 timed out, 6 cancelled, 10 waits for a person.\n\n\
                        Warnings are logged; more with --log or RUST_LOG, and not with --quiet. What the file says of \
                        the log is for `tenure serve`.\n\n\
                        Example:\n  tenure run examples/health-report.toml"
)]
pub(crate) struct RunArgs {
    /// The file with agents and tasks
    file: PathBuf,
    /// The task, if the file has several
    task: Option<String>,
    /// Ask this instead of the query of the task; `-` for standard input
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Nothing but one JSON document at the end: the run, its attempts, events and files
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Nothing but the result
    #[arg(long, short = 'q')]
    quiet: bool,
}

/// How often what is shown is renewed.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How often progress is stored at most, while somebody watches.
const TELLS_EVERY: Duration = Duration::from_millis(250);

/// `tenure run`.
pub(crate) async fn run(mut args: RunArgs, global: &Global, output: Output) -> Result<Exit, Failure> {
    let loaded = load(&args.file, global)?;
    let task = choose(&loaded, args.task.as_deref())?;
    // What stands on standard input may be long in coming: whoever gives up meanwhile just ends.
    args.query = args.query.as_deref().map(text_or_stdin).transpose()?;
    let mut signals = Signals::listen()?;
    logging::start(&loaded, Reader::Person { quiet: args.quiet }, output)?;
    let host = tokio::select! {
        host = Host::open(&args, &loaded, task, output) => host?,
        _ = signals.next() => return Err(Failure::new(Exit::Cancelled, "told to stop before anything was run")),
    };
    let ended = host.execute(&mut signals).await;
    if ended.as_ref().is_err_and(|failure| failure.exit == Exit::Forced) {
        return ended;
    }
    // The run has settled: what is left to do is short, and nobody waits longer than a signal.
    tokio::select! {
        closed = host.close() => closed?,
        _ = signals.next() => return Ok(Exit::Forced),
    }
    ended
}

/// Reads the file that is run. Another one that is named is not passed over in silence.
fn load(file: &Path, global: &Global) -> Result<Loaded, Failure> {
    let by_variable = std::env::var_os("TENURE_CONFIG");
    let named = global.config.as_deref().filter(|named| by_variable.as_deref() != Some(named.as_os_str()));
    if let Some(other) = named.filter(|named| *named != file) {
        let (file, other) = (file.display(), other.display());
        return Err(Failure::usage(format!(
            "--config: expected nothing, found \"{other}\": agents, tasks and settings come from the file that is \
             run, \"{file}\""
        ))
        .hint(format!("leave out --config, or run the other file: tenure run {other}")));
    }
    Loaded::load_file(file, global).map_err(|failure| missing::explained(failure, file))
}

/// The task that is meant.
fn choose<'a>(loaded: &'a Loaded, named: Option<&str>) -> Result<&'a FileTask, Failure> {
    let file = loaded.file.as_deref().unwrap_or_else(|| Path::new("")).display();
    let names: Vec<&str> = loaded.tasks.iter().map(|task| task.spec.task_id.as_str()).collect();
    let names = names.join(", ");
    match (named, loaded.tasks.as_slice()) {
        (_, []) => Err(Failure::usage(format!("{file} has no task"))
            .hint("add one: a table [tasks.NAME] with a query, and an agent for it")),
        (Some(name), _) => loaded.task(name).ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("{file} has no task \"{name}\""))
                .hint(format!("it has {names}"))
        }),
        (None, [task]) => Ok(task),
        (None, _) => Err(Failure::usage(format!("{file} has several tasks: {names}"))
            .hint(format!("say which: tenure run {file} NAME"))),
    }
}
