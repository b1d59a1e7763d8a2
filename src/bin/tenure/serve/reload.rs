//! SIGHUP: the configuration is read again, and the application's generation replaced (design.md, section 2).
//!
//! A configuration that is wrong changes nothing. What is right holds for all that begins from then on; the
//! attempts of the old generation are told to stop, and what they answer late is dropped.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure::agents::Directory;

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
            Err(failure) => tracing::error!(error = %failure, "the configuration stays as it was"),
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
    tracing::info!(
        agents = loaded.agents.len(),
        tasks = loaded.tasks.len(),
        "the configuration was replaced"
    );
    let closed = host.tenure.replace_with(loaded.config.settings()).await?;
    tracing::info!(report = %closed, "the generation before it is closed");
    Ok(loaded)
}

/// A task whose agent nobody here has waits until there is one.
pub(super) fn tell_missing_agents(loaded: &Loaded, directory: &Directory) {
    for task in loaded.tasks.iter().filter(|task| directory.get(&task.spec.agent_id).is_none()) {
        let (task, agent) = (&task.spec.task_id, &task.spec.agent_id);
        tracing::warn!(%task, %agent, "this host has no such agent: runs of the task wait for one that has");
    }
}
