//! Whether the store can be used, is up to date and whole, and whether its clock is that of this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure::agents::Directory;
use tenure::model::{RunStatus, Timestamp};
use tenure::store::{PageRequest, RunFilter, SqliteStore};
use tenure::{Error, Tenure};

use super::{Finding, agentless};
use crate::commands::common::Need;
use crate::commands::here;
use crate::config::{Loaded, StoreUrl};
use crate::exit::Failure;

/// How many findings of the check are told.
const TOLD: usize = 5;
/// How far clocks may be apart.
const SKEW: Duration = Duration::from_secs(2);

pub(super) async fn look(loaded: &Loaded, found: &mut Vec<Finding>) {
    let config = &loaded.config;
    let path = match &config.store.url {
        StoreUrl::Memory => {
            let message = "it is kept in memory: nothing survives the end of the server";
            let hint = "name one that is kept: `store.url = \"sqlite:.tenure/tenure.db\"`";
            return found.push(Finding::warn("store", message).hint(hint));
        }
        StoreUrl::Sqlite(path) => path,
        #[cfg(any(feature = "postgres", feature = "redis", feature = "mongodb"))]
        _ => return open(loaded, found).await,
    };
    if !path.exists() {
        let message = format!("there is none at \"{}\" yet", path.display());
        let hint = "`tenure serve` and `tenure run FILE` make it; name another with --store";
        return found.push(Finding::warn("store", message).hint(hint));
    }
    if schema(path, found) {
        open(loaded, found).await;
    }
}

/// False when it cannot be opened by this program.
fn schema(path: &Path, found: &mut Vec<Finding>) -> bool {
    let versions = match SqliteStore::schema(path) {
        Ok(versions) => versions,
        Err(error) => {
            found.push(Finding::failed("store", Failure::from(error)));
            return false;
        }
    };
    let known = versions.known;
    match versions.found {
        Some(version) if version > known => {
            let message = format!("its schema has version {version}, this program knows up to {known}");
            found.push(Finding::fail("schema", message).hint("use a newer version of the program"));
            return false;
        }
        Some(version) if version == known => found.push(Finding::ok("schema", format!("version {version}"))),
        // To open it would bring it up to date: that is for who asks for it.
        older => {
            let version =
                older.map_or_else(|| "nothing yet".to_owned(), |version| format!("version {version}"));
            let message = format!("{version}; this program brings it to version {known}");
            let hint = "`tenure store migrate`, or the next start, does it";
            found.push(Finding::warn("schema", message).hint(hint));
            return false;
        }
    }
    true
}

async fn open(loaded: &Loaded, found: &mut Vec<Finding>) {
    let config = &loaded.config;
    let store = match here::store(config, Need::Existing).await {
        Ok(store) => store,
        Err(failure) => return found.push(Finding::failed("store", failure)),
    };
    found.push(Finding::ok("store", format!("{} answers", config.store.url)));
    match Tenure::attach(Arc::clone(&store), config.settings()).await {
        Ok(tenure) => {
            found.push(clock(&tenure).await);
            found.push(whole(&tenure).await);
            match wanted(&tenure, loaded).await {
                Ok(wanted) => found.extend(wanted),
                Err(error) => found.push(Finding::failed("tasks", error.into())),
            }
        }
        Err(error) => found.push(Finding::failed("store", error.into())),
    }
    drop(store.close().await);
}

async fn clock(tenure: &Tenure) -> Finding {
    let before = Timestamp::from_jiff(jiff::Timestamp::now());
    match tenure.probe().await {
        Ok(stored) => {
            let after = Timestamp::from_jiff(jiff::Timestamp::now());
            skew(before, stored, after)
        }
        Err(error) => Finding::failed("clock", error.into()),
    }
}

/// What a reading of the store's clock says that lies between two of this machine's.
fn skew(before: Timestamp, stored: Timestamp, after: Timestamp) -> Finding {
    let apart = before.since(stored).max(stored.since(after));
    if apart > SKEW {
        let message = format!("the store's clock and that of this machine are {apart:?} apart");
        return Finding::warn("clock", message)
            .hint("set both by one time server: due times and leases go by the store's clock");
    }
    Finding::ok("clock", "the store's clock is that of this machine")
}

async fn whole(tenure: &Tenure) -> Finding {
    match tenure.check_store(false).await {
        Ok(findings) if findings.is_empty() => {
            Finding::ok("records", "counters, lanes and places are as the runs say")
        }
        Ok(findings) => {
            let more = findings.len().saturating_sub(TOLD);
            let mut told: Vec<String> = findings.into_iter().take(TOLD).collect();
            if more > 0 {
                told.push(format!("and {more} more"));
            }
            Finding::fail("records", told.join("; "))
                .hint("make them good with `tenure store check --repair`")
        }
        Err(error) => Finding::failed("records", error.into()),
    }
}

/// Up to how many runs are counted.
const RUNS: u64 = 10_000;

/// Tasks whose agents nobody here has, and runs that wait while none executes.
async fn wanted(tenure: &Tenure, loaded: &Loaded) -> Result<Vec<Finding>, Error> {
    let directory = Directory::open(tenure.clone()).await?;
    directory.set_file(loaded.agents.clone())?;
    let agents = tenure.agents();
    let tasks = tenure.tasks(PageRequest { limit: agentless::MOST, cursor: None }).await?;
    let without = tasks.items.iter().map(|(task, _)| &task.spec);
    let without = without.filter(|spec| !agents.contains(&spec.agent_id));
    let without: Vec<(String, String)> =
        without.map(|spec| (spec.task_id.to_string(), spec.agent_id.to_string())).collect();
    let mut found = agentless::found("a host with these settings", &without);
    let counted = |statuses: Vec<RunStatus>| {
        let filter = RunFilter { statuses, ..RunFilter::default() };
        async { tenure.count_runs(filter, RUNS).await.map(|(count, _)| count) }
    };
    let waiting = counted(vec![RunStatus::Queued, RunStatus::Retrying]).await?;
    if waiting > 0 && counted(vec![RunStatus::Claimed, RunStatus::Running]).await? == 0 {
        found.push(
            Finding::warn("runs", format!("as many as {waiting} wait, and none executes"))
                .hint("`tenure serve` executes them; `tenure runs list --status queued` shows them"),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn clocks_may_be_a_little_apart() {
        let at = Timestamp::from_ms;
        let state = |stored| skew(at(10_000), at(stored), at(10_100)).state;
        for (stored, expected) in [
            (10_050, State::Ok),
            (8_000, State::Ok),
            (7_999, State::Warn),
            (12_100, State::Ok),
            (12_101, State::Warn),
        ] {
            assert_eq!(state(stored), expected, "{stored}");
        }
    }
}
