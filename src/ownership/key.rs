//! Names of sessions and their tasks: structured, and kept under ids that no two of them share.
//!
//! A session is kept as the task `owned.NAMESPACE.SOURCE.SESSION`: letters, digits and `-` stand for themselves,
//! every other byte is `_` and two hexadecimal digits, so that no part contains the dots between them. What is too
//! long for that is `owned..` and its bytes, each part behind its length, in base 64. Both are read back, so that
//! two keys never share an id. Run `N` of task `T` of a session is the run `ID.T.N`.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{Invalid, Problem, RESERVED, RunId, TaskId};

/// The longest that namespace, source and session may be together, in bytes.
pub const MOST_KEY_BYTES: usize = 144;

/// The longest id of a session: a task's and a run's number fit behind it.
const MOST_ID_BYTES: usize = 220;

const BASE_64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A session of a host: what its tasks are counted in, and released with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct SessionKey {
    namespace: Arc<str>,
    source: Arc<str>,
    session: Arc<str>,
}

/// A task of a session, by its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// The session.
    #[serde(flatten)]
    pub session: SessionKey,
    /// Its number in the session, from 1.
    pub task: u64,
}

#[derive(Serialize, Deserialize)]
struct Parts {
    namespace: Arc<str>,
    source: Arc<str>,
    session: Arc<str>,
}

impl TryFrom<Parts> for SessionKey {
    type Error = Invalid;

    fn try_from(Parts { namespace, source, session }: Parts) -> Result<Self, Invalid> {
        Self::new(namespace, source, session)
    }
}

impl From<SessionKey> for Parts {
    fn from(SessionKey { namespace, source, session }: SessionKey) -> Self {
        Self { namespace, source, session }
    }
}

impl SessionKey {
    /// A session by its parts: where it is hosted (a tenant, an environment), the component that starts its
    /// tasks, and the host's own name of it.
    ///
    /// # Errors
    /// [`Invalid`] when a part is empty, or all are longer than [`MOST_KEY_BYTES`] together.
    pub fn new(
        namespace: impl Into<Arc<str>>,
        source: impl Into<Arc<str>>,
        session: impl Into<Arc<str>>,
    ) -> Result<Self, Invalid> {
        let key = Self { namespace: namespace.into(), source: source.into(), session: session.into() };
        let mut problems = Vec::new();
        for (field, part) in
            [("namespace", &key.namespace), ("source", &key.source), ("session", &key.session)]
        {
            if part.is_empty() {
                problems
                    .push(Problem { field: field.to_owned(), expected: "text that is not empty".to_owned() });
            }
        }
        let bytes = key.namespace.len() + key.source.len() + key.session.len();
        if bytes > MOST_KEY_BYTES {
            let expected = format!(
                "at most {MOST_KEY_BYTES} bytes of namespace, source and session together, found {bytes}"
            );
            problems.push(Problem { field: "session".to_owned(), expected });
        }
        if problems.is_empty() { Ok(key) } else { Err(Invalid { problems }) }
    }

    /// Where it is hosted.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The component that starts its tasks.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The host's own name of it.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.session
    }

    /// A task of it.
    #[must_use]
    pub fn task(&self, task: u64) -> TaskKey {
        TaskKey { session: self.clone(), task }
    }

    fn parts(&self) -> [&str; 3] {
        [&self.namespace, &self.source, &self.session]
    }

    /// The task under which it is kept.
    pub(crate) fn id(&self) -> Result<TaskId, Invalid> {
        let plain = self.parts().map(escaped).join(".");
        if RESERVED.len() + plain.len() <= MOST_ID_BYTES {
            return TaskId::new(format!("{RESERVED}{plain}"));
        }
        let mut bytes = Vec::with_capacity(MOST_KEY_BYTES + 3);
        for part in self.parts() {
            // Below 256: all parts are below MOST_KEY_BYTES together.
            bytes.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            bytes.extend(part.bytes());
        }
        TaskId::new(format!("{RESERVED}.{}", base_64(&bytes)))
    }

    /// The run with this number of a task of it.
    pub(crate) fn run_id(&self, task: u64, run: u32) -> Result<RunId, Invalid> {
        RunId::new(format!("{}.{task}.{run}", self.id()?))
    }
}

/// Whether a record is that of a session, and not one of a host's.
pub(super) fn is_session(task_id: &TaskId) -> bool {
    let rest = task_id.as_str().strip_prefix(RESERVED);
    rest.is_some_and(|rest| rest.starts_with('.') || rest.matches('.').count() == 2)
}

/// The record of what replicas of a host were told; apart for each namespace that is served alone.
pub(super) fn host_id(host: &str, namespace: Option<&str>) -> Result<TaskId, Invalid> {
    let parts: Vec<String> = namespace.into_iter().chain([host]).map(escaped).collect();
    TaskId::new(format!("{RESERVED}{}", parts.join(".")))
}

/// The task and the number of the run that a run id of a session names.
pub(crate) fn numbers(run_id: &str) -> Option<(u64, u32)> {
    let mut parts = run_id.strip_prefix(RESERVED)?.rsplit('.');
    let (run, task) = (parts.next()?, parts.next()?);
    Some((task.parse().ok()?, run.parse().ok()?))
}

fn escaped(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("_{byte:02x}"));
        }
    }
    text
}

/// Base 64 as in addresses, without padding.
fn base_64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 3);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            let bits = (word >> (18 - 6 * digit)) & 0x3F;
            text.push(char::from(BASE_64[bits as usize]));
        }
    }
    text
}

impl TaskKey {
    pub(crate) fn run_id(&self, run: u32) -> Result<RunId, Invalid> {
        self.session.run_id(self.task, run)
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.source, self.session)
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.session, self.task)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_readable_when_it_is_short() {
        let key = SessionKey::new("prod", "researcher", "chat 7").unwrap();
        assert_eq!(key.id().unwrap().as_str(), "owned.prod.researcher.chat_207");
        assert_eq!(key.run_id(12, 3).unwrap().as_str(), "owned.prod.researcher.chat_207.12.3");
        assert_eq!(numbers("owned.prod.researcher.chat_207.12.3"), Some((12, 3)));
        assert!(is_session(&key.id().unwrap()));
        let long = SessionKey::new("prod", "researcher", "x".repeat(120)).unwrap();
        assert!(is_session(&long.id().unwrap()));
        for namespace in [None, Some("prod.a")] {
            assert!(!is_session(&host_id("web.b", namespace).unwrap()));
        }
    }

    #[test]
    fn the_longest_key_of_any_bytes_fits() {
        for part in ["\u{7f}", "\u{10FFFF}", "a", "."] {
            let session = part.repeat((MOST_KEY_BYTES - 2) / part.len());
            let key = SessionKey::new("n", "s", session).unwrap();
            assert!(key.run_id(u64::MAX, u32::MAX).is_ok(), "{key}");
        }
        assert!(SessionKey::new("n", "s", "x".repeat(MOST_KEY_BYTES - 1)).is_err());
        assert!(SessionKey::new("", "s", "x").is_err());
    }

    proptest! {
        /// However their parts are cut, and whatever they contain.
        #[test]
        fn no_two_keys_share_an_id(parts in vec(("[a.b_/2-]{1,3}", "[a._]{1,3}", "[a.b_-]{1,40}"), 2..40)) {
            let mut by_id = BTreeMap::new();
            for (namespace, source, session) in parts {
                let key = SessionKey::new(namespace, source, session).unwrap();
                let before = by_id.insert(key.id().unwrap(), key.clone());
                prop_assert!(before.is_none_or(|before| before == key));
            }
        }
    }
}
