//! Ownership, as it is described. A session is named by namespace, source and session, a task by its number in it.

use utoipa::ToSchema;

use super::{CancelMode, RunStatus};

/// A session.
#[derive(ToSchema)]
pub(in crate::http) struct SessionName {
    /// Where it is hosted: a tenant, an environment.
    namespace: String,
    /// The component that starts its tasks.
    source: String,
    /// The host's own name of it; all three have at most 144 bytes together.
    session: String,
}

/// A task of a session.
#[derive(ToSchema)]
pub(in crate::http) struct TaskName {
    namespace: String,
    source: String,
    session: String,
    /// Its number in the session, from 1.
    task: u64,
}

/// A request to own a task.
#[derive(ToSchema)]
pub(in crate::http) struct Acquire {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    /// Who asks: 32 hexadecimal digits, drawn at each start of the program.
    owner: String,
    /// Drawn for this request: asked again with it, the answer is the same grant. Of at most 255 bytes.
    request_id: String,
    /// The revision of the session that was seen; 0 if there was none. Left out, it is as it stands.
    #[schema(required = false)]
    revision: Option<u64>,
    /// How long the lease is, in seconds; as the settings say, if left out. At most a day.
    #[schema(required = false)]
    ttl: Option<f64>,
    /// What must stand; `not_exists` if left out.
    #[schema(required = false)]
    expect: Option<Expected>,
    /// A lost task of the session whose place this one takes.
    #[schema(required = false)]
    supersedes: Option<u64>,
    /// The task of the session that started this one.
    #[schema(required = false)]
    parent: Option<u64>,
    /// What becomes of it when its parent is cancelled; `cancel` if left out.
    #[schema(required = false)]
    with_parent: Option<WithParent>,
    /// What makes a repeated start the same task.
    #[schema(required = false)]
    idempotency: Option<RepeatedStart>,
    /// What is to be done. At most 1 MiB.
    #[schema(required = false)]
    input: Option<String>,
    /// Who does it, for people. At most 255 bytes.
    #[schema(required = false)]
    agent: Option<String>,
    /// What it is called, for people. At most 1 KiB.
    #[schema(required = false)]
    description: Option<String>,
}

/// What must stand for a task to be had: it has never begun (`"not_exists"`), or its latest run has this number and has
/// ended (`{"terminal_run": 1}`), or is lost (`{"lost_run": 1}`).
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum Expected {
    NotExists,
    TerminalRun(u32),
    LostRun(u32),
}

/// What becomes of a task when the task that started it is cancelled: it is cancelled in the same way, asked to stop,
/// or left alone.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum WithParent {
    Cancel,
    Request,
    Abandon,
}

/// What makes a repeated start the same task.
#[derive(ToSchema)]
pub(in crate::http) struct RepeatedStart {
    /// Of the turn and the tool call.
    key: String,
    /// A digest of the input, below 2^53 where numbers have no more digits. Left out, it is made of agent and input.
    #[schema(required = false)]
    digest: Option<u64>,
}

/// A grant: what its owner shows whenever it says something of the run.
#[derive(ToSchema)]
pub(in crate::http) struct Grant {
    /// `acquired`.
    answer: String,
    namespace: String,
    source: String,
    session: String,
    task: u64,
    /// The number of the run, from 1; each continuation is the next one.
    run: u32,
    /// The token: a text that is shown as it was granted. The number before its dot is the fence.
    token: String,
}

/// What an owner holds.
#[derive(ToSchema)]
pub(in crate::http) struct HeldLease {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    run: u32,
    token: String,
}

/// Leases of one owner that are to be renewed.
#[derive(ToSchema)]
pub(in crate::http) struct Renew {
    owner: String,
    #[schema(required = false)]
    ttl: Option<f64>,
    /// At most 10,000.
    leases: Vec<HeldLease>,
}

/// A command for each lease, in the same order.
#[derive(ToSchema)]
pub(in crate::http) struct Renewals {
    answers: Vec<Renewal>,
}

/// What the owner of a lease has to do.
#[derive(ToSchema)]
pub(in crate::http) struct Renewal {
    /// `renewed`: go on. `fenced` or `gone`: stop. `unreadable`: it was not renewed, and nothing is known of it.
    answer: String,
    /// How long the lease is now, in seconds. Count it from before the request was sent.
    #[schema(required = false, nullable = false)]
    ttl_left: Option<f64>,
    /// That somebody wants it stopped.
    #[schema(required = false, nullable = false)]
    cancel: Option<WantedCancel>,
    /// The fence of the run, if that is not the token's.
    #[schema(required = false, nullable = false)]
    fence: Option<u64>,
    /// Where the run stands, if it is fenced.
    #[schema(required = false, nullable = false)]
    status: Option<RunStatus>,
    /// Why its record cannot be read.
    #[schema(required = false, nullable = false)]
    why: Option<String>,
}

/// That somebody wants a run cancelled.
#[derive(ToSchema)]
pub(in crate::http) struct WantedCancel {
    #[schema(format = DateTime)]
    requested_at: String,
    reason: String,
    requested_by: String,
    /// When it is done by force.
    #[schema(required = true, format = DateTime)]
    force_at: Option<String>,
}

/// What a run came to.
#[derive(ToSchema)]
pub(in crate::http) struct Publish {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    run: u32,
    token: String,
    outcome: OwnedOutcome,
}

/// What owned work came to.
#[derive(ToSchema)]
pub(in crate::http) struct OwnedOutcome {
    end: OwnedEnd,
    #[schema(required = false)]
    result: Option<Content>,
    /// Why it did not complete; needed if it has failed. The class `interrupted` says that it may be started again.
    #[schema(required = false)]
    error: Option<OwnedError>,
    /// The child session, from which any replica continues it.
    #[schema(required = false)]
    snapshot: Option<Content>,
}

/// How owned work ended.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum OwnedEnd {
    Completed,
    Failed,
    Cancelled,
}

/// Bytes with their media type: as text, or in base 16.
#[derive(ToSchema)]
pub(in crate::http) struct Content {
    /// `text/plain; charset=utf-8` if left out.
    #[schema(required = false, nullable = false)]
    media_type: Option<String>,
    #[schema(required = false, nullable = false)]
    text: Option<String>,
    #[schema(required = false, nullable = false)]
    hex: Option<String>,
}

/// Why owned work did not complete.
#[derive(ToSchema)]
pub(in crate::http) struct OwnedError {
    class: String,
    message: String,
    /// A broader class that it belongs to.
    #[schema(required = false, nullable = false)]
    within: Option<String>,
    /// In seconds.
    #[schema(required = false, nullable = false)]
    retry_after: Option<f64>,
}

/// A run whose lease has expired.
#[derive(ToSchema)]
pub(in crate::http) struct DeclareLost {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    run: u32,
    /// Under which it was seen.
    fence: u64,
    /// In seconds; one below that of the settings counts as that.
    #[schema(required = false)]
    grace: Option<f64>,
}

/// How a task stands, with the word of the verb.
#[derive(ToSchema)]
pub(in crate::http) struct Standing {
    /// `lost`.
    answer: String,
    state: Inspection,
}

/// A lost run, with the token that was lost.
#[derive(ToSchema)]
pub(in crate::http) struct Regrant {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    run: u32,
    token: String,
    /// Who is to own it.
    owner: String,
    #[schema(required = false)]
    ttl: Option<f64>,
}

/// A run, with the token under which it is held.
#[derive(ToSchema)]
pub(in crate::http) struct HandOver {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    run: u32,
    token: String,
    /// Who is to own it.
    to: String,
    #[schema(required = false)]
    ttl: Option<f64>,
}

/// How a task stands.
#[derive(ToSchema)]
pub(in crate::http) struct Inspection {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    /// Its latest run; 0 if there is none.
    run: u32,
    #[schema(required = false, nullable = false)]
    agent: Option<String>,
    #[schema(required = false, nullable = false)]
    description: Option<String>,
    /// Whether somebody said that they have had its outcome.
    acknowledged: bool,
    state: OwnedState,
    /// Of running and suspect: who owns it.
    #[schema(required = false, nullable = false)]
    owner: Option<String>,
    /// Of running and suspect.
    #[schema(required = false, nullable = false)]
    fence: Option<u64>,
    /// Of running: how long its lease still is, in seconds.
    #[schema(required = false, nullable = false)]
    ttl_left: Option<f64>,
    /// Of suspect: for how long it has expired, in seconds.
    #[schema(required = false, nullable = false)]
    expired_for: Option<f64>,
    #[schema(required = false, nullable = false)]
    cancel: Option<WantedCancel>,
    /// Of terminal: `completed`, `failed`, `timeout` or `cancelled`.
    #[schema(required = false, nullable = false)]
    status: Option<RunStatus>,
    #[schema(required = false, nullable = false)]
    result: Option<Content>,
    #[schema(required = false, nullable = false)]
    snapshot: Option<Content>,
    /// Where result and snapshot are if they were too large.
    #[schema(required = false, nullable = false)]
    blob: Option<Kept>,
    #[schema(required = false, nullable = false)]
    error: Option<OwnedError>,
    #[schema(required = false, nullable = false, format = DateTime)]
    finished_at: Option<String>,
    /// It was declared lost, and given back to its owner before it ended.
    #[schema(required = false, nullable = false)]
    recovered: Option<bool>,
    /// It completed though somebody had asked to cancel it.
    #[schema(required = false, nullable = false)]
    cancel_requested: Option<bool>,
    /// Of lost.
    #[schema(required = false, nullable = false)]
    last_owner: Option<String>,
    /// Of lost.
    #[schema(required = false, nullable = false, format = DateTime)]
    since: Option<String>,
    /// Of lost: the task that took its place.
    #[schema(required = false, nullable = false)]
    superseded_by: Option<u64>,
    /// Of unreadable.
    #[schema(required = false, nullable = false)]
    why: Option<String>,
}

/// `suspect`: its lease has expired, and may still be renewed. `expired`: it was, and is no longer kept. `unknown`: it
/// never began.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum OwnedState {
    Running,
    Suspect,
    Terminal,
    Lost,
    Expired,
    Unknown,
    Unreadable,
}

/// Where an outcome is that was too large to be kept with its run.
#[derive(ToSchema)]
pub(in crate::http) struct Kept {
    location: String,
    size: u64,
    preview: String,
}

/// A session with its tasks.
#[derive(ToSchema)]
pub(in crate::http) struct SessionInspection {
    namespace: String,
    source: String,
    session: String,
    /// Its revision, which a release raises; 0 if there is no such session.
    revision: u64,
    tasks: Vec<Inspection>,
    /// Tasks whose result and snapshot are not here.
    left_out: Vec<u64>,
}

/// What is to be cancelled, how insistently, and why.
#[derive(ToSchema)]
pub(in crate::http) struct OwnedCancel {
    scope: CancelledScope,
    namespace: String,
    source: String,
    session: String,
    /// Of a run or a task.
    #[schema(required = false, nullable = false)]
    task: Option<u64>,
    /// Of a run.
    #[schema(required = false, nullable = false)]
    run: Option<u32>,
    #[schema(required = false)]
    mode: Option<CancelMode>,
    #[schema(required = false)]
    reason: Option<String>,
    #[schema(required = false)]
    requested_by: Option<String>,
    /// After how many seconds it is done by force; never if left out.
    #[schema(required = false)]
    force_after: Option<f64>,
}

/// One run and no later one, the latest run of a task, or whatever runs in a session now.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum CancelledScope {
    Run,
    Task,
    Session,
}

/// How many runs were met.
#[derive(ToSchema)]
pub(in crate::http) struct Requested {
    /// `requested`.
    answer: String,
    runs: u64,
}

/// How a session is released.
#[derive(ToSchema)]
pub(in crate::http) struct ReleaseSession {
    namespace: String,
    source: String,
    session: String,
    #[schema(required = false)]
    running: Option<WhatRuns>,
    /// How many seconds what runs is waited for; 10 if left out.
    #[schema(required = false)]
    wait: Option<f64>,
}

/// What becomes of what runs: the release is refused (if nothing is said), or it is cancelled.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(in crate::http) enum WhatRuns {
    Refuse,
    Cancel,
}

/// That a session was released.
#[derive(ToSchema)]
pub(in crate::http) struct Released {
    /// `released`.
    answer: String,
    /// Its revision now; 0 if there was no such session.
    revision: u64,
    /// Runs that did not end by themselves, and have lost their authority; or cannot be read, and were not cancelled.
    still_running: u64,
}

/// The number of a task to come.
#[derive(ToSchema)]
pub(in crate::http) struct NextTask {
    task: u64,
}

/// Who has had the outcome of a run.
#[derive(ToSchema)]
pub(in crate::http) struct Acknowledge {
    namespace: String,
    source: String,
    session: String,
    task: u64,
    run: u32,
    /// 1 to 40 of letters, digits, `_`, `.` and `-`.
    consumer: String,
}

/// How long what is over is kept, in seconds. What is left out is as the settings say.
#[derive(ToSchema)]
pub(in crate::http) struct Reap {
    /// Outcomes, after they were acknowledged.
    #[schema(required = false)]
    acknowledged: Option<f64>,
    /// Outcomes that nobody acknowledged, and tasks that stay lost.
    #[schema(required = false)]
    unacknowledged: Option<f64>,
    /// Sessions after their last task is gone.
    #[schema(required = false)]
    sessions: Option<f64>,
    /// The most sessions that are looked at.
    #[schema(required = false)]
    batch: Option<u64>,
}

/// What was removed.
#[derive(ToSchema)]
pub(in crate::http) struct Reaped {
    /// Tasks that are expired now.
    tasks: u64,
    /// Those of them whose outcome nobody acknowledged.
    undelivered: u64,
    /// Lost tasks that were given up.
    given_up: u64,
    /// Sessions of which nothing is left.
    sessions: u64,
    /// Whether there are sessions that were not looked at.
    more: bool,
}

/// What every replica of a host has to agree on.
#[derive(ToSchema)]
pub(in crate::http) struct Register {
    /// What the replicas are replicas of.
    host: String,
    namespace: String,
    source: String,
    /// In seconds.
    lease: f64,
    /// In seconds.
    grace: f64,
    /// Whether it is declared anew, whatever other replicas were told. Default no.
    #[schema(required = false)]
    replace: Option<bool>,
}

/// That what was asked for is so.
#[derive(ToSchema)]
pub(in crate::http) struct VerbDone {
    /// The word of the verb.
    answer: String,
}
