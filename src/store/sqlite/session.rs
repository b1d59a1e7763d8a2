//! Which runs are of a session: found by a digest of its name, so that an entry of the index is small however long the
//! name is. What is found is looked at: two names may have one digest.

use std::borrow::Cow;

use rusqlite::{Connection, params};
use serde::Deserialize;

use super::fault::Step;
use super::parts::filled;

/// What the session of a run is called that has one of its own.
const OWN: &str = "background:";

/// The digest of the session of a run; none if the run has it for itself, and is found by its name.
pub(super) fn digest(session: &str, run_id: &str) -> Option<i64> {
    (run_of(session) != Some(run_id)).then(|| fnv(session))
}

/// The digest under which others than the run of that name are found.
pub(super) fn fnv(text: &str) -> i64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step).cast_signed()
}

/// The run that would have a session of this name for itself.
pub(super) fn run_of(session: &str) -> Option<&str> {
    session.strip_prefix(OWN)
}

/// The part of a specification that names the session.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
}

/// Fills in the digests of the runs that were stored before there were any. Of what cannot be read there is none.
pub(super) fn fill(conn: &Connection) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT r.rid, r.run_id, coalesce(s.spec, p.spec) FROM runs r
         LEFT JOIN specs s ON r.part IS NULL AND s.rid = r.rid LEFT JOIN parts p ON p.part = r.part",
    )?;
    let mut update = conn.prepare("UPDATE runs SET session = ?2 WHERE rid = ?1")?;
    let mut digests: Vec<(i64, i64)> = Vec::new();
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (Ok(run_id), Ok(spec)) = (row.get_ref(1)?.as_str(), row.get_ref(2)?.as_str()) else { continue };
        if let Ok(shown) = serde_json::from_str::<Shown<'_>>(spec) {
            let session = filled(&shown.session_id.as_ref().into(), run_id);
            let rid = row.get(0)?;
            digests.extend(digest(&session, run_id).map(|digest| (rid, digest)));
        }
    }
    for (rid, digest) in digests {
        update.execute(params![rid, digest])?;
    }
    Ok(())
}
