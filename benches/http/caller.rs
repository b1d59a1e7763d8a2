//! A caller that costs little: it writes requests that were made before, over one connection that stays open, and
//! reads of an answer its status and its length. So what is measured is what serves.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Caller {
    stream: TcpStream,
    read: Vec<u8>,
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub(crate) fn stream(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n").into_bytes()
}

pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

impl Caller {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, read: Vec::with_capacity(16 << 10) }
    }

    /// The body of the answer, which has this status.
    pub(crate) async fn ask(&mut self, request: &[u8], expected: u16) -> &[u8] {
        let begin = self.head(request, expected).await;
        let length = header(&self.read[..begin], "content-length").and_then(|text| text.parse().ok());
        let end = begin + length.unwrap_or(0_usize);
        while self.read.len() < end {
            self.more().await;
        }
        &self.read[begin..end]
    }

    /// Opens a stream, and takes what it tells until it ends.
    pub(crate) async fn open(mut self, request: &[u8]) -> impl Future<Output = ()> + Send + 'static {
        self.head(request, 200).await;
        async move {
            let mut taken = [0; 16 << 10];
            // The host may be gone by then.
            while self.stream.read(&mut taken).await.is_ok_and(|bytes| bytes > 0) {}
        }
    }

    /// Sends a request; answers where the body of its answer begins.
    async fn head(&mut self, request: &[u8], expected: u16) -> usize {
        self.read.clear();
        self.stream.write_all(request).await.expect("sent");
        let begin = loop {
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await;
        };
        let status = std::str::from_utf8(&self.read[9..12]).ok().and_then(|text| text.parse::<u16>().ok());
        assert_eq!(status, Some(expected), "{}", String::from_utf8_lossy(&self.read));
        begin
    }

    async fn more(&mut self) {
        let bytes = self.stream.read_buf(&mut self.read).await.expect("an answer");
        assert!(bytes > 0, "the connection was closed");
    }
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(head).expect("text").lines();
    let fields = lines.filter_map(|line| line.split_once(": "));
    fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
}
