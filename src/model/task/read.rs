//! The way in for text: every field that is wrong is named, with what was expected.

use serde::de::{self, DeserializeOwned, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

use super::TaskSpec;
use super::fields::TaskFields;
use crate::model::{AgentId, Invalid};

impl TaskSpec {
    /// Reads a task that a user wrote in JSON, and checks all of it.
    ///
    /// # Errors
    /// [`Invalid`]: the first field of a wrong type or an unknown name; else every field that makes no sense.
    pub fn parse(json: &str) -> Result<Self, Invalid> {
        read::<TaskFields>(json)?.try_into()
    }

    /// As [`parse`](Self::parse), for a task that may leave out its agent.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_for(json: &str, default_agent: &AgentId) -> Result<Self, Invalid> {
        let mut fields = read::<TaskFields>(json)?;
        fields.agent_id.get_or_insert_with(|| default_agent.as_str().to_owned());
        fields.try_into()
    }

    /// As [`parse`](Self::parse), for JSON that has been read. Numbers in the metadata are as the value kept
    /// them.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn from_value(value: &Value) -> Result<Self, Invalid> {
        Self::parse(&value.to_string())
    }
}

/// Reads the wire form of something; the path of what is wrong is its field.
pub(super) fn read<T: DeserializeOwned>(json: &str) -> Result<T, Invalid> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if error.is_data() {
            let field = if path == "." { "task".to_owned() } else { path };
            return Invalid::one(field, without_place(&error));
        }
        Invalid::one("task", format!("a JSON object: {error}"))
    })?;
    reader.end().map_err(|error| Invalid::one("task", format!("one JSON object: {error}")))?;
    Ok(value)
}

/// The message without the line and column, which mean nothing to who did not write the text by hand.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Reads a policy from an object, or from the bare word of its type: `"manual"` for `{"type": "manual"}`.
pub(super) fn word_or_object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Either<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with a \"type\", or the type alone")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
            let pairs = std::iter::once(("type", word));
            T::deserialize(de::value::MapDeserializer::new(pairs.map(|(k, v)| (k, v.into_deserializer()))))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(de::value::MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_any(Either(PhantomData))
}
