//! How tasks stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answers::{Inspection, SessionInspection, TaskState};
use super::key::{SessionKey, TaskKey, numbers};
use super::outcome::Finished;
use super::record::{Mark, OwnedSpec, Stored};
use super::{Ownership, TRIES, contended};
use crate::error::Error;
use crate::model::{InstanceId, Run, RunResult, RunStatus, Seconds, Timestamp};
use crate::rules::{self, Verdict};
use crate::store::{PageRequest, RefusedKind, RunFilter, StoreError};

/// How many runs are listed at once: each may have an input and an outcome as large as they may be.
const PAGE: usize = 32;

/// How many bytes of results and snapshots a listing of a session holds at most.
const MOST_BYTES: usize = 8 << 20;

impl Ownership {
    /// How a task stands: running, ended, lost, all from one record.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is known of the task by that, least of all that it is lost.
    pub async fn inspect(&self, key: &TaskKey) -> Result<Inspection, Error> {
        for _ in 0..TRIES {
            let Some(stored) = self.stored(&key.session).await? else {
                return Ok(bare(key.clone(), 0, TaskState::Unknown));
            };
            let number = match stored.session.mark(key.task) {
                Mark::None => return Ok(bare(key.clone(), 0, TaskState::Unknown)),
                Mark::Expired => return Ok(bare(key.clone(), 0, TaskState::Expired)),
                Mark::Run(number) => number,
            };
            match self.run(key, number).await {
                Ok(Some(run)) => {
                    let now = self.store.now().await?;
                    if let Some(inspection) = self.describe(key, &run, now).await? {
                        let acknowledged = stored.session.is_acknowledged(key.task, number).is_some();
                        return Ok(Inspection { acknowledged, ..inspection });
                    }
                }
                // Kept long enough, or forgotten and begun again just now: the session tells.
                Ok(None) if self.stands(&stored).await? => {
                    return Ok(bare(key.clone(), number, TaskState::Expired));
                }
                Ok(None) => {}
                Err(Error::Store(StoreError::Refused { kind: RefusedKind::Corrupt, message })) => {
                    return Ok(bare(key.clone(), number, TaskState::Unreadable { why: message }));
                }
                Err(error) => return Err(error),
            }
        }
        Err(contended(key))
    }

    async fn stands(&self, stored: &Stored) -> Result<bool, Error> {
        let now = self.stored(&stored.session.key).await?;
        Ok(now.is_some_and(|now| now.task.revision == stored.task.revision))
    }

    /// How the tasks of a session stand: those that are kept. It holds about 8 MiB of outcomes, those of the latest
    /// tasks; of the others it says how they stand, and that their outcomes were left out. They are of one revision of
    /// the session, and each as it stood at some instant of the call, not all at the same one.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is known of the tasks by that.
    pub async fn inspect_session(&self, key: &SessionKey) -> Result<SessionInspection, Error> {
        for _ in 0..TRIES {
            let Some(stored) = self.stored(key).await? else {
                return Ok(SessionInspection::of(key.clone()));
            };
            let Latest { runs, left_out } = self.latest(&stored).await?;
            // What was lost and is given back meanwhile is looked at again: it is not left out.
            let Some(tasks) = self.picture(&stored, runs).await? else { continue };
            // What began or was forgotten in between belongs to another picture.
            if self.stands(&stored).await? {
                let revision = stored.session.revision;
                return Ok(SessionInspection { key: key.clone(), revision, tasks, left_out });
            }
        }
        Err(contended(key))
    }

    /// How the tasks of a session stand by these runs; none if one has moved on while the rest of it was read.
    async fn picture(
        &self,
        stored: &Stored,
        runs: BTreeMap<u64, Found>,
    ) -> Result<Option<Vec<Inspection>>, Error> {
        let (session, now) = (&stored.session, self.store.now().await?);
        let mut tasks = Vec::with_capacity(runs.len());
        for (task, found) in runs {
            let key = session.key.task(task);
            tasks.push(match found {
                Found::Run(run) => {
                    let Some(described) = self.describe(&key, &run, now).await? else { return Ok(None) };
                    let acknowledged = session.is_acknowledged(task, described.run).is_some();
                    Inspection { acknowledged, ..described }
                }
                Found::Corrupt { name, why } => {
                    let run = numbers(&name).map_or(0, |(_, run)| run);
                    bare(key, run, TaskState::Unreadable { why })
                }
            });
        }
        Ok(Some(tasks))
    }

    /// The latest run of each task of a session, the outcomes that have no room left out.
    async fn latest(&self, stored: &Stored) -> Result<Latest, Error> {
        let (mut latest, mut bytes) = (Latest::default(), 0);
        let filter = RunFilter { task_id: Some(stored.task.spec.task_id.clone()), ..RunFilter::default() };
        self.each_run(filter, |mut found| {
            let Some((task, run)) = numbers(found.name()) else { return };
            if stored.session.tasks.get(&task) != Some(&run) {
                return;
            }
            if let Found::Run(Run { result: result @ Some(_), .. }) = &mut found {
                bytes += result.as_ref().map_or(0, kept_bytes);
                if bytes > MOST_BYTES {
                    *result = None;
                    latest.left_out.push(task);
                }
            }
            latest.runs.insert(task, found);
        })
        .await?;
        latest.left_out.sort_unstable();
        Ok(latest)
    }

    /// Looks at the runs that a filter lets through, the newest first, some at a time.
    pub(super) async fn each_run(
        &self,
        filter: RunFilter,
        mut look: impl FnMut(Found) + Send,
    ) -> Result<(), Error> {
        let mut page = PageRequest { limit: PAGE, cursor: None };
        loop {
            let found = self.store.runs(filter.clone(), page.clone()).await?;
            found.items.into_iter().for_each(|run| look(Found::Run(run)));
            found.corrupt.into_iter().for_each(|(name, why)| look(Found::Corrupt { name, why }));
            page.cursor = found.next;
            if page.cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// The instance that executed a run last; none if that is not known any more.
    pub(super) async fn owner_of(&self, key: &TaskKey, run: u32) -> Result<Option<InstanceId>, Error> {
        let attempts = self.store.attempts(&key.run_id(run)?).await?;
        Ok(attempts.last().map(|attempt| attempt.instance))
    }

    /// What a run was asked; none if it is no longer kept.
    pub(super) async fn input_of(&self, key: &TaskKey, run: u32) -> Result<Option<Arc<str>>, Error> {
        Ok(self.run(key, run).await?.map(|run| Arc::clone(&run.spec.query)))
    }

    /// The runs of a session that have not ended.
    pub(super) async fn live(&self, key: &SessionKey) -> Result<Live, Error> {
        let live = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let filter = RunFilter { task_id: Some(key.id()?), statuses: live, ..RunFilter::default() };
        let mut live = Live::default();
        self.each_run(filter, |found| match found {
            Found::Run(run) => live.runs.push(run),
            Found::Corrupt { name, why } => live.unreadable.push((name, why)),
        })
        .await?;
        Ok(live)
    }

    /// A run as others see it; none if it has moved on while the rest of it was read.
    pub(super) async fn describe(
        &self,
        key: &TaskKey,
        run: &Run,
        now: Timestamp,
    ) -> Result<Option<Inspection>, Error> {
        let spec = match OwnedSpec::of(run) {
            Ok(spec) => spec,
            Err(error) => {
                let why = error.to_string();
                return Ok(Some(bare(key.clone(), 0, TaskState::Unreadable { why })));
            }
        };
        let state = match (run.status, &run.lease) {
            (RunStatus::Lost, _) => match self.lost(run).await? {
                Some(lost) => lost,
                None => return Ok(None),
            },
            (status, _) if status.is_terminal() => match Finished::of(run) {
                Ok(finished) => TaskState::Terminal(Box::new(finished)),
                Err(error) => TaskState::Unreadable { why: error.to_string() },
            },
            (_, Some(lease)) => {
                let (owner, fence, cancel) = (lease.owner, run.fence, run.cancel.clone());
                match rules::verdict(lease, now, std::time::Duration::ZERO) {
                    Verdict::Held(left) => {
                        TaskState::Running { owner, fence, ttl_left: seconds(left), cancel }
                    }
                    Verdict::Suspect(ago) | Verdict::Lapsed(ago) => {
                        TaskState::Suspect { owner, fence, expired_for: seconds(ago), cancel }
                    }
                }
            }
            // A state of a newer version is shown as such, never taken for lost (V5).
            (status, None) => TaskState::Unreadable { why: format!("it is {status}, and nobody holds it") },
        };
        let (agent, description) = (spec.agent, spec.description);
        Ok(Some(Inspection {
            key: key.clone(),
            run: spec.run,
            agent,
            description,
            acknowledged: false,
            state,
        }))
    }

    /// Who lost a run and when is told by its attempt; none if it was reinstated meanwhile.
    async fn lost(&self, run: &Run) -> Result<Option<TaskState>, Error> {
        let attempt = self.store.attempts(&run.run_id).await?.pop();
        if attempt.as_ref().is_some_and(|attempt| attempt.finished_at.is_none()) {
            return Ok(None);
        }
        let superseded_by = run.blocked_by.as_ref().and_then(|by| numbers(by.as_str())).map(|(task, _)| task);
        Ok(Some(TaskState::Lost {
            last_owner: attempt.as_ref().map(|attempt| attempt.instance),
            since: attempt.and_then(|attempt| attempt.finished_at),
            superseded_by,
        }))
    }
}

/// What of a session has not ended.
#[derive(Default)]
pub(super) struct Live {
    pub(super) runs: Vec<Run>,
    /// Those whose records cannot be read, and why: who counts what runs counts them as well.
    pub(super) unreadable: Vec<(String, String)>,
}

/// A run of a listing.
#[allow(clippy::large_enum_variant, reason = "nearly all are runs")]
pub(super) enum Found {
    Run(Run),
    Corrupt { name: String, why: String },
}

impl Found {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Run(run) => run.run_id.as_str(),
            Self::Corrupt { name, .. } => name,
        }
    }

    /// The run, if it can be read.
    pub(super) fn run(self) -> Option<Run> {
        match self {
            Self::Run(run) => Some(run),
            Self::Corrupt { .. } => None,
        }
    }
}

/// The latest run of each task of a session, by its number.
#[derive(Default)]
struct Latest {
    runs: BTreeMap<u64, Found>,
    /// Those whose outcomes were left out.
    left_out: Vec<u64>,
}

fn kept_bytes(result: &RunResult) -> usize {
    match result {
        RunResult::Inline(payload) => payload.bytes.len(),
        RunResult::File { .. } => 0,
    }
}

pub(super) fn bare(key: TaskKey, run: u32, state: TaskState) -> Inspection {
    Inspection { key, run, agent: None, description: None, acknowledged: false, state }
}

pub(super) fn seconds(length: std::time::Duration) -> Seconds {
    Seconds::from_ms(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}
