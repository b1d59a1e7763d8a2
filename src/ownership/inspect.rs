//! How tasks stand.

use std::collections::BTreeMap;

use super::answers::{Inspection, SessionInspection, TaskState};
use super::key::{SessionKey, TaskKey, numbers};
use super::outcome::Finished;
use super::record::{Mark, OwnedSpec, Stored};
use super::{Ownership, TRIES, contended};
use crate::error::Error;
use crate::model::{InstanceId, Run, RunStatus, Seconds, Timestamp};
use crate::rules::{self, Verdict};
use crate::store::{PageRequest, RefusedKind, RunFilter, StoreError};

/// How many runs are listed at once.
const PAGE: usize = 1000;

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

    /// How the tasks of a session stand: those that are kept.
    ///
    /// # Errors
    /// [`Error::Store`]: nothing is known of the tasks by that.
    pub async fn inspect_session(&self, key: &SessionKey) -> Result<SessionInspection, Error> {
        for _ in 0..TRIES {
            let Some(stored) = self.stored(key).await? else {
                return Ok(SessionInspection { key: key.clone(), revision: 0, tasks: Vec::new() });
            };
            let latest = self.latest(&stored).await?;
            let now = self.store.now().await?;
            let mut tasks = Vec::with_capacity(latest.len());
            for (task, found) in latest {
                let task = key.task(task);
                match found {
                    Found::Run(run) => {
                        let described = self.describe(&task, &run, now).await?;
                        tasks.extend(described.map(|described| {
                            let acknowledged = stored.session.is_acknowledged(task.task, described.run);
                            Inspection { acknowledged: acknowledged.is_some(), ..described }
                        }));
                    }
                    Found::Corrupt(run, why) => tasks.push(bare(task, run, TaskState::Unreadable { why })),
                }
            }
            // What began or was forgotten in between belongs to another picture.
            if self.stands(&stored).await? {
                return Ok(SessionInspection { key: key.clone(), revision: stored.session.revision, tasks });
            }
        }
        Err(contended(key))
    }

    /// The latest run of each task of a session.
    async fn latest(&self, stored: &Stored) -> Result<BTreeMap<u64, Found>, Error> {
        let mut latest = BTreeMap::new();
        let mut take = |number: Option<(u64, u32)>, found: Found| {
            if let Some((task, run)) = number
                && stored.session.tasks.get(&task) == Some(&run)
            {
                latest.insert(task, found);
            }
        };
        let filter = RunFilter { task_id: Some(stored.task.spec.task_id.clone()), ..RunFilter::default() };
        let mut page = PageRequest { limit: PAGE, cursor: None };
        loop {
            let found = self.store.runs(filter.clone(), page.clone()).await?;
            for run in found.items {
                take(numbers(run.run_id.as_str()), Found::Run(Box::new(run)));
            }
            for (name, why) in found.corrupt {
                let number = numbers(&name);
                take(number, Found::Corrupt(number.map_or(0, |(_, run)| run), why));
            }
            page.cursor = found.next;
            if page.cursor.is_none() {
                return Ok(latest);
            }
        }
    }

    /// The instance that executed a run last; none if that is not known any more.
    pub(super) async fn owner_of(&self, key: &TaskKey, run: u32) -> Result<Option<InstanceId>, Error> {
        let attempts = self.store.attempts(&key.run_id(run)?).await?;
        Ok(attempts.last().map(|attempt| attempt.instance))
    }

    /// The runs of a session that have not ended.
    pub(super) async fn live(&self, key: &SessionKey) -> Result<Vec<Run>, Error> {
        let live = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let filter = RunFilter { task_id: Some(key.id()?), statuses: live, ..RunFilter::default() };
        let mut page = PageRequest { limit: PAGE, cursor: None };
        let mut all = Vec::new();
        loop {
            let found = self.store.runs(filter.clone(), page.clone()).await?;
            all.extend(found.items);
            page.cursor = found.next;
            if page.cursor.is_none() {
                return Ok(all);
            }
        }
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

    /// [`Ownership::describe`] for an answer; read again if it moved on.
    pub(super) async fn about(&self, key: &TaskKey, run: &Run, now: Timestamp) -> Result<Inspection, Error> {
        match self.describe(key, run, now).await? {
            Some(inspection) => Ok(inspection),
            None => self.inspect(key).await,
        }
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

enum Found {
    Run(Box<Run>),
    Corrupt(u32, String),
}

pub(super) fn bare(key: TaskKey, run: u32, state: TaskState) -> Inspection {
    Inspection { key, run, agent: None, description: None, acknowledged: false, state }
}

pub(super) fn seconds(length: std::time::Duration) -> Seconds {
    Seconds::from_ms(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}
