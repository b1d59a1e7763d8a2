//! What never changes about runs is kept once for all that have it in common: a run that a schedule wanted costs no
//! more than what is its own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bytes::{Get, Put, text};
use super::fault::{Step, invalid, unreadable};
use crate::model::{AgentId, Lane, Metadata, OverlapPolicy, RetryPolicy, RunSpec, Seconds, TaskId};

/// The common part of runs, as scripts and filters look at it, and the rest of it.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) task_id: TaskId,
    pub(super) agent_id: AgentId,
    pub(super) priority: i32,
    pub(super) lanes: Vec<Lane>,
    pub(super) session: Template,
    pub(super) query: Arc<str>,
    pub(super) rest: Rest,
}

/// What nobody looks at but who executes the run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rest {
    pub(super) workspace: Template,
    pub(super) write_run_json: bool,
    pub(super) write_events_jsonl: bool,
    pub(super) timeout: Option<Seconds>,
    pub(super) retry_policy: RetryPolicy,
    pub(super) overlap_policy: OverlapPolicy,
    #[serde(default)]
    pub(super) metadata: Metadata,
}

/// A text in which the name of the run stands between the parts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Template(Vec<Arc<str>>);

/// The most parts a text is taken apart into: a short name may be in it often.
const MOST_PARTS: usize = 64;

impl Template {
    fn of(text: &str, run_id: &str) -> Self {
        if text.matches(run_id).count() >= MOST_PARTS {
            return Self(vec![text.into()]);
        }
        Self(text.split(run_id).map(Arc::from).collect())
    }

    pub(super) fn with(&self, run_id: &str) -> Arc<str> {
        match &self.0[..] {
            [whole] => Arc::clone(whole),
            parts => parts.join(run_id).into(),
        }
    }
}

/// The common part of a run as the server keeps it, with a number that tells it from others.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) digest: u64,
    pub(super) text: Vec<u8>,
}

impl Kept {
    pub(super) fn of(spec: &RunSpec, run_id: &str) -> Step<Self> {
        let count = u8::try_from(spec.lanes.len());
        let count =
            count.map_err(|_| invalid(format!("a run in {} lanes, at most 255", spec.lanes.len())))?;
        let mut put = Put::default();
        put.id(spec.agent_id.as_str()).id(spec.task_id.as_str());
        // The highest priority comes first.
        put.u32(i32::MAX.abs_diff(spec.priority)).u8(count);
        for lane in &spec.lanes {
            put.text32(lane.name.as_bytes()).u32(lane.limit);
        }
        let session = Template::of(&spec.session_id, run_id);
        put.u16(session.0.len() as u16);
        for part in &session.0 {
            put.text32(part.as_bytes());
        }
        put.text32(spec.query.as_bytes());
        let rest = Rest {
            workspace: Template::of(&spec.workspace_path, run_id),
            write_run_json: spec.write_run_json,
            write_events_jsonl: spec.write_events_jsonl,
            timeout: spec.limits.timeout,
            retry_policy: spec.retry_policy.clone(),
            overlap_policy: spec.overlap_policy,
            metadata: spec.metadata.clone(),
        };
        let rest = serde_json::to_vec(&rest);
        put.raw(&rest.map_err(|error| invalid(format!("a run that cannot be kept: {error}")))?);
        Ok(Self { digest: digest(&put.0), text: put.0 })
    }
}

impl Common {
    pub(super) fn read(kept: &[u8]) -> Step<Self> {
        let mut get = Get(kept);
        let (agent, task) = (get.id()?, get.id()?);
        let priority = i32::MAX.wrapping_sub_unsigned(get.u32()?);
        let mut lanes = Vec::new();
        for _ in 0..get.u8()? {
            let name = text(get.text32()?)?.into();
            lanes.push(Lane { name, limit: get.u32()? });
        }
        let mut session = Vec::new();
        for _ in 0..get.u16()? {
            session.push(text(get.text32()?)?.into());
        }
        let query = text(get.text32()?)?.into();
        let rest = serde_json::from_slice(get.0);
        Ok(Self {
            task_id: TaskId::new(task).map_err(|odd| unreadable(odd.to_string()))?,
            agent_id: AgentId::new(agent).map_err(|odd| unreadable(odd.to_string()))?,
            priority,
            lanes,
            session: Template(session),
            query,
            rest: rest.map_err(|error| unreadable(format!("the specification: {error}")))?,
        })
    }
}

/// FNV-1a. The scripts compare the text besides, so that nobody gains by two of one digest.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_gives_back_any_text() {
        for (text, run_id) in [("", "r"), ("r", "r"), ("rr", "r"), ("background/a/t/r1", "r1"), ("x", "r")] {
            assert_eq!(&*Template::of(text, run_id).with(run_id), text);
        }
        let often = "a".repeat(1000);
        assert_eq!(&*Template::of(&often, "a").with("a"), often);
    }

    #[test]
    fn runs_of_one_kind_have_one_template() {
        let same = |run_id: &str| format!("{:?}", Template::of(&format!("background/a/t/{run_id}"), run_id));
        assert_eq!(same("0199"), same("0200"));
    }

    #[test]
    fn priorities_sort_the_highest_first_and_come_back() {
        let kept = [i32::MAX, 1, 0, -1, i32::MIN].map(|priority| i32::MAX.abs_diff(priority));
        assert!(kept.is_sorted());
        let back = kept.map(|kept| i32::MAX.wrapping_sub_unsigned(kept));
        assert_eq!(back, [i32::MAX, 1, 0, -1, i32::MIN]);
    }
}
