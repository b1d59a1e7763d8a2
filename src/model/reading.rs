//! The way in for JSON: everything that is wrong is named, with what was expected.
//!
//! A reader stops at the first thing that it cannot take. That is noted and left out, and the rest is read again, until
//! nothing more is found: who made three mistakes is told three.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::{Invalid, Problem, WHOLE_CHARACTERS, has_half_a_pair};

/// The most mistakes that are looked for.
const MOST: usize = 50;
/// How long the name of a field is told.
const MOST_SHOWN: usize = 80;

/// What could be read.
pub(crate) struct Reading<T> {
    /// What was written; what is wrong with it is left out.
    pub(crate) value: Option<T>,
    /// What is wrong, with the path of each.
    pub(crate) problems: Vec<Problem>,
}

impl<T> Reading<T> {
    /// The value, if nothing is wrong.
    pub(crate) fn done(self) -> Result<T, Invalid> {
        match self.value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(Invalid { problems: self.problems }),
        }
    }

    /// The same as something else.
    #[cfg(feature = "agents")]
    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U) -> Reading<U> {
        Reading { value: self.value.map(make), problems: self.problems }
    }

    /// What is made of the value, if nothing is wrong; else what is wrong with it besides is told as well.
    pub(crate) fn and_then<U>(self, make: impl FnOnce(T) -> Result<U, Invalid>) -> Result<U, Invalid> {
        let Self { value, mut problems } = self;
        match value.map(make) {
            Some(Ok(made)) if problems.is_empty() => return Ok(made),
            Some(Ok(_)) | None => {}
            Some(Err(more)) => {
                // Of a field that was left out there is nothing more to say.
                let new = |problem: &Problem| !problems.iter().any(|told| concerns(told, &problem.field));
                let more: Vec<Problem> = more.problems.into_iter().filter(new).collect();
                problems.extend(more);
            }
        }
        Err(Invalid { problems })
    }
}

/// Whether what was told is about this field, one that it lies in, or an entry of it: the list was left out with that.
fn concerns(told: &Problem, field: &str) -> bool {
    let lies_in = |inner: &str, outer: &str, mark: char| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(mark))
    };
    lies_in(field, &told.field, '.') || lies_in(&told.field, field, '[')
}

/// Reads the wire form of something. What is no part of anything is named `whole`.
pub(crate) fn read<T: DeserializeOwned>(json: &str, whole: &str) -> Reading<T> {
    let mut problems = Vec::new();
    let mut rest: Option<Value> = None;
    loop {
        let again = rest.as_ref().map(Value::to_string);
        let error = match read_once(again.as_deref().unwrap_or(json)) {
            Ok(value) => return Reading { value: Some(value), problems },
            Err(error) => error,
        };
        let (path, error) = (error.path().clone(), error.into_inner());
        let told = without_place(&error);
        if !error.is_data() && has_half_a_pair(json) && path.iter().next().is_some() {
            // The reader stopped at it; nothing reads the rest either.
            let field = Place::of(&path, &told).shown(whole);
            problems.extend(Invalid::one(field, WHOLE_CHARACTERS).problems);
            return Reading { value: None, problems };
        }
        if !error.is_data() {
            problems.extend(Invalid::one(whole, format!("a JSON object: {error}")).problems);
            return Reading { value: None, problems };
        }
        let place = Place::of(&path, &told);
        let field = place.shown(whole);
        if problems.iter().any(|told| concerns(told, &field)) {
            // It lacks what was left out.
            return Reading { value: None, problems };
        }
        let told =
            if told.starts_with("missing field `") { "a value, found nothing".to_owned() } else { told };
        problems.extend(Invalid::one(field, told).problems);
        // A number beyond all bounds is kept as text alone: then the rest is not looked at.
        rest = rest.or_else(|| serde_json::from_str(json).ok());
        let left_out = rest.as_mut().is_some_and(|rest| place.take_out_of(rest));
        if !left_out || problems.len() >= MOST {
            return Reading { value: None, problems };
        }
    }
}

fn read_once<T: DeserializeOwned>(json: &str) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let value = T::deserialize(tracked).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| serde_path_to_error::Error::new(track.path(), error))
}

/// The message without the line and column, which mean nothing to who did not write the text by hand.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Where something is wrong.
struct Place {
    shown: String,
    /// The names on the way there, as far as they are names.
    names: Vec<String>,
    /// The field that the message names, if the path ends before it, and whether it is there.
    named: Option<(String, bool)>,
}

impl Place {
    fn of(path: &Path, told: &str) -> Self {
        let mut names = Vec::new();
        for segment in path.iter() {
            match segment {
                Segment::Map { key } => names.push(key.clone()),
                // What lies in a list goes with the list.
                Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => break,
            }
        }
        let named =
            [("unknown field `", true), ("missing field `", false)].iter().find_map(|(start, there)| {
                let name = told.strip_prefix(start)?.split('`').next()?;
                Some((name.to_owned(), *there))
            });
        let named = named.filter(|(name, there)| !*there || names.last() != Some(name));
        Self { shown: path.to_string(), names, named }
    }

    fn shown(&self, whole: &str) -> String {
        let path = if self.shown == "." { "" } else { self.shown.as_str() };
        let field = match &self.named {
            Some((name, _)) if path.is_empty() => name.clone(),
            Some((name, _)) => format!("{path}.{name}"),
            None if path.is_empty() => whole.to_owned(),
            None => path.to_owned(),
        };
        field.chars().take(MOST_SHOWN).collect()
    }

    /// False if it is the whole, or is not there.
    fn take_out_of(&self, value: &mut Value) -> bool {
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        // Of what lacks a field nothing can be made.
        names.extend(self.named.iter().filter(|(_, there)| *there).map(|(name, _)| name.as_str()));
        let Some((last, way)) = names.split_last() else { return false };
        let mut here = value;
        for name in way {
            let Some(below) = here.get_mut(name) else { return false };
            here = below;
        }
        here.as_object_mut().is_some_and(|fields| fields.remove(*last).is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "read, and not looked at")]
    struct Outer {
        n: u8,
        #[serde(default)]
        list: Vec<u8>,
        #[serde(default)]
        needed: Option<Needed>,
        #[serde(default)]
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "read, and not looked at")]
    struct Needed {
        list: Vec<u8>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code, reason = "read, and not looked at")]
    struct Inner {
        a: bool,
        b: bool,
    }

    fn fields(json: &str) -> Vec<String> {
        read::<Outer>(json, "body").problems.into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn whatever_is_wrong_is_told_at_once() {
        assert!(fields(r#"{"n": 1}"#).is_empty());
        assert_eq!(
            fields(r#"{"n": 1, "m": 2, "list": [1, "x", "y"], "inner": {"a": 1, "c": 2, "b": "x"}, "o": 3}"#),
            ["m", "inner.a", "inner.b", "inner.c", "list[1]", "o"]
        );
        assert_eq!(fields(r#"{"n": "x", "inner": 7}"#), ["n", "inner"]);
        assert_eq!(fields(r#"{"n": 1, "needed": {"list": ["x"]}}"#), ["needed.list[0]"]);
        assert_eq!(fields("[]"), ["body"]);
        assert_eq!(fields("{}"), ["n"]);
        assert_eq!(fields("{"), ["body"]);
        assert_eq!(fields(r#"{"n": 1} {}"#), ["body"]);
    }

    #[test]
    fn of_what_is_wrong_everywhere_so_much_is_told() {
        let fields: Vec<String> = (0..200).map(|n| format!("\"f{n}\":1")).collect();
        assert_eq!(self::fields(&format!("{{{}}}", fields.join(","))).len(), MOST);
    }
}
