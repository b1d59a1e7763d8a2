//! The only place that prints. Results go to standard output, everything about them to standard error.
//!
//! Colours only on a terminal, and not where `NO_COLOR` is set. What others wrote is shown by way of [`plain`], so
//! that no text moves the cursor or sets the title of the terminal it is read on.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the one module that prints")]

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::exit::Failure;

/// Where the output goes, and how it may look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether a person watches standard output.
    pub(crate) is_terminal: bool,
    /// Whether a person watches standard error.
    err_is_terminal: bool,
    out_colours: bool,
    err_colours: bool,
}

/// How a word is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Output {
    pub(crate) fn new(colour: Colour) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let colours = |is_terminal: bool| match colour {
            Colour::Auto => is_terminal && wanted,
            Colour::Always => true,
            Colour::Never => false,
        };
        let (is_terminal, err_is_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let (out_colours, err_colours) = (colours(is_terminal), colours(err_is_terminal));
        Self { is_terminal, err_is_terminal, out_colours, err_colours }
    }

    /// Whether a person watches, so that a line may be drawn again and again.
    pub(crate) const fn is_watched(self) -> bool {
        self.is_terminal && self.err_is_terminal
    }

    /// Whether standard output has colours.
    pub(crate) const fn has_colours(self) -> bool {
        self.out_colours
    }

    /// Whether standard error has colours.
    pub(crate) const fn errors_have_colours(self) -> bool {
        self.err_colours
    }

    /// A word for standard output.
    pub(crate) fn paint(self, style: Style, text: impl Display) -> String {
        painted(self.out_colours, style, text)
    }

    /// A line of the result. Seen at once, also by who reads a pipe.
    pub(crate) fn line(self, text: impl Display) -> Result<(), Failure> {
        self.text(format_args!("{text}\n"))
    }

    /// A piece of the result, as it is.
    pub(crate) fn text(self, text: impl Display) -> Result<(), Failure> {
        self.bytes(text.to_string().as_bytes())
    }

    /// Bytes of the result, as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(|error| Failure::output(&error))
    }

    /// A line about the result, for a person.
    pub(crate) fn note(self, text: impl Display) {
        // Who cannot be told on standard error cannot be told at all.
        drop(writeln!(io::stderr().lock(), "{text}"));
    }

    /// Why it did not work, and what to do.
    pub(crate) fn failure(self, failure: &Failure) {
        if failure.quiet {
            return;
        }
        self.note(format_args!("{} {}", painted(self.err_colours, Style::Red, "error:"), failure.message));
        if let Some(hint) = &failure.hint {
            self.hint(hint);
        }
    }

    /// What to do next.
    pub(crate) fn hint(self, hint: impl Display) {
        self.note(format_args!("{} {hint}", painted(self.err_colours, Style::Cyan, "hint:")));
    }
}

fn painted(colours: bool, style: Style, text: impl Display) -> String {
    let code = match style {
        Style::Bold => 1,
        Style::Dim => 2,
        Style::Red => 31,
        Style::Green => 32,
        Style::Yellow => 33,
        Style::Cyan => 36,
    };
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
}

/// Text of others as it can be shown: what would steer a terminal is written out. Line ends and tabs stay.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_bidi(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Characters that turn the direction of what follows, and make a line read as what it is not.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_does_not_steer_the_terminal() {
        assert_eq!(plain("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(plain("\x1b[2Jgone\r"), "\\u{1b}[2Jgone\\r");
        assert_eq!(plain("user\u{202e}txt"), "user\\u{202e}txt");
    }

    #[test]
    fn a_closed_pipe_is_no_fault() {
        let failure = Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.quiet);
        assert_eq!(failure.exit, crate::exit::Exit::Ok);
        assert!(!Failure::output(&io::Error::other("full")).quiet);
    }
}
