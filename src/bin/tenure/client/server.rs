//! A server, over HTTP.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Method, Url};

use super::{Ask, Response};
use crate::exit::{Exit, Failure};

/// How long it may take until a server takes the connection.
const CONNECT: Duration = Duration::from_secs(10);

pub(super) struct Server {
    url: Url,
    http: reqwest::Client,
    token: Option<HeaderValue>,
}

impl Server {
    pub(super) fn new(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let url = parse(url)?;
        // An error says that there is one already.
        drop(rustls::crypto::ring::default_provider().install_default());
        // A redirection would take the token elsewhere.
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        if is_this_machine(&url) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| Failure::new(Exit::Failed, told(&error)))?;
        let token = token.map(|token| bearer(&token)).transpose()?;
        Ok(Self { url, http, token })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) async fn begin(&self, ask: Ask) -> Result<Response, Failure> {
        let method = Method::from_bytes(ask.method.as_bytes()).unwrap_or_default();
        let mut request = self.http.request(method, ask.url(&self.url)?);
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.header(reqwest::header::AUTHORIZATION, token.clone());
        }
        if let Some(patience) = ask.patience {
            request = request.timeout(patience);
        }
        if let Some(body) = ask.body {
            request = request.body(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.map(str::to_owned);
        let status = response.status().as_u16();
        let url = self.url.clone();
        let bytes = response.bytes_stream().map_err(move |error| broken(&url, &error));
        Ok(Response { status, retry_after, bytes: bytes.boxed() })
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let url = shown(&self.url);
        if error.is_builder() {
            return Failure::usage(format!("this cannot be asked: {}", told(error)));
        }
        if error.is_timeout() && !error.is_connect() {
            let failure = Failure::new(Exit::Unavailable, format!("\"{url}\" did not answer in time"));
            return failure.hint("look at the server's log, or at `tenure doctor`");
        }
        if !error.is_connect() {
            let message = format!("\"{url}\" did not answer: {}", told(error));
            return Failure::new(Exit::Unavailable, message)
                .hint("ask again; if that is no help, check that the URL is one of a tenure server");
        }
        Failure::new(Exit::Unavailable, format!("\"{url}\" cannot be reached: {}", told(error)))
            .hint("start a server with `tenure serve`, or ask the store itself: `--store sqlite:PATH`")
    }
}

fn broken(url: &Url, error: &reqwest::Error) -> Failure {
    let message = format!("the connection to \"{}\" broke: {}", shown(url), told(error));
    let failure = Failure::new(Exit::Unavailable, message);
    failure.hint("ask again; what was wanted may have been done or not")
}

/// As it was written, more or less.
fn shown(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

/// The innermost reason: the outer ones repeat the address, or say only that there is a reason.
fn told(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string().to_lowercase()
}

fn parse(text: &str) -> Result<Url, Failure> {
    let unfit = |why: &str| {
        let shown: String = text.chars().take(80).collect();
        Failure::usage(format!("{shown:?} is no URL of a server: {why}"))
            .hint("write it as `http://127.0.0.1:8000`; the environment variable is TENURE_URL")
    };
    if !["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Err(unfit("expected one that begins with http:// or https://"));
    }
    let url = Url::parse(text).map_err(|error| unfit(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::usage("the URL of a server must not hold a name or password")
            .hint("the token is given in the environment variable TENURE_TOKEN"));
    }
    if url.path().trim_end_matches('/').ends_with("/background") {
        return Err(unfit(
            "expected it without \"/background\" at its end: that is put there for each request",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(unfit("expected nothing after the path"));
    }
    Ok(url)
}

fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        Failure::usage("the token has characters that cannot be sent").hint("look at TENURE_TOKEN")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether it is this machine that is asked: no proxy stands between.
fn is_this_machine(url: &Url) -> bool {
    match url.host_str() {
        Some(host) => {
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_url_is_one_of_a_server() {
        for good in ["http://127.0.0.1:8000", "https://host/behind/", "http://[::1]:80"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:8000",
            "localhost",
            "ftp://host",
            "http://",
            "http://a:b@host",
            "http://host?x=1",
            "http://host/background/",
        ] {
            let failure = parse(bad).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{bad}");
            assert!(failure.hint.is_some(), "{bad}");
        }
    }

    #[test]
    fn a_password_in_an_url_is_not_repeated() {
        assert!(!parse("http://me:secret@host").unwrap_err().message.contains("secret"));
    }
}
