//! The way in for text: every field that is wrong is named, with what was expected.

use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

use super::TaskSpec;
use super::fields::TaskFields;
use crate::model::{AgentId, Invalid, read};

/// What is no field of a task is a mistake of it as a whole.
pub(super) const WHOLE: &str = "task";

impl TaskSpec {
    /// Reads a task that a user wrote in JSON, and checks all of it.
    ///
    /// # Errors
    /// [`Invalid`]: every field of a wrong type or an unknown name, and every one that makes no sense.
    pub fn parse(json: &str) -> Result<Self, Invalid> {
        read::<TaskFields>(json, WHOLE).and_then(TryInto::try_into)
    }

    /// As [`parse`](Self::parse), for a task that may leave out its agent.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_for(json: &str, default_agent: &AgentId) -> Result<Self, Invalid> {
        read::<TaskFields>(json, WHOLE).and_then(|mut fields| {
            fields.agent_id.get_or_insert_with(|| default_agent.as_str().to_owned());
            fields.try_into()
        })
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

/// Reads a policy from an object alone: a list would be taken for its fields in their order.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(de::value::MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Object(PhantomData))
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
