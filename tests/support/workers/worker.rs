//! A worker: a host on the shared store, whose agents write to the sink of the stage.
//!
//! It ends when the stage says so, when the stage is gone, or when it is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tenure::clock::{Clock as _, SystemClock};
use tenure::model::{CancelMode, InstanceId, RunId, RunStatus};
use tenure::ownership::{Acquire, Acquired, Expected, Host, OwnershipSettings};
use tenure::rules::CancelRequest;
use tenure::{
    AgentError, AgentResult, Answer, AuthorityError, RunContext, RunRequest, Settings, StoreHealth, Tenure,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::gate::{Gate, Gated, say};
use crate::ground::Manner;
use crate::wire::{Effect, Order, REFUSED, Setup, TAKEN, Told, What, line, owned_session};

pub(crate) fn main(setup: &str) -> ExitCode {
    // Where the system has no such signal, the end of the input does the same.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let setup: Setup = serde_json::from_str(setup).expect("a setup");
    let gate = Arc::new(Gate::new(setup.windows.clone(), setup.waits_when_told));
    let (orders, received) = mpsc::unbounded_channel();
    listen(Arc::clone(&gate), orders);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(serve(setup, gate, received));
    ExitCode::SUCCESS
}

/// Words go to who waits for them at once, whatever the runtime does.
fn listen(gate: Arc<Gate>, orders: mpsc::UnboundedSender<Order>) {
    std::thread::spawn(move || {
        for order in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&order).expect("an order") {
                Order::Go { id } => gate.go(id),
                Order::Wait { at } => gate.wait_at(at),
                order => drop(orders.send(order)),
            }
        }
        std::process::exit(2);
    });
}

async fn serve(setup: Setup, gate: Arc<Gate>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let tenure = open(&setup, gate).await;
    let (instance, sink) = (tenure.instance_id(), setup.sink);
    for agent in &setup.agents {
        tenure.register_agent(agent, move |context| act(context, sink, instance)).expect("an agent");
    }
    say(&Told::Ready { instance, clock: SystemClock.now() });
    while let Some(order) = orders.recv().await {
        let tenure = tenure.clone();
        match order {
            Order::Go { .. } | Order::Wait { .. } => {}
            Order::Probe { id } => drop(tokio::spawn(async move { say(&probe(&tenure, id).await) })),
            Order::Want { id, task, query, key } => drop(tokio::spawn(async move {
                let answer = want(&tenure, task, query, key).await.map_err(|error| error.to_string());
                say(&Told::Answered { id, answer });
            })),
            Order::Own { id, task, expect, query } => drop(tokio::spawn(async move {
                let answer = own(&tenure, task, expect, query, sink).await;
                say(&Told::Answered { id, answer: answer.map_err(|error| format!("{error:?}")) });
            })),
            Order::Cancel { id, run_id } => drop(tokio::spawn(async move {
                let answer = cancel(&tenure, &run_id).await.map_err(|error| error.to_string());
                say(&Told::Answered { id, answer });
            })),
            Order::Shutdown => {
                let shutdown = tenure.shutdown().await.expect("a shutdown");
                say(&Told::Closed { interrupted: shutdown.interrupted, unstored: shutdown.unstored });
                return;
            }
        }
    }
}

async fn open(setup: &Setup, gate: Arc<Gate>) -> Tenure {
    let looks = Arc::clone(&gate);
    let manner = Manner {
        poll: Duration::from_millis(setup.poll_ms),
        patience: Duration::from_millis(setup.patience_ms),
        look: Some(Arc::new(move |between| looks.look(between))),
    };
    let store = setup.store.open(manner).await;
    let settings = Settings {
        lease: Duration::from_millis(setup.lease_ms),
        heartbeat: Some(Duration::from_millis(setup.heartbeat_ms)),
        grace: Some(Duration::from_millis(setup.grace_ms)),
        sweep: Some(Duration::from_millis(setup.heartbeat_ms)),
        poll: Duration::from_millis(setup.poll_ms),
        drain: Duration::from_millis(setup.drain_ms),
        patience: Duration::from_millis(500),
        concurrency: setup.concurrency,
        progress_every: Duration::from_millis(1),
        ..Settings::default()
    };
    let store = Arc::new(Gated { store: store.expect("a store"), gate });
    Tenure::open(store, settings).await.expect("a host")
}

async fn want(
    tenure: &Tenure,
    task: String,
    query: Option<String>,
    key: Option<String>,
) -> Result<(RunId, RunStatus), tenure::Error> {
    let request = RunRequest {
        query: query.map(Into::into),
        idempotency_key: key.map(Into::into),
        ..RunRequest::default()
    };
    let run = tenure.run_now(&task.try_into()?, request).await?;
    Ok((run.run_id, run.status))
}

/// Owns a task and begins it.
async fn own(
    tenure: &Tenure,
    task: u64,
    expect: Expected,
    query: String,
    sink: SocketAddr,
) -> Result<(RunId, RunStatus), AgentError> {
    let host = Host::new(tenure, OwnershipSettings::default());
    let key = owned_session().task(task);
    let request = Acquire { expect, input: query.into(), ..host.request(key) };
    let (told, begun) = oneshot::channel();
    let instance = host.instance_id();
    let work = move |context: RunContext| async move {
        // Who asked may not wait any more.
        let _ = told.send(context.run_id().clone());
        match act(context, sink, instance).await? {
            Answer::Done(payload) => Ok(payload.into()),
            _ => Ok("another answer".into()),
        }
    };
    match host.start(request, work).await? {
        Acquired::Acquired(_) => Ok((begun.await?, RunStatus::Running)),
        other => Err(AgentError::new("not_owned", format!("{other:?}"))),
    }
}

/// As who watches hosts asks: what it says of itself, and whether its store answers now.
async fn probe(tenure: &Tenure, id: u64) -> Told {
    let answer = tenure.probe().await.err().map(|error| error.to_string());
    let health = tenure.health();
    let failing = match health.store {
        StoreHealth::Answering => answer,
        StoreHealth::Failing { error, .. } => Some(error),
    };
    Told::Probed { id, failing, unstored: health.unstored, clock: SystemClock.now() }
}

async fn cancel(tenure: &Tenure, run_id: &RunId) -> Result<(RunId, RunStatus), tenure::Error> {
    let request = CancelRequest {
        mode: CancelMode::Cooperative,
        reason: "asked for".into(),
        requested_by: "the stage".into(),
        force_after: None,
    };
    let run = tenure.cancel_run(run_id, &request).await?;
    Ok((run.run_id, run.status))
}

// --- agents ---------------------------------------------------------------------------------------------

/// An attempt of any agent: what it does is its query.
async fn act(context: RunContext, sink: SocketAddr, instance: InstanceId) -> AgentResult {
    let effect = |what| Effect {
        run_id: context.run_id().clone(),
        fence: context.fence().fence,
        nonce: context.fence().nonce,
        attempt: context.attempt(),
        instance: Some(instance),
        what,
    };
    if context.query() == "deaf" {
        return deaf(sink, effect);
    }
    let mut world = World::reach(sink).await?;
    world.have(effect(What::Begin)).await?;
    context.progress(50, "half of it");
    match context.query() {
        "fail once" if context.attempt() == 1 => return Err(AgentError::new("exception", "the first time")),
        "fail" => return Err(AgentError::new("exception", "every time")),
        "linger" => pause(Duration::from_millis(40)).await,
        "hold" => {
            tokio::select! {
                held = world.have(effect(What::Hold)) => held?,
                () = context.cancelled() => {
                    World::reach(sink).await?.have(effect(What::Stopped)).await?;
                    return Err(AgentError::new("stopped", "it was told to stop"));
                }
            }
        }
        _ => {}
    }
    firmly(&context).await?;
    world.have(effect(What::End)).await?;
    Ok("done".into())
}

async fn pause(length: Duration) {
    let _over = tokio::time::timeout(length, std::future::pending::<()>()).await;
}

/// Asks whether the run is still its own until the store says so or not.
async fn firmly(context: &RunContext) -> Result<(), AuthorityError> {
    loop {
        match context.commit(|| ()).await {
            Err(AuthorityError::Store(error)) if error.is_transient() => {
                pause(Duration::from_millis(100)).await
            }
            answer => return answer,
        }
    }
}

/// The same, without an await: nobody can cut it off.
fn deaf(sink: SocketAddr, effect: impl Fn(What) -> Effect) -> AgentResult {
    let stream = std::net::TcpStream::connect(sink)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut have = |what| -> std::io::Result<String> {
        (&stream).write_all(line(&effect(what)).as_bytes())?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        Ok(answer)
    };
    if have(What::Begin)?.trim() != TAKEN {
        return Err(AgentError::new("refused", "somebody else has written since"));
    }
    have(What::Hold)?;
    // It does not heed what it is told: the store has to.
    let _heedless = have(What::End)?;
    Ok("done".into())
}

/// A connection to the sink.
struct World {
    answers: tokio::io::Lines<tokio::io::BufReader<OwnedReadHalf>>,
    effects: OwnedWriteHalf,
}

impl World {
    async fn reach(sink: SocketAddr) -> std::io::Result<Self> {
        let (answers, effects) = TcpStream::connect(sink).await?.into_split();
        Ok(Self { answers: tokio::io::BufReader::new(answers).lines(), effects })
    }

    async fn have(&mut self, effect: Effect) -> Result<(), AgentError> {
        self.effects.write_all(line(&effect).as_bytes()).await?;
        match self.answers.next_line().await?.as_deref() {
            Some(TAKEN) => Ok(()),
            Some(REFUSED) => Err(AgentError::new("refused", "somebody else has written since")),
            _ => Err(AgentError::new("exception", "the sink is gone")),
        }
    }
}
