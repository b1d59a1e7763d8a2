//! Event streams (`text/event-stream`), bit by bit.

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    /// Its kind; none for the usual one.
    pub(crate) event: Option<String>,
    /// What goes on after it is asked for with this.
    pub(crate) id: Option<String>,
    /// What it says.
    pub(crate) data: String,
}

impl Message {
    /// Whether it is of this kind.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.event.as_deref() == Some(kind)
    }
}

/// The largest event that is read, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// Reads a stream from pieces that are cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    after_return: bool,
    message: Message,
    has_data: bool,
}

impl Parser {
    /// The events that these bytes end.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Message>, &'static str> {
        let mut ended = Vec::new();
        for &byte in bytes {
            // A line ends with a return, a line feed, or both.
            let second = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            match byte {
                _ if second => {}
                b'\r' | b'\n' => ended.extend(self.line_ended()),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.message.data.len() > MOST_BYTES {
                return Err("the stream has an event that is too long to be read");
            }
        }
        Ok(ended)
    }

    fn line_ended(&mut self) -> Option<Message> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return std::mem::take(&mut self.has_data).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.has_data = true;
                self.message.data.push_str(value);
            }
            "event" => self.message.event = Some(value.to_owned()),
            "id" => self.message.id = Some(value.to_owned()),
            // A comment keeps the connection alive; other fields mean nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: hello\n\nid: 1\nevent: background_run_queued\ndata: {\"a\":\n\
                          data: \"\u{1F980}\"}\n\n: alive\r\n\r\nid:2\r\ndata:x\r\rdata\n\nretry: 5\n\ndata: cut off";

    fn read(size: usize) -> Vec<Message> {
        let mut parser = Parser::default();
        STREAM.as_bytes().chunks(size).flat_map(|piece| parser.feed(piece).unwrap()).collect()
    }

    #[test]
    fn a_stream_is_read_the_same_however_it_is_cut() {
        let message = |id: Option<&str>, event: Option<&str>, data: &str| Message {
            event: event.map(str::to_owned),
            id: id.map(str::to_owned),
            data: data.to_owned(),
        };
        let expected = vec![
            message(Some("1"), Some("background_run_queued"), "{\"a\":\n\"\u{1F980}\"}"),
            message(Some("2"), None, "x"),
            message(None, None, ""),
        ];
        for size in 1..=STREAM.len() {
            assert_eq!(read(size), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..32).find_map(|_| parser.feed(&piece).err());
        assert_eq!(refused, Some("the stream has an event that is too long to be read"));
    }
}
