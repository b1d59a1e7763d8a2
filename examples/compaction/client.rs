//! The provider's client: one HTTP/1.1 call, as small as it can be.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The longest body that either side takes.
const MOST_BYTES: usize = 64 * 1024;

/// The first line of a request or a response, and how many bytes of body follow its head.
pub(crate) struct Head {
    pub(crate) first_line: String,
    pub(crate) body_bytes: usize,
}

/// Asks the provider for a summary; `received` hears how many per cent of the answer are here.
///
/// Dropping the future closes the connection: that is how a call is cancelled.
pub(crate) async fn summarise(
    provider: SocketAddr,
    messages: &[String],
    received: impl FnMut(u8),
) -> io::Result<String> {
    let mut stream = BufReader::new(TcpStream::connect(provider).await?);
    let body = messages.join("\n");
    let head =
        format!("POST /compact HTTP/1.1\r\nhost: {provider}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let head = read_head(&mut stream).await?;
    let text = read_body(&mut stream, head.body_bytes, received).await?;
    match head.first_line.split_once(' ') {
        Some((_, "200 OK")) => Ok(text),
        Some((_, status)) => Err(io::Error::other(format!("the provider answered {status}: {text}"))),
        None => Err(io::Error::other("the provider does not speak HTTP")),
    }
}

pub(crate) async fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Head> {
    let mut lines = stream.take(MOST_BYTES as u64).lines();
    let first_line = lines.next_line().await?.unwrap_or_default();
    let mut body_bytes = 0;
    while let Some(line) = lines.next_line().await?.filter(|line| !line.is_empty()) {
        if let Some(length) = line.strip_prefix("content-length: ") {
            body_bytes = length.parse().map_err(io::Error::other)?;
        }
    }
    Ok(Head { first_line, body_bytes })
}

pub(crate) async fn read_body(
    stream: &mut BufReader<TcpStream>,
    bytes: usize,
    mut received: impl FnMut(u8),
) -> io::Result<String> {
    if bytes > MOST_BYTES {
        return Err(io::Error::other(format!("a body of {bytes} bytes, expected at most {MOST_BYTES}")));
    }
    let mut body = Vec::with_capacity(bytes);
    while body.len() < bytes {
        let part = stream.fill_buf().await?;
        if part.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = part.len().min(bytes - body.len());
        body.extend_from_slice(&part[..taken]);
        stream.consume(taken);
        received(u8::try_from(body.len() * 100 / bytes).unwrap_or(100));
    }
    String::from_utf8(body).map_err(io::Error::other)
}
