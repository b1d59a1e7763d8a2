//! The line at the bottom of a terminal that shows how a run stands: its state, attempt, progress, time.

use std::io;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tenure::model::{Event, EventKind, RunStatus};
use tokio::time::Instant;

use super::say;
use crate::output::{Output, plain};

/// The line, and what it shows.
pub(super) struct Live {
    bar: ProgressBar,
    with_bar: ProgressStyle,
    began: Instant,
    state: String,
    message: String,
    /// When the next attempt is due.
    due: Option<Instant>,
    /// When it is cut off, as it was asked to stop.
    cut_off: Option<Instant>,
    _echo: Echo,
}

impl Live {
    pub(super) fn new(output: Output) -> Self {
        let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr_with_hz(20));
        let colours = output.errors_have_colours();
        let plain = if colours { "{spinner:.cyan} {wide_msg}" } else { "{spinner} {wide_msg}" };
        let with_bar = if colours {
            "{spinner:.cyan} {bar:24.green/black.bright} {pos:>3}% {wide_msg}"
        } else {
            "{spinner} {bar:24} {pos:>3}% {wide_msg}"
        };
        let style = |template: &str| {
            // Both are tried out by a test; what could not be read would be shown as the usual bar.
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        bar.set_style(style(plain));
        Self {
            bar,
            with_bar: style(with_bar).progress_chars("━╸━"),
            began: Instant::now(),
            state: RunStatus::Queued.to_string(),
            message: String::new(),
            due: None,
            cut_off: None,
            _echo: Echo::off(),
        }
    }

    pub(super) fn event(&mut self, event: &Event, most_attempts: u32) {
        if let Some(status) = event.status {
            self.state = match status {
                RunStatus::Running if most_attempts > 1 => {
                    format!("attempt {} of {most_attempts}", event.attempt)
                }
                status => status.to_string(),
            };
        }
        self.due = None;
        match event.event {
            EventKind::Progress => {
                if let Some(percent) = event.data["percent"].as_u64() {
                    self.bar.set_style(self.with_bar.clone());
                    self.bar.set_position(percent.min(100));
                }
                self.message = plain(event.data["message"].as_str().unwrap_or_default()).replace('\n', " ");
            }
            EventKind::Retrying => {
                let delay = Duration::from_millis(event.data["delay_ms"].as_u64().unwrap_or_default());
                self.due = Some(Instant::now() + delay);
                self.message.clear();
            }
            EventKind::CancelRequested => self.message = "asked to stop".to_owned(),
            EventKind::Started => {
                self.bar.set_position(0);
                self.message.clear();
            }
            _ => {}
        }
        self.tick();
    }

    /// It was asked to stop, and is cut off after so long.
    pub(super) fn stopping(&mut self, patience: Duration) {
        self.cut_off = Some(Instant::now() + patience);
        self.tick();
    }

    pub(super) fn waits(&mut self, why: String) {
        self.message = why;
    }

    pub(super) fn tick(&mut self) {
        let due = self.due.map(|due| due.saturating_duration_since(Instant::now()));
        let cut_off = self.cut_off.map(|at| at.saturating_duration_since(Instant::now()));
        let message = match (cut_off, due) {
            (Some(left), _) => {
                format!("asked to stop, cut off in {}, or by another Ctrl-C", say::length(left))
            }
            (None, Some(left)) => format!("again in {}", say::length(left)),
            (None, None) => self.message.clone(),
        };
        let parts = [self.state.clone(), message, say::length(self.began.elapsed())];
        let shown: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        self.bar.set_message(shown.join("  "));
        self.bar.tick();
    }

    /// A line above it, which stays.
    pub(super) fn line(&self, text: &str) {
        self.bar.println(text);
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// What is typed to interrupt is not echoed while this lives: it would break the line, and leave the half of it.
struct Echo {
    before: Option<Termios>,
}

impl Echo {
    fn off() -> Self {
        let before = in_front().then(|| tcgetattr(io::stdin()).ok()).flatten();
        if let Some(mut without) = before.clone() {
            without.local_modes.remove(LocalModes::ECHOCTL);
            // A terminal that refuses goes on echoing, and that is all.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &without);
        }
        Self { before }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(before) = self.before.as_ref().filter(|_| in_front()) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Whether the terminal is this program's: who is in the background is stopped when it changes it.
fn in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_of_the_line_can_be_read() {
        for template in [
            "{spinner:.cyan} {wide_msg}",
            "{spinner} {wide_msg}",
            "{spinner:.cyan} {bar:24.green/black.bright} {pos:>3}% {wide_msg}",
            "{spinner} {bar:24} {pos:>3}% {wide_msg}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
