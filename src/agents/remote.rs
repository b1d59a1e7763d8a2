//! What endpoints answer besides an answer: statuses, delays and broken connections, as errors with a class.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::mask::Secrets;
use crate::agent::AgentError;
use crate::clock::{Clock, SystemClock};
use crate::model::Seconds;

/// How much of an answer that tells of an error is read, and how much of it is shown.
const MOST_READ: usize = 16 * 1024;
const MOST_SHOWN: usize = 500;
/// How long the answer that tells of an error is read.
const ERROR_PATIENCE: Duration = Duration::from_secs(30);
/// How long an endpoint may tell nothing of an answer.
const IDLE: Duration = Duration::from_secs(300);
/// The longest that an endpoint can ask to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// The value of a variable that holds a secret.
#[allow(clippy::disallowed_methods, reason = "secrets are named by definitions and read when they are used")]
pub(super) fn secret(variable: &str) -> Result<String, AgentError> {
    let refuse = |what: &str| {
        let message = format!(
            "the variable \"{variable}\" of the environment {what}; set it where the host is started"
        );
        AgentError::new("configuration", message)
    };
    let value = match std::env::var(variable) {
        Ok(value) => value.trim().to_owned(),
        Err(std::env::VarError::NotPresent) => return Err(refuse("is not set, expected a secret in it")),
        Err(std::env::VarError::NotUnicode(_)) => return Err(refuse("holds what is no text")),
    };
    match HeaderValue::from_str(&value) {
        Ok(_) if value.is_empty() => Err(refuse("is empty, expected a secret in it")),
        Ok(_) => Ok(value),
        Err(_) => Err(refuse("holds what cannot be the value of a header")),
    }
}

/// A secret as a header, with something before it. It is never shown.
pub(super) fn secret_header(before: &str, secret: &str) -> Result<HeaderValue, AgentError> {
    let mut value = HeaderValue::from_str(&format!("{before}{secret}"))
        .map_err(|_| AgentError::new("configuration", "a secret cannot be the value of a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The name of a header that was checked when the definition was.
pub(super) fn header(name: &str) -> Result<HeaderName, AgentError> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| AgentError::new("configuration", format!("{name:?} is not the name of a header")))
}

/// A request that came to nothing.
pub(super) fn connection(error: reqwest::Error) -> AgentError {
    // Without the URL, and with the causes: "error sending request" says nothing.
    let error = error.without_url();
    if error.is_builder() {
        return AgentError::new("configuration", with_causes(&error));
    }
    AgentError::new("connection", with_causes(&error)).within("exception")
}

/// What is no answer.
pub(super) fn no_answer(message: impl Into<std::sync::Arc<str>>) -> AgentError {
    AgentError::new("invalid_response", message).within("exception")
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The answer if its status is one of success.
pub(super) async fn accepted(response: Response, secrets: &Secrets) -> Result<Response, AgentError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let wait = wait_of(response.headers());
    let location = response.headers().get("location").and_then(|to| to.to_str().ok()).map(host_of);
    let said = beginning(response, secrets).await;
    let mut message = format!("the endpoint answered {status}");
    if let Some(to) = location.filter(|_| status.is_redirection()) {
        message.push_str(&format!(", a redirect to \"{to}\": redirects are not followed, correct the URL"));
    }
    if !said.is_empty() {
        message.push_str(&format!(": {said}"));
    }
    Err(refused(status, message, wait))
}

fn refused(status: StatusCode, message: String, wait: Option<Seconds>) -> AgentError {
    let later = |error: AgentError| match wait {
        Some(wait) => error.retry_after(wait),
        None => error,
    };
    match status.as_u16() {
        401 | 403 => AgentError::new("authentication", message),
        404 => AgentError::new("not_found", message),
        408 | 504 => later(AgentError::new("timeout", message)),
        429 => later(AgentError::new("rate_limited", message).within("exception")),
        500..=599 => later(AgentError::new("server_error", message).within("exception")),
        _ => AgentError::new("invalid_request", message),
    }
}

/// Where a redirect leads, as far as it may be shown.
fn host_of(location: &str) -> String {
    match reqwest::Url::parse(location) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => "the same host".to_owned(),
    }
}

/// The beginning of an answer that tells of an error, in one line. Secrets are masked before anything is cut: a part
/// of one would not be found.
async fn beginning(mut response: Response, secrets: &Secrets) -> String {
    let until = Instant::now() + ERROR_PATIENCE;
    let mut mask = secrets.in_errors.rolling();
    let (mut bytes, mut read) = (Vec::new(), 0);
    while read < MOST_READ
        && let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await
    {
        let chunk = &chunk[..chunk.len().min(MOST_READ - read)];
        read += chunk.len();
        bytes.extend(mask.feed(chunk));
    }
    bytes.extend(mask.end());
    let said = said_in(&bytes).unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
    shown(&said, secrets)
}

/// As much as is shown of what an endpoint said, in one line and without secrets.
pub(super) fn shown(said: &str, secrets: &Secrets) -> String {
    let said = secrets.in_errors.text(said);
    let words: Vec<&str> = said.split_whitespace().collect();
    words.join(" ").chars().take(MOST_SHOWN).collect()
}

/// The message of an error in JSON, as endpoints write it.
pub(super) fn said_in(bytes: &[u8]) -> Option<String> {
    if bytes.len() > MOST_READ {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let error = value.get("error").unwrap_or(&value);
    let said =
        error.as_str().or_else(|| ["message", "detail"].iter().find_map(|key| error.get(key)?.as_str()));
    said.map(str::to_owned)
}

/// How long the endpoint asks to wait: a number of seconds, or an instant. What is past all bounds is the longest.
fn wait_of(headers: &HeaderMap) -> Option<Seconds> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if is_number(text) {
        text.parse().map_or(LONGEST_WAIT, Duration::from_secs)
    } else {
        match jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text) {
            Ok(until) => crate::model::Timestamp::from_jiff(until).since(SystemClock.now()),
            Err(_) if is_far_future(text) => LONGEST_WAIT,
            Err(_) => return None,
        }
    };
    let ms = wait.min(LONGEST_WAIT).as_millis();
    (ms > 0).then(|| Seconds::from_ms(u64::try_from(ms).unwrap_or(u64::MAX)))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this is a date of HTTP whose year is too late to be reckoned with.
fn is_far_future(text: &str) -> bool {
    let year = text.strip_suffix(" GMT").and_then(|date| date.split_whitespace().nth(3));
    year.is_some_and(|year| is_number(year) && (year.len() > 4 || year == "9999"))
}

/// How long an endpoint is waited for that tells nothing of its answer. Who sends nothing but signs of life is silent.
pub(super) struct Patience {
    until: Instant,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { until: Instant::now() + IDLE }
    }

    /// Something of the answer has come.
    pub(super) fn heard(&mut self) {
        *self = Self::new();
    }

    /// Waits no longer than that.
    pub(super) async fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, AgentError> {
        // What is ready at once is not too late for a timeout, however often.
        let in_time = Instant::now() < self.until;
        let waited = if in_time { timeout_at(self.until, future).await.ok() } else { None };
        waited.ok_or_else(|| {
            let message = format!("the endpoint told nothing of its answer for {} seconds", IDLE.as_secs());
            AgentError::new("timeout", message)
        })
    }
}

/// Reads an answer whole, if it has at most so many bytes.
pub(super) async fn whole(mut response: Response, most: usize) -> Result<Vec<u8>, AgentError> {
    let mut bytes = Vec::new();
    let mut patience = Patience::new();
    while let Some(chunk) = patience.wait(response.chunk()).await?.map_err(connection)? {
        patience.heard();
        if bytes.len() + chunk.len() > most {
            let message =
                format!("the answer has more than {most} bytes, which is the limit for JSON of an endpoint");
            return Err(AgentError::new("output_too_large", message));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Whether an answer says that it is of this type.
pub(super) fn is_of_type(headers: &HeaderMap, media_type: &str) -> bool {
    let said = headers.get(reqwest::header::CONTENT_TYPE).and_then(|said| said.to_str().ok());
    let said = said.and_then(|said| said.split(';').next()).map(str::trim);
    said.is_some_and(|said| said.eq_ignore_ascii_case(media_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(text: &str) -> Option<Duration> {
        let headers = [(RETRY_AFTER, HeaderValue::from_str(text).unwrap())].into_iter().collect();
        wait_of(&headers).map(Seconds::duration)
    }

    #[test]
    fn what_is_past_all_bounds_is_the_longest_wait() {
        let ages = "9".repeat(300);
        let longest =
            ["86401", "4294967296", &ages, "Wed, 01 Jan 2200 00:00:00 GMT", "Mon, 01 Jan 2200 00:00:00 GMT"];
        let dates = ["Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 99999 23:59:59 GMT"];
        for text in longest.into_iter().chain(dates) {
            assert_eq!(wait(text), Some(LONGEST_WAIT), "{text}");
        }
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        for text in ["0", "-1", "+1", "1.5", "soon", "", "Wed, 01 Jan 2020 00:00:00 GMT", "9999 GMT"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_nothing_but_signs_of_life_is_given_up() {
        let mut patience = Patience::new();
        patience.wait(tokio::time::advance(IDLE / 2)).await.unwrap();
        patience.heard();
        patience.wait(tokio::time::advance(IDLE - Duration::from_secs(1))).await.unwrap();
        patience.wait(async {}).await.unwrap();
        let late = patience.wait(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(&*late.error.class, "timeout");
        assert!(patience.wait(async {}).await.is_err(), "what is ready at once as well");
    }
}
