//! `tenure status` and `tenure tree`.

use super::common::{Common, Need, Session, url};
use crate::args::Global;
use crate::client::Ask;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::render::{status_record, tree_text};

/// How the host is
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tenure status\n  tenure status --url http://127.0.0.1:8000 --json")]
pub(crate) struct Status {
    #[command(flatten)]
    common: Common,
}

/// The live supervision tree
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tenure tree --url http://127.0.0.1:8000")]
pub(crate) struct Tree {
    #[command(flatten)]
    common: Common,
}

pub(super) async fn status(asked: Status, global: &Global, output: Output) -> Result<Exit, Failure> {
    if url(global, &asked.common).is_none() {
        // What looks at the store is no host, and its name is nobody's.
        asked.common.without_names("a store")?;
    }
    let session = Session::open(global, &asked.common, output, Need::Existing).await?;
    let answer = session.client.ask(Ask::get(["status"])).await;
    let done = answer.and_then(|answer| session.show(&answer, "worker_id", status_record));
    session.close().await;
    done.map(|()| Exit::Ok)
}

pub(super) async fn tree(asked: Tree, global: &Global, output: Output) -> Result<Exit, Failure> {
    asked.common.without_names("a tree")?;
    let session = Session::open(global, &asked.common, output, Need::Existing).await?;
    if session.client.url().is_none() {
        session.tell("nothing runs in this process: ask a server for its tree with --url");
    }
    let answer = session.client.ask(Ask::get(["tree"])).await;
    let done = answer.and_then(|answer| session.show(&answer, "epoch", |_, tree| tree_text(tree)));
    session.close().await;
    done.map(|()| Exit::Ok)
}
