//! What goes wrong below, told in the store's words. No error shows a password: the server's and the driver's name
//! none, and an address that cannot be read is not repeated.

use mongodb::error::{Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR};

use crate::store::pager::{InvalidPage, Unreadable};
use crate::store::{RefusedKind, StoreError};

/// Something below failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server or the driver says so.
    Driver(Box<Error>),
    /// The server says so of one statement of several.
    Statement { code: i32, message: String },
    /// A statement did not find what it was to change: somebody else has.
    Conflict,
    /// The server did not answer in time, or others did not let go.
    Silent,
    /// A record cannot be read.
    Unreadable(String),
    /// What was asked makes no sense.
    Invalid(String),
}

/// What a step below answers.
pub(super) type Step<T> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Driver(Box::new(error))
    }
}

/// The number of the server's word for a conflict between transactions.
const WRITE_CONFLICT: i32 = 112;
/// The numbers of the server's words for what went wrong within it (InternalError, UnknownError): whoever asked did
/// nothing wrong, and it ends the transaction.
const OF_THE_SERVER: [i32; 2] = [1, 8];

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
    fn code(&self) -> Option<i32> {
        match self {
            Self::Driver(error) => code(error),
            Self::Statement { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the transaction was broken off because of others, or of the server: the same again may well succeed.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Conflict => true,
            Self::Driver(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => code(error).is_some(),
            _ => self.code() == Some(WRITE_CONFLICT) || self.is_of_the_server(),
        }
    }

    /// Whether something went wrong within the server.
    pub(super) fn is_of_the_server(&self) -> bool {
        self.code().is_some_and(|code| OF_THE_SERVER.contains(&code))
    }

    /// Whether a document with this name, or key, is there already.
    pub(super) fn is_duplicate(&self) -> bool {
        self.code() == Some(11000)
    }

    /// Whether a collection of this name is there already.
    pub(super) fn is_there_already(&self) -> bool {
        self.code() == Some(48)
    }

    /// Of a commit: whether it may have happened. Only with this label does the server say that nothing is left.
    pub(super) fn leaves_a_commit_open(&self) -> bool {
        match self {
            Self::Driver(error) => !error.contains_label(TRANSIENT_TRANSACTION_ERROR),
            Self::Silent => true,
            _ => false,
        }
    }

    /// Whether the server has said so, and not the driver that it heard nothing.
    pub(super) fn is_an_answer(&self) -> bool {
        self.code().is_some()
    }

    /// Whether the surroundings are at fault and not what was asked: trying the parts alone cannot help. The server may
    /// fail at one part alone.
    pub(super) fn is_of_the_surroundings(&self) -> bool {
        let kind =
            matches!(self.kind(), RefusedKind::Unavailable | RefusedKind::Full | RefusedKind::ReadOnly);
        kind && !self.is_of_the_server()
    }

    fn kind(&self) -> RefusedKind {
        let error = match self {
            Self::Driver(error) => error,
            Self::Statement { code, .. } => return kind_of(*code),
            Self::Conflict | Self::Silent => return RefusedKind::Unavailable,
            Self::Unreadable(_) => return RefusedKind::Corrupt,
            Self::Invalid(_) => return RefusedKind::Invalid,
        };
        if let Some(code) = code(error) {
            return kind_of(code);
        }
        match &*error.kind {
            ErrorKind::Authentication { .. }
            | ErrorKind::InvalidArgument { .. }
            | ErrorKind::BsonSerialization { .. }
            | ErrorKind::InvalidTlsConfig { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::SessionsNotSupported => RefusedKind::Invalid,
            ErrorKind::BsonDeserialization { .. } | ErrorKind::Bson { .. } => RefusedKind::Corrupt,
            _ => RefusedKind::Unavailable,
        }
    }

    /// The error of a call that did not happen: what, where, what to do.
    pub(super) fn refused(&self, place: &str) -> StoreError {
        let kind = self.kind();
        let advice = match kind {
            RefusedKind::Unavailable => "see that the server runs and can be reached, and try again",
            RefusedKind::ReadOnly => "name the primary server, and a user that may write to this database",
            RefusedKind::Full => "free space on the server's disk, then try again",
            RefusedKind::Invalid => "correct what was asked",
            _ => "restore the database from a backup, or name an empty one",
        };
        StoreError::refused(kind, format!("\"{place}\": {self}; {advice}"))
    }

    /// The error of a commit whose outcome is not known.
    pub(super) fn unknown(&self, place: &str) -> StoreError {
        StoreError::unknown(format!("\"{place}\": {self}"))
    }
}

/// The number of the server's error, if it is the server's.
fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(mongodb::error::WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(mongodb::error::WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        _ => None,
    }
}

fn kind_of(code: i32) -> RefusedKind {
    match code {
        // Unauthorized, and AuthenticationFailed.
        13 => RefusedKind::ReadOnly,
        18 => RefusedKind::Invalid,
        // OutOfDiskSpace.
        14031 => RefusedKind::Full,
        // Not the primary.
        10107 | 13435 => RefusedKind::ReadOnly,
        _ if OF_THE_SERVER.contains(&code) => RefusedKind::Unavailable,
        // Unreachable hosts, timeouts, shutdowns, elections, conflicts, transactions that others ended.
        6 | 7 | 50 | 64 | 79 | 89 | 91 | 112 | 134 | 189 | 202 | 246 | 251 | 262 | 317 | 9001 | 10058
        | 11600 | 11602 | 13436 | 24 => RefusedKind::Unavailable,
        _ => RefusedKind::Invalid,
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let error = match self {
            Self::Driver(error) => error,
            Self::Statement { code, message } => return write!(f, "{message} ({code})"),
            Self::Conflict => return f.write_str("others wrote at the same time"),
            Self::Silent => return f.write_str("the server did not answer in time"),
            Self::Unreadable(text) | Self::Invalid(text) => return f.write_str(text),
        };
        match &*error.kind {
            ErrorKind::Command(command) => write!(f, "{} ({})", command.message, command.code),
            ErrorKind::ServerSelection { message, .. } => f.write_str(&no_server(message)),
            kind => f.write_str(bare(&kind.to_string())),
        }
    }
}

/// What the driver writes before and after the reason of each of its errors.
const BEFORE: &str = "Kind: ";
const AFTER: &str = ", labels:";

/// Why no server could be asked: what went wrong with each. The driver prints all it knows of all of them.
fn no_server(message: &str) -> String {
    let mut why: Vec<&str> = message.split("Error: ").skip(1).map(bare).collect();
    why.dedup();
    match why.as_slice() {
        [] if message.contains("No available servers") => "no server answers".to_owned(),
        [] => "no server takes writes at the moment".to_owned(),
        _ => why.join("; "),
    }
}

/// The reason alone, without what the driver keeps beside it.
fn bare(error: &str) -> &str {
    let reason = error.split_once(BEFORE).map_or(error, |(_, reason)| reason);
    reason.split(AFTER).next().unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_servers_that_are_not_there_the_reasons_are_told() {
        let server = |address: &str, why: &str| {
            format!("{{ Address: {address}, Type: Unknown, Error: Kind: I/O error: {why}, labels: {{}} }}")
        };
        let message = |servers: &[String]| {
            let servers = servers.join(", ");
            format!(
                "Server selection timeout: No available servers. Topology: {{ Type: Unknown, Servers: [ {servers} ] }}"
            )
        };
        let (refused, silent) = ("Connection refused (os error 111)", "timed out");
        let same = [server("a:1", refused), server("b:1", refused)];
        assert_eq!(no_server(&message(&same)), format!("I/O error: {refused}"));
        let apart = [server("a:1", refused), server("b:1", silent)];
        assert_eq!(no_server(&message(&apart)), format!("I/O error: {refused}; I/O error: {silent}"));
        assert_eq!(no_server(&message(&[])), "no server answers");
        let unfit =
            "Server selection timeout: None of the available servers suitable for criteria ReadPreference";
        assert_eq!(no_server(unfit), "no server takes writes at the moment");
        let cleared = "Connection pool for a:1 cleared because another operation failed with: \
                       Kind: I/O error: broken pipe, labels: {\"RetryableWriteError\"}";
        assert_eq!(bare(cleared), "I/O error: broken pipe");
    }
}
