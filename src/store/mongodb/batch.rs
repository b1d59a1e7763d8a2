//! One transaction for all calls of a batch: read, decided, written, committed.

use std::sync::Arc;

use tokio::time::timeout;

use super::fault::{Fault, Step};
use super::flush;
use super::link::{Db, Failed, Tx, Word, Write, name};
use super::load::{Cache, Needs};
use super::writer::Command;
use super::{check, hints, prune};
use crate::model::{AgentId, Run, Timestamp};
use crate::store::memory::part::{Numbers, Part};
use crate::store::{ClaimRequest, Hint, Pruned, Refusal, Renewal};

/// How often it is read on before it is given up: the records contradict each other.
const MOST_ROUNDS: usize = 40;

/// What a call comes to, if the transaction is committed.
pub(super) enum Worth {
    Commit(Vec<Result<(), Refusal>>),
    Claim(Vec<Run>),
    Renew(Vec<Renewal>),
    Prune(Pruned),
    Check(Vec<String>),
    Nothing,
}

/// What came of a batch, and what watchers are told.
pub(super) type Done = (Vec<Worth>, Option<Hint>);

/// Who writes: a name, and the number of the hint.
pub(super) struct Own<'w> {
    pub(super) name: &'w str,
    pub(super) number: u64,
}

/// Makes the transaction.
pub(super) async fn transact(db: &Arc<Db>, batch: &[Command], own: Own<'_>) -> Result<Done, Failed> {
    let patience = db.options.patience.saturating_mul(2);
    let mut tx = Tx::begin(db).await.map_err(Failed::Before)?;
    let line = tx.line();
    let worked = timeout(patience, within(&mut tx, db, batch, own)).await;
    match worked.unwrap_or_else(|_| Err(db.is_silent(&line))) {
        Ok(done) => {
            let committed = timeout(patience, tx.commit()).await;
            committed.unwrap_or_else(|_| Err(Failed::AtCommit(db.is_silent(&line)))).map(|()| done)
        }
        Err(fault) => {
            tx.abort().await;
            Err(Failed::Before(fault))
        }
    }
}

async fn within(tx: &mut Tx, db: &Db, batch: &[Command], own: Own<'_>) -> Step<Done> {
    if let [Command::Check(false, _)] = batch {
        // Looks only, and is in nobody's way.
        return Ok((vec![Worth::Check(check::find(tx, db.now().await?).await?)], None));
    }
    let (numbers, now) = tx.lock().await?;
    match batch {
        [Command::Prune(request, _)] => {
            return Ok((vec![Worth::Prune(prune::prune(tx, *request).await?)], None));
        }
        [Command::Check(true, _)] => {
            let (found, after, hint) = check::repair(tx, numbers, now).await?;
            tell(tx, (numbers, after), hint.as_ref(), &own).await?;
            return Ok((vec![Worth::Check(found)], hint));
        }
        _ => {}
    }
    let needs = needs(batch);
    let mut cache = Cache::read(tx, &needs, now).await?;
    let (part, worth) = decided(tx, &mut cache, &needs, batch, (numbers, now)).await?;
    let (after, mut hint) = (part.numbers(), part.hint(numbers));
    flush::flush(tx, &part.changes()).await?;
    if put_agents(tx, batch).await? {
        let told = hint.get_or_insert_with(|| Hint { cursor: after.cursor, ..Hint::default() });
        told.agents = true;
    }
    tell(tx, (numbers, after), hint.as_ref(), &own).await?;
    Ok((worth, hint))
}

/// Keeps the numbers that were given and says what is new, if anything is.
async fn tell(
    tx: &mut Tx,
    (before, after): (Numbers, Numbers),
    hint: Option<&Hint>,
    own: &Own<'_>,
) -> Step<()> {
    if after == before && hint.is_none() {
        return Ok(());
    }
    let hint = hint.map(|hint| hints::written(own.name, own.number, hint));
    flush::finish(tx, after, hint).await
}

fn needs(batch: &[Command]) -> Needs {
    let mut needs = Needs::default();
    for command in batch {
        match command {
            Command::Commit(decisions, _) => decisions.iter().for_each(|one| needs.of_decision(one)),
            Command::Renew(request, _) => needs.of_renewal(request),
            Command::Claim(request, _) => needs.of_claim(request),
            _ => {}
        }
    }
    needs
}

/// Decides, and reads on until everything was there that it took.
async fn decided(
    tx: &mut Tx,
    cache: &mut Cache,
    needs: &Needs,
    batch: &[Command],
    (numbers, now): (Numbers, Timestamp),
) -> Step<(Part, Vec<Worth>)> {
    for _ in 0..MOST_ROUNDS {
        let mut part = cache.part(numbers, now);
        let worth = decide(&mut part, batch);
        match part.short() {
            None => return Ok((part, worth)),
            Some(short) => cache.read_on(tx, needs, short).await?,
        }
    }
    Err(Fault::Unreadable("runs and lanes contradict each other".to_owned()))
}

/// Does everything, the claims last: they see what was written before them.
fn decide(part: &mut Part, batch: &[Command]) -> Vec<Worth> {
    let mut worth: Vec<Worth> = Vec::with_capacity(batch.len());
    let mut claims: Vec<(usize, &ClaimRequest)> = Vec::new();
    for (n, command) in batch.iter().enumerate() {
        worth.push(match command {
            Command::Commit(decisions, _) => {
                Worth::Commit(decisions.iter().map(|decision| part.commit(decision.clone())).collect())
            }
            Command::Renew(request, _) => Worth::Renew(part.renew(request)),
            Command::Claim(request, _) => {
                claims.push((n, request));
                Worth::Nothing
            }
            _ => Worth::Nothing,
        });
    }
    for (n, request) in claims {
        worth[n] = Worth::Claim(part.claim(request));
    }
    worth
}

/// What is said of agents is kept as it is. Answers whether anything was said.
async fn put_agents(tx: &mut Tx, batch: &[Command]) -> Step<bool> {
    let mut any = false;
    for command in batch {
        let Command::PutAgent(agent_id, said, _) = command else { continue };
        any = true;
        tx.write(put_agent(agent_id, said.as_deref())).await?;
    }
    Ok(any)
}

fn put_agent(agent_id: &AgentId, said: Option<&str>) -> Write {
    use mongodb::bson::doc;
    let named = doc! { "_id": agent_id.as_str() };
    match said {
        Some(text) => {
            let update = doc! { "q": named, "u": { "$set": { "text": text } }, "upsert": true };
            Write::exact(Word::Update, name::AGENTS, vec![update])
        }
        None => Write::any(Word::Delete, name::AGENTS, vec![doc! { "q": named, "limit": 1 }]),
    }
}
