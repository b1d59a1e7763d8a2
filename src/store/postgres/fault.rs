//! What goes wrong below, told in the store's words. Nothing here ever shows a password: errors of the server and of
//! the driver name none, and an address that cannot be read is not repeated.

use tokio_postgres::error::SqlState;

use crate::store::pager::{InvalidPage, Unreadable};
use crate::store::{RefusedKind, StoreError, tls};

/// Something below failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server or the driver says so.
    Sql(tokio_postgres::Error),
    /// The server did not answer in time.
    Silent,
    /// A record cannot be read.
    Unreadable(String),
    /// What was asked makes no sense.
    Invalid(String),
}

/// What a step below answers.
pub(super) type Step<T> = Result<T, Fault>;

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<InvalidPage> for Fault {
    fn from(InvalidPage(why): InvalidPage) -> Self {
        Self::Invalid(why)
    }
}

impl Unreadable for Fault {
    fn unreadable(self) -> Result<String, Self> {
        if let Self::Unreadable(why) = self { Ok(why) } else { Err(self) }
    }
}

impl Fault {
    /// A connection over TLS was not made: what stands against the server is told with the option that asked for it.
    pub(super) fn of_tls(error: tokio_postgres::Error) -> Self {
        if let Some(why) = tls::objection(&error) {
            return Self::Invalid(format!("TLS with the server failed: {why}"));
        }
        // The driver has a word for it, and no type.
        if error.to_string().contains("TLS") && error.as_db_error().is_none() {
            let why = "turn it on there, or say sslmode=disable within a network that you trust";
            return Self::Invalid(format!(
                "the sslmode asks for TLS, and the server does not offer it; {why}"
            ));
        }
        Self::Sql(error)
    }

    fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Sql(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the surroundings are at fault and not what was asked: trying the parts alone cannot help.
    pub(super) fn is_of_the_surroundings(&self) -> bool {
        let kind = self.kind();
        matches!(kind, RefusedKind::Unavailable | RefusedKind::Full | RefusedKind::ReadOnly)
    }

    /// Whether the server broke it off because of others: the same again may well succeed.
    pub(super) fn was_in_the_way(&self) -> bool {
        let code = self.code();
        code == Some(&SqlState::T_R_SERIALIZATION_FAILURE) || code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// Whether the connection is of no use any more.
    pub(super) fn ends_the_connection(&self) -> bool {
        match self {
            Self::Sql(error) => error.as_db_error().is_none_or(|db| db.severity() != "ERROR"),
            Self::Silent => true,
            Self::Unreadable(_) | Self::Invalid(_) => false,
        }
    }

    /// Whether the server itself said that it did not do it: a statement that it refused, or a session that it ended
    /// because it had been idle, and so before it was asked to commit.
    pub(super) fn is_word_of_the_server(&self) -> bool {
        if self.code() == Some(&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT) {
            return true;
        }
        matches!(self, Self::Sql(error) if error.as_db_error().is_some_and(|db| db.severity() == "ERROR"))
    }

    fn kind(&self) -> RefusedKind {
        let error = match self {
            Self::Sql(error) => error,
            Self::Silent => return RefusedKind::Unavailable,
            Self::Unreadable(_) => return RefusedKind::Corrupt,
            Self::Invalid(_) => return RefusedKind::Invalid,
        };
        let Some(code) = error.code() else {
            // Without a code it is the driver's: the connection, or a value that does not fit.
            return if error.is_closed()
                || std::error::Error::source(error).is_some_and(|s| s.is::<std::io::Error>())
            {
                RefusedKind::Unavailable
            } else {
                RefusedKind::Invalid
            };
        };
        match code.code() {
            "25006" | "42501" => RefusedKind::ReadOnly,
            "53100" => RefusedKind::Full,
            "42P01" | "42703" | "3F000" => RefusedKind::Corrupt,
            code if code.starts_with("XX0") => RefusedKind::Corrupt,
            code => match code.get(..2) {
                Some("08" | "25" | "40" | "53" | "55" | "57" | "58") => RefusedKind::Unavailable,
                _ => RefusedKind::Invalid,
            },
        }
    }

    /// Whether the server lets nobody in who comes without TLS.
    fn wants_tls(&self) -> bool {
        let db = match self {
            Self::Sql(error) => error.as_db_error(),
            _ => None,
        };
        db.is_some_and(|db| db.code().code() == "28000" && db.message().contains("no encryption"))
    }

    /// The error of a call that did not happen: what, where, what to do.
    pub(super) fn refused(&self, place: &str) -> StoreError {
        let kind = self.kind();
        let advice = match kind {
            RefusedKind::Unavailable => "see that the server runs and can be reached, and try again",
            RefusedKind::ReadOnly => "name the primary server, and a role that may write to this schema",
            RefusedKind::Full => "free space on the server's disk, then try again",
            RefusedKind::Invalid if self.wants_tls() => "add sslmode=verify-full",
            RefusedKind::Invalid => "correct what was asked",
            _ => "restore the schema from a backup, or name an empty one",
        };
        StoreError::refused(kind, format!("\"{place}\": {self}; {advice}"))
    }

    /// The error of a commit whose outcome is not known.
    pub(super) fn unknown(&self, place: &str) -> StoreError {
        StoreError::unknown(format!("\"{place}\": {self}"))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let error = match self {
            Self::Sql(error) => error,
            Self::Silent => return f.write_str("the server did not answer in time"),
            Self::Unreadable(text) | Self::Invalid(text) => return f.write_str(text),
        };
        match (error.as_db_error(), std::error::Error::source(error)) {
            (Some(db), _) => write!(f, "{} ({})", db.message(), db.code().code()),
            (None, Some(source)) => write!(f, "{error}: {source}"),
            (None, None) => error.fmt(f),
        }
    }
}
