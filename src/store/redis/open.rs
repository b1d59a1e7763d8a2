//! What is looked at before a server is used: its version, how it keeps what it is given, and who wrote the keys.

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisError, TlsCertificates, Value};

use super::RedisOptions;
use super::fault::{Fault, Step, invalid};
use super::link::{self, Shared};
use crate::store::{RefusedKind, tls};

/// The version of the keys and records. A change of it is a new number, and a step from the one before. Before 2
/// nothing was released: there is no step from it.
const SCHEMA: u64 = 2;

/// The oldest server: before it, scripts could not say that they only read.
const OLDEST: (u64, u64) = (7, 0);

/// The address in the URL, without who logs in.
pub(super) fn name(client: &Client, options: &RedisOptions) -> String {
    format!("redis {} {}", client.get_connection_info().addr(), options.namespace)
}

/// The server behind a URL. What is wrong with it is told without the URL: there may be a password in it.
pub(super) fn client(options: &RedisOptions) -> Step<Client> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':');
    if options.namespace.is_empty() || options.namespace.len() > 100 || !options.namespace.chars().all(fits) {
        return Err(invalid(format!(
            "the namespace {:?}, expected 1 to 100 of letters, digits, \"_\", \".\", \"-\" and \":\"",
            options.namespace.chars().take(100).collect::<String>()
        )));
    }
    let form = "a URL as \"redis://user:password@host:6379/0\" was expected; look at its parts";
    let (url, authority) = take_authority(&options.url)?;
    let info = url.as_str().into_connection_info().map_err(|_| invalid(form))?;
    let odd = |error: RedisError| invalid(format!("{form} ({})", error.category()));
    match (info.addr(), authority) {
        (ConnectionAddr::TcpTls { .. }, authority) => {
            // Another part of the program may have chosen one before: that is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let root_cert = authority.map(|path| tls::authority(&path)).transpose().map_err(invalid)?;
            let certificates = TlsCertificates { client_tls: None, root_cert };
            Client::build_with_tls(info, certificates).map_err(odd)
        }
        (_, Some(_)) => {
            Err(invalid("sslrootcert is given, and no TLS is asked for; begin the URL with \"rediss://\""))
        }
        (_, None) => Client::open(info).map_err(odd),
    }
}

/// Takes the option that is ours out of a URL.
fn take_authority(url: &str) -> Step<(String, Option<String>)> {
    let Some((address, query)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (own, rest): (Vec<&str>, Vec<&str>) = query
        .split('&')
        .filter(|part| !part.is_empty())
        .partition(|part| part.split('=').next() == Some(tls::AUTHORITY));
    let path = own.last().and_then(|part| part.split_once('=')).map(|(_, path)| path.to_owned());
    let url = if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
    Ok((url, path))
}

/// Looks at the server, gives it the scripts, and makes the keys if there are none.
pub(super) async fn look(client: Client, options: RedisOptions) -> Step<Shared> {
    let mut conn = link::connect(&client, &options).await?;
    let said = ask(&mut conn, &["INFO", "server"]).await?;
    let version = of_info(&said, "redis_version").unwrap_or_default();
    if parsed(version).is_none_or(|version| version < OLDEST) {
        return Err(Fault::Refused(
            RefusedKind::NotSupported,
            format!("the server has version {version:?}, expected 7.0 or newer; use a newer server"),
        ));
    }
    look_at_memory(&mut conn).await?;
    look_at_disk(&mut conn).await;
    let (write, tidy, read) = link::load(&mut conn).await?;
    let prefix = format!("{{tenure:{}}}", options.namespace);
    let shared = Shared { options, client, prefix, write, tidy, read };
    let mut open = shared.write("open");
    open.arg("").arg(SCHEMA);
    let made: Option<u64> = open.query_async(&mut conn).await.map_err(|error| Fault::of(&error, false))?;
    match made {
        None | Some(SCHEMA) => Ok(shared),
        Some(older) if older < SCHEMA => Err(Fault::Refused(
            RefusedKind::NotSupported,
            format!(
                "its keys have schema version {older}, this program reads version {SCHEMA} alone; \
                 use another namespace, or the version of the program that made them"
            ),
        )),
        Some(other) => Err(Fault::Refused(
            RefusedKind::NewerSchema,
            format!(
                "its keys have schema version {other}, this program knows version {SCHEMA}; \
                 use a newer version of the program"
            ),
        )),
    }
}

/// A server that throws away what it was given when its memory is full would throw away everything at once.
async fn look_at_memory(conn: &mut MultiplexedConnection) -> Step<()> {
    let Some(policy) = setting(conn, "maxmemory-policy").await else { return Ok(()) };
    if policy.starts_with("allkeys") {
        return Err(Fault::Refused(
            RefusedKind::NotSupported,
            format!(
                "the server evicts keys (maxmemory-policy {policy}), expected \"noeviction\"; set it in redis.conf"
            ),
        ));
    }
    Ok(())
}

async fn look_at_disk(conn: &mut MultiplexedConnection) {
    let append = setting(conn, "appendonly").await;
    let fsync = setting(conn, "appendfsync").await;
    if append.as_deref() == Some("no") {
        tracing::warn!(
            "the server keeps no append-only file: when it ends, what was answered since its last snapshot \
            is lost; set \"appendonly yes\""
        );
    } else if fsync.as_deref() == Some("no") {
        tracing::warn!(
            "the server leaves it to the system when its file reaches the disk; set \"appendfsync everysec\""
        );
    }
}

/// None if the server does not tell.
async fn setting(conn: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut cmd = redis::cmd("CONFIG");
    cmd.arg("GET").arg(name);
    let pair: Vec<String> = cmd.query_async(conn).await.ok()?;
    pair.into_iter().nth(1)
}

async fn ask(conn: &mut MultiplexedConnection, words: &[&str]) -> Step<String> {
    let mut cmd = redis::Cmd::new();
    for word in words {
        cmd.arg(*word);
    }
    let value: Value = cmd.query_async(conn).await.map_err(|error| Fault::of(&error, false))?;
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text),
        _ => Err(invalid("what answers there is no Redis server; correct the URL")),
    }
}

fn of_info<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn parsed(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(parsed("7.0.15"), Some((7, 0)));
        assert_eq!(parsed("10.2"), Some((10, 2)));
        assert!(parsed("6.2.14").is_some_and(|version| version < OLDEST));
        assert_eq!(parsed("seven"), None);
        let info = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n";
        assert_eq!(of_info(info, "redis_version"), Some("7.2.4"));
    }

    #[test]
    fn a_bad_url_is_refused_and_its_password_kept() {
        for url in
            ["", "redis:", "http://user:secret@host", "redis://:secret@host:port/x", "redis://:secret@h/nine"]
        {
            let Err(Fault::Refused(kind, why)) = client(&RedisOptions::new(url)) else { continue };
            assert_eq!(kind, RefusedKind::Invalid);
            assert!(!why.contains("secret"), "{why}");
        }
        assert!(client(&RedisOptions::new("http://host")).is_err());
        let spaced = RedisOptions { namespace: "a b".into(), ..RedisOptions::new("redis://host") };
        assert!(client(&spaced).is_err());
    }
}
