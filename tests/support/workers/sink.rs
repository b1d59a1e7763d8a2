//! What is outside: it takes an effect that shows the highest fence it has seen of the run, or a higher one. Of two
//! grants with one fence, which a store that lost its last writes may give out, it takes the one that came first.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use tenure::model::RunId;
use tokio::sync::mpsc::UnboundedSender;

use crate::stage::Heard;
use crate::wire::{Effect, REFUSED, TAKEN, What};

/// The most connections at once.
const MOST: usize = 256;

/// An effect, and whether it was had.
#[derive(Debug, Clone)]
pub(crate) struct Had {
    pub(crate) effect: Effect,
    pub(crate) taken: bool,
}

/// The sink: threads that serve one connection each, for as long as the stage listens.
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The highest fence that was shown, with its nonce.
    highest: HashMap<RunId, (u64, u64)>,
    log: Vec<Had>,
    /// Who is held, by run and fence.
    held: HashMap<(RunId, u64), TcpStream>,
    closed: bool,
    connections: usize,
}

impl Sink {
    pub(crate) fn open(heard: UnboundedSender<Heard>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut state = shared.lock();
                if state.closed {
                    return;
                }
                if state.connections < MOST {
                    state.connections += 1;
                    let (shared, heard) = (Arc::clone(&shared), heard.clone());
                    std::thread::spawn(move || {
                        serve(&stream, &shared, &heard);
                        shared.lock().connections -= 1;
                    });
                }
            }
        });
        Self { address, state }
    }

    /// Everything that was tried, in order.
    pub(crate) fn log(&self) -> Vec<Had> {
        self.state.lock().log.clone()
    }

    /// Lets go of who is held.
    pub(crate) fn let_go(&self, run_id: &RunId, fence: u64) {
        let held = self.state.lock().held.remove(&(run_id.clone(), fence));
        if let Some(held) = held {
            reply(&held, true);
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.state.lock().closed = true;
        // Wakes who accepts.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>, heard: &UnboundedSender<Heard>) {
    for text in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(effect) = serde_json::from_str::<Effect>(&text) else { return };
        let mut state = state.lock();
        let shown = (effect.fence, effect.nonce);
        let highest = state.highest.entry(effect.run_id.clone()).or_insert(shown);
        let taken = shown.0 > highest.0 || shown == *highest;
        if taken {
            *highest = shown;
        }
        let holds = effect.what == What::Hold;
        if holds && let Ok(stream) = stream.try_clone() {
            state.held.insert((effect.run_id.clone(), effect.fence), stream);
        }
        let had = Had { effect, taken };
        state.log.push(had.clone());
        drop(state);
        // The stage may have been left: fine.
        let _ = heard.send(Heard::Sink(had));
        if !holds {
            reply(stream, taken);
        }
    }
}

/// Who is gone needs no answer.
fn reply(mut stream: &TcpStream, taken: bool) {
    let answer = if taken { TAKEN } else { REFUSED };
    let _ = stream.write_all(format!("{answer}\n").as_bytes());
}
