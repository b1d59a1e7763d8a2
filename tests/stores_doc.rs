//! `docs/STORES.md` says of each store what the store says of itself.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use tenure::clock::SystemClock;
use tenure::store::{Capabilities, MemoryStore, SqliteOptions, SqliteStore, Store};

const BEGIN: &str = "<!-- capabilities: generated, do not edit -->\n";
const END: &str = "<!-- end -->\n";

fn capabilities() -> Vec<Capabilities> {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock);
    let sqlite =
        SqliteStore::open(SqliteOptions::new(folder.path().join("tenure.db"), Arc::clone(&clock) as _));
    vec![
        MemoryStore::new(clock).capabilities(),
        sqlite.unwrap().capabilities(),
        #[cfg(feature = "postgres")]
        tenure::store::PostgresStore::CAPABILITIES,
        #[cfg(feature = "redis")]
        tenure::store::RedisStore::CAPABILITIES,
        #[cfg(feature = "mongodb")]
        tenure::store::MongoStore::CAPABILITIES,
    ]
}

/// Of a store that this build does not have, the page says what it said.
fn as_before(page: &str, store: &str) -> String {
    let row = page.lines().find(|line| line.starts_with(&format!("| {store} |")));
    row.map(|row| format!("{row}\n")).unwrap()
}

fn table(page: &str) -> String {
    let mut text = String::from(
        "| store | durable | shared | hints across OS processes | clock |\n|---|---|---|---|---|\n",
    );
    let word = |yes: bool| if yes { "yes" } else { "no" };
    for store in capabilities() {
        let Capabilities { name, durable, shared, watch_across, server_clock } = store;
        let (durable, shared, across) = (word(durable), word(shared), word(watch_across));
        let clock = if server_clock { "the server's" } else { "the host's" };
        writeln!(text, "| {name} | {durable} | {shared} | {across} | {clock} |").unwrap();
    }
    if cfg!(not(feature = "mongodb")) {
        text.push_str(&as_before(page, "mongodb"));
    }
    text
}

#[test]
fn the_page_shows_what_the_stores_declare() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/STORES.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let generated = format!("{before}{BEGIN}\n{}\n{END}{after}", table(&page));
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    assert_eq!(page, generated, "write the page anew with TENURE_BLESS=1");
}
