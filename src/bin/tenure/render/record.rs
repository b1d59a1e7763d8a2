//! One thing in full: a name and a value a line, longer text below.

/// Collects the lines.
#[derive(Debug, Default)]
pub(super) struct Record {
    lines: Vec<(&'static str, String)>,
    below: String,
}

impl Record {
    /// A line; none where there is nothing to say.
    pub(super) fn line(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.lines.push((name, value));
        }
        self
    }

    /// Text of any length under a title; none where there is nothing to say.
    pub(super) fn below(mut self, title: &str, text: &str) -> Self {
        let text = text.trim_end();
        if !text.is_empty() {
            self.below.push_str(&format!("\n{title}\n"));
            for line in text.lines() {
                self.below.push_str(format!("  {line}").trim_end());
                self.below.push('\n');
            }
        }
        self
    }

    /// All of it, without a line end.
    pub(super) fn text(self) -> String {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
        let mut text = String::new();
        for (name, value) in &self.lines {
            // What goes on stands under where it began.
            let value = value.trim_end().replace('\n', &format!("\n{:width$}", ""));
            text.push_str(&format!("{name:width$}{value}\n"));
        }
        text.push_str(&self.below);
        text.truncate(text.trim_end().len());
        text
    }
}
