//! The lease protocol, checked over every interleaving of a small world: two owners, one canceller, a clock that may
//! jump. What decides are the rules themselves; what is modelled is around them: that a decision is made on a
//! snapshot and applied later, if what it was made on still stands. What is about sessions, I9 to I11, has a world of
//! its own beside it (`lease_model/sessions.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "lease_model/acts.rs"]
mod acts;
#[path = "lease_model/sessions.rs"]
mod sessions;
#[path = "lease_model/stage.rs"]
mod stage;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use stateright::{Checker, Model, Property};
use tenure::model::{
    AgentId, CancelMode, InstanceId, Limits, OverlapPolicy, Payload, RetryPolicy, Run, RunId, RunResult,
    RunSpec, RunStatus, TaskId, Timestamp, Token, Trigger,
};
use tenure::rules::{self, Cancel, CancelRequest, Grant, Moment, Outcome};
use tenure::store::{Expect, Renewal, RunWrite};

/// One step of the clock.
const TICK: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(1);
/// How much earlier than the store an owner lets go.
const MARGIN: u8 = 1;

const LAST_TICK: u8 = 5;
/// How far the store's clock may jump, once: over a lease and its grace.
const JUMP: u8 = 4;

const A: usize = 0;
const B: usize = 1;

/// What matters of a run: enough to make it again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Record {
    status: RunStatus,
    version: u64,
    fence: u64,
    lease: Option<(usize, u64, i64)>,
    lost: Option<(u64, u64)>,
    asked: bool,
    superseded: bool,
    interruptions: u32,
    attempt: u32,
}

/// A decision that is on its way to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pending {
    first: Option<(Needs, Record)>,
    /// A second run, made in the same step.
    second: Option<Record>,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Needs {
    version: u64,
    token: Option<(u64, u64)>,
    unrenewed: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Publish,
    Lose,
    Reinstate,
    Supersede,
    Cancel,
}

/// An owner, as it sees itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Owner {
    token: Option<(u64, u64)>,
    /// Which run: the first or the second.
    run: usize,
    /// Until when it relies on its lease, by ticks: its own clock never jumps.
    relied_until: u8,
    fenced: bool,
    pending: Option<Pending>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    ticks: u8,
    jumped: bool,
    runs: [Option<Record>; 2],
    owners: [Owner; 2],
    canceller: Option<Pending>,
    /// Fences in the order of their grants.
    granted: Vec<u64>,
    /// What must never be.
    wrong: Option<&'static str>,
    /// A publish by a token that had lost its authority was refused.
    refused_late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Tick,
    Jump,
    Renew(usize),
    Decide(usize, Kind),
    Cancel(CancelMode),
    Apply(usize),
    ApplyCancel,
    /// The answer to a decision was lost, or who made it died.
    Drop(usize),
}

static SPEC: LazyLock<Arc<RunSpec>> = LazyLock::new(|| {
    let now = Timestamp::from_ms(0);
    Arc::new(RunSpec {
        task_id: TaskId::new("owned.n.s.x").unwrap(),
        agent_id: AgentId::host(),
        query: "".into(),
        trigger: Trigger::Manual,
        queued_at: now,
        first_due_at: now,
        late_by_ms: 0,
        occurrence: None,
        idempotency: None,
        session_id: "x".into(),
        workspace_path: "x".into(),
        write_run_json: false,
        write_events_jsonl: false,
        limits: Limits::default(),
        retry_policy: RetryPolicy::default(),
        overlap_policy: OverlapPolicy::AllowParallel,
        lanes: Vec::new(),
        priority: 0,
        retry_of: None,
        override_pause: false,
        metadata: Default::default(),
    })
});

fn instance(owner: usize) -> InstanceId {
    InstanceId::from_bits(owner as u128)
}

fn run_id() -> RunId {
    RunId::new("owned.n.s.x.1.1").unwrap()
}

fn token((fence, nonce): (u64, u64)) -> Token {
    Token { fence, nonce }
}

fn begun(owner: usize, fence: u64, now: Timestamp) -> Run {
    let (run_id, spec, owner) = (run_id(), RunSpec::clone(&SPEC), instance(owner));
    let grant = Grant { run_id, spec, owner, token: token((fence, 10 + fence)), lease: LEASE };
    rules::grant(grant, Moment { now, stamp: 0 }).run
}

impl Record {
    fn of(run: &Run) -> Self {
        let lease = run
            .lease
            .map(|lease| (usize::try_from(lease.owner.bits()).unwrap(), lease.nonce, lease.expires_at.ms()));
        Self {
            status: run.status,
            version: run.version,
            fence: run.fence,
            lease,
            lost: run.lost_token.map(|token| (token.fence, token.nonce)),
            asked: run.cancel.is_some(),
            superseded: run.blocked_by.is_some(),
            interruptions: run.interruptions,
            attempt: run.attempt,
        }
    }

    fn run(&self) -> Run {
        let mut run = begun(A, 1, Timestamp::from_ms(0));
        run.status = self.status;
        run.version = self.version;
        run.fence = self.fence;
        run.lost_token = self.lost.map(token);
        run.interruptions = self.interruptions;
        run.attempt = self.attempt;
        run.blocked_by = self.superseded.then(run_id);
        run.lease = self.lease.and_then(|(owner, nonce, expires_at)| {
            let mut lease = run.lease?;
            (lease.owner, lease.nonce) = (instance(owner), nonce);
            lease.expires_at = Timestamp::from_ms(expires_at);
            Some(lease)
        });
        if self.asked {
            let moment = Moment { now: Timestamp::from_ms(0), stamp: 0 };
            if let Cancel::Write(write) =
                rules::cancel(&begun(A, 1, moment.now), &asked(CancelMode::Cooperative), moment)
            {
                run.cancel = write.run.cancel;
            }
        }
        run
    }

    fn token(&self) -> Option<(u64, u64)> {
        self.lease.map(|(_, nonce, _)| (self.fence, nonce))
    }

    /// As a store applies writes.
    fn meets(&self, needs: &Needs) -> bool {
        let known = needs.token.is_none() || needs.token == self.token();
        let renewed = needs.unrenewed.is_some() && self.lease.map(|(.., at)| at) != needs.unrenewed;
        known && self.version == needs.version && !self.status.is_terminal() && !renewed
    }
}

fn asked(mode: CancelMode) -> CancelRequest {
    CancelRequest { mode, reason: "r".into(), requested_by: "c".into(), force_after: None }
}

fn pending(write: RunWrite, second: Option<Record>, kind: Kind) -> Pending {
    let needs = match write.expect {
        Expect::Absent => None,
        Expect::At { version, token, unrenewed } => Some(Needs {
            version,
            token: token.map(|token| (token.fence, token.nonce)),
            unrenewed: unrenewed.map(Timestamp::ms),
        }),
    };
    let first = needs.map(|needs| (needs, Record::of(&write.run)));
    Pending { first, second, kind }
}

impl World {
    /// The clock of the store.
    fn moment(&self) -> Moment {
        let ticks = u32::from(self.ticks) + if self.jumped { u32::from(JUMP) } else { 0 };
        Moment { now: Timestamp::from_ms(0).plus(TICK * ticks), stamp: 1 }
    }

    fn wrong(&mut self, what: &'static str) {
        self.wrong.get_or_insert(what);
    }

    fn renew(&mut self, who: usize) -> Option<()> {
        let owner = &self.owners[who];
        let (shown, at) = (owner.token.filter(|_| !owner.fenced)?, owner.run);
        let mut run = self.runs[at].as_ref()?.run();
        match rules::renew(&mut run, token(shown), LEASE, self.moment().now) {
            Renewal::Renewed { .. } => {
                self.runs[at] = Some(Record::of(&run));
                self.owners[who].relied_until = self.ticks + 2 - MARGIN;
            }
            Renewal::Fenced { .. } | Renewal::Gone => self.owners[who].fenced = true,
        }
        Some(())
    }

    /// Decides on the store as it is now; what comes of it is applied later, or never.
    fn decide(&mut self, who: usize, kind: Kind) -> Option<()> {
        let owner = &self.owners[who];
        if owner.pending.is_some() {
            return None;
        }
        let (at, moment) = (owner.run, self.moment());
        let made = match kind {
            Kind::Publish => {
                let shown = token(owner.token?);
                let done = Outcome::Completed(RunResult::Inline(Payload::text("")));
                let write = rules::finish(&self.runs[at].as_ref()?.run(), shown, done, 0, moment).ok()?;
                pending(write, None, kind)
            }
            Kind::Reinstate => {
                let shown = owner.token.filter(|_| owner.fenced)?;
                let run = self.runs[at].as_ref()?.run();
                let nonce = 100 + shown.0;
                let write = rules::reinstate(&run, token(shown), instance(who), nonce, LEASE, moment).ok()?;
                pending(write, None, kind)
            }
            Kind::Lose => {
                let run = self.runs[0].as_ref()?.run();
                pending(rules::lose(&run, run.fence, GRACE, moment)?, None, kind)
            }
            Kind::Supersede => {
                let run = self.runs[0].as_ref()?.run();
                let write = rules::supersede(&run, &run_id(), moment).ok()?;
                let second = begun(who, run.fence + 1, moment.now);
                pending(write, Some(Record::of(&second)), kind)
            }
            Kind::Cancel => return None,
        };
        self.owners[who].pending = Some(made);
        Some(())
    }

    fn apply(&mut self, who: usize, made: Pending) {
        let at = match made.kind {
            Kind::Publish | Kind::Reinstate => self.owners[who].run,
            Kind::Lose | Kind::Supersede | Kind::Cancel => 0,
        };
        let (Some(before), Some((needs, after))) = (self.runs[at].clone(), made.first) else { return };
        if !before.meets(&needs) || (made.second.is_some() && self.runs[1].is_some()) {
            self.refused_late |= made.kind == Kind::Publish && needs.token != before.token();
            return;
        }
        self.judge(&before, &after, made.kind);
        if made.kind == Kind::Reinstate {
            let owner = &mut self.owners[who];
            owner.token = after.token();
            (owner.fenced, owner.relied_until) = (false, self.ticks + 2 - MARGIN);
            self.granted.push(after.fence);
        }
        self.runs[at] = Some(after);
        if let Some(second) = made.second {
            self.granted.push(second.fence);
            let owner = &mut self.owners[who];
            (owner.token, owner.run, owner.fenced) = (second.token(), 1, false);
            owner.relied_until = self.ticks + 2 - MARGIN;
            self.runs[1] = Some(second);
        }
    }

    /// What an applied write must not do.
    fn judge(&mut self, before: &Record, after: &Record, kind: Kind) {
        let now = self.moment().now.ms();
        if before.status.is_terminal() {
            self.wrong("I4: a terminal run was changed");
        }
        if after.fence < before.fence {
            self.wrong("I2: a fence was lowered");
        }
        if kind == Kind::Lose {
            let lapsed =
                before.lease.is_some_and(|(.., at)| now >= at + i64::try_from(GRACE.as_millis()).unwrap());
            if !lapsed {
                self.wrong("I6: lost before lease and grace had passed");
            }
            if after.status == RunStatus::Lost && before.asked {
                self.wrong("X9: lost though somebody wanted it cancelled");
            }
        }
        if kind == Kind::Publish && before.token().map(|(fence, _)| fence) != self.granted_of(before) {
            self.wrong("I3: published by a superseded token");
        }
    }

    /// The fence of the last grant of a run.
    fn granted_of(&self, record: &Record) -> Option<u64> {
        self.granted.iter().copied().rfind(|fence| *fence <= record.fence)
    }

    /// Whether an owner acts without asking the store.
    fn relies(&self, who: usize) -> bool {
        let owner = &self.owners[who];
        owner.token.is_some() && !owner.fenced && self.ticks < owner.relied_until
    }
}

struct Leases;

impl Model for Leases {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let first = Record::of(&begun(A, 1, Timestamp::from_ms(0)));
        let a = Owner { token: first.token(), relied_until: 2 - MARGIN, ..Owner::default() };
        vec![World {
            ticks: 0,
            jumped: false,
            runs: [Some(first), None],
            owners: [a, Owner::default()],
            canceller: None,
            granted: vec![1],
            wrong: None,
            refused_late: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        if world.ticks < LAST_TICK {
            actions.push(Step::Tick);
        }
        if !world.jumped {
            actions.push(Step::Jump);
        }
        for who in [A, B] {
            actions.push(Step::Renew(who));
            actions.push(Step::Decide(who, Kind::Publish));
            actions.push(Step::Decide(who, Kind::Reinstate));
            if world.owners[who].pending.is_some() {
                actions.push(Step::Apply(who));
                actions.push(Step::Drop(who));
            }
        }
        actions.push(Step::Decide(B, Kind::Lose));
        actions.push(Step::Decide(B, Kind::Supersede));
        match world.canceller {
            Some(_) => actions.push(Step::ApplyCancel),
            None => actions.extend([CancelMode::Cooperative, CancelMode::Force].map(Step::Cancel)),
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Tick => world.ticks += 1,
            Step::Jump => world.jumped = true,
            Step::Renew(who) => world.renew(who)?,
            Step::Decide(who, kind) => world.decide(who, kind)?,
            Step::Apply(who) => {
                let made = world.owners[who].pending.take()?;
                world.apply(who, made);
            }
            Step::Drop(who) => {
                world.owners[who].pending.take()?;
            }
            Step::Cancel(mode) => {
                let run = world.runs[0].as_ref()?.run();
                let Cancel::Write(write) = rules::cancel(&run, &asked(mode), world.moment()) else {
                    return None;
                };
                world.canceller = Some(pending(write, None, Kind::Cancel));
            }
            Step::ApplyCancel => {
                let made = world.canceller.take()?;
                world.apply(B, made);
            }
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing wrong was applied (I2, I3, I4, I6, X9)", |_, world: &World| {
                world.wrong.is_none()
            }),
            Property::always("I1: at most one token is authoritative", |_, world: &World| {
                world.runs.iter().flatten().filter(|run| run.lease.is_some()).count() <= 1
            }),
            Property::always("I2: fences rise with every grant", |_, world: &World| {
                world.granted.is_sorted_by(|one, next| one < next)
            }),
            Property::always("I5: who runs has a lease, who has ended has none", |_, world: &World| {
                world.runs.iter().flatten().all(|run| run.lease.is_some() == run.status.is_held())
            }),
            Property::always(
                "L12: nobody relies on a lost lease unless the clock jumped",
                |_, world: &World| {
                    let lost = |who: usize| {
                        let run = world.runs[world.owners[who].run].as_ref();
                        world.relies(who) && run.is_some_and(|run| run.status == RunStatus::Lost)
                    };
                    world.jumped || !(lost(A) || lost(B))
                },
            ),
            Property::always("I8: nobody works without a grant that was stored", |_, world: &World| {
                let granted = |who: usize| {
                    world.owners[who].token.is_none_or(|(fence, _)| world.granted.contains(&fence))
                };
                granted(A) && granted(B)
            }),
            Property::always("I11: a cancel of the first run never meets the second", |_, world: &World| {
                let met = |run: &Record| run.asked || run.status == RunStatus::Cancelled;
                !world.runs[1].as_ref().is_some_and(met)
            }),
            // I7: whatever can come of it comes of it on a clock that never jumps, and on one that did.
            Property::sometimes("it completes", |_, world| steady(world, completed)),
            Property::sometimes("it completes though the clock jumped", |_, world| jumped(world, completed)),
            Property::sometimes("it is cancelled", |_, world| steady(world, cancelled)),
            Property::sometimes("it is cancelled though the clock jumped", |_, world| {
                jumped(world, cancelled)
            }),
            Property::sometimes("it is lost", |_, world| steady(world, lost)),
            Property::sometimes("it is lost though the clock jumped", |_, world| jumped(world, lost)),
            Property::sometimes("it is recovered", |_, world| steady(world, recovered)),
            Property::sometimes("it is recovered though the clock jumped", |_, world| {
                jumped(world, recovered)
            }),
            Property::sometimes("its successor completes", |_, world| steady(world, succeeded)),
            Property::sometimes("its successor completes though the clock jumped", |_, world| {
                jumped(world, succeeded)
            }),
            Property::sometimes("a late outcome is refused", |_, world: &World| world.refused_late),
            Property::sometimes(
                "an owner relies on a lease that a clock that jumped has ended",
                |_, world: &World| world.relies(A) && world.jumped && has(world, RunStatus::Lost),
            ),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.granted.len() <= 4 && world.runs.iter().flatten().all(|run| run.version <= 7)
    }
}

fn steady(world: &World, is: fn(&World) -> bool) -> bool {
    !world.jumped && is(world)
}

fn jumped(world: &World, is: fn(&World) -> bool) -> bool {
    world.jumped && is(world)
}

fn completed(world: &World) -> bool {
    has(world, RunStatus::Completed)
}

fn cancelled(world: &World) -> bool {
    has(world, RunStatus::Cancelled)
}

fn lost(world: &World) -> bool {
    has(world, RunStatus::Lost)
}

fn recovered(world: &World) -> bool {
    let first = world.runs[0].as_ref();
    first.is_some_and(|run| run.status == RunStatus::Completed && run.interruptions > 0)
}

fn succeeded(world: &World) -> bool {
    world.runs[1].as_ref().is_some_and(|run| run.status == RunStatus::Completed)
}

fn has(world: &World, status: RunStatus) -> bool {
    world.runs.iter().flatten().any(|run| run.status == status)
}

#[test]
fn own_i1_every_interleaving_of_two_owners_a_canceller_and_a_jumping_clock() {
    let checked = Leases.checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    assert!(
        checked.unique_state_count() > 10_000,
        "{} states are not much of a world",
        checked.unique_state_count()
    );
}
