//! Who is served: whoever shows the token, or, where none is set, whoever is on this machine and is no page of
//! another site.
//!
//! A browser sends the requests of any page to this machine, and a name that an attacker owns may lead here too.
//! Both show: the first by `Origin`, the second by `Host`.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Version, header};

use super::options::HttpOptions;
use super::problem::{Kind, Problem};
use super::query::shown;

/// The paths that tell nothing about work, for who watches over hosts.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Whether a request may be served.
pub(super) fn admit(options: &HttpOptions, parts: &Parts) -> Result<(), Problem> {
    one_host(parts)?;
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
    let host = parts.headers.get(header::HOST);
    let asked = match (parts.uri.authority(), host) {
        (Some(authority), _) => Some(Place::of(authority)),
        (None, Some(host)) => Some(place_of(host)),
        (None, None) => None,
    };
    if let Some(asked) = &asked
        && !asked.as_ref().is_some_and(|asked| is_ours(options, &asked.name))
    {
        let named = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
        let named = named.or(host.map(HeaderValue::as_bytes)).unwrap_or_default();
        let named = shown(&String::from_utf8_lossy(named));
        return Err(Problem::new(Kind::Misdirected, format!("{named} is no name of this machine"))
            .hint("ask for localhost; a name of a proxy is allowed by the settings, or set a token"));
    }
    let Some(origin) = parts.headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
    if asked.flatten().is_some_and(|asked| is_page_of(&origin, &asked)) {
        return Ok(());
    }
    Err(Problem::new(Kind::Forbidden, format!("pages of {} are not served", shown(&origin)))
        .hint("a browser sent this for another site; with a token set, pages may ask that have it"))
}

/// Whoever speaks HTTP/1.1 says which host is meant, once, as a host: two of them would be read by a proxy as the one
/// and here as the other (RFC 9112, section 3.2).
fn one_host(parts: &Parts) -> Result<(), Problem> {
    let hosts: Vec<&HeaderValue> = parts.headers.get_all(header::HOST).iter().collect();
    let found = match hosts.as_slice() {
        [] if parts.version != Version::HTTP_11 => return Ok(()),
        // Of a request whose target has no host, it is there and empty.
        [host] if host.is_empty() || place_of(host).is_some() => return Ok(()),
        [] => "none".to_owned(),
        [host] => shown(&String::from_utf8_lossy(host.as_bytes())),
        many => many.len().to_string(),
    };
    let expected = "expected one header \"Host\" with a name or an address, and perhaps a port";
    Err(Problem::new(Kind::Unparsable, format!("{expected}, found {found}")))
}

fn place_of(host: &HeaderValue) -> Option<Place> {
    host.to_str().ok().and_then(Place::parse)
}

/// Where a request goes to, or a page comes from.
struct Place {
    name: String,
    port: Option<u16>,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        Self::of(&text.parse().ok()?)
    }

    /// None for what has a user in it, or a port that is none.
    fn of(authority: &Authority) -> Option<Self> {
        let behind = authority.as_str().strip_prefix(authority.host())?;
        let port = match behind.strip_prefix(':') {
            None | Some("") => None,
            Some(port) => Some(port.parse().ok()?),
        };
        Some(Self { name: plain(authority.host()), port })
    }
}

/// A name or an address in the one form in which it is compared.
fn plain(host: &str) -> String {
    let host = host.strip_suffix('.').unwrap_or(host);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>()
        .map_or_else(|_| bare.to_ascii_lowercase(), |address| address.to_canonical().to_string())
}

/// Whether a page comes from where its request goes to: the same scheme's port where none is said.
fn is_page_of(origin: &str, asked: &Place) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    Place::parse(rest).is_some_and(|page| {
        page.name == asked.name && page.port.unwrap_or(usual) == asked.port.unwrap_or(usual)
    })
}

fn is_ours(options: &HttpOptions, name: &str) -> bool {
    let local = name.parse::<IpAddr>().map_or(name == "localhost", |address| address.is_loopback());
    local || options.allowed_hosts.iter().any(|allowed| plain(allowed) == name)
}

#[cfg(test)]
mod tests {
    use super::super::options::Token;
    use super::*;
    use axum::http::Request;

    /// With the host of this machine, if none is named.
    fn asked(options: &HttpOptions, path: &str, headers: &[(&str, &str)]) -> u16 {
        let own = [("host", "localhost")];
        let named = headers.iter().any(|(name, _)| *name == "host");
        let headers = [if named { &[][..] } else { &own }, headers].concat();
        asked_by(Version::HTTP_11, options, path, &headers)
    }

    fn asked_by(version: Version, options: &HttpOptions, path: &str, headers: &[(&str, &str)]) -> u16 {
        use axum::response::IntoResponse;
        let request = Request::get(path).version(version);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        admit(options, &parts).err().map_or(200, |problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn without_a_token_only_this_machine_is_served() {
        let mut options = HttpOptions::default();
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:8000",
            "127.8.9.1",
            "[::1]:8000",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]:8000",
            "localhost.",
            "localhost.:8000",
            "localhost:",
        ] {
            assert_eq!(asked(&options, "/background/tasks", &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8000", "localhost..", "10.0.0.1", "[::2]", ""] {
            assert_eq!(asked(&options, "/background/tasks", &[("host", host)]), 421, "{host}");
            assert_eq!(asked(&options, "/healthz", &[("host", host)]), 200, "{host}");
        }
        options.allowed_hosts.push("tasks.example".into());
        options.allowed_hosts.push("[2001:DB8::1]".into());
        for host in ["Tasks.Example:443", "tasks.example.", "[2001:db8:0::1]:443"] {
            assert_eq!(asked(&options, "/background/tasks", &[("host", host)]), 200, "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host_wherever_it_does() {
        let options = HttpOptions::default();
        let twice = [("host", "localhost"), ("host", "localhost")];
        for path in ["/background/tasks", "/healthz"] {
            assert_eq!(asked(&options, path, &twice), 400, "{path}");
        }
        let with_a_token = HttpOptions { token: Some(Token::new("s3cret")), ..HttpOptions::default() };
        assert_eq!(asked(&with_a_token, "/background/tasks", &twice), 400);
        for host in [
            "[::1",
            "::1",
            "a b",
            "user@evil",
            "evil@localhost",
            "localhost:http",
            "localhost:99999",
            "\u{e9}",
        ] {
            for options in [&options, &with_a_token] {
                assert_eq!(asked(options, "/background/tasks", &[("host", host)]), 400, "{host}");
            }
        }
        for path in ["/background/tasks", "/healthz", "http://localhost/background/tasks"] {
            assert_eq!(asked_by(Version::HTTP_11, &options, path, &[]), 400, "{path}");
            assert_eq!(asked_by(Version::HTTP_10, &options, path, &[]), 200, "{path}");
        }
        let over_2 = asked_by(Version::HTTP_2, &options, "http://localhost/background/tasks", &[]);
        assert_eq!(over_2, 200, "there the target says it");
        // Of a whole address, the header says nothing any more (RFC 9112, section 3.2.2).
        assert_eq!(asked(&options, "http://evil.example/background/tasks", &[("host", "localhost")]), 421);
        assert_eq!(asked(&options, "http://localhost/background/tasks", &[("host", "evil.example")]), 200);
    }

    #[test]
    fn without_a_token_pages_of_other_sites_are_refused() {
        let options = HttpOptions::default();
        let from = |origin: &str| {
            asked(&options, "/background/tasks", &[("host", "localhost:8000"), ("origin", origin)])
        };
        for origin in ["http://localhost:8000", "HTTP://LocalHost:8000", "http://localhost.:8000"] {
            assert_eq!(from(origin), 200, "{origin}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:9000",
            "",
            "http://localhost",
            "file://localhost:8000",
            "http://localhost:8000/path",
            "http://127.0.0.1:8000",
        ] {
            assert_eq!(from(origin), 403, "{origin}");
        }
        let pairs = [
            ("localhost", "http://localhost:80", 200),
            ("localhost:80", "http://localhost", 200),
            ("localhost:443", "https://localhost", 200),
            ("localhost", "https://localhost:443", 200),
            ("localhost:80", "https://localhost", 403),
            ("[::1]:8000", "http://[0:0::1]:8000", 200),
        ];
        for (host, origin, status) in pairs {
            let told = asked(&options, "/background/tasks", &[("host", host), ("origin", origin)]);
            assert_eq!(told, status, "{origin} at {host}");
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
