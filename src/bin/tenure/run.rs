//! `tenure run`: a task of a file, now, in this process, watched to its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure::agents::Directory;
use tenure::model::{Run, RunStatus};
use tenure::store::Store;
use tenure::{Duty, RunRequest, Settings, Tenure};

use crate::args::Global;
use crate::config::{FileTask, Loaded};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::signals::Signals;
use crate::{declare, logging, stores};

mod live;
mod say;
mod summary;
mod tail;
mod view;
mod watch;

use summary::Summary;
use view::View;
use watch::Watch;

/// Run a task of a file now, and watch it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing else of the file is run, and no schedule fires. Ctrl-C cancels the run; a second \
                        one by force. The exit code says what became of it: 0 completed, 1 failed, 4 skipped, \
                        5 timed out, 6 cancelled, 10 waits for a person.\n\n\
                        Example: tenure run examples/health-report.toml"
)]
pub(crate) struct RunArgs {
    /// The file with agents and tasks
    file: PathBuf,
    /// The task, if the file has several
    task: Option<String>,
    /// Ask this instead of the query of the task
    #[arg(long, short = 'q', value_name = "TEXT")]
    query: Option<String>,
    /// Nothing but one JSON document at the end: the run, its attempts, events and files
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Nothing but the result
    #[arg(long)]
    quiet: bool,
}

/// How often what is shown is renewed.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// How often progress is stored at most, while somebody watches.
const TELLS_EVERY: Duration = Duration::from_millis(250);

/// A host that executes one task.
struct Host {
    store: Arc<dyn Store>,
    tenure: Tenure,
    /// Owns what its agents need while they execute.
    _directory: Arc<Directory>,
}

/// `tenure run`.
pub(crate) async fn run(args: RunArgs, global: &Global, output: Output) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let loaded = Loaded::load_file(&args.file, global)?;
    let task = choose(&loaded, args.task.as_deref())?;
    logging::start(&loaded, "error", output)?;
    let host = Host::open(&loaded, task).await?;
    let ended = host.execute(&args, &loaded, task, &mut signals, output).await;
    // The run has settled: what is left to do is short, and nobody waits longer than a signal.
    tokio::select! {
        closed = host.close() => closed?,
        _ = signals.next() => return Ok(Exit::Forced),
    }
    ended
}

/// The task that is meant.
fn choose<'a>(loaded: &'a Loaded, named: Option<&str>) -> Result<&'a FileTask, Failure> {
    let file = loaded.file.as_deref().unwrap_or_else(|| std::path::Path::new("")).display();
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

impl Host {
    async fn open(loaded: &Loaded, task: &FileTask) -> Result<Self, Failure> {
        let store = stores::open(&loaded.config).await?;
        let settings = Settings {
            duty: Duty::OneTask(task.spec.task_id.clone()),
            progress_every: TELLS_EVERY,
            progress_limit: 10_000,
            ..loaded.config.settings()
        };
        let tenure = Tenure::open(Arc::clone(&store), settings).await?;
        let variables = loaded.config.server.agent_env.clone();
        let directory = Directory::open_with(tenure.clone(), variables).await?;
        directory.set_file(loaded.agents.clone())?;
        let agent = &task.spec.agent_id;
        if directory.get(agent).is_none() {
            let names: Vec<String> =
                directory.list().iter().map(|agent| agent.agent_id.to_string()).collect();
            let names = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
            let missing = format!("task \"{}\" needs the agent \"{agent}\"", task.spec.task_id);
            return Err(Failure::new(Exit::NotFound, format!("{missing}, which does not exist"))
                .hint(format!("add a table [agents.{agent}]; agents that exist: {names}")));
        }
        Ok(Self { store, tenure, _directory: directory })
    }

    async fn execute(
        &self,
        args: &RunArgs,
        loaded: &Loaded,
        task: &FileTask,
        signals: &mut Signals,
        output: Output,
    ) -> Result<Exit, Failure> {
        declare::task_by_hand(&self.tenure, task).await?;
        let request = RunRequest {
            query: args.query.as_deref().map(Arc::from),
            // Who runs it by hand means it.
            override_pause: true,
            ..RunRequest::default()
        };
        let run = self.tenure.run_now(&task.spec.task_id, request).await?;
        let run = match self.left_behind(&run).await? {
            Some(left) => {
                let (id, status) = (&left.run_id, left.status);
                output.note(format_args!(
                    "run {id} of the task is {status}, and nobody executes it: it is taken over"
                ));
                left
            }
            None => run,
        };
        let view = View::new(args.json, args.quiet, output, &run);
        let watch = Watch::new(&self.tenure, run, view, &loaded.config.workspace.root);
        let watched = watch.until_settled(signals).await?;
        let summary = Summary::of(&self.tenure, watched.run, watched.events).await?;
        match (args.json, args.quiet) {
            (true, _) => summary.as_json(output)?,
            (_, true) => summary.result_alone(&self.tenure, output).await?,
            _ => summary.for_people(&loaded.config.workspace.root, watched.output_shown, output)?,
        }
        if !args.json
            && let Some(hint) = self.hint(&summary.run).await
        {
            output.hint(hint);
        }
        Ok(if watched.forced { Exit::Forced } else { Exit::of_run(summary.run.status) })
    }

    /// The run because of which this one is skipped, if nobody executes it: the program that did is gone. It would
    /// stand in the way of every further one.
    async fn left_behind(&self, skipped: &Run) -> Result<Option<Run>, Failure> {
        let blocker = skipped.blocked_by.as_ref().filter(|_| skipped.status == RunStatus::Skipped);
        let Some(blocker) = blocker else { return Ok(None) };
        let blocker = self.tenure.run(blocker).await?;
        let now = self.store.now().await?;
        let is_held = blocker.lease.is_some_and(|lease| lease.expires_at > now);
        Ok(Some(blocker).filter(|blocker| blocker.status.is_active() && !is_held))
    }

    /// What can be done about how it ended.
    async fn hint(&self, run: &Run) -> Option<String> {
        match run.status {
            RunStatus::Skipped => {
                let blocker = self.tenure.run(run.blocked_by.as_ref()?).await.ok()?;
                let settings = self.tenure.settings();
                let lease = settings.lease.as_secs();
                Some(format!(
                    "run {} of the task is {}, and its overlap policy skips others meanwhile. If the program that \
                     executes it is gone, the next tenure run takes it over once its lease of {lease} s has ended; \
                     to end it at once: tenure runs cancel {} --force",
                    blocker.run_id, blocker.status, blocker.run_id
                ))
            }
            RunStatus::AwaitingApproval => {
                Some(format!("answer it: tenure runs resume {} --approve, or --reject", run.run_id))
            }
            _ => None,
        }
    }

    async fn close(&self) -> Result<(), Failure> {
        self.tenure.shutdown().await?;
        self.store.close().await?;
        Ok(())
    }
}
