//! How a program tells how far it is: by a line on file descriptor 3, or by `tenure progress`, which finds its run by
//! an address and a token in its environment.
//!
//! The token is drawn for one attempt and forgotten with it. What is told passes the authority of that attempt, so
//! that a program which outlives it is refused.

mod line;
mod server;

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

pub(super) use line::{Line, LineReader};
pub(super) use server::{Server, Ticket};

/// The variable that holds the address.
pub const ADDRESS_VARIABLE: &str = "TENURE_PROGRESS";
/// The variable that holds the token.
pub const TOKEN_VARIABLE: &str = "TENURE_PROGRESS_TOKEN";

/// What an address begins with; the path of a socket follows.
const SCHEME: &str = "unix:";
/// The longest that is waited for either side.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line, in either direction.
const MOST_BYTES: u64 = 16 * 1024;
/// How much of a text is kept.
const MOST_CHARACTERS: usize = 1000;

/// What is said over the socket, in one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    token: String,
    percent: Option<u8>,
    message: String,
}

/// What is answered, in one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answered {
    Ok,
    Refused(String),
}

/// Why progress was not told.
#[derive(Debug, thiserror::Error)]
pub enum ProgressError {
    /// The address is none.
    #[error("\"{0}\" is no address, expected \"unix:PATH\" as a command agent finds it in TENURE_PROGRESS")]
    Address(String),
    /// The host is gone, or does not answer.
    #[error("the host of this run cannot be reached: {0}; its attempt may be over")]
    Unreachable(#[from] io::Error),
    /// The attempt is over, or has lost its authority: stop.
    #[error("refused: {0}")]
    Refused(String),
}

/// Tells the host of a run how far its attempt is: what `tenure progress` does with what it finds in
/// [`ADDRESS_VARIABLE`] and [`TOKEN_VARIABLE`].
///
/// # Errors
/// [`ProgressError`]; after `Refused` nothing that this attempt does has an effect any more.
pub async fn tell(
    address: &str,
    token: &str,
    percent: Option<u8>,
    message: &str,
) -> Result<(), ProgressError> {
    let path = address.strip_prefix(SCHEME).filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| ProgressError::Address(address.chars().take(100).collect()))?;
    let told = Told { token: token.to_owned(), percent, message: cut(message) };
    let answered = timeout(PATIENCE, ask(Path::new(path), &told)).await;
    match answered.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
        Answered::Ok => Ok(()),
        Answered::Refused(reason) => Err(ProgressError::Refused(reason)),
    }
}

async fn ask(path: &Path, told: &Told) -> io::Result<Answered> {
    let mut stream = UnixStream::connect(path).await?;
    write_line(&mut stream, told).await?;
    read_line(stream).await
}

async fn write_line(stream: &mut UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// A line that is longer is none.
async fn read_line<T: serde::de::DeserializeOwned>(
    stream: impl tokio::io::AsyncRead + Unpin,
) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream).take(MOST_BYTES).read_until(b'\n', &mut line).await?;
    Ok(serde_json::from_slice(&line)?)
}

/// As much of a text as is kept.
fn cut(message: &str) -> String {
    message.chars().take(MOST_CHARACTERS).collect()
}
