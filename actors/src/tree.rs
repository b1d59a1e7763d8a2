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
            && let Some(node) = generation.children.iter_mut().find(|node| node.name == *child)
        {
            node.bound = bound;
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
            ActorName::Child(name) => generation.children.retain(|node| node.name != *name),
            ActorName::Generation(_) | ActorName::Application => {}
        }
    }
}

impl GenerationNode {
    /// Keeps start order, in whatever order events come.
    fn insert(&mut self, child: ChildNode) {
        let at = self.children.partition_point(|node| node.name.seq < child.name.seq);
        self.children.insert(at, child);
    }

    /// A snapshot taken in the middle of an admission has the child before its event is heard.
    fn has(&self, child: &ChildName) -> bool {
        self.children.iter().any(|node| node.name == *child)
    }

    fn processes(&self) -> usize {
        self.children.iter().filter(|node| node.bound).count()
    }

    /// Name and remark of every line below the generation's own.
    fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        if self.registry {
            lines.push(("registry#1".to_owned(), format!("processes {}", self.processes())));
        }
        if self.operations {
            lines.push(("operations#1".to_owned(), format!("active {}", self.active_operations)));
        }
        let ids = self.children.iter().filter_map(|node| node.process.as_ref());
        let width = ids.map(|id| id.as_str().chars().count()).max().unwrap_or(0);
        lines.extend(self.children.iter().map(|node| (node.name.to_string(), node.remark(width))));
        lines
    }
}

impl ChildNode {
    fn remark(&self, width: usize) -> String {
        let what = match &self.process {
            Some(id) if self.bound => format!("id {:width$}", id.as_str()),
            Some(id) => format!("id {:width$}   given up", id.as_str()),
            None => "service".to_owned(),
        };
        let patience = match self.patience {
            None => String::new(),
            Some(Patience::Kill) => "   patience none".to_owned(),
            Some(Patience::Time(ms)) => format!("   patience {ms}ms"),
            Some(Patience::Unlimited) => "   patience unlimited".to_owned(),
        };
        format!("{what}{patience}")
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

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "app")?;
        if self.generations.is_empty() {
            return writeln!(f, "`- no open generation");
        }
        for (index, generation) in self.generations.iter().enumerate() {
            let is_last = index + 1 == self.generations.len();
            let state = if generation.open { "open" } else { "sealed" };
            let epoch = generation.epoch;
            writeln!(f, "{} g{epoch}  epoch {epoch}, {state}", if is_last { "`-" } else { "|-" })?;
            let indent = if is_last { "   " } else { "|  " };
            let lines = generation.lines();
            let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            for (index, (name, remark)) in lines.iter().enumerate() {
                let branch = if index + 1 == lines.len() { "`-" } else { "|-" };
                writeln!(f, "{indent}{branch} {name:width$}   {}", remark.trim_end())?;
            }
        }
        Ok(())
    }
}
