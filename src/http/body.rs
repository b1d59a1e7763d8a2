//! The body of a request, read strictly: one JSON object of a bounded size, in bounded time, every field known
//! and given once.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::timeout;

use super::Api;
use super::limits::Since;
use super::problem::{Kind, Problem};
use super::query::shown;
use crate::model::{WHOLE_CHARACTERS, read};

/// How deep JSON may be nested: as deep as metadata, and what is around them.
const MOST_LEVELS: usize = 72;

/// How much of a body that is refused is still taken.
const MOST_LINGERED: usize = 16 << 20;

/// For how long somebody who is refused is still heard.
pub(super) const LONGEST_LINGER: Duration = Duration::from_secs(2);

/// The JSON of a request; nothing if its body is empty.
pub(super) struct Given(Option<String>);

impl Given {
    /// The text, which has to be there.
    pub(super) fn text(&self) -> Result<&str, Problem> {
        self.0
            .as_deref()
            .ok_or_else(|| Problem::new(Kind::Unparsable, "expected a JSON object, found nothing"))
    }

    /// The text, or `{}` if there is none.
    pub(super) fn text_or_empty(&self) -> &str {
        self.0.as_deref().unwrap_or("{}")
    }

    /// What it says; if there is no body, what `{}` says.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        Ok(read(self.text_or_empty(), "body").done()?)
    }
}

impl FromRequest<Api> for Given {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let options = api.options();
        let (parts, body) = request.into_parts();
        let since = parts.extensions.get::<Since>();
        since.into_iter().for_each(Since::arriving);
        let limit = options.max_body_bytes;
        if announced(&parts.headers).is_some_and(|bytes| bytes > limit) {
            linger(&mut body.into_data_stream()).await;
            return Err(too_large(limit));
        }
        let late = |_| {
            let waited = options.body_timeout;
            Problem::new(Kind::Slow, format!("the body did not arrive within {waited:?}"))
        };
        let bytes = timeout(options.body_timeout, collect(body, limit)).await.map_err(late)??;
        since.into_iter().for_each(Since::arrived);
        if bytes.is_empty() {
            return Ok(Self(None));
        }
        expect_json(&parts.headers)?;
        object(check(&bytes)?).map(Self)
    }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> Problem {
    Problem::new(Kind::TooLarge, format!("the body has more than {limit} bytes, which is the limit"))
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, Problem> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let broken = |_| Problem::new(Kind::Unparsable, "the body did not arrive as a whole");
        let chunk: Bytes = chunk.map_err(broken)?;
        if bytes.len() + chunk.len() > limit {
            linger(&mut chunks).await;
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Takes what still comes of a body that is refused, for a while: a caller that is cut off while it sends sees a
/// broken connection, and never the answer.
async fn linger(chunks: &mut BodyDataStream) {
    let all = async {
        let mut left = MOST_LINGERED;
        while let Some(Ok(chunk)) = chunks.next().await {
            let Some(rest) = left.checked_sub(chunk.len()) else { return };
            left = rest;
        }
    };
    // Whoever still sends is cut off.
    drop(timeout(LONGEST_LINGER, all).await);
}

/// Also keeps forms of other sites out: a browser sends none of this type without asking.
fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("(no text)"));
    let mut parts = given.unwrap_or_default().split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    let json = media_type == "application/json"
        || (media_type.starts_with("application/") && media_type.ends_with("+json"));
    let utf8 = parts.all(|parameter| match parameter.to_ascii_lowercase().split_once('=') {
        Some(("charset", name)) => matches!(name.trim_matches('"'), "utf-8" | "utf8"),
        _ => true,
    });
    if json && utf8 {
        return Ok(());
    }
    let found = given.map_or_else(|| "none".to_owned(), shown);
    Err(Problem::new(Kind::MediaType, format!("expected a body of application/json in UTF-8, found {found}"))
        .hint("send the header \"Content-Type: application/json\""))
}

/// The text of an object; nothing for `null`. A list would be taken for the fields in their order.
fn object(text: String) -> Result<Option<String>, Problem> {
    let found = match text.trim_start().bytes().next() {
        Some(b'{') => return Ok(Some(text)),
        Some(b'n') => return Ok(None),
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        _ => "a number",
    };
    Err(Problem::field("body", format!("an object, found {found}")))
}

/// The text, if it is one JSON value in which no name is given twice.
fn check(bytes: &[u8]) -> Result<String, Problem> {
    let unparsable = |why: String| Problem::new(Kind::Unparsable, why);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| unparsable(format!("the body is no UTF-8 from byte {} on", error.valid_up_to())))?;
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| unparsable(format!("the body is no JSON: {error}")))?;
    Scan::default().all(text)?;
    Ok(text.to_owned())
}

/// Goes over JSON that is known to be some, without recursion: what is nested too deep is refused, and no crash.
#[derive(Default)]
struct Scan<'a> {
    /// The objects and lists around: of an object the names it has had.
    around: Vec<Option<HashSet<Cow<'a, str>>>>,
}

impl<'a> Scan<'a> {
    fn all(mut self, text: &'a str) -> Result<(), Problem> {
        let bytes = text.as_bytes();
        // Whether the next text is a name.
        let (mut at, mut name) = (0, false);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'{' | b'[' => {
                    name = *byte == b'{';
                    self.around.push(name.then(HashSet::new));
                    if self.around.len() > MOST_LEVELS {
                        return Err(Problem::field(
                            "body",
                            format!("at most {MOST_LEVELS} levels of nesting"),
                        ));
                    }
                }
                b'}' | b']' => {
                    self.around.pop();
                }
                b',' => name = self.around.last().is_some_and(Option::is_some),
                b':' => name = false,
                b'"' => {
                    let end = end_of_text(bytes, at);
                    if name {
                        self.name(text.get(at..end).unwrap_or_default())?;
                    }
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(())
    }

    fn name(&mut self, quoted: &'a str) -> Result<(), Problem> {
        let plain = quoted.trim_matches('"');
        let told = |name: &str| name.chars().take(80).collect::<String>();
        let name = if plain.contains('\\') {
            let read = serde_json::from_str::<String>(quoted);
            Cow::Owned(read.map_err(|_| Problem::field(told(plain), WHOLE_CHARACTERS))?)
        } else {
            Cow::Borrowed(plain)
        };
        let field = told(&name);
        let Some(Some(names)) = self.around.last_mut() else { return Ok(()) };
        if names.insert(name) {
            return Ok(());
        }
        Err(Problem::field(field, "given once, found twice in the same object"))
    }
}

/// The place after the closing quote of the text that begins here.
fn end_of_text(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: &str) -> String {
        match check(json.as_bytes()) {
            Ok(_) => "taken".to_owned(),
            Err(problem) => format!("{problem:?}"),
        }
    }

    #[test]
    fn a_name_may_be_given_once_in_an_object() {
        for json in [
            r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}"#,
            r#"{"a":"\"a\":1,\"a\"","b":["a","a"]}"#,
            "[]",
            "7",
            r#""a""#,
        ] {
            assert_eq!(checked(json), "taken", "{json}");
        }
        for json in [
            r#"{"a":1,"a":2}"#,
            r#"{"x":{"a":1,"\u0061":2}}"#,
            r#"[{"a":[{}],"b":{},"a":{}}]"#,
            r#"{"":1,"":2}"#,
        ] {
            assert!(checked(json).contains("found twice"), "{json}: {}", checked(json));
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(checked(&nested(MOST_LEVELS)), "taken");
        assert!(checked(&nested(MOST_LEVELS + 1)).contains("levels of nesting"));
        assert!(checked(&nested(200_000)).contains("levels of nesting"));
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        for json in ["{", "{}{}", "{\"a\":}", "nul", "{'a':1}", "{\"a\":1,}", "\u{feff}{}"] {
            assert!(checked(json).contains("no JSON"), "{json}: {}", checked(json));
        }
    }
}
