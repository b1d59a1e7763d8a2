//! SIGHUP: the configuration is read again, and the application's generation replaced (design.md, section 2).
//!
//! A configuration that is wrong changes nothing. What is right holds for all that begins from then on; the
//! attempts of the old generation are told to stop, and what they answer late is dropped.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure::agents::Directory;
use tenure::model::{TaskId, TaskSpec};

use super::{Host, check_token, options};
use crate::config::{Loaded, restarts};
use crate::declare;
use crate::exit::Failure;

/// The readings that were asked for, one after the other.
pub(super) struct Reloads {
    host: Host,
    current: Loaded,
    under_way: Option<BoxFuture<'static, Result<Loaded, Failure>>>,
    /// Whether another was asked for while one is under way.
    again: bool,
}

impl Reloads {
    pub(super) fn new(host: Host, current: Loaded) -> Self {
        Self { host, current, under_way: None, again: false }
    }

    /// The configuration is to be read again.
    pub(super) fn ask(&mut self) {
        if self.under_way.is_some() {
            self.again = true;
        } else {
            self.under_way = Some(replace(self.host.clone(), self.current.clone()).boxed());
        }
    }

    /// Works on what was asked for; never ends while there is nothing.
    ///
    /// Cancel safety: goes on where it was.
    pub(super) async fn progress(&mut self) {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let replaced = under_way.await;
        self.under_way = None;
        match replaced {
            Ok(loaded) => self.current = loaded,
            Err(failure) => {
                tracing::error!("{}; the configuration stays as it was", in_one_line(&failure.message))
            }
        }
        if std::mem::take(&mut self.again) {
            self.ask();
        }
    }
}

async fn replace(host: Host, before: Loaded) -> Result<Loaded, Failure> {
    let loaded = Loaded::load(&host.global)?;
    let options = options(&loaded.config)?;
    for key in restarts(&before.config, &loaded.config) {
        tracing::warn!(key, "changed in the configuration, and needs a new start");
    }
    // The address stays as it was: it is that one which must not be open to others.
    let mut checked = loaded.config.clone();
    checked.server.listen = before.config.server.listen;
    check_token(&checked)?;
    host.directory.set_file(loaded.agents.clone())?;
    host.directory.allow_variables(loaded.config.server.agent_env.clone());
    tell_missing_agents(&loaded, &host.directory);
    for task in &loaded.tasks {
        declare::task(&host.tenure, task).await?;
    }
    for gone in before.tasks.iter().filter(|task| loaded.task(task.spec.task_id.as_str()).is_none()) {
        tracing::warn!(task = %gone.spec.task_id, "no longer in the file; it stays in the store until it is deleted");
    }
    host.api.reload(options);
    // Each of them is told to stop, and its run is queued again, whatever it still answers.
    let interrupted = host.tenure.health().executing;
    tracing::info!("reloaded {}", changes(&before, &loaded, interrupted));
    let closed = host.tenure.replace_with(loaded.config.settings()).await?;
    tracing::debug!(report = %closed, "the generation before it is closed");
    Ok(loaded)
}

/// A task whose agent nobody here has waits until there is one.
pub(super) fn tell_missing_agents(loaded: &Loaded, directory: &Directory) {
    for task in loaded.tasks.iter().filter(|task| directory.get(&task.spec.agent_id).is_none()) {
        let (task, agent) = (&task.spec.task_id, &task.spec.agent_id);
        tracing::warn!(%task, %agent, "this host has no such agent: runs of the task wait for one that has");
    }
}

/// What differs, for who reads the log: `tenure.toml: 1 task new, 2 changed, 1 gone; 2 runs queued again`.
fn changes(before: &Loaded, after: &Loaded, interrupted: usize) -> String {
    let tasks = |loaded: &Loaded| -> BTreeMap<TaskId, TaskSpec> {
        loaded.tasks.iter().map(|task| (task.spec.task_id.clone(), task.spec.clone())).collect()
    };
    let mut said = vec![
        differences("task", &tasks(before), &tasks(after)),
        differences("agent", &before.agents, &after.agents),
    ];
    said.push(match interrupted {
        0 => String::new(),
        1 => "1 run queued again".to_owned(),
        many => format!("{many} runs queued again"),
    });
    said.retain(|part| !part.is_empty());
    if said.is_empty() {
        said.push("no task or agent differs".to_owned());
    }
    let file = after.file.as_deref().map_or_else(|| "without a file".into(), |file| file.to_string_lossy());
    format!("{file}: {}", said.join("; "))
}

/// `1 task new, 1 changed, 1 gone`; nothing if nothing differs.
fn differences<K: Ord, V: PartialEq>(what: &str, before: &BTreeMap<K, V>, after: &BTreeMap<K, V>) -> String {
    let new = after.keys().filter(|name| !before.contains_key(name)).count();
    let gone = before.keys().filter(|name| !after.contains_key(name)).count();
    let changed = after.iter().filter(|(name, value)| before.get(name).is_some_and(|old| old != *value));
    let mut said = String::new();
    for (many, how) in [(new, "new"), (changed.count(), "changed"), (gone, "gone")] {
        let unit = match (many, said.is_empty()) {
            (0, _) => continue,
            (1, true) => format!(" {what}"),
            (_, true) => format!(" {what}s"),
            (_, false) => String::new(),
        };
        let comma = if said.is_empty() { "" } else { ", " };
        said.push_str(&format!("{comma}{many}{unit} {how}"));
    }
    said
}

/// A message without the lines of the file that it shows: a log has a line for it.
fn in_one_line(message: &str) -> String {
    let is_shown =
        |line: &&str| line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with('|');
    let lines: Vec<&str> = message.lines().filter(|line| !is_shown(line)).map(str::trim).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_in_few_words() {
        let map = |entries: &[(&'static str, i32)]| entries.iter().copied().collect::<BTreeMap<_, _>>();
        let told = |before, after| differences("task", &map(before), &map(after));
        assert_eq!(told(&[("a", 1), ("b", 1)], &[("a", 2), ("c", 1)]), "1 task new, 1 changed, 1 gone");
        assert_eq!(told(&[], &[("a", 1), ("b", 1)]), "2 tasks new");
        assert_eq!(told(&[("a", 1)], &[("a", 1)]), "");
        assert_eq!(
            in_one_line("t.toml:3:1: no\n  |\n3 | x = 1\n  | ^\nt.toml:4:1: nor"),
            "t.toml:3:1: no; t.toml:4:1: nor"
        );
    }
}
