//! Server-sent events: bytes in, the data of events out. Nothing without end is kept.

/// The longest line, and the longest data of one event.
const MOST_BYTES: usize = 1024 * 1024;

/// An event or a line is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a stream into events.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    /// The line before ended with a carriage return: a line feed after it belongs to it.
    after_return: bool,
    data: Option<String>,
}

impl Events {
    /// The data of the events that end in these bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut found = Vec::new();
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let belongs = std::mem::take(&mut self.after_return) && text.is_empty() && end == Some(b'\n');
            if belongs {
                continue;
            }
            if self.line.len() + text.len() > MOST_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(text);
            if let Some(end) = end {
                self.after_return = end == b'\r';
                let line = std::mem::take(&mut self.line);
                found.extend(self.take_line(&String::from_utf8_lossy(&line))?);
            }
        }
        Ok(found)
    }

    fn take_line(&mut self, line: &str) -> Result<Option<String>, TooLong> {
        if line.is_empty() {
            return Ok(self.data.take());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        // Names, ids and delays of events mean nothing here.
        if field == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) if data.len() + value.len() >= MOST_BYTES => return Err(TooLong),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_with_an_empty_line_wherever_the_bytes_are_cut() {
        let stream = ": comment\r\nevent: x\r\ndata: one\r\n\r\ndata:two\ndata:  three\n\nid: 1\n\ndata\r\rdata: é\n\n";
        let expected = ["one", "two\n three", "", "é"];
        let bytes = stream.as_bytes();
        for cut in 0..=bytes.len() {
            let mut events = Events::default();
            let mut found = events.feed(&bytes[..cut]).unwrap();
            found.extend(events.feed(&bytes[cut..]).unwrap());
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_not_ended_is_no_event() {
        let mut events = Events::default();
        assert_eq!(events.feed(b"data: half").unwrap(), Vec::<String>::new());
        assert_eq!(events.feed(b" an event\n").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn nothing_without_end_is_kept() {
        let mut events = Events::default();
        let line = vec![b'x'; MOST_BYTES / 4];
        assert!((0..4).all(|_| events.feed(&line).is_ok()));
        assert_eq!(events.feed(b"x"), Err(TooLong));
        let mut events = Events::default();
        let line = format!("data: {}\n", "x".repeat(MOST_BYTES / 2 - 10));
        assert!(events.feed(line.as_bytes()).is_ok());
        assert!(events.feed(line.as_bytes()).is_ok());
        assert_eq!(events.feed(line.as_bytes()), Err(TooLong));
    }
}
