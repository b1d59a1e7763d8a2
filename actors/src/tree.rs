//! The live supervision tree: as data, as text, and kept current by events.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::child::{Child, Place};
use crate::event::{ActorName, ChildName, Event, EventKind};
use crate::generation::core::Core;
use crate::id::{Epoch, ProcessId};
use crate::rules::Patience;

/// The tree of an application: its generations that are not closed, each with what lives in it.
///
/// A snapshot (`Generation::tree`) and the events after it ([`Tree::apply`]) give the tree as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Tree {
    /// By epoch.
    pub generations: Vec<GenerationNode>,
}

/// One generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GenerationNode {
    /// Its number.
    pub epoch: Epoch,
    /// It still has its authority.
    pub open: bool,
    /// The registry lives.
    pub registry: bool,
    /// The operations actor lives.
    pub operations: bool,
    /// How many operations are active.
    pub active_operations: usize,
    /// Its services and processes in start order.
    pub children: Vec<ChildNode>,
}

/// One service or process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChildNode {
    /// Role and incarnation.
    pub name: ChildName,
    /// Its id, if it is a process.
    pub process: Option<ProcessId>,
    /// It is found under its id.
    pub bound: bool,
    /// How long it is waited for after it was told to stop; known from a snapshot alone.
    pub patience: Option<Patience>,
}

impl Tree {
    pub(crate) fn of_generation(core: &Arc<Core>) -> Self {
        if core.closing.report().is_some() {
            return Self::default();
        }
        let children = core.all_children();
        let children =
            children.iter().filter(|child| child.exit().is_none()).map(|child| node(child)).collect();
        let node = GenerationNode {
            epoch: core.epoch,
            open: !core.is_sealed(),
            registry: true,
            operations: true,
            active_operations: core.operations.count(),
            children,
        };
        Self { generations: vec![node] }
    }

    /// Brings the tree up to date with what happened after it was taken.
    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Opened { epoch } => self.opened(*epoch),
            EventKind::Started { child } => self.started(child),
            EventKind::Admitted { process, child } => self.admitted(process, child),
            EventKind::Bound { child, .. } => self.bind(child, true),
            EventKind::Unbound { child, .. } => self.bind(child, false),
            EventKind::Reserved { .. } => self.operations(&event.actor, |active| active + 1),
            EventKind::Released { .. } => self.operations(&event.actor, |active| active.saturating_sub(1)),
            EventKind::Sealed { epoch } => {
                if let Some(generation) = self.generation(*epoch) {
                    generation.open = false;
                }
            }
            EventKind::Ended { .. } => self.ended(&event.actor),
            EventKind::Closed { .. } => {
                self.generations.retain(|node| Some(node.epoch) != event.actor.epoch())
            }
            _ => {}
        }
    }

    fn generation(&mut self, epoch: Epoch) -> Option<&mut GenerationNode> {
        self.generations.iter_mut().find(|node| node.epoch == epoch)
    }

    fn opened(&mut self, epoch: Epoch) {
        if self.generation(epoch).is_some() {
            return;
        }
        self.generations.push(GenerationNode {
            epoch,
            open: true,
            registry: false,
            operations: false,
            active_operations: 0,
            children: Vec::new(),
        });
    }

    fn admitted(&mut self, process: &ProcessId, child: &ChildName) {
        if let Some(generation) = self.generation(child.epoch)
            && !generation.has(child)
        {
            let (name, process) = (child.clone(), Some(process.clone()));
            generation.insert(ChildNode { name, process, bound: true, patience: None });
        }
    }

    fn started(&mut self, child: &ActorName) {
        let Some(generation) = child.epoch().and_then(|epoch| self.generation(epoch)) else {
            return;
        };
        match child {
            ActorName::Registry(_) => generation.registry = true,
            ActorName::Operations(_) => generation.operations = true,
            ActorName::Child(name) if !generation.has(name) => {
                let name = name.clone();
                generation.insert(ChildNode { name, process: None, bound: false, patience: None });
            }
            ActorName::Child(_) | ActorName::Generation(_) | ActorName::Application => {}
        }
    }

    fn bind(&mut self, child: &ChildName, bound: bool) {
        if let Some(generation) = self.generation(child.epoch)
            && let Ok(at) = generation.position(child)
        {
            generation.children[at].bound = bound;
        }
    }

    fn operations(&mut self, actor: &ActorName, change: impl FnOnce(usize) -> usize) {
        if let Some(generation) = actor.epoch().and_then(|epoch| self.generation(epoch)) {
            generation.active_operations = change(generation.active_operations);
        }
    }

    fn ended(&mut self, actor: &ActorName) {
        let Some(generation) = actor.epoch().and_then(|epoch| self.generation(epoch)) else {
            return;
        };
        match actor {
            ActorName::Registry(_) => generation.registry = false,
            ActorName::Operations(_) => generation.operations = false,
            ActorName::Child(name) => {
                if let Ok(at) = generation.position(name) {
                    generation.children.remove(at);
                }
            }
            ActorName::Generation(_) | ActorName::Application => {}
        }
    }
}

impl GenerationNode {
    /// Keeps start order, in whatever order events come.
    fn insert(&mut self, child: ChildNode) {
        let at = self.position(&child.name).unwrap_or_else(|at| at);
        self.children.insert(at, child);
    }

    /// Where a child is, or would be.
    fn position(&self, child: &ChildName) -> Result<usize, usize> {
        self.children.binary_search_by_key(&child.seq, |node| node.name.seq)
    }

    /// A snapshot taken in the middle of an admission has the child before its event is heard.
    fn has(&self, child: &ChildName) -> bool {
        self.position(child).is_ok()
    }

    fn processes(&self) -> usize {
        self.children.iter().filter(|node| node.bound).count()
    }

    /// Name, id and remark of every line below the generation's own.
    fn lines(&self) -> Vec<Row> {
        let mut lines = Vec::new();
        if self.registry {
            lines.push(kernel_row("registry#1", format!("processes {}", self.processes())));
        }
        if self.operations {
            lines.push(kernel_row("operations#1", format!("active {}", self.active_operations)));
        }
        lines.extend(self.children.iter().map(ChildNode::row));
        lines
    }

    fn draw(
        &self,
        f: &mut impl fmt::Write,
        indent: &str,
        fold: impl Fn(Vec<Row>) -> Vec<Row>,
    ) -> fmt::Result {
        let rows = fold(self.lines());
        let width = |column: fn(&Row) -> &String| rows.iter().map(|row| column(row).chars().count()).max();
        let names = width(|row| &row[0]).unwrap_or(0);
        let ids = width(|row| &row[1]).unwrap_or(0);
        for (index, [name, id, remark]) in rows.iter().enumerate() {
            let branch = if index + 1 == rows.len() { "`-" } else { "|-" };
            let what = if id.is_empty() { remark.clone() } else { format!("{id:ids$}   {remark}") };
            writeln!(f, "{indent}{branch} {name:names$}   {}", what.trim_end())?;
        }
        Ok(())
    }
}

fn kernel_row(name: &str, remark: String) -> Row {
    [name.to_owned(), String::new(), remark]
}

impl ChildNode {
    fn row(&self) -> Row {
        let id = self.process.as_ref().map_or_else(|| "service".to_owned(), |id| format!("id {id}"));
        let given_up = (self.process.is_some() && !self.bound).then(|| "given up".to_owned());
        let patience = self.patience.map(|patience| format!("patience {patience}"));
        let remark: Vec<_> = given_up.into_iter().chain(patience).collect();
        [self.name.to_string(), id, remark.join("   ")]
    }
}

fn node(child: &Child) -> ChildNode {
    let is_process = child.place == Place::Registry;
    ChildNode {
        name: child.name.clone(),
        process: is_process.then(|| child.id.clone()),
        bound: is_process && child.is_bound(),
        patience: Some(child.patience),
    }
}

/// What one line of a tree says: name, id, remark.
pub(crate) type Row = [String; 3];

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw(f, |rows| rows)
    }
}

impl Tree {
    /// The tree as text, with the lines of every generation passed through `fold`.
    pub(crate) fn draw(&self, f: &mut impl fmt::Write, fold: impl Fn(Vec<Row>) -> Vec<Row>) -> fmt::Result {
        writeln!(f, "app")?;
        if self.generations.is_empty() {
            return writeln!(f, "`- no open generation");
        }
        for (index, generation) in self.generations.iter().enumerate() {
            let is_last = index + 1 == self.generations.len();
            let state = if generation.open { "open" } else { "sealed" };
            let epoch = generation.epoch;
            writeln!(f, "{} g{epoch}  epoch {epoch}, {state}", if is_last { "`-" } else { "|-" })?;
            generation.draw(f, if is_last { "   " } else { "|  " }, &fold)?;
        }
        Ok(())
    }
}
