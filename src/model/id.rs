//! Names of records. Parsed at the edge, so that everything inside can rely on them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Invalid;

const MOST_BYTES: usize = 255;

/// Ids that begin so are made by [`crate::ownership`], and are nobody else's to choose.
pub(crate) const RESERVED: &str = "owned.";

/// Who executes what a host owns: nobody that could claim it.
const HOST: &str = "owned.by-host";

fn check(kind: &str, text: &str) -> Result<(), Invalid> {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let fits = (1..=MOST_BYTES).contains(&text.len());
    if fits && text.chars().all(known) && text != "." && text != ".." {
        return Ok(());
    }
    let shown: String = text.chars().take(40).collect();
    Err(Invalid::one(
        kind,
        format!(
            "1 to {MOST_BYTES} of letters, digits, \"_\", \".\" and \"-\", not \".\" or \"..\", found {shown:?}"
        ),
    ))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 255 of letters, digits, `_`, `.` and `-`; neither `.` nor `..` (contract, section 1).
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the id.
            ///
            /// # Errors
            /// [`Invalid`] naming the field when the text is no id.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, Invalid> {
                let text = text.into();
                check($field, &text)?;
                Ok(Self(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether only [`crate::ownership`] makes such ids.
            #[must_use]
            pub fn is_reserved(&self) -> bool {
                self.0.starts_with(RESERVED)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }
    };
}

id!(
    /// Names an agent: what executes a task's query.
    AgentId,
    "agent_id"
);
id!(
    /// Names a task: a durable instruction.
    TaskId,
    "task_id"
);
id!(
    /// Names a run: one life of a task from wanted to final.
    RunId,
    "run_id"
);
id!(
    /// Names an attempt: one try within a run.
    AttemptId,
    "attempt_id"
);

impl AgentId {
    /// The agent of runs that their host executes itself. No agent is registered under it, so that nobody claims
    /// them.
    #[must_use]
    pub fn host() -> Self {
        Self(HOST.into())
    }

    /// Whether it is [`AgentId::host`].
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.as_str() == HOST
    }
}

impl RunId {
    /// A new id. Ids made by one OS process rise, so that they sort by age.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::now_v7().simple().to_string().into())
    }

    /// The id of the attempt of this run with this number.
    #[must_use]
    pub fn attempt(&self, number: u32) -> AttemptId {
        // Not parsed: only a run id of full length could be too long with its number, and it is shown only.
        let mut name = String::with_capacity(self.0.len() + 11);
        name.push_str(&self.0);
        name.push('.');
        name.push_str(&number.to_string());
        AttemptId(name.into())
    }
}

/// One start of a host program: random, never a host name or a process number, so that a restarted host
/// cannot be taken for its former self (contract ownership.md, L2; field L4, L10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(#[serde(with = "uuid::serde::simple")] Uuid);

impl InstanceId {
    /// A new instance.
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }

    /// The instance with these 128 bits, as a store kept them.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }

    /// Its 128 bits.
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0.as_u128()
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}
