//! Which calls are on their way: the claim of who was left wanting once something is ready, the start of what was
//! granted. The disk is left alone for them, so that all share one wait (decision 0016).

use super::call::{Command, Worth};

/// What is known of who calls next.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    /// Whether somebody who claims was given less than he asked for: he comes again when something becomes ready.
    wanting: bool,
}

impl Expectation {
    /// Whether a call is on its way that goes on with what the only call of this transaction began. Where there are
    /// many callers nobody is waited for: they share waits for the disk anyway.
    pub(super) fn after(&mut self, batch: &[Command], worth: &[Worth], ready: bool) -> bool {
        let comes = ready && std::mem::take(&mut self.wanting);
        for call in batch.iter().zip(worth) {
            if let (Command::Claim(request, _), Worth::Claim(granted)) = call {
                self.wanting = granted.len() < request.limit;
            }
        }
        match (batch, worth) {
            ([Command::Claim(..)], [Worth::Claim(granted)]) => !granted.is_empty(),
            ([Command::Commit(..)], _) => comes,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use tokio::sync::{Semaphore, oneshot};

    use super::super::call::Reply;
    use super::*;
    use crate::model::{InstanceId, Run, RunId, Task, TaskSpec, Timestamp};
    use crate::rules::{self, Moment, Wanted};
    use crate::store::ClaimRequest;

    fn reply<T>() -> Reply<T> {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Reply::new(oneshot::channel().0, permit)
    }

    fn commit() -> (Command, Worth) {
        (Command::Commit(Vec::new(), reply()), Worth::Commit(vec![Ok(())]))
    }

    fn claim(limit: usize, granted: usize) -> (Command, Worth) {
        let request = ClaimRequest {
            instance: InstanceId::generate(),
            nonce: 1,
            agents: Arc::new([]),
            limit,
            lease: Duration::from_secs(30),
            repeat: false,
        };
        (Command::Claim(request, reply()), Worth::Claim(vec![run(); granted]))
    }

    fn run() -> Run {
        let spec = json!({"task_id": "t", "agent_id": "a", "query": "q"}).to_string();
        let spec = TaskSpec::parse(&spec).unwrap();
        let now = Timestamp::default();
        let task = Task { spec, created_at: now, updated_at: now, revision: 1, last_event: 0 };
        rules::enqueue(&task, Wanted::now(RunId::generate(), now), Moment { now, stamp: 1 }).run
    }

    fn after<const N: usize>(known: &mut Expectation, calls: [(Command, Worth); N], ready: bool) -> bool {
        let (batch, worth): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        known.after(&batch, &worth, ready)
    }

    #[test]
    fn who_was_left_wanting_claims_what_becomes_ready_and_starts_it() {
        let mut known = Expectation::default();
        assert!(!after(&mut known, [commit()], true), "nobody has claimed yet");
        assert!(!after(&mut known, [claim(4, 0)], false), "nothing was granted");
        assert!(!after(&mut known, [commit()], false), "nothing became ready");
        assert!(after(&mut known, [commit()], true), "the claim comes");
        assert!(after(&mut known, [claim(4, 1)], false), "the start comes");
        assert!(!after(&mut known, [commit()], false), "it has come");
    }

    #[test]
    fn nobody_is_waited_for_twice_nor_among_many() {
        let mut known = Expectation::default();
        after(&mut known, [claim(4, 0)], false);
        assert!(after(&mut known, [commit()], true));
        assert!(!after(&mut known, [commit()], true), "who did not come is not waited for again");
        after(&mut known, [claim(4, 4)], false);
        assert!(!after(&mut known, [commit()], true), "who has no room does not come");
        after(&mut known, [claim(4, 0)], false);
        assert!(!after(&mut known, [commit(), commit()], true), "many callers share the wait anyway");
    }
}
