//! Who is served: whoever shows the token, or, where none is set, whoever is on this machine and is no page of
//! another site.
//!
//! A browser sends the requests of any page to this machine, and a name that an attacker owns may lead here too.
//! Both show: the first by `Origin`, the second by `Host`.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, header};

use super::options::HttpOptions;
use super::problem::{Kind, Problem};
use super::query::shown;

/// The paths that tell nothing about work, for who watches over hosts.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Whether a request may be served.
pub(super) fn admit(options: &HttpOptions, parts: &Parts) -> Result<(), Problem> {
    if OPEN.contains(&parts.uri.path()) {
        return Ok(());
    }
    match &options.token {
        Some(token) => match bearer(&parts.headers) {
            Some(shown) if token.matches(shown) => Ok(()),
            Some(_) => Err(refused("the token is not the one that is expected here")),
            None => Err(refused("a token is needed")),
        },
        None => local(options, parts),
    }
}

fn refused(why: &str) -> Problem {
    Problem::new(Kind::Unauthorized, why).hint("send the header \"Authorization: Bearer TOKEN\"")
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let shown = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = shown.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

fn local(options: &HttpOptions, parts: &Parts) -> Result<(), Problem> {
    let asked = parts.uri.authority().cloned().or_else(|| authority(&parts.headers, &header::HOST));
    if let Some(host) = parts.headers.get(header::HOST)
        && !asked.as_ref().is_some_and(|asked| is_ours(options, asked.host()))
    {
        let host = shown(&String::from_utf8_lossy(host.as_bytes()));
        return Err(Problem::new(Kind::Misdirected, format!("{host} is no name of this machine"))
            .hint("ask for localhost; a name of a proxy is allowed by the settings, or set a token"));
    }
    let Some(origin) = parts.headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
    let from = origin.split_once("://").map(|(_, rest)| rest);
    if from.is_some() && from == asked.as_ref().map(Authority::as_str) {
        return Ok(());
    }
    Err(Problem::new(Kind::Forbidden, format!("pages of {} are not served", shown(&origin)))
        .hint("a browser sent this for another site; with a token set, pages may ask that have it"))
}

fn authority(headers: &HeaderMap, name: &HeaderName) -> Option<Authority> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn is_ours(options: &HttpOptions, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let local = match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => address == Ipv6Addr::LOCALHOST,
        Err(_) => bare.eq_ignore_ascii_case("localhost"),
    };
    local || options.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::super::options::Token;
    use super::*;
    use axum::http::Request;

    fn asked(options: &HttpOptions, path: &str, headers: &[(&str, &str)]) -> u16 {
        use axum::response::IntoResponse;
        let request =
            headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        admit(options, &parts).err().map_or(200, |problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn without_a_token_only_this_machine_is_served() {
        let mut options = HttpOptions::default();
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.8.9.1", "[::1]:8000", "localhost."]
        {
            assert_eq!(asked(&options, "/background/tasks", &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:8000", "10.0.0.1", "[::2]", "", "a b", "user@evil"]
        {
            assert_eq!(asked(&options, "/background/tasks", &[("host", host)]), 421, "{host}");
            assert_eq!(asked(&options, "/healthz", &[("host", host)]), 200, "{host}");
        }
        options.allowed_hosts.push("tasks.example".into());
        assert_eq!(asked(&options, "/background/tasks", &[("host", "Tasks.Example:443")]), 200);
    }

    #[test]
    fn without_a_token_pages_of_other_sites_are_refused() {
        let options = HttpOptions::default();
        let from = |origin: &str| {
            asked(&options, "/background/tasks", &[("host", "localhost:8000"), ("origin", origin)])
        };
        assert_eq!(from("http://localhost:8000"), 200);
        for origin in ["http://evil.example", "null", "http://localhost:9000", "", "http://localhost"] {
            assert_eq!(from(origin), 403, "{origin}");
        }
    }

    #[test]
    fn with_a_token_it_has_to_be_shown() {
        let options = HttpOptions { token: Some(Token::new("s3cret")), ..HttpOptions::default() };
        let with = |value: &str| asked(&options, "/background/tasks", &[("authorization", value)]);
        assert_eq!(with("Bearer s3cret"), 200);
        assert_eq!(with("bearer  s3cret "), 200);
        for value in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret"] {
            assert_eq!(with(value), 401, "{value}");
        }
        assert_eq!(asked(&options, "/background/tasks", &[]), 401);
        assert_eq!(asked(&options, "/readyz", &[]), 200);
        assert_eq!(asked(&options, "/metrics", &[]), 401);
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
