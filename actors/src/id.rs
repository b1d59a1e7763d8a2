//! Identifiers. Each is its own type, parsed where text enters, so that nothing inside checks one again.

use std::borrow::Borrow;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The most bytes an identifier may have.
pub const MAX_ID_BYTES: usize = 512;

/// Text that is not a usable identifier: what it was meant to be, and why it cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} \"{}\" {problem}", excerpt(.text))]
pub struct InvalidId {
    /// What the text was meant to be: `process id`, `owner id` ...
    pub kind: &'static str,
    /// The text as it came, cut after a few dozen characters when it is shown.
    pub text: Box<str>,
    /// Why it was refused.
    pub problem: IdProblem,
}

/// Why a text is no identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdProblem {
    /// Nothing in it.
    #[error("is empty, expected 1 to 512 bytes")]
    Empty,
    /// Over [`MAX_ID_BYTES`].
    #[error("has {bytes} bytes, expected at most 512")]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// Has a control character, which would break logs and transcripts.
    #[error("has a control character at byte {at}, expected printable text")]
    ControlCharacter {
        /// Where the first one is.
        at: usize,
    },
}

fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

fn check(text: &str) -> Result<(), IdProblem> {
    if text.is_empty() {
        return Err(IdProblem::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdProblem::TooLong { bytes: text.len() });
    }
    // Every id is looked at, and nearly every one is plain: a pass over bytes is a tenth of one over characters.
    if text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_control()) {
        return Ok(());
    }
    match text.char_indices().find(|(_, character)| character.is_control()) {
        Some((at, _)) => Err(IdProblem::ControlCharacter { at }),
        None => Ok(()),
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the identifier.
            ///
            /// # Errors
            /// [`InvalidId`] when the text is empty, over 512 bytes or has a control character.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidId> {
                let text = text.into();
                match check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(problem) => Err(InvalidId { kind: $kind, text: (&*text).into(), problem }),
                }
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidId;
            fn try_from(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        // Not `From`: what takes an identifier takes whatever can be tried to become one.
        #[allow(clippy::infallible_try_from, reason = "callers bound by TryInto")]
        impl TryFrom<&$name> for $name {
            type Error = std::convert::Infallible;
            fn try_from(id: &$name) -> Result<Self, Self::Error> {
                Ok(id.clone())
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

identifier!(
    /// Names one managed process of a generation. Chosen by the plugin; unique while the process is
    /// registered. Use an occurrence in it when the same work can run more than once:
    /// `compact:<session>:<n>`.
    ProcessId,
    "process id"
);
identifier!(
    /// Names one active operation of a generation. A process and its operation normally share one id.
    OperationId,
    "operation id"
);
identifier!(
    /// The component that interprets and controls an operation; opaque to this crate.
    OwnerId,
    "owner id"
);
identifier!(
    /// The session an operation belongs to.
    SessionId,
    "session id"
);
identifier!(
    /// An opaque key that at most one active operation holds.
    ExclusivityKey,
    "exclusivity key"
);
identifier!(
    /// Names one resource of a generation's runtime store.
    ResourceName,
    "resource name"
);

impl ResourceName {
    pub(crate) fn into_shared(self) -> Arc<str> {
        self.0
    }
}

/// What kind of child this is (`fetch`, `compaction`, `scheduler`): the name that trees, events and
/// transcripts show, followed by the incarnation: `fetch#1`.
///
/// Mostly a constant of the plugin, which is then not copied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Role(RoleText);

/// The text of a [`Role`], before it is checked.
#[derive(Clone)]
pub enum RoleText {
    /// A constant.
    Static(&'static str),
    /// Made at run time.
    Shared(Arc<str>),
}

impl RoleText {
    fn as_str(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for RoleText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RoleText {}

impl PartialOrd for RoleText {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RoleText {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::hash::Hash for RoleText {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Serialize for RoleText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl From<&'static str> for RoleText {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<String> for RoleText {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl From<Arc<str>> for RoleText {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl Role {
    /// Parses the role.
    ///
    /// # Errors
    /// [`InvalidId`] when the text is empty, over 512 bytes or has a control character.
    pub fn new(text: impl Into<RoleText>) -> Result<Self, InvalidId> {
        let text = text.into();
        match check(text.as_str()) {
            Ok(()) => Ok(Self(text)),
            Err(problem) => Err(InvalidId { kind: "role", text: text.as_str().into(), problem }),
        }
    }

    /// The role as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// The exclusivity key that serialises the operations of one session: `session:<id>`.
///
/// ```
/// # use tenure_actors::{SessionId, session_key};
/// let key = session_key(&SessionId::new("s1")?);
/// assert_eq!(key.as_str(), "session:s1");
/// # Ok::<(), tenure_actors::InvalidId>(())
/// ```
#[must_use]
pub fn session_key(session: &SessionId) -> ExclusivityKey {
    // Not parsed: a valid session id stays valid behind the prefix, but for its length, which is ours.
    ExclusivityKey(format!("session:{session}").into())
}

/// The number of a generation. Strictly rising within one application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// The first epoch of an application that was not told otherwise.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The epoch with this number; none for 0.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Its number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number that a store granted to the holder of a run: it rises with every grant, so that a sink can
/// refuse what comes from an earlier holder.
///
/// The kernel only carries it: a permit of a process that was started under a fence shows it to the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FencingToken {
    /// Rises with every grant.
    pub fence: u64,
    /// Tells two grants apart that a damaged store gave the same number.
    pub nonce: u64,
}

/// Process-lifetime sequence number of a child within its generation: start order, and identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct Seq(pub(crate) u64);
