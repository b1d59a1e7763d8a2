//! The commands that look or act. Each speaks the HTTP interface, of a server or of this process.

mod agents;
mod common;
mod completions;
mod doctor;
mod editor;
mod events;
mod form;
mod here;
mod host;
mod ids;
pub(crate) mod near;
mod pages;
mod reference;
mod runs;
mod settle;
mod store;
mod task_file;
mod tasks;

pub(crate) use agents::Agents;
pub(crate) use completions::Completions;
pub(crate) use doctor::{Doctor, warn_of_variables};
pub(crate) use events::Events;
pub(crate) use host::{Status, Tree};
pub(crate) use reference::Reference;
pub(crate) use runs::Runs;
pub(crate) use store::Store;
pub(crate) use tasks::Tasks;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Any of them.
#[derive(Debug)]
pub(crate) enum Asked {
    Tasks(Tasks),
    Runs(Runs),
    Events(Events),
    Agents(Agents),
    Tree(Tree),
    Status(Status),
    Doctor(Doctor),
    Store(Store),
    Completions(Completions),
    Reference(Reference),
}

/// Does what is asked.
pub(crate) async fn execute(asked: Asked, global: &Global, output: Output) -> Result<Exit, Failure> {
    match asked {
        Asked::Tasks(asked) => tasks::execute(asked, global, output).await,
        Asked::Runs(asked) => runs::execute(asked, global, output).await,
        Asked::Events(asked) => events::execute(asked, global, output).await,
        Asked::Agents(asked) => agents::execute(asked, global, output).await,
        Asked::Tree(asked) => host::tree(asked, global, output).await,
        Asked::Status(asked) => host::status(asked, global, output).await,
        Asked::Doctor(asked) => doctor::execute(asked, global, output).await,
        Asked::Store(asked) => store::execute(asked, global, output).await,
        Asked::Completions(asked) => completions::print(&asked, output),
        Asked::Reference(asked) => reference::print(&asked, output),
    }
}
