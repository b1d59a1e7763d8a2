//! Where things are: the address that is listened on, and the store.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

#[cfg(any(feature = "postgres", feature = "redis", feature = "mongodb"))]
use super::values::Secret;

/// The stores that can be named, each with whether this build has it.
const STORES: [(&str, bool); 5] = [
    ("memory", true),
    ("sqlite", true),
    ("postgres", cfg!(feature = "postgres")),
    ("redis", cfg!(feature = "redis")),
    ("mongodb", cfg!(feature = "mongodb")),
];

/// Which store keeps the records.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum StoreUrl {
    /// Nowhere: they end with the program.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// In a PostgreSQL server.
    #[cfg(feature = "postgres")]
    Postgres(Secret),
    /// In a Redis server.
    #[cfg(feature = "redis")]
    Redis(Secret),
    /// In a MongoDB server.
    #[cfg(feature = "mongodb")]
    Mongo(Secret),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(format!(
                "a store as \"memory:\" or \"sqlite:PATH\", found {:?}; a file is named \"sqlite:{url}\"",
                without_secret(url)
            ));
        };
        match scheme {
            "memory" if matches!(rest, "" | "//") => Ok(Self::Memory),
            "memory" => Err(format!("\"memory:\" and nothing behind it, found {url:?}")),
            "sqlite" => sqlite_path(rest).map(Self::Sqlite).ok_or_else(|| {
                format!(
                    "\"sqlite:PATH\", \"sqlite:///relative\" or \"sqlite:////absolute\", found {:?}",
                    without_secret(url)
                )
            }),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => match tenure::store::PostgresOptions::parse(url) {
                Ok(_) => Ok(Self::Postgres(Secret::new(url))),
                Err(why) => {
                    Err(format!("\"postgres://user:password@host:port/database?schema=name\": {why}"))
                }
            },
            #[cfg(feature = "redis")]
            "redis" | "rediss" if rest.starts_with("//") && rest.len() > 2 => {
                Ok(Self::Redis(Secret::new(url)))
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" => Err("\"redis://user:password@host:port/0\", found another form".to_owned()),
            #[cfg(feature = "mongodb")]
            "mongodb" => match tenure::store::MongoOptions::parse(url) {
                Ok(_) => Ok(Self::Mongo(Secret::new(url))),
                Err(_) => {
                    Err("\"mongodb://user:password@host:port/database\", found another form".to_owned())
                }
            },
            _ => Err(absent(scheme, url)),
        }
    }
}

/// `sqlite:PATH` as it is; behind `//` there would be a host, and there is none, so that a relative path
/// begins after three slashes, and an absolute one after four.
fn sqlite_path(rest: &str) -> Option<PathBuf> {
    let path = match rest.strip_prefix("//") {
        Some(behind_host) => behind_host.strip_prefix('/')?,
        None => rest,
    };
    (!path.is_empty()).then(|| PathBuf::from(path))
}

fn absent(scheme: &str, url: &str) -> String {
    let here: Vec<&str> = STORES.iter().filter(|(_, here)| *here).map(|(name, _)| *name).collect();
    let here = here.join(", ");
    let name = match scheme {
        "postgresql" => "postgres",
        "rediss" => "redis",
        "mongodb+srv" => "mongodb",
        name => name,
    };
    if STORES.iter().any(|(known, _)| *known == name) {
        let why = match (name, scheme) {
            (_, "mongodb+srv") if cfg!(feature = "mongodb") => {
                "\"mongodb+srv://\" is not built in; name the hosts in \"mongodb://\"".to_owned()
            }
            _ => format!("it was built without the feature \"{name}\""),
        };
        return format!("one of the stores that this build has: {here}; {why}");
    }
    format!("one of the stores that this build has: {here}; found {:?}", without_secret(url))
}

/// The URL without what stands between its scheme and its host.
fn without_secret(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}***{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

/// The URL of a server without its secrets: of the query, only the schema is shown.
#[cfg(any(feature = "postgres", feature = "redis", feature = "mongodb"))]
fn masked(url: &str) -> String {
    let shown = without_secret(url);
    let Some((address, query)) = shown.split_once('?') else { return shown };
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) if name != "schema" => format!("{name}=***"),
        _ => part.to_owned(),
    });
    format!("{address}?{}", parts.collect::<Vec<_>>().join("&"))
}

impl TryFrom<String> for StoreUrl {
    type Error = String;

    fn try_from(url: String) -> Result<Self, String> {
        url.parse().map_err(|expected| format!("expected {expected}"))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => f.write_str(&masked(url.reveal())),
            #[cfg(feature = "redis")]
            Self::Redis(url) => f.write_str(&masked(url.reveal())),
            #[cfg(feature = "mongodb")]
            Self::Mongo(url) => f.write_str(&masked(url.reveal())),
        }
    }
}

/// The variables by which clients of the interface that this one follows name their store.
pub(crate) const KNOWN_NAMES: [&str; 4] = [
    "OMNICOREAGENT_BACKGROUND_TASK_STORE",
    "OMNICOREAGENT_BACKGROUND_TASK_STORE_URL",
    "OMNICOREAGENT_BACKGROUND_TASK_STORE_URI",
    "OMNICOREAGENT_BACKGROUND_TASK_STORE_DATABASE",
];

/// The store that those variables name, with the variable to blame; none if they say nothing.
pub(crate) fn by_known_names(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<(&'static str, Result<StoreUrl, String>)> {
    let [kind, url, uri, database] = KNOWN_NAMES;
    let given = variable(kind)?;
    let address = [url, uri].into_iter().find_map(|name| Some((name, variable(name)?)));
    Some(match (given.as_str(), address) {
        ("memory", _) => (kind, Ok(StoreUrl::Memory)),
        ("mongodb", Some((name, url))) => (name, with_database(&url, variable(database)).parse()),
        ("sql" | "sqlite" | "redis", Some((name, url))) => (name, url.parse()),
        ("mongodb", None) if !cfg!(feature = "mongodb") => (kind, Err(absent(&given, &given))),
        ("sql" | "sqlite" | "redis" | "mongodb", None) => {
            (url, Err(format!("the store's URL, because {kind} is {given:?}")))
        }
        _ => (kind, Err(format!("\"memory\", \"sql\", \"redis\" or \"mongodb\", found {given:?}"))),
    })
}

/// The address with the database that is named beside it, if it names none itself.
fn with_database(url: &str, database: Option<String>) -> String {
    let Some(database) = database else { return url.to_owned() };
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let path = address.find("://").and_then(|at| address[at + 3..].split_once('/'));
    if path.is_some_and(|(_, path)| !path.is_empty()) {
        return url.to_owned();
    }
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{}/{database}{query}", address.trim_end_matches('/'))
}

/// Where the HTTP interface listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl Listen {
    /// Whether only programs of this machine reach it.
    pub(crate) fn is_local(self) -> bool {
        match self.0.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(ip.is_loopback(), |ip| ip.is_loopback()),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, 8000)))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numbers.parse().map(Self).map_err(|_| {
            format!("an address and a port such as \"127.0.0.1:8000\" or \"[::1]:8000\", found {text:?}")
        })
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|expected| format!("expected {expected}"))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(url: &str) -> Result<String, String> {
        url.parse::<StoreUrl>().map(|store| store.to_string())
    }

    #[test]
    fn stores_are_named_by_their_urls() {
        assert_eq!(store("memory:").as_deref(), Ok("memory:"));
        assert_eq!(store("sqlite:a/b.db").as_deref(), Ok("sqlite:a/b.db"));
        assert_eq!(store("sqlite:///a/b.db").as_deref(), Ok("sqlite:a/b.db"));
        assert_eq!(store("sqlite:////a/b.db").as_deref(), Ok("sqlite:/a/b.db"));
        assert_eq!(store("sqlite:/a/b.db").as_deref(), Ok("sqlite:/a/b.db"));
        for odd in ["", "tenure.db", "sqlite:", "sqlite://", "sqlite://host/a.db", "memory:x", "ftp://x"] {
            assert!(store(odd).is_err(), "{odd:?} was taken as {:?}", store(odd));
        }
    }

    #[test]
    fn a_store_that_is_not_built_in_is_named_and_its_password_is_not() {
        for (url, is_here) in [
            ("postgres://u:hunter2@h/d?schema=s&password=hunter2", cfg!(feature = "postgres")),
            ("postgresql://u:hunter2@h/d", cfg!(feature = "postgres")),
            ("redis://u:hunter2@h:1/0", cfg!(feature = "redis")),
            ("mongodb://u:hunter2@h/d?x=hunter2", cfg!(feature = "mongodb")),
            ("mongodb+srv://u:hunter2@h/d", false),
        ] {
            let shown = store(url);
            assert_eq!(shown.is_ok(), is_here, "{shown:?}");
            let shown = shown.unwrap_or_else(|why| why);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(is_here || shown.contains("built"), "{shown}");
        }
        assert!(!store("postgres://u:hunter2@h:x/d").unwrap_err().contains("hunter2"));
        assert!(!store("mongodb://u:hunter2@h").unwrap_err().contains("hunter2"));
        assert!(!store("oracle://u:hunter2@h/d").unwrap_err().contains("hunter2"));
    }

    #[test]
    fn known_names_name_the_store_too() {
        let ask = |given: &[(&str, &str)]| {
            let given: Vec<(String, String)> =
                given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            by_known_names(&|name: &str| {
                given.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            })
        };
        let [kind, url, uri, _] = KNOWN_NAMES;
        assert_eq!(ask(&[]), None);
        assert_eq!(ask(&[(url, "sqlite:x")]), None, "an address without its kind says nothing");
        assert_eq!(
            ask(&[(kind, "sql"), (url, "sqlite:///x.db")]),
            Some((url, Ok(StoreUrl::Sqlite("x.db".into()))))
        );
        assert_eq!(ask(&[(kind, "memory")]), Some((kind, Ok(StoreUrl::Memory))));
        let with = |url: &str| with_database(url, Some("d".to_owned()));
        assert_eq!(with("mongodb://h"), "mongodb://h/d");
        assert_eq!(with("mongodb://h/?x=1"), "mongodb://h/d?x=1");
        assert_eq!(with("mongodb://h/own?x=1"), "mongodb://h/own?x=1");
        for asked in [
            ask(&[(kind, "sql")]),
            ask(&[(kind, "mongodb"), (uri, "mongodb://localhost")]),
            ask(&[(kind, "redis")]),
            ask(&[(kind, "paper")]),
        ] {
            assert!(asked.is_some_and(|(_, store)| store.is_err()));
        }
    }

    #[test]
    fn addresses_of_this_machine_are_told_from_others() {
        let local = |text: &str| text.parse::<Listen>().map(Listen::is_local);
        for here in ["127.0.0.1:0", "localhost:8000", "[::1]:80", "127.9.9.9:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(local(here), Ok(true), "{here}");
        }
        for there in ["0.0.0.0:80", "[::]:80", "192.168.1.2:80"] {
            assert_eq!(local(there), Ok(false), "{there}");
        }
        assert!(local("8000").is_err());
    }
}
