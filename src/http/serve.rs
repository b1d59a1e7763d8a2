//! Connections: as many as allowed, each within its time, until the interface is shut down.
//!
//! HTTP/1.1 alone: what stands before a service of this kind speaks it, and streams take one connection each, whose
//! memory is bounded.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, interval, sleep, timeout};

use super::stream::closed;
use super::{Api, late};

/// The most that is buffered of a connection each way; also the longest head of a request.
const BUFFER: usize = 16 << 10;

/// How often what was counted is folded.
const UPKEEP: Duration = Duration::from_secs(5);

/// How many open files are left to the store and to the runs.
const FILES_OF_OTHERS: usize = 256;

/// How often it is told that connections are refused.
const BETWEEN_WORDS: Duration = Duration::from_secs(60);

/// How long nobody is accepted after the system refused.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

impl Api {
    /// Serves the interface until `shutdown` completes. Streams and waits are then told so and end, connections
    /// that nothing is in progress on are closed, answers in progress may end within the close timeout.
    ///
    /// A host that is shut down fires `shutdown` after [`Tenure::shutdown`](crate::Tenure::shutdown): its callers see
    /// how its runs end, and that it takes no new ones.
    ///
    /// # Errors
    /// When the listener cannot say where it listens, or listens to other machines and no token is set.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        self.may_listen_at(listener.local_addr()?)?;
        let router = self.router();
        let mut connections = JoinSet::new();
        let mut refused = Refused::default();
        let mut upkeep = interval(UPKEEP);
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = upkeep.tick() => self.metrics().upkeep(),
                Some(_ended) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Err(most) = self.accept(&mut connections, stream, &router) {
                            refused.tell(most);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no connection was accepted");
                        sleep(AFTER_FAILURE).await;
                    }
                },
            }
        }
        drop(listener);
        self.close();
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(self.options().close_timeout, all).await.is_err() {
            tracing::warn!(left = connections.len(), "answers in progress were cut off");
        }
        Ok(())
    }

    fn may_listen_at(&self, address: SocketAddr) -> io::Result<()> {
        if address.ip().to_canonical().is_loopback() || self.options().token.is_some() {
            return Ok(());
        }
        let message = format!(
            "{address} is reached from other machines, and no token is set: set one, or listen on 127.0.0.1"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    /// Serves a connection; if there are too many, answers how many may be open.
    fn accept(&self, connections: &mut JoinSet<()>, stream: TcpStream, router: &Router) -> Result<(), usize> {
        let options = self.options();
        let most = options.max_connections.min(room_for_connections());
        let place = self.connections().enter(most).ok_or(most)?;
        let _not_delayed = stream.set_nodelay(true);
        let io = TokioIo::new(Patient::new(stream, options.write_timeout));
        let service = TowerToHyperService::new(router.clone());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(options.header_timeout).max_buf_size(BUFFER);
        let connection = builder.serve_connection(io, service);
        let talk = talk(connection, self.closing(), options.header_timeout);
        connections.spawn(async move {
            talk.await;
            drop(place);
        });
        Ok(())
    }
}

/// How many connections the limit of open files leaves room for: the store and the runs need theirs.
fn room_for_connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = limit.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(FILES_OF_OTHERS).max(files / 2)
}

/// Connections that were refused: told now and then, however many there are.
#[derive(Default)]
struct Refused {
    count: u64,
    told: Option<Instant>,
}

impl Refused {
    fn tell(&mut self, most: usize) {
        self.count += 1;
        if self.told.is_some_and(|told| told.elapsed() < BETWEEN_WORDS) {
            return;
        }
        tracing::warn!(most, refused = self.count, "connections are refused: there are too many");
        *self = Self { count: 0, told: Some(Instant::now()) };
    }
}

type Connection = http1::Connection<TokioIo<Patient>, TowerToHyperService<Router>>;

async fn talk(connection: Connection, mut closing: watch::Receiver<bool>, header_timeout: Duration) {
    let mut connection = Box::pin(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    let Err(error) = ended else { return };
    tracing::debug!(%error, "a connection broke off");
    let parts = Pin::into_inner(connection).into_parts();
    let stream = parts.io.into_inner();
    // What is said to who has not taken the answer before it would be taken for a part of that one.
    if error.is_timeout() && stream.since.is_none() {
        drop(late::answer(stream, &parts.read_buf, header_timeout).await);
    }
}

/// A connection whose other end must take what it is sent.
struct Patient {
    stream: TcpStream,
    limit: Duration,
    /// Runs while nothing is taken.
    since: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, since: None }
    }

    /// What became of a write; an error once nothing was taken for too long.
    fn within<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let limit = self.limit;
        let since =
            self.since.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(since.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller took nothing for too long")))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.within(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_of_what_it_is_sent_is_let_go_after_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taker = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let limit = Duration::from_secs(60);
        let mut sender = Patient::new(stream, limit);
        let begun = Instant::now();
        // More than the buffers on the way hold.
        let ended = sender.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= limit, "not before its time");
        drop(taker);
    }
}
