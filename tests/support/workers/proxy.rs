//! What stands between a worker and its server, on the loopback: it loses, cuts and delays what passes it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::dice::Dice;

/// What is done to a piece of what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Trick {
    /// A request never arrives, and its connection ends.
    LoseRequest,
    /// A request arrives, its answer does not, and its connection ends: it may have been applied.
    LoseReply,
    /// Half of a request arrives.
    CutRequest,
    /// Half of an answer arrives.
    CutReply,
    /// It arrives late.
    Delay,
    /// Nothing arrives on this connection any more, and nobody is told so.
    Silence,
}

impl Trick {
    pub(crate) const ALL: [Self; 6] =
        [Self::LoseRequest, Self::LoseReply, Self::CutRequest, Self::CutReply, Self::Delay, Self::Silence];

    fn meets(self, way: Way) -> bool {
        match self {
            Self::LoseRequest | Self::CutRequest => way == Way::There,
            Self::LoseReply | Self::CutReply => way == Way::Back,
            Self::Delay | Self::Silence => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

/// How it is.
enum Mood {
    /// Everything passes.
    Fair,
    /// So many more pieces pass; then nothing does any more, and this is told.
    Freezes { after: usize, tell: Box<dyn FnMut() + Send> },
    /// Nothing passes; and nothing ever will on a connection on which something did not, as of a peer that is gone.
    Frozen,
    /// One piece of so many meets a trick.
    Foul { one_in: usize },
}

struct State {
    mood: Mood,
    dice: Dice,
    done: BTreeMap<Trick, usize>,
}

/// What becomes of a piece.
enum Fate {
    Passes,
    IsLate(Duration),
    IsLost,
    IsHalved,
    IsSwallowed,
}

/// The proxy. It ends with this value, and with it every connection.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
    _life: oneshot::Sender<()>,
}

impl Proxy {
    /// Stands before the server with this port.
    pub(crate) fn before(server: u16, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let state = State { mood: Mood::Fair, dice: Dice(seed), done: BTreeMap::new() };
        let state = Arc::new(Mutex::new(state));
        let (life, end) = oneshot::channel();
        let shared = Arc::clone(&state);
        // A runtime of its own: a test that waits for a server does not keep it from what it does.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    () = serve(listener, server, shared) => {}
                    _ = end => {}
                }
            });
        });
        Self { port, state, _life: life }
    }

    /// From now on so many pieces pass, and then nothing; that is told once.
    pub(crate) fn freeze(&self, after: usize, tell: impl FnMut() + Send + 'static) {
        self.state.lock().mood = Mood::Freezes { after, tell: Box::new(tell) };
    }

    pub(crate) fn fair(&self) {
        self.state.lock().mood = Mood::Fair;
    }

    /// From now on one piece of so many meets a trick.
    pub(crate) fn foul(&self, one_in: usize) {
        self.state.lock().mood = Mood::Foul { one_in };
    }

    /// How often each trick was done.
    pub(crate) fn done(&self) -> BTreeMap<Trick, usize> {
        self.state.lock().done.clone()
    }
}

impl State {
    fn fate(&mut self, way: Way, silent: &AtomicBool) -> Fate {
        if silent.load(Ordering::Relaxed) {
            return Fate::IsSwallowed;
        }
        match &mut self.mood {
            Mood::Fair => Fate::Passes,
            Mood::Frozen => {
                silent.store(true, Ordering::Relaxed);
                Fate::IsSwallowed
            }
            Mood::Freezes { after: 0, tell } => {
                tell();
                self.mood = Mood::Frozen;
                silent.store(true, Ordering::Relaxed);
                Fate::IsSwallowed
            }
            Mood::Freezes { after, .. } => {
                *after -= 1;
                Fate::Passes
            }
            Mood::Foul { one_in } => {
                let one_in = *one_in;
                if self.dice.below(one_in) > 0 { Fate::Passes } else { self.trick(way, silent) }
            }
        }
    }

    fn trick(&mut self, way: Way, silent: &AtomicBool) -> Fate {
        let tricks: Vec<Trick> = Trick::ALL.into_iter().filter(|trick| trick.meets(way)).collect();
        let trick = tricks[self.dice.below(tricks.len())];
        *self.done.entry(trick).or_default() += 1;
        match trick {
            Trick::LoseRequest | Trick::LoseReply => Fate::IsLost,
            Trick::CutRequest | Trick::CutReply => Fate::IsHalved,
            Trick::Delay => Fate::IsLate(Duration::from_millis(20 + self.dice.below(300) as u64)),
            Trick::Silence => {
                silent.store(true, Ordering::Relaxed);
                Fate::IsSwallowed
            }
        }
    }
}

async fn serve(listener: TcpListener, server: u16, state: Arc<Mutex<State>>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(pass(client, server, Arc::clone(&state)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Passes on what two say to each other, until one of them ends it or a trick does.
async fn pass(client: TcpStream, server: u16, state: Arc<Mutex<State>>) {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
    // A server that is away is away for the client, too.
    let Ok(server) = TcpStream::connect(server).await else { return };
    if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let silent = AtomicBool::new(false);
    // However it ended, both ends see that.
    tokio::select! {
        _ = relay(from_client, to_server, Way::There, &state, &silent) => {}
        _ = relay(from_server, to_client, Way::Back, &state, &silent) => {}
    }
}

async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    state: &Mutex<State>,
    silent: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let piece = &buffer[..length];
        let fate = state.lock().fate(way, silent);
        match fate {
            Fate::Passes => to.write_all(piece).await?,
            Fate::IsLate(by) => {
                let _late = timeout(by, std::future::pending::<()>()).await;
                to.write_all(piece).await?;
            }
            Fate::IsLost => return Ok(()),
            Fate::IsHalved => return to.write_all(&piece[..length / 2]).await,
            Fate::IsSwallowed => {}
        }
    }
}
