//! Who owns a task: granted, renewed, lost, given back, handed over.

use std::time::Duration;

use tokio::time::Instant;

use super::answers::{
    Acquire, Acquired, DeclaredLost, Expected, Held, IdempotencyKey, Regranted, Renewed, TaskState,
};
use super::inspect::{bare, seconds};
use super::key::{SessionKey, TaskKey, numbers};
use super::record::{Mark, OwnedSpec, Parent, Policies, Session, Stored, metadata, put};
use super::{Ownership, TRIES, contended, derived, draw};
use crate::error::Error;
use crate::model::{
    AgentId, Idempotency, InstanceId, Invalid, Limits, Problem, Run, RunSpec, RunStatus, Seconds, Timestamp,
    Token, Trigger,
};
use crate::rules::{self, Grant, Moment, Moved};
use crate::store::{Decision, Refusal, RefusedKind, RenewRequest, Renewal, RunWrite, StoreError, apart};

/// The longest lease: a day.
const MOST_TTL: Seconds = Seconds::new(86_400);

const MOST_NAME_BYTES: usize = 255;
const MOST_INPUT_BYTES: usize = 1 << 20;
const MOST_DESCRIPTION_BYTES: usize = 1024;

impl Ownership {
    /// The number of the next task of a session. Numbers are given out once, also to several replicas (U4).
    ///
    /// # Errors
    /// [`Error::Store`]: a number may have been given out to nobody.
    pub async fn next_task_id(&self, key: &SessionKey) -> Result<u64, Error> {
        let _turn = self.turn(key).lock().await;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let stored = self.stored(key).await?;
            let mut session = session_of(stored.as_ref(), key, moment);
            let task = session.reserve();
            let write = put(stored.as_ref(), &session, moment.now)?;
            let decision =
                Decision { task: Some(write.task), schedule: write.schedule, ..Decision::default() };
            if self.commit(decision).await?.is_ok() {
                return Ok(task);
            }
        }
        Err(contended(key))
    }

    /// Makes the owner of a task whoever asks, if what they expect stands. Idempotent by the request id.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::Store`]: it may have been granted, ask again with the same request id (L17).
    pub async fn acquire(&self, request: &Acquire) -> Result<Acquired, Error> {
        Ok(self.acquire_run(request).await?.0)
    }

    /// [`Ownership::acquire`], with the run if it was granted, and how long its lease still was when the store was
    /// asked: a grant that was made before is not made anew.
    pub(super) async fn acquire_run(
        &self,
        request: &Acquire,
    ) -> Result<(Acquired, Option<(Run, Duration)>), Error> {
        check(request)?;
        let (key, nonce) = (&request.key.session, draw());
        self.admits(key)?;
        let _turn = self.turn(key).lock().await;
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let seen = self.look(request).await?;
            match decide(request, &seen, nonce, moment)? {
                Decided::Answer(answer) => return Ok((answer, None)),
                Decided::About(key, run) => {
                    let answer = self.taken(request, &key, &run, moment).await?;
                    let granted = matches!(answer, Acquired::Acquired(_));
                    if granted {
                        self.follow_parent(&key.session, &run).await?;
                    }
                    let left = run.lease.map(|lease| lease.expires_at.since(moment.now)).unwrap_or_default();
                    return Ok((answer, granted.then_some((*run, left))));
                }
                Decided::InTheWay(key) => {
                    return Ok((Acquired::Conflict { actual: self.inspect(&key).await? }, None));
                }
                Decided::Write(decision, held) => match self.commit_run(*decision).await? {
                    Ok(run) => {
                        if let Some(run) = &run {
                            self.follow_parent(key, run).await?;
                        }
                        return Ok((Acquired::Acquired(held), run.map(|run| (run, request.ttl.duration()))));
                    }
                    Err(refusal) => tracing::debug!(%refusal, "decided again"),
                },
            }
        }
        Err(contended(&request.key))
    }

    /// The task that an idempotency key belongs to, and whether it was begun with this input.
    pub(super) async fn begun_by(
        &self,
        key: &SessionKey,
        given: &IdempotencyKey,
    ) -> Result<Option<(TaskKey, bool)>, Error> {
        self.admits(key)?;
        let Some(run) = self.store.run_by_key(&key.id()?, &given.key).await? else { return Ok(None) };
        let same = run.spec.idempotency.as_ref().is_some_and(|begun| begun.digest == given.digest);
        Ok(numbers(run.run_id.as_str()).map(|(task, _)| (key.task(task), same)))
    }

    /// Commits a decision, and answers its first run.
    async fn commit_run(&self, decision: Decision) -> Result<Result<Option<Run>, Refusal>, Error> {
        let run = decision.runs.first().map(|write| write.run.clone());
        Ok(self.commit(decision).await?.map(|()| run))
    }

    async fn look(&self, request: &Acquire) -> Result<Seen, Error> {
        let key = &request.key.session;
        let stored = self.stored(key).await?;
        let by_key = match &request.idempotency {
            Some(idempotency) => self.store.run_by_key(&key.id()?, &idempotency.key).await?,
            None => None,
        };
        let of = |task: u64| stored.as_ref().map_or(Mark::None, |stored| stored.session.mark(task));
        let mark = of(request.key.task);
        let current = match mark {
            Mark::Run(run) => self.run(&request.key, run).await?,
            Mark::None | Mark::Expired => None,
        };
        let mut of_session = [None, None];
        for (place, task) in [request.supersedes, request.parent].into_iter().enumerate() {
            if let Some((task, Mark::Run(run))) = task.map(|task| (task, of(task))) {
                of_session[place] = self.run(&key.task(task), run).await?;
            }
        }
        let [superseded, parent] = of_session;
        Ok(Seen { stored, by_key, mark, current, superseded, parent })
    }

    /// The answer to who asks for a task that is another's, or was granted to the same request before.
    async fn taken(
        &self,
        request: &Acquire,
        key: &TaskKey,
        run: &Run,
        moment: Moment,
    ) -> Result<Acquired, Error> {
        let spec = OwnedSpec::of(run)?;
        if let (Some(token), Some(lease)) = (run.token(), run.lease.filter(|_| run.status.is_held())) {
            let again = spec.request_id == request.request_id && lease.owner == request.owner;
            if again {
                return Ok(Acquired::Acquired(Held { key: key.clone(), run: spec.run, token }));
            }
            if request.expect == Expected::NotExists {
                let ttl_left = seconds(lease.expires_at.since(moment.now));
                return Ok(Acquired::Held { key: key.clone(), owner: lease.owner, run: spec.run, ttl_left });
            }
        }
        Ok(Acquired::Conflict { actual: self.inspect(key).await? })
    }

    /// Renews leases, all in one call; each answer is a command. One of another namespace among them is answered as
    /// what does not exist, one that cannot be read as such: neither keeps the others from theirs.
    ///
    /// # Errors
    /// [`Error::NotFound`] when all of them are of another namespace; [`Error::Store`]: they may have been renewed;
    /// renewing again is harmless (L16).
    pub async fn renew(
        &self,
        owner: InstanceId,
        leases: &[Held],
        ttl: Seconds,
    ) -> Result<Vec<Renewed>, Error> {
        check_ttl(ttl)?;
        let admitted: Vec<bool> = leases.iter().map(|held| self.admits(&held.key.session).is_ok()).collect();
        if let (Some(held), false) = (leases.first(), admitted.contains(&true)) {
            self.admits(&held.key.session)?;
        }
        let mut ids = Vec::with_capacity(leases.len());
        for (held, _) in leases.iter().zip(&admitted).filter(|(_, admitted)| **admitted) {
            ids.push((held.key.run_id(held.run)?, held.token));
        }
        let ask = |leases| self.store.renew(RenewRequest { instance: owner, leases, lease: ttl.duration() });
        let mut answers = apart::each(ids, ask).await.into_iter();
        let now = self.store.now().await?;
        let mut renewed = Vec::with_capacity(leases.len());
        for admitted in admitted {
            let answer = if admitted { answers.next() } else { Some(Ok(Renewal::Gone)) };
            renewed.extend(answer.map(|answer| renewal(answer, now)).transpose()?);
        }
        Ok(renewed)
    }

    /// Declares that the owner who was seen under a fence is gone, if their lease expired for at least the grace by
    /// the store's clock and was not renewed since (I6). A grace below that of the settings counts as that.
    ///
    /// On a host ([`Ownership::of`], [`Host`](super::Host)) nobody is gone whose work this host executes, nor within a
    /// grace after the store was away or its clock jumped: then it has changed nothing, and is asked again later (L8,
    /// L23). Who has no host has seen nothing of its store before, and judges by the one lease.
    ///
    /// # Errors
    /// [`Error::Store`]: it may have been declared.
    pub async fn declare_lost(
        &self,
        key: &TaskKey,
        run: u32,
        fence: u64,
        grace: Option<Duration>,
    ) -> Result<DeclaredLost, Error> {
        self.admits(&key.session)?;
        let grace = grace.unwrap_or_default().max(self.settings.grace);
        for _ in 0..TRIES {
            let moment = self.moment_of_a_verdict().await?;
            let Some(found) = self.run(key, run).await? else {
                return Ok(DeclaredLost::Changed { state: self.inspect(key).await? });
            };
            let before = found.status == RunStatus::Lost && found.fence == fence;
            let may_be_gone = !before && self.judges(&found);
            let write = rules::lose(&found, fence, grace, moment).filter(|_| may_be_gone);
            let ended = before || write.is_some();
            if let Some(write) = write {
                let answer = self.commit(write).await;
                if let Some(host) = self.host.upgrade() {
                    host.verdicts.wrote(&answer, host.settings().grace());
                }
                if answer?.is_err() {
                    continue;
                }
            }
            // It may have been cancelled instead, or be given back by now.
            let state = self.inspect(key).await?;
            let lost = ended && matches!(state.state, TaskState::Lost { .. }) && state.run == run;
            return Ok(if lost { DeclaredLost::Lost { state } } else { DeclaredLost::Changed { state } });
        }
        Err(contended(key))
    }

    /// Now. The host hears of it: how far its store has jumped meanwhile, or that it does not answer.
    async fn moment_of_a_verdict(&self) -> Result<Moment, StoreError> {
        let (asked, moment) = (Instant::now(), self.moment().await);
        if let Some(host) = self.host.upgrade() {
            match &moment {
                Ok(moment) => host.verdicts.answered(moment.now, host.settings().grace()),
                Err(_) => host.verdicts.failed(asked),
            }
        }
        moment
    }

    /// Whether this host may take the owner of a run for gone now, if its lease says so.
    fn judges(&self, run: &Run) -> bool {
        self.host.upgrade().is_none_or(|host| {
            let knows = host.verdicts.wait().is_none() && !host.verdicts.takes_nothing();
            knows && !host.live.holds(run)
        })
    }

    /// Gives a lost run back to who proves by the lost token that it was theirs, if nobody took its place.
    /// Idempotent: the same proof of the same owner is answered the same grant.
    ///
    /// # Errors
    /// [`Error::Store`]: it may have been given back; ask again.
    pub async fn reinstate(&self, lost: &Held, owner: InstanceId, ttl: Seconds) -> Result<Regranted, Error> {
        self.regrant(lost, owner, ttl, |run, token, nonce, lease, moment| {
            rules::reinstate(run, token, owner, nonce, lease, moment)
        })
        .await
    }

    /// Gives a run that is held to another owner, at once; the token that is shown ends with it (L24).
    /// Idempotent, as [`Ownership::reinstate`].
    ///
    /// # Errors
    /// [`Error::Store`]: it may have been handed over; ask again.
    pub async fn hand_over(&self, held: &Held, to: InstanceId, ttl: Seconds) -> Result<Regranted, Error> {
        self.regrant(held, to, ttl, |run, token, nonce, lease, moment| {
            rules::hand_over(run, token, to, nonce, lease, moment)
        })
        .await
    }

    async fn regrant(
        &self,
        shown: &Held,
        to: InstanceId,
        ttl: Seconds,
        rule: impl Fn(&Run, Token, u64, Duration, Moment) -> Result<RunWrite, Moved> + Send + Sync,
    ) -> Result<Regranted, Error> {
        check_ttl(ttl)?;
        let (key, bits) = (&shown.key, to.bits());
        self.admits(&key.session)?;
        let [high, low] = [(bits >> 64) as u64, bits as u64];
        let nonce = derived([shown.token.fence, shown.token.nonce, high, low]);
        let token = Token { fence: shown.token.fence.saturating_add(1), nonce };
        let granted = || Regranted::Acquired(Held { token, ..shown.clone() });
        for _ in 0..TRIES {
            let moment = self.moment().await?;
            let Some(run) = self.run(key, shown.run).await? else {
                return Ok(Regranted::Fenced { state: self.inspect(key).await? });
            };
            if run.token() == Some(token) && run.status.is_held() {
                return Ok(granted());
            }
            match rule(&run, shown.token, nonce, ttl.duration(), moment) {
                Ok(write) => {
                    if self.commit(write).await?.is_ok() {
                        return Ok(granted());
                    }
                }
                Err(_) => return Ok(Regranted::Fenced { state: self.inspect(key).await? }),
            }
        }
        Err(contended(key))
    }
}

/// What the owner of a lease is told.
fn renewal(answer: Result<Renewal, StoreError>, now: Timestamp) -> Result<Renewed, StoreError> {
    Ok(match answer {
        Ok(Renewal::Renewed { expires_at, cancel }) => {
            Renewed::Renewed { ttl_left: seconds(expires_at.since(now)), cancel }
        }
        Ok(Renewal::Fenced { fence, status }) => Renewed::Fenced { fence, status },
        Ok(Renewal::Gone) => Renewed::Gone,
        Err(StoreError::Refused { kind: RefusedKind::Corrupt, message }) => {
            Renewed::Unreadable { why: message }
        }
        Err(error) => return Err(error),
    })
}

/// What a request to own a task is decided on.
struct Seen {
    stored: Option<Stored>,
    by_key: Option<Run>,
    mark: Mark,
    current: Option<Run>,
    superseded: Option<Run>,
    parent: Option<Run>,
}

/// What is decided.
enum Decided {
    Answer(Acquired),
    /// This run is in the way, or was granted before.
    About(TaskKey, Box<Run>),
    /// Another task is in the way.
    InTheWay(TaskKey),
    Write(Box<Decision>, Held),
}

fn decide(request: &Acquire, seen: &Seen, nonce: u64, moment: Moment) -> Result<Decided, Error> {
    let key = &request.key;
    let conflict = |state| Ok(Decided::Answer(Acquired::Conflict { actual: bare(key.clone(), 0, state) }));
    if let Some(run) = &seen.by_key {
        return Ok(the_same(request, run));
    }
    let revision = seen.stored.as_ref().map_or(0, |stored| stored.session.revision);
    let outdated = seen.stored.as_ref().is_some_and(|stored| stored.session.is_outdated(key.task));
    let before = match (seen.mark, &seen.current, request.expect) {
        // The grant of this very request may have outlived a release: it is answered, and fenced if need be.
        (_, Some(run), _) if is_of(request, run) => {
            return Ok(Decided::About(key.clone(), Box::new(run.clone())));
        }
        _ if request.revision.is_some_and(|seen| seen != revision) || outdated => {
            return Ok(Decided::Answer(Acquired::SessionReleased { revision }));
        }
        (Mark::Expired, ..) | (Mark::Run(_), None, _) => return conflict(TaskState::Expired),
        (Mark::None, _, Expected::NotExists) => None,
        (Mark::None, ..) => return conflict(TaskState::Unknown),
        (Mark::Run(number), Some(run), expect) => {
            let fits = match expect {
                Expected::NotExists => false,
                Expected::TerminalRun(expected) => expected == number && run.status.is_terminal(),
                Expected::LostRun(expected) => expected == number && run.status == RunStatus::Lost,
            };
            if !fits {
                return Ok(Decided::About(key.clone(), Box::new(run.clone())));
            }
            Some((number, run))
        }
    };
    let parent = match parent_of(request, seen) {
        Ok(parent) => parent,
        Err(in_the_way) => return Ok(*in_the_way),
    };
    let number = before.map_or(1, |(number, _)| number.saturating_add(1));
    let fence = before.map_or(0, |(_, run)| run.fence).saturating_add(1);
    let held = Held { key: key.clone(), run: number, token: Token { fence, nonce } };
    let mut session = session_of(seen.stored.as_ref(), &key.session, moment);
    session.begin(key.task, number)?;
    let begun = begin(request, &held, parent, session.revision, moment)?;
    let mut runs = vec![begun];
    if let Some((_, lost)) = before.filter(|(_, run)| run.status == RunStatus::Lost) {
        match rules::supersede(lost, &runs[0].run.run_id, moment) {
            Ok(write) => runs.push(write),
            Err(_) => return Ok(Decided::About(key.clone(), Box::new(lost.clone()))),
        }
    }
    if let Some(task) = request.supersedes {
        let other = key.session.task(task);
        let Some(lost) = &seen.superseded else {
            let actual = bare(other, 0, TaskState::Unknown);
            return Ok(Decided::Answer(Acquired::Conflict { actual }));
        };
        match rules::supersede(lost, &runs[0].run.run_id, moment) {
            Ok(write) => runs.push(write),
            Err(_) => return Ok(Decided::InTheWay(other)),
        }
    }
    let write = put(seen.stored.as_ref(), &session, moment.now)?;
    let decision = Decision { task: Some(write.task), schedule: write.schedule, runs, ..Decision::default() };
    Ok(Decided::Write(Box::new(decision), held))
}

/// The run that starts this one: it has to run, and nobody may want it cancelled.
fn parent_of(request: &Acquire, seen: &Seen) -> Result<Option<Parent>, Box<Decided>> {
    let Some(task) = request.parent else { return Ok(None) };
    let key = request.key.session.task(task);
    let Some(run) = &seen.parent else {
        let actual = bare(key, 0, TaskState::Unknown);
        return Err(Box::new(Decided::Answer(Acquired::Conflict { actual })));
    };
    let number = numbers(run.run_id.as_str()).map_or(0, |(_, number)| number);
    if run.status.is_held() && run.cancel.is_none() {
        return Ok(Some(Parent { task, run: number, policy: request.with_parent }));
    }
    Err(Box::new(Decided::InTheWay(key)))
}

/// What the holder of an idempotency key answers for.
fn the_same(request: &Acquire, run: &Run) -> Decided {
    let task = numbers(run.run_id.as_str()).map_or(request.key.task, |(task, _)| task);
    let key = request.key.session.task(task);
    let same = |a: &Idempotency| request.idempotency.as_ref().is_some_and(|b| a.digest == b.digest);
    if run.spec.idempotency.as_ref().is_some_and(same) {
        Decided::About(key, Box::new(run.clone()))
    } else {
        Decided::Answer(Acquired::IdempotencyConflict { key })
    }
}

fn is_of(request: &Acquire, run: &Run) -> bool {
    OwnedSpec::of(run).is_ok_and(|spec| spec.request_id == request.request_id)
}

fn session_of(stored: Option<&Stored>, key: &SessionKey, moment: Moment) -> Session {
    stored.map_or_else(|| Session::new(key.clone(), moment.now), |stored| stored.session.clone())
}

fn begin(
    request: &Acquire,
    held: &Held,
    parent: Option<Parent>,
    revision: u64,
    moment: Moment,
) -> Result<RunWrite, Error> {
    let (key, now) = (&request.key, moment.now);
    let (task_id, run_id) = (key.session.id()?, key.run_id(held.run)?);
    let owned = OwnedSpec {
        task: key.task,
        run: held.run,
        revision,
        request_id: request.request_id.clone(),
        agent: request.agent.clone(),
        description: request.description.clone(),
        supersedes: request.supersedes,
        parent,
    };
    let idempotency = request.idempotency.as_ref();
    let Policies { retry, overlap } = Policies::default();
    let spec = RunSpec {
        workspace_path: format!("owned/{task_id}/{}.{}", key.task, held.run).into(),
        task_id,
        agent_id: AgentId::host(),
        query: request.input.clone(),
        trigger: Trigger::Manual,
        queued_at: now,
        first_due_at: now,
        late_by_ms: 0,
        occurrence: None,
        idempotency: idempotency.map(|given| Idempotency { key: given.key.clone(), digest: given.digest }),
        session_id: key.session.session().into(),
        write_run_json: false,
        write_events_jsonl: false,
        limits: Limits::default(),
        retry_policy: retry,
        overlap_policy: overlap,
        lanes: Vec::new(),
        priority: 0,
        retry_of: None,
        override_pause: false,
        metadata: metadata(&owned)?,
    };
    let lease = request.ttl.duration();
    Ok(rules::grant(Grant { run_id, spec, owner: request.owner, token: held.token, lease }, moment))
}

fn check(request: &Acquire) -> Result<(), Error> {
    let mut problems = Vec::new();
    let mut within = |field: &str, text: &str, least: usize, most: usize| {
        if !(least..=most).contains(&text.len()) {
            let expected = format!("{least} to {most} bytes, found {}", text.len());
            problems.push(Problem { field: field.to_owned(), expected });
        }
    };
    within("request_id", &request.request_id, 1, MOST_NAME_BYTES);
    within("input", &request.input, 0, MOST_INPUT_BYTES);
    within("agent", request.agent.as_deref().unwrap_or_default(), 0, MOST_NAME_BYTES);
    within("description", request.description.as_deref().unwrap_or_default(), 0, MOST_DESCRIPTION_BYTES);
    if let Some(idempotency) = &request.idempotency {
        within("idempotency.key", &idempotency.key, 1, MOST_NAME_BYTES);
    }
    if request.key.task == 0 {
        problems.push(Problem { field: "task".to_owned(), expected: "a number from 1, found 0".to_owned() });
    }
    if request.parent == Some(request.key.task) {
        let expected = "another task than the one that begins".to_owned();
        problems.push(Problem { field: "parent".to_owned(), expected });
    }
    if request.supersedes == Some(request.key.task) {
        let expected =
            "another task than the one that begins; expect its lost run to take it over".to_owned();
        problems.push(Problem { field: "supersedes".to_owned(), expected });
    }
    if let Err(Error::Invalid(invalid)) = check_ttl(request.ttl) {
        problems.extend(invalid.problems);
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::Invalid(Invalid { problems })) }
}

fn check_ttl(ttl: Seconds) -> Result<(), Error> {
    if ttl > Seconds::default() && ttl <= MOST_TTL {
        return Ok(());
    }
    let expected = format!("above 0 and at most {} seconds, found {} ms", MOST_TTL.ms() / 1000, ttl.ms());
    Err(Error::Invalid(Invalid::one("ttl", expected)))
}
