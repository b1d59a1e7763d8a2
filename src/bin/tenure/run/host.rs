//! A host that executes one run at a time, each because somebody wants it: nothing is taken up in passing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure::agents::Directory;
use tenure::model::{Run, RunStatus};
use tenure::store::Store;
use tenure::{Duty, RunRequest, Settings, Tenure};

use super::left::{self, Next};
use super::summary::Summary;
use super::view::View;
use super::watch::{Watch, Watched};
use super::{RunArgs, TELLS_EVERY};
use crate::config::{DEFAULT_FILE, FileTask, Loaded, Source};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::signals::Signals;
use crate::{declare, stores};

/// A host of one task.
pub(super) struct Host<'a> {
    args: &'a RunArgs,
    loaded: &'a Loaded,
    task: &'a FileTask,
    output: Output,
    store: Arc<dyn Store>,
    tenure: Tenure,
    /// Owns what its agents need while they execute.
    _directory: Arc<Directory>,
}

impl<'a> Host<'a> {
    pub(super) async fn open(
        args: &'a RunArgs,
        loaded: &'a Loaded,
        task: &'a FileTask,
        output: Output,
    ) -> Result<Self, Failure> {
        let store = stores::open(&loaded.config).await?;
        let settings =
            Settings { progress_every: TELLS_EVERY, progress_limit: 10_000, ..loaded.config.settings() };
        // It executes nothing before it is decided what.
        let tenure = Tenure::attach(Arc::clone(&store), settings).await;
        let tenure = tenure.map_err(|error| stores::no_workspace(loaded, error))?;
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
        Ok(Self { args, loaded, task, output, store, tenure, _directory: directory })
    }

    /// Brings what was asked for to its end, and tells what became of it.
    pub(super) async fn execute(&self, signals: &mut Signals) -> Result<Exit, Failure> {
        let (args, output) = (self.args, self.output);
        let watched = self.settle(signals).await?;
        let summary = Summary::of(&self.tenure, watched.run, watched.events).await?;
        match (args.json, args.quiet) {
            (true, _) => summary.as_json(output)?,
            (_, true) => summary.result_alone(&self.tenure, output).await?,
            _ => summary.for_people(&self.loaded.config.workspace.root, watched.output_shown, output)?,
        }
        if !args.json
            && let Some(hint) = self.hint(&summary.run).await
        {
            output.hint(hint);
        }
        Ok(if watched.forced { Exit::Forced } else { Exit::of_run(summary.run.status) })
    }

    /// Runs that nobody executes come first, as they stand in the way of what is wanted or are just that. Then the
    /// run that is wanted is asked for.
    async fn settle(&self, signals: &mut Signals) -> Result<Watched, Failure> {
        declare::task_by_hand(&self.tenure, self.task).await?;
        let spec = &self.task.spec;
        loop {
            let left = left::behind(&self.tenure, &*self.store, &spec.task_id).await?;
            match left::next(left, spec, self.args.query.as_deref()) {
                Next::First(run) => {
                    self.tell(format_args!("run {} of an earlier start is finished first", run.run_id));
                    let watched = self.watch(run, true, signals).await?;
                    if watched.stopped {
                        return Ok(watched);
                    }
                }
                Next::Continue(run) => {
                    self.tell(format_args!("run {} of an earlier start is continued", run.run_id));
                    return self.watch(run, true, signals).await;
                }
                Next::Ask => {
                    let request = RunRequest {
                        query: self.args.query.as_deref().map(Arc::from),
                        // Who runs it by hand means it.
                        override_pause: true,
                        ..RunRequest::default()
                    };
                    let run = self.tenure.run_now(&spec.task_id, request).await?;
                    if !self.is_skipped_for_nobody(&run).await? {
                        return self.watch(run, false, signals).await;
                    }
                }
            }
        }
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        if !self.args.quiet {
            self.output.note(what);
        }
    }

    /// Whether a run is skipped because of one that came after the look at the others, and that nobody executes.
    async fn is_skipped_for_nobody(&self, run: &Run) -> Result<bool, Failure> {
        let blocker = run.blocked_by.as_ref().filter(|_| run.status == RunStatus::Skipped);
        let Some(blocker) = blocker else { return Ok(false) };
        let now = self.store.now().await?;
        Ok(left::is_left(&self.tenure.run(blocker).await?, now))
    }

    /// Executes a run here, unless somebody else is faster, and follows it to its end.
    async fn watch(&self, run: Run, is_known: bool, signals: &mut Signals) -> Result<Watched, Failure> {
        let view = View::new(self.args.json, self.args.quiet, self.output, &run);
        if !run.status.is_settled() {
            let duty = Duty::OneRun(run.run_id.clone());
            let settings = Settings { duty, ..self.tenure.settings().as_ref().clone() };
            self.tenure.replace_with(settings).await?;
        }
        let watch = Watch::new(&self.tenure, run, view, &self.loaded.config.workspace.root);
        let watch = if is_known { watch.after_what_is_known().await? } else { watch };
        watch.until_settled(signals).await
    }

    /// What can be done about how it ended.
    async fn hint(&self, run: &Run) -> Option<String> {
        match run.status {
            RunStatus::Skipped => self.hint_of_skipped(run).await,
            RunStatus::AwaitingApproval => Some(format!(
                "answer it: `tenure runs resume {}{} --approve`, or --reject; then `{}` continues it",
                run.run_id,
                self.same_store(),
                self.same_command()
            )),
            RunStatus::Failed | RunStatus::Timeout => {
                let log = self.standard_error(run);
                let log = log.map(|path| format!("its standard error is in {}", path.display()));
                log.or_else(|| {
                    let look = format!("`tenure runs show {}{}` shows it", run.run_id, self.same_store());
                    self.args.quiet.then_some(look)
                })
            }
            _ => None,
        }
    }

    async fn hint_of_skipped(&self, run: &Run) -> Option<String> {
        let blocker = self.tenure.run(run.blocked_by.as_ref()?).await.ok()?;
        let (id, status) = (&blocker.run_id, blocker.status);
        if !status.is_active() {
            return Some(format!("run {id} has ended meanwhile: ask again"));
        }
        let lease = self.tenure.settings().lease.as_secs();
        Some(format!(
            "run {id} of the task is {status}, and its overlap policy skips others meanwhile. If the program that \
             executes it is gone, the next tenure run takes it over once its lease of {lease} s has ended; to end \
             it at once: tenure runs cancel {id} --force{}",
            self.same_store()
        ))
    }

    /// What its program wrote to standard error at last, if it did.
    fn standard_error(&self, run: &Run) -> Option<PathBuf> {
        let folder = self.loaded.config.workspace.root.join(run.spec.workspace_path.as_ref());
        let path = folder.join("logs").join(format!("attempt-{}.stderr.log", run.attempt));
        std::fs::metadata(&path).is_ok_and(|file| file.len() > 0).then_some(path)
    }

    /// The flags by which another command finds the same store.
    fn same_store(&self) -> String {
        match (self.loaded.source("store.url"), &self.loaded.file) {
            (Source::Flag(_), _) => format!(" --store {}", self.loaded.config.store.url),
            (Source::File, Some(file)) if file != Path::new(DEFAULT_FILE) => {
                format!(" --config {}", file.display())
            }
            _ => String::new(),
        }
    }

    /// The command that runs the same task again.
    fn same_command(&self) -> String {
        let task = self.args.task.as_ref().map(|task| format!(" {task}")).unwrap_or_default();
        let store = match self.loaded.source("store.url") {
            Source::Flag(_) => self.same_store(),
            _ => String::new(),
        };
        format!("tenure run {}{task}{store}", self.args.file.display())
    }

    pub(super) async fn close(&self) -> Result<(), Failure> {
        self.tenure.shutdown().await?;
        self.store.close().await?;
        Ok(())
    }
}
