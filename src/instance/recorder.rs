//! Stores what attempts came to: everything that waits goes in one commit, each under its own token.

use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashSet, HashSetExt};
use tenure_actors::{ProcessContext, ProcessResult};

use super::outbox::{Item, What};
use super::pause::Pause;
use super::{Instance, figures};
use crate::model::{Progress, Run, RunId, RunStatus};
use crate::ownership::kept_snapshot;
use crate::rules::{self, Moment, Moved};
use crate::store::{Decision, LaneExpect, Refusal, StoreError, apart};

/// The most writes in one commit.
const BATCH: usize = 1000;

/// How often it is decided again whether a lost run is given back, because others were first.
const TRIES: usize = 16;

/// The longest pause while the store does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    // However this one ends: cut off past its patience, or by a panic.
    let _what_is_left_is_told_of = Rest(&instance);
    loop {
        tokio::select! {
            () = instance.outbox.filled() => {}
            () = context.cancelled() => break,
        }
        instance.flush().await;
    }
    // Told to stop after the last attempt has ended: what they came to is stored first, within the patience.
    instance.flush().await;
    Ok(())
}

/// Wakes the next recorder, which may wait since before this one took what it did not store.
struct Rest<'a>(&'a Instance);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.0.outbox.len() > 0 {
            self.0.outbox.again();
        }
    }
}

impl Instance {
    /// Stores everything that waits. Returns when nothing does; does not return while the store fails.
    ///
    /// Cancel safety: what was not stored stays, and is stored by the next call.
    pub(crate) async fn flush(&self) {
        let mut batch = self.outbox.in_flight.lock().await;
        let mut pause = Pause::up_to(LONGEST_PAUSE, &self.outage, "outcomes are kept here");
        loop {
            self.outbox.take(&mut batch, BATCH);
            if batch.is_empty() {
                return;
            }
            match self.store_batch(&mut batch).await {
                Ok(()) => pause.reset(),
                Err(error) => tokio::time::sleep(pause.after_failure(&error)).await,
            }
        }
    }

    /// Tries to store the first item of each run; what is settled is taken out of the batch.
    async fn store_batch(&self, batch: &mut Vec<Item>) -> Result<(), StoreError> {
        let moment = self.moment().await?;
        let mut tried: HashSet<RunId> = HashSet::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        for (place, item) in batch.iter_mut().enumerate() {
            if !tried.insert(item.live.run_id.clone()) {
                continue;
            }
            let stamp = self.draw();
            if item.decide(Moment { stamp, ..moment }).is_ok() {
                places.push(place);
            }
        }
        let answers = self.commit_items(batch, places.clone()).await;
        let (mut settled, mut failed) = (HashSet::new(), Ok(()));
        for (place, answer) in places.into_iter().zip(answers) {
            let over = match answer {
                Ok(answer) => self.settle(&mut batch[place], answer).await,
                Err(error) => {
                    failed = Err(error);
                    continue;
                }
            };
            match over {
                Ok(true) => drop(settled.insert(place)),
                Ok(false) => {}
                // The store has gone meanwhile: those that follow are written again, and recognised.
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        let mut place = 0;
        let is_over = |item: &mut Item| {
            place += 1;
            settled.contains(&(place - 1)) || item.is_pointless()
        };
        let over: Vec<Item> = batch.extract_if(.., is_over).collect();
        self.let_go(&over);
        self.outbox.settled(over.len());
        failed
    }

    /// Commits the writes of items; an answer for each.
    async fn commit_items(
        &self,
        batch: &[Item],
        places: Vec<usize>,
    ) -> Vec<Result<Result<(), Refusal>, StoreError>> {
        let commit = |part: Vec<usize>| {
            let writes = part.into_iter().filter_map(|place| batch.get(place)?.write.clone());
            self.commit(writes.map(Decision::from).collect())
        };
        apart::each(places, commit).await
    }

    /// Whether an item needs no other try.
    async fn settle(&self, item: &mut Item, answer: Result<(), Refusal>) -> Result<bool, StoreError> {
        match answer {
            Ok(()) => {
                if let Some(write) = item.write.take() {
                    item.live.set_run(write.run);
                }
                Ok(true)
            }
            Err(Refusal::Fenced { fence, status, .. }) => {
                let (run, held) = (&item.live.run_id, item.token.fence);
                tracing::warn!(%run, held, fence, %status, "a late result was refused");
                if matches!(item.what, What::Ended(..)) {
                    figures::refused();
                }
                let reinstated = self.try_reinstate(item).await?;
                if let (false, What::Ended(outcome, _)) = (reinstated, &item.what) {
                    match item.live.owned {
                        true => self.ownership.refuse_late(&item.live.run(), item.token, outcome).await,
                        false => self.tell_refused(&item.live.run_id, item.token, outcome).await,
                    }
                }
                Ok(!reinstated)
            }
            Err(refusal) => {
                item.write = None;
                tracing::debug!(%refusal, "decided again");
                match self.vitals.watch(self.store.run(&item.live.run_id)).await? {
                    Some(run) if run.token() == Some(item.token) => {
                        item.live.set_run(run);
                        Ok(false)
                    }
                    // Deleted under way, or another's: there is nothing to store it in (field L32).
                    _ => Ok(true),
                }
            }
        }
    }

    /// A run that was declared lost while its result was on its way is given back to who proves that it was
    /// theirs, if nobody succeeded them and there is room in its lanes (S2.3, L9); else the result is dropped (S2.4).
    async fn try_reinstate(&self, item: &mut Item) -> Result<bool, StoreError> {
        item.write = None;
        if !matches!(item.what, What::Ended(rules::Outcome::Completed(_), _)) {
            return Ok(false);
        }
        let nonce = *item.asked_back.get_or_insert_with(|| self.draw());
        for _ in 0..TRIES {
            let found = self.vitals.watch(self.store.run(&item.live.run_id)).await?;
            let Some(run) = found else { return Ok(false) };
            if run.token().is_some_and(|token| token.nonce == nonce) {
                item.given_back(run);
                return Ok(true);
            }
            let Some(decision) = self.asking_back(item, &run, nonce).await? else { return Ok(false) };
            if let Err(refusal) = self.commit_one(decision).await? {
                tracing::debug!(run = %run.run_id, %refusal, "decided again");
            }
        }
        tracing::warn!(run = %item.live.run_id, "a lost run was not given back: others were first each time");
        Ok(false)
    }

    /// None if somebody has succeeded its holder, or there is no room in its lanes.
    async fn asking_back(&self, item: &Item, run: &Run, nonce: u64) -> Result<Option<Decision>, StoreError> {
        let (moment, lease) = (self.moment().await?, self.settings().lease);
        let Ok(write) = rules::reinstate(run, item.token, self.id, nonce, lease, moment) else {
            return Ok(None);
        };
        let mut lanes = Vec::with_capacity(run.spec.lanes.len());
        for lane in &run.spec.lanes {
            let view = self.vitals.watch(self.store.lane(&lane.name)).await?;
            let others = view.active.iter().filter(|other| other.status.takes_room()).count();
            if others >= lane.limit as usize {
                return Ok(None);
            }
            lanes.push(LaneExpect { name: Arc::clone(&lane.name), version: view.version });
        }
        Ok(Some(Decision { lanes, ..Decision::from(write) }))
    }

    fn let_go(&self, over: &[Item]) {
        let ended = || over.iter().filter(|item| matches!(item.what, What::Ended(..)));
        self.live.remove_all(ended().map(|item| &*item.live));
        // Who waits still, looks: it may have been refused.
        ended().for_each(|item| self.waiters.settled(&item.live.run_id, None));
    }
}

impl Item {
    /// Decides what is written, unless that was decided before.
    fn decide(&mut self, moment: Moment) -> Result<(), Moved> {
        if self.write.is_some() {
            return Ok(());
        }
        let run = self.live.run();
        let write = match self.what.clone() {
            What::Progress { progress, coalesced } => {
                let progress = Progress { at: moment.now, ..progress };
                rules::progress(&run, self.token, progress, coalesced, moment)
            }
            What::Ended(outcome, draw) => {
                rules::finish(&run, self.token, outcome, draw, moment).map(|mut write| {
                    // What did not complete may be continued from where it was.
                    let left = self.live.checkpoint().and_then(kept_snapshot);
                    write.run.result = write.run.result.or(left);
                    write
                })
            }
        }?;
        self.write = Some(write);
        Ok(())
    }

    /// The run was given back under another token.
    fn given_back(&mut self, run: Run) {
        self.token = run.token().unwrap_or(self.token);
        self.asked_back = None;
        self.live.set_run(run);
    }

    /// Whether the run is not running any more by what is known here: there is nothing to be stored.
    fn is_pointless(&self) -> bool {
        self.write.is_none() && self.live.run().status != RunStatus::Running
    }
}
