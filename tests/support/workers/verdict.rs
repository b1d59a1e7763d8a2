//! Compares what the sink was asked, what the events tell, and what the runs are.

use std::collections::HashMap;

use tenure::model::{AttemptStatus, Event, EventKind, Run, RunId, RunStatus};
use tenure::rules::allowed;
use tenure::store::RunFilter;

use crate::sink::Had;
use crate::stage::Stage;
use crate::wire::What;

/// What is wrong, run by run.
pub(crate) struct Verdict {
    wrong: Vec<String>,
}

impl Stage {
    /// Every run has ended once, the accepted ones are among them, and nothing contradicts anything else.
    pub(crate) async fn judge(&self, accepted: &[RunId]) {
        let runs = self.runs(RunFilter::default()).await;
        let log = self.sink.log();
        let mut verdict = Verdict { wrong: Vec::new() };
        for run_id in accepted {
            let there = runs.iter().any(|run| run.run_id == *run_id);
            verdict.expect(there, run_id, || "it was accepted, and is not there".to_owned());
        }
        let mut effects: HashMap<&RunId, Vec<&Had>> = HashMap::new();
        for had in &log {
            effects.entry(&had.effect.run_id).or_default().push(had);
        }
        for run in &runs {
            let events = self.events(&run.run_id).await;
            verdict.of_its_moves(run, &events);
            verdict.of_its_end(run, &events);
            verdict.of_its_numbers(run, &events);
            verdict.of_its_attempts(run, &self.store.attempts(&run.run_id).await.expect("attempts"));
            verdict.of_its_effects(run, &events, effects.get(&run.run_id).map_or(&[], Vec::as_slice));
        }
        let differences = self.store.check(false).await.expect("a check");
        verdict.wrong.extend(differences);
        assert!(
            verdict.wrong.is_empty(),
            "{} things are wrong:\n{}",
            verdict.wrong.len(),
            verdict.wrong.join("\n")
        );
    }
}

impl Verdict {
    fn expect(&mut self, holds: bool, run_id: &RunId, else_say: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(format!("run {run_id}: {}", else_say()));
        }
    }

    /// It moved along the arrows (T1), and each grant has a higher fence than the one before (I2).
    fn of_its_moves(&mut self, run: &Run, events: &[Event]) {
        let id = &run.run_id;
        let states: Vec<RunStatus> = events.iter().filter_map(|event| event.status).collect();
        for pair in states.windows(2) {
            let lawful = pair[0] == pair[1] || allowed(pair[0], pair[1]);
            self.expect(lawful, id, || format!("it went from {} to {}", pair[0], pair[1]));
        }
        let grants: Vec<u64> = events
            .iter()
            .filter(|event| event.event == EventKind::Claimed)
            .map(|event| event.fence)
            .collect();
        let rise = grants.is_sorted_by(|one, next| one < next);
        self.expect(rise, id, || format!("it was granted under the fences {grants:?}"));
    }

    /// It ended once, and completed at most once.
    fn of_its_end(&mut self, run: &Run, events: &[Event]) {
        let id = &run.run_id;
        self.expect(run.status.is_terminal(), id, || format!("it is {} at the end", run.status));
        let ends: Vec<&Event> =
            events.iter().filter(|event| event.status.is_some_and(RunStatus::is_terminal)).collect();
        self.expect(ends.len() == 1, id, || format!("it ended {} times: {ends:?}", ends.len()));
        let completed = events.iter().filter(|event| event.event == EventKind::Completed).count();
        let expected = usize::from(run.status == RunStatus::Completed);
        self.expect(completed == expected, id, || {
            format!("it is {}, completed {completed} times", run.status)
        });
        let last = events.last().and_then(|event| event.status);
        self.expect(last == Some(run.status), id, || {
            format!("it is {}, its last event says {last:?}", run.status)
        });
    }

    /// Numbers rise from 1 without a gap, fences never fall, attempts keep to what the policy allows (T3).
    fn of_its_numbers(&mut self, run: &Run, events: &[Event]) {
        let id = &run.run_id;
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        let gapless = numbers.iter().copied().eq(1..=numbers.len() as u64);
        self.expect(gapless && run.last_event == numbers.len() as u64, id, || {
            format!("its events are {numbers:?}")
        });
        let fences: Vec<u64> = events.iter().map(|event| event.fence).collect();
        self.expect(fences.is_sorted(), id, || format!("its fences are {fences:?}"));
        let policy = &run.spec.retry_policy;
        let most = policy.max_retries + 1 + run.interruptions;
        self.expect(run.attempt <= most, id, || format!("{} attempts, at most {most}", run.attempt));
        self.expect(run.failures <= policy.max_retries + 1, id, || format!("{} failures", run.failures));
        let count =
            |kinds: &[EventKind]| events.iter().filter(|event| kinds.contains(&event.event)).count() as u64;
        let starts = count(&[EventKind::Started]);
        self.expect(u64::from(run.attempt) == starts, id, || {
            format!("{} attempts, {starts} starts", run.attempt)
        });
        let interruptions = count(&[EventKind::Recovered])
            + events
                .iter()
                .filter(|event| event.event == EventKind::Interrupted && event.data["started"] != false)
                .count() as u64;
        self.expect(u64::from(run.interruptions) == interruptions, id, || {
            format!("{} interruptions, {interruptions} events of them", run.interruptions)
        });
    }

    /// Interruptions are counted apart from failures (T44).
    fn of_its_attempts(&mut self, run: &Run, attempts: &[tenure::model::Attempt]) {
        let id = &run.run_id;
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        let all = numbers.iter().copied().eq(1..=run.attempt);
        self.expect(all, id, || format!("attempts {numbers:?}, {} begun", run.attempt));
        let count = |among: &[AttemptStatus]| {
            u32::try_from(attempts.iter().filter(|attempt| among.contains(&attempt.status)).count())
                .expect("few")
        };
        let failed = count(&[AttemptStatus::Failed, AttemptStatus::Timeout]);
        self.expect(failed == run.failures, id, || {
            format!("{failed} failed attempts, {} failures", run.failures)
        });
        let broken = count(&[AttemptStatus::Interrupted, AttemptStatus::Lost]);
        self.expect(broken <= run.interruptions, id, || {
            format!("{broken} broken attempts, {} interruptions", run.interruptions)
        });
        let open = count(&[AttemptStatus::Running]);
        self.expect(open == 0, id, || format!("{open} attempts are in progress after the end"));
    }

    /// Who completed it has written last: nobody wrote under a higher fence.
    fn of_its_effects(&mut self, run: &Run, events: &[Event], effects: &[&Had]) {
        let id = &run.run_id;
        let begun: Vec<u64> = events
            .iter()
            .filter(|event| event.event == EventKind::Started)
            .map(|event| event.fence)
            .collect();
        for had in effects {
            self.expect(begun.contains(&had.effect.fence), id, || {
                format!("{had:?} under a fence of no attempt")
            });
        }
        if run.status != RunStatus::Completed {
            return;
        }
        // A reinstated attempt goes on under a new fence, and shows the sink the one it began under.
        let shown = begun.last().copied();
        let highest = effects.iter().filter(|had| had.taken).map(|had| had.effect.fence).max();
        self.expect(highest == shown, id, || {
            format!("it completed under fence {shown:?}, the sink has taken {highest:?}")
        });
        let last = effects.iter().rev().find(|had| had.taken);
        let done = last.is_some_and(|had| had.effect.what == What::End && Some(had.effect.fence) == shown);
        self.expect(done, id, || format!("it completed, the last effect is {last:?}"));
        let completing =
            events.iter().find(|event| event.event == EventKind::Completed).map(|event| event.fence);
        let reinstated = events.iter().any(|event| event.event == EventKind::Reinstated);
        self.expect(reinstated || completing == shown, id, || {
            format!("it completed under fence {completing:?}, begun under {shown:?}")
        });
    }
}
