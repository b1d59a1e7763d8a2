//! What goes wrong below, told in the store's words: refused, or perhaps made.

use redis::RedisError;

use crate::store::pager::{InvalidPage, Unreadable};
use crate::store::{RefusedKind, StoreError, tls};

/// Something below failed.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// It did not happen.
    Refused(RefusedKind, String),
    /// The connection was lost, or the server did not answer in time, after it was sent.
    Lost(String),
    /// A script failed on its way, as when another program wrote to a key: what it did before stands.
    Torn(RefusedKind, String),
    /// A record cannot be read.
    Unreadable(String),
}

/// What a step below answers.
pub(super) type Step<T> = Result<T, Fault>;

pub(super) fn unreadable(why: impl Into<String>) -> Fault {
    Fault::Unreadable(why.into())
}

pub(super) fn invalid(why: impl Into<String>) -> Fault {
    Fault::Refused(RefusedKind::Invalid, why.into())
}

impl From<InvalidPage> for Fault {
    fn from(InvalidPage(why): InvalidPage) -> Self {
        invalid(why)
    }
}

impl Unreadable for Fault {
    fn unreadable(self) -> Result<String, Self> {
        if let Self::Unreadable(why) = self { Ok(why) } else { Err(self) }
    }
}

impl Fault {
    /// The server answered with an error, or the connection broke: scripts that begin with an error have written
    /// nothing, and what was never sent has not happened.
    pub(super) fn of(error: &RedisError, sent: bool) -> Self {
        match Self::whole(error, sent) {
            Self::Refused(kind, why) if sent && error.detail().is_some_and(within_script) => {
                Self::Torn(kind, why)
            }
            fault => fault,
        }
    }

    fn whole(error: &RedisError, sent: bool) -> Self {
        let code = error.code().unwrap_or_default();
        if let Some((kind, advice)) = known(code) {
            return Self::Refused(kind, format!("the server says {code}: {advice}"));
        }
        if let Some(why) = tls::objection(error) {
            return Self::Refused(RefusedKind::Invalid, format!("TLS with the server failed: {why}"));
        }
        match error.kind() {
            redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => Self::Refused(
                RefusedKind::Corrupt,
                format!("the server says {error}; look whether another program writes to these keys"),
            ),
            redis::ErrorKind::AuthenticationFailed => Self::Refused(
                RefusedKind::Invalid,
                "the server does not take the user and password; correct them in the URL".to_owned(),
            ),
            // Neither names the password: the library does not put it into errors.
            _ if sent => Self::Lost(format!("the connection was lost: {}", error.category())),
            _ => Self::Refused(
                RefusedKind::Unavailable,
                format!(
                    "it cannot be reached ({error}); start the server or correct the URL, then try again"
                ),
            ),
        }
    }

    pub(super) fn of_write(self, name: &str) -> StoreError {
        match self {
            Self::Lost(why) | Self::Torn(_, why) => StoreError::unknown(format!("\"{name}\": {why}")),
            other => other.of_read(name),
        }
    }

    /// A read leaves nothing unknown.
    pub(super) fn of_read(self, name: &str) -> StoreError {
        let (kind, why) = match self {
            Self::Refused(kind, why) | Self::Torn(kind, why) => (kind, why),
            Self::Lost(why) => (RefusedKind::Unavailable, format!("{why}; try again")),
            Self::Unreadable(why) => (RefusedKind::Corrupt, format!("a record cannot be read: {why}")),
        };
        StoreError::refused(kind, format!("\"{name}\": {why}"))
    }
}

/// The server names the script, and the line in it, behind an error that was met there.
fn within_script(detail: &str) -> bool {
    detail.contains(" script: ") && detail.contains("@user_script:")
}

/// What a code of the server means, and what to do.
fn known(code: &str) -> Option<(RefusedKind, &'static str)> {
    use RefusedKind::{Full, Invalid, NotSupported, ReadOnly, Unavailable};
    Some(match code {
        "LOADING" => (Unavailable, "it is reading its data; try again"),
        "BUSY" => (Unavailable, "a script of another program keeps it busy; try again, or end that script"),
        "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => (Unavailable, "its cluster is not whole; try again"),
        "NOREPLICAS" => (Unavailable, "too few replicas follow it (min-replicas-to-write); try again"),
        "READONLY" => (ReadOnly, "it is a replica; name the primary in the URL"),
        "OOM" => (Full, "its memory is full; raise maxmemory or shorten the retention, then try again"),
        "MISCONF" => (Full, "it cannot write to its disk; free space or make it writable, then try again"),
        "NOAUTH" => (Invalid, "it wants a password; put it into the URL"),
        "WRONGPASS" => (Invalid, "it does not take the user and password; correct them in the URL"),
        "NOPERM" => {
            (Invalid, "the user may not do this; let it run scripts and use the keys of the namespace")
        }
        "MOVED" | "ASK" => {
            (NotSupported, "the keys are on another node of its cluster; name that in the URL")
        }
        "CROSSSLOT" => (NotSupported, "the keys are on several nodes of its cluster"),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test says so by panicking")]
mod tests {
    use super::*;

    fn of(code: &str) -> Fault {
        Fault::of(&redis::make_extension_error(code.to_owned(), Some("detail".to_owned())), true)
    }

    #[test]
    fn what_the_server_refused_did_not_happen() {
        for (code, kind) in [
            ("LOADING", RefusedKind::Unavailable),
            ("READONLY", RefusedKind::ReadOnly),
            ("OOM", RefusedKind::Full),
            ("MISCONF", RefusedKind::Full),
            ("NOAUTH", RefusedKind::Invalid),
            ("WRONGTYPE", RefusedKind::Corrupt),
        ] {
            let StoreError::Refused { kind: found, message } = of(code).of_write("redis") else {
                panic!("{code} is refused")
            };
            assert_eq!(found, kind, "{message}");
        }
    }

    #[test]
    fn what_a_script_did_before_it_failed_is_unknown() {
        let detail = "Operation against a key script: 8700de74, on @user_script:507.";
        let error = redis::make_extension_error("WRONGTYPE".to_owned(), Some(detail.to_owned()));
        let writes = Fault::of(&error, true).of_write("redis");
        assert!(matches!(writes, StoreError::Unknown { .. }), "{writes}");
        let reads = Fault::of(&error, true).of_read("redis");
        assert!(matches!(reads, StoreError::Refused { kind: RefusedKind::Corrupt, .. }), "{reads}");
    }

    #[test]
    fn what_was_sent_and_not_answered_is_unknown_if_it_writes() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(Fault::of(&broken, true).of_write("redis"), StoreError::Unknown { .. }));
        let kinds = [Fault::of(&broken, true).of_read("redis"), Fault::of(&broken, false).of_write("redis")];
        for error in kinds {
            assert!(matches!(error, StoreError::Refused { kind: RefusedKind::Unavailable, .. }), "{error}");
        }
    }
}
