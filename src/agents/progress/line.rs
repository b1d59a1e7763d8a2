//! Lines on file descriptor 3.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::cut;
use crate::model::value_of;

/// The longest line; what is longer is left out.
const MOST_BYTES: usize = 64 * 1024;

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::agents) enum Line {
    /// How far it is.
    Progress { percent: Option<u8>, message: String },
    /// A question to a person. It counts when the program then ends with 0.
    Asks { question: String, data: Value },
    /// It asks, and cannot be read; why. It must not pass for nothing: nobody would be asked.
    Unreadable(String),
}

/// What makes a line a question.
const ASKS: &str = "awaiting_approval";

/// A line in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    percent: Option<f64>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    awaiting_approval: Option<Asked>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    question: String,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

impl Line {
    /// Reads a line: `40 indexed 400 files`, `40%`, `indexing`, or a JSON object. None if it says nothing.
    pub(in crate::agents) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('{') {
            let fields: Fields = match serde_json::from_str(line) {
                Ok(fields) => fields,
                Err(error) => return line.contains(ASKS).then(|| Self::Unreadable(cut(&error.to_string()))),
            };
            return Some(match fields.awaiting_approval {
                Some(asked) => Self::asks(asked),
                None => Self::Progress {
                    percent: fields.percent.and_then(percent_of),
                    message: cut(&fields.message),
                },
            });
        }
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let number = first.strip_suffix('%').unwrap_or(first);
        // A word such as "infinity" is read as a number as well, and means itself.
        let digits = number.starts_with(|c: char| c.is_ascii_digit());
        match number.parse().ok().filter(|_| digits).and_then(percent_of) {
            Some(percent) => Some(Self::Progress { percent: Some(percent), message: cut(rest.trim()) }),
            None if line.is_empty() => None,
            None => Some(Self::Progress { percent: None, message: cut(line) }),
        }
    }

    fn asks(Asked { question, data }: Asked) -> Self {
        match data.map_or(Ok(Value::Null), |data| value_of(&data)) {
            Ok(data) => Self::Asks { question, data },
            Err(expected) => Self::Unreadable(format!("expected {expected}")),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
fn percent_of(number: f64) -> Option<u8> {
    (0.0..=100.0).contains(&number).then_some(number as u8)
}

/// Cuts what comes into lines, whatever comes.
#[derive(Default)]
pub(in crate::agents) struct LineReader {
    line: Vec<u8>,
    too_long: bool,
}

impl LineReader {
    /// The lines that end in these bytes.
    pub(in crate::agents) fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = MOST_BYTES - self.line.len();
            self.too_long |= text.len() > room;
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if text.len() < part.len() {
                lines.extend(self.end());
            }
        }
        lines
    }

    /// The last line, that nothing ended. Of one that is too long the beginning, if it asks something: it is told as
    /// what cannot be read.
    pub(in crate::agents) fn end(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let too_long = std::mem::take(&mut self.too_long);
        if line.is_empty() {
            return None;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        (!too_long || line.contains(ASKS)).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn progress(percent: impl Into<Option<u8>>, message: &str) -> Option<Line> {
        Some(Line::Progress { percent: percent.into(), message: message.to_owned() })
    }

    #[test]
    fn a_line_is_a_percentage_a_text_or_both() {
        assert_eq!(Line::parse("40 indexed 400 files"), progress(40, "indexed 400 files"));
        assert_eq!(Line::parse("  40%\tindexed \r"), progress(40, "indexed"));
        assert_eq!(Line::parse("99.9"), progress(99, ""));
        assert_eq!(Line::parse("indexing"), progress(None, "indexing"));
        assert_eq!(Line::parse("400 files"), progress(None, "400 files"), "more than all is no percentage");
        assert_eq!(Line::parse("-1 left"), progress(None, "-1 left"));
        assert_eq!(Line::parse("nan"), progress(None, "nan"));
        assert_eq!(Line::parse(" \t"), None);
    }

    #[test]
    fn a_line_may_be_json() {
        assert_eq!(Line::parse(r#"{"percent": 7.5, "message": "x"}"#), progress(7, "x"));
        assert_eq!(Line::parse(r#"{"percent": 101}"#), progress(None, ""));
        let asks =
            Line::Asks { question: "go on?".to_owned(), data: json!({ "n": 9_007_199_254_740_993_u64 }) };
        let line = r#"{"awaiting_approval": {"question": "go on?", "data": {"n": 9007199254740993}}}"#;
        assert_eq!(Line::parse(line), Some(asks));
        assert_eq!(Line::parse(r#"{"percnt": 7}"#), None);
        assert_eq!(Line::parse("{ no json"), None);
        assert_eq!(Line::parse(r#"{"percent": 7, "message": "\ud800"}"#), None, "no text can be made of it");
        assert_eq!(Line::parse(r#"{"message": "\ud83d\ude00"}"#), progress(None, "\u{1f600}"));
    }

    #[test]
    fn a_question_that_cannot_be_read_is_no_silence() {
        let lines = [
            r#"{"awaiting_approval": {}}"#,
            r#"{"awaiting_approval": {"question": "x", "dat": 1}}"#,
            r#"{"awaiting_approval": true}"#,
            r#"{"awaiting_approval": {"question": "x""#,
            "{awaiting_approval: 1}",
            r#"{"awaiting_approval": {"question": "x", "data": {"n": 123456789012345678901234567890}}}"#,
            r#"{"awaiting_approval": {"question": "half of a pair: \ud800"}}"#,
            r#"{"awaiting_approval": {"question": "x", "data": ["\udfff"]}}"#,
        ];
        for line in lines {
            assert!(matches!(Line::parse(line), Some(Line::Unreadable(_))), "{line}");
        }
        let mut reader = LineReader::default();
        let endless =
            format!("{{\"awaiting_approval\": {{\"question\": \"{}\"}}}}\n", "x".repeat(MOST_BYTES));
        let told = reader.feed(endless.as_bytes());
        assert!(matches!(Line::parse(&told[0]), Some(Line::Unreadable(_))));
        assert_eq!(reader.feed(b"70 after\n"), ["70 after"]);
    }

    #[test]
    fn lines_are_cut_wherever_the_bytes_are() {
        let mut reader = LineReader::default();
        assert_eq!(reader.feed(b"4"), Vec::<String>::new());
        assert_eq!(reader.feed(b"0 a\n50 b\n6"), ["40 a", "50 b"]);
        assert_eq!(reader.end().as_deref(), Some("6"));
        assert_eq!(reader.end(), None);
    }

    #[test]
    fn a_line_without_end_is_left_out_and_fills_nothing() {
        let mut reader = LineReader::default();
        for _ in 0..1000 {
            assert_eq!(reader.feed(&[b'x'; 1024]), Vec::<String>::new());
            assert!(reader.line.len() <= MOST_BYTES);
        }
        assert_eq!(reader.feed(b"x\n70 after\n"), ["70 after"]);
    }
}
