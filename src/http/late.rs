//! A head that does not arrive in time is answered as a body is that does not: by a problem document.
//!
//! hyper answers nothing then, and gives back the connection with what has come of the head. Where nothing has come
//! nobody asked for anything: a connection that is kept open is closed without a word.

use std::io;
use std::time::Duration;

use axum::http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::body::LONGEST_LINGER;
use super::problem::{Kind, MEDIA_TYPE, Problem};

/// Answers the caller that has sent no more than `begun` of a head within `limit`, and closes the connection.
///
/// Errors and cancel safety: the caller is cut off then, as it would be without an answer.
pub(super) async fn answer<S>(mut stream: S, begun: &[u8], limit: Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Empty lines before a request are none (RFC 9112, section 2.2).
    let begun = begun.trim_ascii_start();
    if begun.is_empty() {
        return Ok(());
    }
    let problem = Problem::new(Kind::Slow, format!("the head did not arrive within {limit:?}"));
    let document = problem.document(&path(begun));
    let head = format!(
        "HTTP/1.1 408 Request Timeout\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        document.len()
    );
    stream.write_all(&[head.as_bytes(), &document].concat()).await?;
    stream.shutdown().await?;
    // Who is cut off while it sends may never see the answer.
    drop(timeout(LONGEST_LINGER, heard_out(stream)).await);
    Ok(())
}

async fn heard_out<S: AsyncRead + Unpin>(mut stream: S) {
    let mut taken = [0; 1024];
    while stream.read(&mut taken).await.is_ok_and(|bytes| bytes > 0) {}
}

/// The path that was asked for, if that much has come.
fn path(begun: &[u8]) -> String {
    let words: Vec<&[u8]> = begun.splitn(3, |byte| *byte == b' ').collect();
    let target = match words.as_slice() {
        [_method, target, _rest] => Uri::try_from(*target).ok(),
        _ => None,
    };
    target.as_ref().map_or("/", Uri::path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_told_as_far_as_it_is_known() {
        for (begun, told) in [
            ("GET /background/tasks HTT", "/background/tasks"),
            ("GET /background/runs?limit=7 ", "/background/runs"),
            ("GET http://localhost/healthz HTTP/1.1\r\nhost", "/healthz"),
            ("GET /background/ta", "/"),
            ("GE", "/"),
            ("\u{16}\u{3}\u{1} \u{7f} ", "/"),
        ] {
            assert_eq!(path(begun.as_bytes()), told, "{begun:?}");
        }
    }
}
