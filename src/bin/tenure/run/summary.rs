//! What became of a run: its result, its files, its events.

use std::path::Path;

use serde::Serialize;
use tenure::model::{Event, Run, RunResult, RunStatus};
use tenure::view::{AttemptView, EventView, FilesView, RunView};
use tenure::{Error, Tenure};

use super::say;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, plain};

/// The most characters of a result that are shown; all of it is in `output.md`.
const MOST_SHOWN: usize = 4000;

/// What became of a run.
pub(super) struct Summary {
    pub(super) run: Run,
    attempts: Vec<AttemptView>,
    events: Vec<Event>,
    files: Option<FilesView>,
}

/// The document of `tenure run --json`.
#[derive(Serialize)]
struct Document<'a> {
    run: RunView,
    attempts: &'a [AttemptView],
    events: Vec<EventView>,
    workspace: Option<&'a FilesView>,
    exit_code: u8,
}

impl Summary {
    pub(super) async fn of(tenure: &Tenure, run: Run, events: Vec<Event>) -> Result<Self, Failure> {
        let attempts = tenure.attempts(&run.run_id).await?;
        let attempts = attempts.iter().map(|attempt| AttemptView::new(&run.run_id, attempt)).collect();
        let files = match tenure.workspace(&run.run_id).await {
            Ok(files) => Some(files),
            // Another host on the same store was faster, and has them.
            Err(Error::Elsewhere { .. } | Error::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { run, attempts, events, files })
    }

    pub(super) fn as_json(&self, output: Output) -> Result<(), Failure> {
        let document = Document {
            run: RunView::from(&self.run),
            attempts: &self.attempts,
            events: self.events.iter().map(EventView::from).collect(),
            workspace: self.files.as_ref(),
            exit_code: Exit::of_run(self.run.status).number(),
        };
        let text = serde_json::to_string_pretty(&document)
            .map_err(|error| Failure::new(Exit::Failed, format!("the run cannot be written: {error}")))?;
        output.line(text)
    }

    /// The result as it is, and nothing else; why there is none, on standard error.
    pub(super) async fn result_alone(&self, tenure: &Tenure, output: Output) -> Result<(), Failure> {
        match &self.run.result {
            Some(RunResult::Inline(payload)) => output.bytes(&payload.bytes)?,
            Some(RunResult::File { path, .. }) => {
                output.bytes(&tenure.read_file(&self.run.run_id, path).await?)?;
            }
            None => {}
        }
        if Exit::of_run(self.run.status) != Exit::Ok {
            output.failure(&Failure::new(Exit::of_run(self.run.status), self.ending()));
        }
        Ok(())
    }

    /// How it ended, in a sentence.
    fn ending(&self) -> String {
        let run = &self.run;
        let error = || run.error.as_ref().map(|error| format!("{}: {}", error.class, error.message));
        let (how, why) = match run.status {
            RunStatus::Failed => ("failed", error()),
            RunStatus::Timeout => ("timed out", error()),
            RunStatus::Cancelled => {
                ("cancelled", run.cancel.as_ref().map(|cancel| cancel.reason.to_string()))
            }
            RunStatus::Skipped => {
                let blocker = run.blocked_by.as_ref();
                ("was skipped", blocker.map(|blocker| format!("run {blocker} of the task is active")))
            }
            RunStatus::AwaitingApproval => {
                let approval = run.approval.as_ref();
                ("waits for a person", approval.map(|approval| approval.question.to_string()))
            }
            status => (status.as_str(), None),
        };
        why.map_or_else(|| how.to_owned(), |why| format!("{how}: {}", plain(&why)))
    }

    pub(super) fn for_people(&self, root: &Path, output_shown: bool, output: Output) -> Result<(), Failure> {
        let title = |text: &str| output.line(output.paint(Style::Bold, text));
        if let Some(result) = self.run.result.as_ref().filter(|_| !output_shown) {
            let text = result_text(result);
            if !text.trim().is_empty() {
                title("\nresult")?;
                for line in text.lines() {
                    output.line(format!("  {}", plain(line)).trim_end())?;
                }
            }
        }
        if let Some(files) = &self.files {
            title(&format!("\nfiles in {}", root.join(files.workspace_path.as_ref()).display()))?;
            self.files(files, output)?;
        }
        title("\nevents")?;
        self.events(output)
    }

    fn files(&self, files: &FilesView, output: Output) -> Result<(), Failure> {
        for file in files.files.iter().filter(|file| !file.is_dir) {
            let size = output.paint(Style::Dim, format_args!("{:>9}", say::size(file.size)));
            output.line(format_args!("{size}  {}", plain(&file.path)))?;
        }
        if !files.complete {
            output.line("           and more")?;
        }
        Ok(())
    }

    fn events(&self, output: Output) -> Result<(), Failure> {
        for event in &self.events {
            let at = event.timestamp.since(self.run.spec.queued_at);
            let at = output.paint(Style::Dim, format_args!("{:>8.3}s", at.as_secs_f64()));
            let (number, name) = (event.sequence, say::name(event.event));
            let attempt =
                if event.attempt == 0 { String::new() } else { format!("attempt {}", event.attempt) };
            output.line(format_args!("{at}  {number:>3}  {}", format!("{name:<18} {attempt}").trim_end()))?;
        }
        Ok(())
    }
}

/// What a result says, at most so much of it.
fn result_text(result: &RunResult) -> String {
    match result {
        RunResult::Inline(payload) => {
            let text = String::from_utf8_lossy(&payload.bytes);
            let mut shown: String = text.chars().take(MOST_SHOWN).collect();
            if shown.len() < text.len() {
                shown.push_str("\n... and more, in output.md");
            }
            shown
        }
        RunResult::File { path, size, preview, .. } => {
            format!("{preview}\n... {} in all, in {path}", say::size(*size))
        }
    }
}
