//! What every replica of a host has to agree on, declared once: who is told otherwise hears of it, instead of keeping
//! tasks that the others do not see (V9).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::key::host_id;
use super::record::{metadata, write};
use super::{Ownership, TRIES, contended, draw};
use crate::error::Error;
use crate::model::{Invalid, Seconds, Task};
use crate::store::{Decision, RefusedKind, StoreError};

/// The longest name of a host.
const MOST_HOST_BYTES: usize = 60;

/// What a replica was told, as far as all of them must have been told the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Where its sessions are hosted.
    pub namespace: Arc<str>,
    /// The component that starts the tasks.
    pub source: Arc<str>,
    /// How long its leases are.
    pub lease: Seconds,
    /// How long an expired lease may still be renewed.
    pub grace: Seconds,
}

impl Declared {
    /// Where another was told otherwise.
    fn differences(&self, other: &Self) -> Vec<Arc<str>> {
        let mut fields: Vec<Arc<str>> = Vec::new();
        let mut compare = |field: &str, same: bool| {
            if !same {
                fields.push(field.into());
            }
        };
        compare("namespace", self.namespace == other.namespace);
        compare("source", self.source == other.source);
        compare("lease", self.lease == other.lease);
        compare("grace", self.grace == other.grace);
        fields
    }
}

/// What became of a declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Registered {
    /// No replica has said anything before.
    First,
    /// All were told the same.
    Same,
    /// It holds from now on; replicas that were told otherwise hear of it when they register again.
    Replaced,
    /// Others were told otherwise, and nothing was changed: serve nothing before that is settled.
    Mismatch {
        /// What they were told.
        before: Declared,
        /// Where it differs.
        fields: Vec<Arc<str>>,
    },
}

/// As it is kept.
#[derive(Serialize, Deserialize)]
struct Record {
    declared: Declared,
    /// Drawn for its last write: two writes are never taken for each other, whatever they say.
    #[serde(default)]
    stamp: u64,
    /// What a newer version wrote beside it: kept as it is (V5).
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

impl Ownership {
    /// Declares what the replicas of a host were told. Each replica does so when it starts: the first one says what
    /// it is, and who was told otherwise hears where. With `replace` it is declared anew.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NotFound`] when another namespace is served; [`Error::Store`]: declare it again.
    pub async fn register(
        &self,
        host: &str,
        declared: &Declared,
        replace: bool,
    ) -> Result<Registered, Error> {
        check(host, declared)?;
        let only = self.settings.namespace.as_deref();
        if only.is_some_and(|only| *only != *declared.namespace) {
            return Err(Error::NotFound { kind: "namespace", id: declared.namespace.to_string() });
        }
        let task_id = host_id(host, only)?;
        for _ in 0..TRIES {
            let now = self.moment().await?.now;
            let found = self.store.task(&task_id).await?.map(|(task, _)| task);
            let (mut answer, mut other) = (Registered::First, BTreeMap::new());
            if let Some(task) = &found {
                let Record { declared: before, other: kept, stamp: _ } = read(task)?;
                other = kept;
                let fields = before.differences(declared);
                if fields.is_empty() {
                    return Ok(Registered::Same);
                }
                if !replace {
                    metrics::counter!("tenure_ownership_mismatches_total").increment(1);
                    tracing::warn!(host, ?fields, "replicas of one host have different settings");
                    return Ok(Registered::Mismatch { before, fields });
                }
                answer = Registered::Replaced;
            }
            let record = metadata(&Record { declared: declared.clone(), stamp: draw(), other })?;
            let write = write(found.as_ref(), task_id.clone(), record, now)?;
            let decision =
                Decision { task: Some(write.task), schedule: write.schedule, ..Decision::default() };
            if self.commit(decision).await?.is_ok() {
                return Ok(answer);
            }
        }
        Err(contended(&host))
    }
}

fn read(task: &Task) -> Result<Record, StoreError> {
    serde_json::from_str(task.spec.metadata.as_json()).map_err(|error| {
        StoreError::refused(RefusedKind::Corrupt, format!("host \"{}\": {error}", task.spec.task_id))
    })
}

fn check(host: &str, declared: &Declared) -> Result<(), Invalid> {
    for (field, text) in [("host", host), ("namespace", &declared.namespace), ("source", &declared.source)] {
        if text.is_empty() || text.len() > MOST_HOST_BYTES {
            let expected = format!("1 to {MOST_HOST_BYTES} bytes, found {}", text.len());
            return Err(Invalid::one(field, expected));
        }
    }
    if declared.lease == Seconds::default() {
        return Err(Invalid::one("lease", "more than nothing"));
    }
    Ok(())
}
