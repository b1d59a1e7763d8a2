//! What is shown of a run while it lives: a live line on a terminal, plain lines else, or nothing.

use std::time::Duration;

use tenure::model::{Event, Run, Timestamp, Waiting};

use super::live::Live;
use super::say;
use crate::output::{Output, Style, plain};

/// How a run is shown.
pub(super) struct View {
    how: How,
    output: Output,
    began: Timestamp,
    most_attempts: u32,
}

enum How {
    Silent,
    Plain,
    Live(Box<Live>),
}

impl View {
    pub(super) fn new(json: bool, quiet: bool, output: Output, run: &Run) -> Self {
        let how = match () {
            () if json || quiet => How::Silent,
            () if output.is_watched() => How::Live(Box::new(Live::new(output))),
            () => How::Plain,
        };
        let most_attempts = run.spec.retry_policy.max_retries.saturating_add(1);
        let view = Self { how, output, began: run.spec.queued_at, most_attempts };
        let (task, id) = (&run.spec.task_id, &run.run_id);
        view.line(format!("{}  run {id}", output.paint(Style::Bold, task)));
        view
    }

    /// Whether what the agent answers is shown as it comes.
    pub(super) fn shows_output(&self) -> bool {
        !matches!(self.how, How::Silent)
    }

    pub(super) fn event(&mut self, event: &Event) {
        if let Some(text) = say::event(event, self.most_attempts) {
            let at = say::length(event.timestamp.since(self.began));
            let text = match event.status {
                Some(status) if status.is_settled() => self.output.paint(say::style(status), text),
                _ => text,
            };
            self.line(format!("{}  {text}", self.output.paint(Style::Dim, format_args!("{at:>7}"))));
        }
        if let How::Live(live) = &mut self.how {
            live.event(event, self.most_attempts);
        }
    }

    /// A line of what the agent answers.
    pub(super) fn output(&self, line: &str) {
        let margin = self.output.paint(Style::Dim, format_args!("{:>7}", "|"));
        let line = plain(line);
        let line = line.trim_end();
        self.line(if line.is_empty() { margin } else { format!("{margin}  {line}") });
    }

    pub(super) fn note(&self, text: &str) {
        match &self.how {
            How::Silent | How::Plain => self.output.note(text),
            How::Live(live) => live.line(text),
        }
    }

    /// It was asked to stop, and is cut off after so long.
    pub(super) fn stopping(&mut self, patience: Duration) {
        let within = say::length(patience);
        match &mut self.how {
            How::Silent => self
                .output
                .note(format_args!("asked to stop, and cut off in {within}; once more cuts it off at once")),
            // That it was asked is told by its event.
            How::Plain => {
                self.output.note(format_args!("it is cut off in {within}; once more cuts it off at once"));
            }
            How::Live(live) => live.stopping(patience),
        }
    }

    pub(super) fn waits(&mut self, waiting: &Waiting) {
        if let How::Live(live) = &mut self.how {
            live.waits(say::waiting(waiting));
        }
    }

    pub(super) fn tick(&mut self) {
        if let How::Live(live) = &mut self.how {
            live.tick();
        }
    }

    pub(super) fn end(&mut self) {
        if let How::Live(live) = &mut self.how {
            live.end();
        }
    }

    fn line(&self, text: String) {
        match &self.how {
            How::Silent => {}
            // Who does not read along any more does not stop the run.
            How::Plain => drop(self.output.line(text)),
            How::Live(live) => live.line(&text),
        }
    }
}
