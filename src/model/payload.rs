//! What an agent answered: bytes and their media type, never a type of some framework.

use std::sync::Arc;

use serde::Serialize;

/// How many characters of a result are shown with its run.
pub const PREVIEW_CHARACTERS: usize = 1000;

/// Bytes with their media type. Stored exactly as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// `text/plain; charset=utf-8`, `application/json` ...
    pub media_type: Arc<str>,
    /// The bytes; not necessarily UTF-8.
    pub bytes: Arc<[u8]>,
}

impl Payload {
    /// Plain text.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Self {
        Self { media_type: "text/plain; charset=utf-8".into(), bytes: text.as_ref().as_bytes().into() }
    }

    /// The first characters, for people: bytes that are no text are replaced.
    #[must_use]
    pub fn preview(&self) -> String {
        // A character has at most four bytes; one more than needed keeps a cut one from showing.
        let end = self.bytes.len().min(4 * (PREVIEW_CHARACTERS + 1));
        String::from_utf8_lossy(&self.bytes[..end]).chars().take(PREVIEW_CHARACTERS).collect()
    }
}

/// The result of a run: kept with it, or, past the limit of the settings, in a file of its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult {
    /// Kept with the run.
    Inline(Payload),
    /// Kept in the workspace of the run.
    File {
        /// Its media type.
        media_type: Arc<str>,
        /// Its length in bytes.
        size: u64,
        /// Its path within the workspace.
        path: Arc<str>,
        /// Its first characters.
        preview: Arc<str>,
    },
}

impl RunResult {
    /// The first characters.
    #[must_use]
    pub fn preview(&self) -> String {
        match self {
            Self::Inline(payload) => payload.preview(),
            Self::File { preview, .. } => preview.as_ref().to_owned(),
        }
    }
}

/// Bytes as JSON: text where they are text, else base 16.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Bytes {
    Text(String),
    Hex(String),
}

#[derive(Serialize)]
struct PayloadFields {
    media_type: Arc<str>,
    #[serde(flatten)]
    bytes: Bytes,
}

#[derive(Serialize)]
struct FileFields {
    media_type: Arc<str>,
    size: u64,
    path: Arc<str>,
    preview: Arc<str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResultFields {
    File(FileFields),
    Inline(PayloadFields),
}

impl Serialize for RunResult {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.clone() {
            Self::Inline(Payload { media_type, bytes }) => {
                let bytes = match std::str::from_utf8(&bytes) {
                    Ok(text) => Bytes::Text(text.to_owned()),
                    Err(_) => Bytes::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
                };
                ResultFields::Inline(PayloadFields { media_type, bytes }).serialize(serializer)
            }
            Self::File { media_type, size, path, preview } => {
                ResultFields::File(FileFields { media_type, size, path, preview }).serialize(serializer)
            }
        }
    }
}
