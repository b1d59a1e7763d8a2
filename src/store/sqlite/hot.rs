//! What the writer keeps from one transaction to the next: the statements that every run goes through, prepared,
//! and the rows it has written, as long as nobody else writes.

use std::cell::RefCell;

use foldhash::HashMap;
use rusqlite::{Connection, PrepFlags, Row, Statement, ToSql};

use super::fault::Step;
use super::row::{Loaded, REST, STORED};
use super::{claim, commit, write};
use crate::model::RunId;

/// A statement that is kept prepared.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hot {
    Find,
    Load,
    Ready,
    Insert,
    Event,
    /// By whether the run moves to another place, and whether it is to be looked at another time.
    Update(bool, bool),
}

const MANY: usize = 9;

impl Hot {
    fn number(self) -> usize {
        match self {
            Self::Find => 0,
            Self::Load => 1,
            Self::Ready => 2,
            Self::Insert => 3,
            Self::Event => 4,
            Self::Update(moves, wakes) => 5 + 2 * usize::from(moves) + usize::from(wakes),
        }
    }

    fn sql(self) -> String {
        match self {
            Self::Find => commit::find(),
            Self::Load => claim::load(),
            Self::Ready => claim::READY.to_owned(),
            Self::Insert => write::INSERT.to_owned(),
            Self::Event => commit::EVENT.to_owned(),
            Self::Update(moves, wakes) => write::UPDATES[usize::from(moves)][usize::from(wakes)].to_owned(),
        }
    }
}

/// The statements of a connection, each prepared when it is first needed.
pub(super) struct Statements<'c> {
    conn: &'c Connection,
    kept: [RefCell<Option<Statement<'c>>>; MANY],
}

impl<'c> Statements<'c> {
    pub(super) fn of(conn: &'c Connection) -> Self {
        Self { conn, kept: std::array::from_fn(|_| RefCell::default()) }
    }

    fn with<T>(&self, hot: Hot, make: impl FnOnce(&mut Statement<'c>) -> Step<T>) -> Step<T> {
        let mut kept = self.kept[hot.number()].borrow_mut();
        let statement = match kept.take() {
            Some(statement) => statement,
            // It says that it stays, so that it takes none of the memory that statements work with.
            None => self.conn.prepare_with_flags(&hot.sql(), PrepFlags::SQLITE_PREPARE_PERSISTENT)?,
        };
        make(kept.insert(statement))
    }

    pub(super) fn execute(&self, hot: Hot, values: &[&dyn ToSql]) -> Step<()> {
        self.with(hot, |statement| Ok(statement.execute(values).map(|_| ())?))
    }

    /// The first row, read.
    pub(super) fn first<T>(
        &self,
        hot: Hot,
        values: &[&dyn ToSql],
        read: impl FnOnce(&Row<'_>) -> Step<T>,
    ) -> Step<Option<T>> {
        self.with(hot, |statement| statement.query(values)?.next()?.map(read).transpose())
    }

    /// Every row, read.
    pub(super) fn each(
        &self,
        hot: Hot,
        values: &[&dyn ToSql],
        mut read: impl FnMut(&Row<'_>) -> Step<()>,
    ) -> Step<()> {
        self.with(hot, |statement| {
            let mut rows = statement.query(values)?;
            while let Some(row) = rows.next()? {
                read(row)?;
            }
            Ok(())
        })
    }
}

/// The columns of a run, as [`claim::load`] and others name them.
pub(super) fn columns() -> String {
    format!("{STORED}, {REST}")
}

/// The most runs whose rows are remembered.
const MOST: usize = 8192;

/// Runs that have not ended, with their rows, as this writer has left them. What another program writes makes it
/// forget them all.
#[derive(Default)]
pub(super) struct Known {
    numbers: HashMap<RunId, i64>,
    runs: HashMap<i64, Loaded>,
}

impl Known {
    pub(super) fn by_id(&self, run_id: &RunId) -> Option<&Loaded> {
        self.runs.get(self.numbers.get(run_id)?)
    }

    pub(super) fn get(&self, rid: i64) -> Option<&Loaded> {
        self.runs.get(&rid)
    }

    pub(super) fn get_mut(&mut self, rid: i64) -> Option<&mut Loaded> {
        self.runs.get_mut(&rid)
    }

    pub(super) fn keep(&mut self, loaded: Loaded) {
        if self.runs.len() >= MOST {
            self.forget_all();
        }
        self.numbers.insert(loaded.run.run_id.clone(), loaded.stored.rid);
        self.runs.insert(loaded.stored.rid, loaded);
    }

    pub(super) fn forget(&mut self, run_id: &RunId) {
        if let Some(rid) = self.numbers.remove(run_id) {
            self.runs.remove(&rid);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.numbers.clear();
        self.runs.clear();
    }
}
