//! `tenure store …`: straight on the store, whatever server there is.

use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use jiff::Zoned;
use serde_json::json;
use tenure::Tenure;
use tenure::model::Timestamp;
use tenure::store::{PruneRequest, SqliteStore};

use super::common::Need;
use super::here;
use crate::args::Global;
use crate::config::{Config, Loaded, StoreUrl};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::when::{self, Toward};

/// Look after the store
#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Bring the schema of the store up to date, and tell from which version to which
    #[command(after_help = "Example:\n  tenure store migrate --store sqlite:.tenure/tenure.db")]
    Migrate(Migrate),
    /// Compare what is derived from runs with them: counters, lanes, places
    #[command(after_help = "Examples:\n  tenure store check\n  tenure store check --repair")]
    Check(Check),
    /// Remove finished runs with their files, and old occurrences
    #[command(after_help = "Examples:\n  \
        tenure store prune --dry-run\n  tenure store prune --before 30d\n  tenure store prune --keep 1000")]
    Prune(Prune),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Migrate {
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Make good what is wrong
    #[arg(long)]
    repair: bool,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Prune {
    /// What ended before this: `30d`, `2026-11-01`; if nothing is said, what the settings do not keep
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// The oldest finished runs beyond this number
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Tell how many would be removed, and remove nothing; occurrences of tasks that were deleted are not counted
    #[arg(long)]
    dry_run: bool,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn execute(asked: Store, global: &Global, output: Output) -> Result<Exit, Failure> {
    let config = Loaded::load(global)?.config;
    match asked {
        Store::Migrate(asked) => migrate(&config, &asked, output).await,
        Store::Check(asked) => check(&config, &asked, output).await,
        Store::Prune(asked) => prune(&config, &asked, output).await,
    }
}

async fn migrate(config: &Config, asked: &Migrate, output: Output) -> Result<Exit, Failure> {
    let path = match &config.store.url {
        StoreUrl::Memory => {
            let failure = Failure::usage("a store in memory has no schema");
            return Err(failure.hint("name one: --store sqlite:PATH"));
        }
        StoreUrl::Sqlite(path) => path,
        #[cfg(any(feature = "postgres", feature = "redis", feature = "mongodb"))]
        server => {
            // Whoever opens it brings it up to date. Which version it had, only a file tells before.
            here::store(config, Need::Any).await?.close().await?;
            let told = json!({ "store": server.to_string(), "up_to_date": true });
            let line = format!("{server}: up to date; versions are told of sqlite alone");
            output.line(if asked.json { told.to_string() } else { line })?;
            return Ok(Exit::Ok);
        }
    };
    let before = SqliteStore::schema(path)?;
    here::store(config, Need::Any).await?.close().await?;
    let after = SqliteStore::schema(path)?;
    let (from, to) = (before.found, after.found.unwrap_or(after.known));
    if asked.json {
        output.line(json!({ "store": config.store.url.to_string(), "from": from, "to": to }))?;
        return Ok(Exit::Ok);
    }
    output.line(match from {
        None => format!("{}: made, schema version {to}", config.store.url),
        Some(from) if from == to => format!("{}: schema version {to}, nothing to do", config.store.url),
        Some(from) => format!("{}: schema version {from} brought to {to}", config.store.url),
    })?;
    Ok(Exit::Ok)
}

/// A facade on the store that does nothing by itself, and what to close afterwards.
pub(super) async fn attach(config: &Config) -> Result<(Tenure, Arc<dyn tenure::store::Store>), Failure> {
    let store = here::store(config, Need::Existing).await?;
    let tenure = Tenure::attach(Arc::clone(&store), config.settings()).await?;
    Ok((tenure, store))
}

async fn check(config: &Config, asked: &Check, output: Output) -> Result<Exit, Failure> {
    let (tenure, store) = attach(config).await?;
    let found = tenure.check_store(asked.repair).await;
    drop(store.close().await);
    let found = found?;
    let good = found.is_empty() || asked.repair;
    let exit = if good { Exit::Ok } else { Exit::Failed };
    if asked.json {
        output
            .line(json!({ "ok": good, "repaired": asked.repair && !found.is_empty(), "findings": found }))?;
        return Ok(exit);
    }
    for finding in &found {
        output.line(crate::output::plain(finding))?;
    }
    match (found.len(), asked.repair) {
        (0, _) => output.line(output.paint(Style::Green, "nothing is wrong"))?,
        (n, true) => output.note(format_args!("{n} findings were made good")),
        (n, false) => {
            output.note(format_args!("{n} findings; make them good with `tenure store check --repair`"))
        }
    }
    Ok(exit)
}

/// How many runs are removed in one transaction.
const BATCH: usize = 500;

async fn prune(config: &Config, asked: &Prune, output: Output) -> Result<Exit, Failure> {
    let said = asked.before.is_some() || asked.keep.is_some();
    let before = match &asked.before {
        Some(text) => {
            let instant = when::instant(text, &Zoned::now(), Toward::Past);
            let instant = instant.map_err(|error| Failure::usage(format!("--before: {error}")))?;
            Some(Timestamp::from_jiff(instant))
        }
        None => None,
    };
    let (tenure, store) = attach(config).await?;
    let usual = (!said).then_some(config.store.retain_for.0);
    let keep = asked.keep.unwrap_or(if said { u64::MAX } else { config.store.retain_runs });
    let done = match request(&tenure, before, usual, keep).await {
        Ok(request) if asked.dry_run => tenure.count_prunable(request).await.map_err(Failure::from),
        Ok(request) => prune_all(&tenure, request).await,
        Err(failure) => Err(failure),
    };
    drop(store.close().await);
    let (runs, occurrences) = done?;
    let what = if asked.dry_run { "would be removed" } else { "removed" };
    if asked.json {
        output.line(json!({ "runs": runs, "occurrences": occurrences, "dry_run": asked.dry_run }))?;
    } else {
        output.line(format_args!("{runs} runs and {occurrences} occurrences {what}"))?;
    }
    Ok(Exit::Ok)
}

async fn request(
    tenure: &Tenure,
    before: Option<Timestamp>,
    usual: Option<Duration>,
    keep: u64,
) -> Result<PruneRequest, Failure> {
    let now = tenure.probe().await?;
    let usual = usual.map(|usual| now.minus(usual));
    // Without a word about when, age is no reason.
    let before = before.or(usual).unwrap_or(Timestamp::from_ms(i64::MIN));
    Ok(PruneRequest { before, keep, limit: BATCH })
}

async fn prune_all(tenure: &Tenure, request: PruneRequest) -> Result<(u64, u64), Failure> {
    let (mut runs, mut occurrences) = (0, 0);
    loop {
        let pruned = tenure.prune(request).await?;
        runs += pruned.runs;
        occurrences += pruned.occurrences;
        if !pruned.more {
            return Ok((runs, occurrences));
        }
    }
}
