//! Compacts sessions of a chat in the background: the first consumer of the kernel, as a plugin would be
//! written. Run it with `cargo run --example compaction`.
//!
//! A session has grown long, and a provider is to summarise it. That takes a while, so the action that asks
//! for it answers at once, and what it started
//!
//! - keeps other work off the session, by an *operation* with the session's exclusivity key;
//! - is found again by later actions as a *process*: for its progress, or to cancel it;
//! - changes the session only by a *commit*, which is refused once its application was closed or replaced,
//!   and which checks that the session still is what was summarised.
//!
//! `plugin.rs` has the actions and `process.rs` the process: these two are what a plugin author writes.
//! `session.rs`, `client.rs` and `stand_in.rs` are the world around them. Nothing here sleeps: the provider
//! is a server on this machine that answers when a scene says so.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "compaction/client.rs"]
mod client;
#[path = "compaction/plugin.rs"]
mod plugin;
#[path = "compaction/process.rs"]
mod process;
#[path = "compaction/session.rs"]
mod session;
#[path = "compaction/stand_in.rs"]
mod stand_in;

use std::fmt::Display;
use std::sync::Arc;

use tenure::actors::{
    Application, ApplicationSpec, BoxError, EventKind, Heard, OperationFilter, OperationRequest,
    ProcessHandle, ReserveError, Subscription,
};
use tokio::sync::mpsc;

use crate::plugin::Plugin;
use crate::process::{CompactionProcess, OnClose, Phase};
use crate::session::Session;
use crate::stand_in::{Call, StandIn};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut stage = Stage::open().await?;
    a_compaction_succeeds(&mut stage).await?;
    others_find_the_session_busy(&mut stage).await?;
    a_later_action_cancels(&mut stage).await?;
    somebody_else_writes_meanwhile(&mut stage).await?;
    the_application_is_replaced(&mut stage).await?;
    the_provider_fails(&mut stage).await?;
    the_application_closes(stage).await
}

async fn a_compaction_succeeds(stage: &mut Stage) -> Result<(), BoxError> {
    scene("a", "a compaction succeeds");
    stage.show_session();
    let running = stage.compact("compact:trip:1").await?;
    let call = stage.next_call().await?;
    stage.status("compact:trip:1");

    let half = call.answer_half("summary: a trip to Bergen in May").await?;
    let process = stage.plugin.find("compact:trip:1").ok_or("half answered, it runs")?;
    process.reached(|phase| matches!(phase, Phase::Receiving { .. })).await;
    stage.status("compact:trip:1");
    for process in stage.application.current().registry().list() {
        if let Some(progress) = process.progress {
            say("registry", format_args!("{} is {}, {}", process.name, process.state, progress.text));
        }
    }
    print!("{}", indented(stage.application.tree()));

    half.finish().await?;
    stage.finished(running).await?;
    stage.show_session();
    stage.ordinary_request("request:1", "user: and a hotel, please").await?;
    Ok(())
}

async fn others_find_the_session_busy(stage: &mut Stage) -> Result<(), BoxError> {
    scene("b", "others find the session busy");
    let running = stage.compact("compact:trip:2").await?;
    let call = stage.next_call().await?;
    stage.compact_refused("compact:trip:3").await?;
    stage.ordinary_request("request:2", "user: make it June").await?;

    call.answer("summary: a trip to Bergen in May, with a hotel").await?;
    stage.finished(running).await?;
    assert!(stage.provider.is_idle(), "whoever found the session busy has asked the provider nothing");
    say("provider", "was asked nothing else");
    Ok(())
}

async fn a_later_action_cancels(stage: &mut Stage) -> Result<(), BoxError> {
    scene("c", "a later action cancels");
    let running = stage.compact("compact:trip:4").await?;
    let call = stage.next_call().await?;
    stage.cancel("compact:trip:4");
    call.hung_up().await;
    say("provider", "its caller hung up");
    stage.finished(running).await?;
    stage.cancel("compact:trip:4");
    stage.show_session();
    Ok(())
}

async fn somebody_else_writes_meanwhile(stage: &mut Stage) -> Result<(), BoxError> {
    scene("d", "somebody writes to the session without asking for admission");
    let running = stage.compact("compact:trip:5").await?;
    let call = stage.next_call().await?;
    stage.session.append("import: flight SK 4173");
    say("writer", "adds a message");
    call.answer("summary: Bergen, May, hotel").await?;
    stage.finished(running).await?;
    stage.show_session();

    let running = stage.compact("compact:trip:6").await?;
    let call = stage.next_call().await?;
    stage.session.rewrite("import: the trip was called off");
    say("writer", "rewrites a message");
    call.answer("summary: Bergen, May, hotel, flight SK 4173").await?;
    stage.finished(running).await?;
    stage.show_session();
    Ok(())
}

async fn the_application_is_replaced(stage: &mut Stage) -> Result<(), BoxError> {
    scene("e", "the application is replaced while a call cannot be interrupted");
    let mut events = stage.application.events();
    let id = "compact:trip:7";
    let answer = stage.plugin.compact(id, &stage.session, OnClose::LetItEnd).await?;
    say("action", format_args!("start {id} -> {answer}"));
    let old = stage.lookup(id)?;
    let late = old.object::<CompactionProcess>().ok_or("it is an object of this type")?;
    let old_call = stage.next_call().await?;

    let application = stage.application.clone();
    let in_the_next_generation = async {
        let next = application.after(old.epoch()).await.ok_or("there is a next generation")?;
        say("host", format_args!("epoch {} is over, epoch {} is open", old.epoch(), next.epoch()));
        say("process", format_args!("of epoch {}: {}, its call goes on", old.epoch(), old.ended().await));
        let running = stage.compact(id).await?;
        let call = stage.next_call().await?;
        old_call.answer("summary: too late").await?;
        Ok::<_, BoxError>((running, call))
    };
    let (report, next) = tokio::join!(application.replace(), in_the_next_generation);
    let (running, call) = next?;
    say("process", format_args!("of epoch {}: {}", old.epoch(), late.snapshot()));
    say("journal", refused_commit(&mut events).ok_or("a refusal is an event")?);
    say("report", report?);
    stage.show_session();

    call.answer("summary: the trip was called off").await?;
    stage.finished(running).await?;
    stage.show_session();
    Ok(())
}

async fn the_provider_fails(stage: &mut Stage) -> Result<(), BoxError> {
    scene("f", "the provider fails");
    let running = stage.compact("compact:trip:8").await?;
    let call = stage.next_call().await?;
    call.refuse("503 Service Unavailable", "come back later").await?;
    stage.finished(running).await?;
    stage.ordinary_request("request:3", "user: what about Oslo?").await?;
    stage.show_session();
    Ok(())
}

async fn the_application_closes(mut stage: Stage) -> Result<(), BoxError> {
    scene("g", "the application closes");
    stage.compact("compact:trip:9").await?;
    let call = stage.next_call().await?;
    let (report, ()) = tokio::join!(stage.application.close(), call.hung_up());
    say("provider", "its caller hung up");
    let report = report?;
    say("report", &report);
    say("report", report.imbalance().unwrap_or_else(|| "it balances".to_owned()));
    stage.show_session();
    stage.provider.close().await
}

// --- the stage --------------------------------------------------------------------------------------------

/// A host with one session, its user and its provider.
struct Stage {
    application: Application,
    plugin: Plugin,
    session: Arc<Session>,
    provider: StandIn,
    notices: mpsc::UnboundedReceiver<String>,
}

/// What one compaction is made of.
struct Running([ProcessHandle; 2]);

impl Stage {
    async fn open() -> Result<Self, BoxError> {
        let application = Application::open(ApplicationSpec::default()).await?;
        let provider = StandIn::open().await?;
        let (sender, notices) = mpsc::unbounded_channel();
        let plugin = Plugin { application: application.clone(), provider: provider.address, notices: sender };
        let messages = ["user: I want to travel", "assistant: where to, and when?", "user: Bergen, in May"];
        let session = Arc::new(Session::new("trip", &messages)?);
        Ok(Self { application, plugin, session, provider, notices })
    }

    async fn compact(&self, id: &str) -> Result<Running, BoxError> {
        let answer = self.plugin.compact(id, &self.session, OnClose::HangUp).await?;
        say("action", format_args!("start {id} -> {answer}"));
        Ok(Running([self.lookup(id)?, self.lookup(&format!("{id}:worker"))?]))
    }

    fn lookup(&self, id: &str) -> Result<ProcessHandle, BoxError> {
        let process = self.application.current().registry().lookup(id);
        process.ok_or_else(|| format!("{id} does not run, although nobody has answered it").into())
    }

    async fn compact_refused(&self, id: &str) -> Result<(), BoxError> {
        let answer = self.plugin.compact(id, &self.session, OnClose::HangUp).await?;
        say("action", format_args!("start {id} -> {answer}"));
        Ok(())
    }

    /// What the host does when its user writes: the same admission, and no process, since it is over at once.
    async fn ordinary_request(&self, id: &str, message: &str) -> Result<(), BoxError> {
        let request = OperationRequest::new(id, "requests")?.on_session(&self.session.id)?;
        match self.application.current().operations().reserve(request).await {
            Ok(_lease) => {
                self.session.append(message);
                say("action", format_args!("{id} -> done"));
            }
            Err(ReserveError::Busy(blocking)) => {
                say("action", format_args!("{id} -> session busy, {blocking} is active"));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn status(&self, id: &str) {
        say("action", format_args!("status {id} -> {}", self.plugin.status(id)));
    }

    fn cancel(&self, id: &str) {
        say("action", format_args!("cancel {id} -> {}", self.plugin.cancel(id, "the user")));
    }

    async fn next_call(&mut self) -> Result<Call, BoxError> {
        let call = self.provider.next_call().await?;
        say("provider", format_args!("call {}: {}", call.number, call.request));
        Ok(call)
    }

    /// Waits for the notice of a compaction and for its end, after which its id and its session are free.
    async fn finished(&mut self, running: Running) -> Result<(), BoxError> {
        say("notice", self.notices.recv().await.ok_or("the plugin holds the sender")?);
        for process in running.0 {
            process.ended().await;
        }
        let active = self.application.current().operations().list(&OperationFilter::default()).len();
        let processes = self.application.current().registry().count();
        say("host", format_args!("operations {active}, processes {processes}"));
        Ok(())
    }

    fn show_session(&self) {
        say("session", &self.session);
    }
}

/// The refusal of a commit, as the journal tells it.
fn refused_commit(events: &mut Subscription) -> Option<String> {
    while let Some(heard) = events.try_next() {
        if let Heard::Event(event) = heard
            && let EventKind::DroppedLate { .. } = event.kind
        {
            return Some(format!("{} {}", event.kind.verb(), event.kind));
        }
    }
    None
}

fn scene(letter: &str, title: &str) {
    println!("\n({letter}) {title}\n");
}

fn say(who: &str, what: impl Display) {
    println!("    {who:<9} {what}");
}

fn indented(text: impl Display) -> String {
    text.to_string().lines().map(|line| format!("              {line}\n")).collect()
}
