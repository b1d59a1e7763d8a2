//! Tells the planner how large the tables have become.
//!
//! The server looks for itself, once a minute as it is installed. A plan that was made for a table with nothing in it
//! reads all of it for every claim, and a queue may have filled it by the hundred thousand meanwhile.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::conn::{Conn, Session};
use super::fault::Step;
use super::row::get;
use crate::store::Hint;

/// How long after something changed it is looked at, with all that changes until then.
const PAUSE: Duration = Duration::from_secs(1);
/// So many runs nobody minds.
const FEW: i64 = 64;

/// Until the store is closed or gone. Looks only after something has changed.
pub(super) async fn keep(shared: Weak<Shared>, mut hints: broadcast::Receiver<Hint>) {
    let mut told_of = 0;
    while !matches!(hints.recv().await, Err(RecvError::Closed)) {
        tokio::time::sleep(PAUSE).await;
        hints = hints.resubscribe();
        let Some(shared) = shared.upgrade() else { return };
        if let Err(fault) = look(&shared, &mut told_of).await {
            tracing::debug!(%fault, "the planner was not told how large the tables are");
        }
    }
}

/// A plan is for twice as many runs still right.
async fn look(shared: &Arc<Shared>, told_of: &mut i64) -> Step<()> {
    let Ok(conn) = shared.quick().await else { return Ok(()) };
    let rows = conn.ask(SIZES, Vec::new()).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (there, believed): (i64, i64) = (get(row, 0)?, get(row, 1)?);
    // What was emptied is told of again as it fills.
    *told_of = (*told_of).min(there);
    if there < FEW || there < believed.max(*told_of).saturating_mul(2) {
        return Ok(());
    }
    // Also if it fails: what may not be done here is not tried again every time.
    *told_of = there;
    let conn = Conn::open(&shared.options, Session::Reader, None).await?;
    conn.word("SET statement_timeout = 0; ANALYZE runs, specs, events, attempts, results, lane_runs").await
}

const SIZES: &str = "SELECT (SELECT coalesce(sum(n), 0)::bigint FROM counters WHERE tid = 0),
    (SELECT reltuples::bigint FROM pg_class WHERE oid = 'runs'::regclass)";
