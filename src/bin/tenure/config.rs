//! The settings of the program: defaults, then the file, then the environment, then flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tenure::agents::AgentDefinition;
use tenure::model::AgentId;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::Output;

mod file;
mod flags;
mod places;
mod sections;
mod table;
mod values;

pub(crate) use file::FileTask;
pub(crate) use flags::GivenFlags;
pub(crate) use places::StoreUrl;
pub(crate) use sections::Config;
pub(crate) use values::{Length, LogFormat, Sync};

use file::File;
use table::{Setting, TABLE};

/// The file that is read when none is named.
pub(crate) const DEFAULT_FILE: &str = "tenure.toml";

/// What the file, the environment and the flags come to.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) agents: BTreeMap<AgentId, AgentDefinition>,
    pub(crate) tasks: Vec<FileTask>,
    /// The file it was read from, if there was one.
    pub(crate) file: Option<PathBuf>,
    /// Where each setting comes from, in the order of the table.
    pub(crate) sources: Vec<Source>,
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File,
    Environment(&'static str),
    Flag(&'static str),
}

/// The settings as they come out, and where each comes from
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// As one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl Loaded {
    /// Reads the file that is named, or else `tenure.toml` if there is one; then the environment and the flags.
    pub(crate) fn load(global: &Global) -> Result<Self, Failure> {
        let usual = Path::new(DEFAULT_FILE);
        let file = global.config.as_deref().or_else(|| usual.exists().then_some(usual));
        Self::read(file, &global.flags, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The same from a file that is named otherwise.
    pub(crate) fn load_file(path: &Path, global: &Global) -> Result<Self, Failure> {
        Self::load(&Global { config: Some(path.to_owned()), ..global.clone() })
    }

    fn read(
        path: Option<&Path>,
        flags: &GivenFlags,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let file = path.map(File::read).transpose()?;
        let mut config = file.as_ref().map_or_else(|| Ok(Config::default()), File::config)?;
        let mut sources = Vec::with_capacity(TABLE.len());
        for setting in TABLE {
            sources.push(apply(setting, &mut config, file.as_ref(), flags, variable)?);
        }
        let (mut agents, mut tasks) = (BTreeMap::new(), Vec::new());
        if let Some(file) = &file {
            agents = file.agents(&config.agents)?;
            let default = default_agent(&config, &agents)?;
            tasks = file.tasks(&config.tasks, default.as_ref())?;
        }
        Ok(Self { config, agents, tasks, file: file.map(|file| file.path), sources })
    }
}

/// Looks for a setting where it may be said, and takes what is said last.
fn apply(
    setting: &Setting,
    config: &mut Config,
    file: Option<&File>,
    flags: &GivenFlags,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Source, Failure> {
    let mut set = |text: &str, blame: &str| {
        (setting.set)(config, text)
            .map_err(|expected| Failure::usage(format!("{blame}: expected {expected}")))
    };
    if let Some((flag, text)) = setting.flag.and_then(|flag| Some((flag, flags.get(flag)?))) {
        set(text, &format!("--{flag}"))?;
        return Ok(Source::Flag(flag));
    }
    if let Some(text) = variable(setting.env) {
        set(&text, setting.env)?;
        return Ok(Source::Environment(setting.env));
    }
    if setting.key == "store.url"
        && let Some((name, store)) = places::by_known_names(variable)
    {
        config.store.url =
            store.map_err(|expected| Failure::usage(format!("{name}: expected {expected}")))?;
        return Ok(Source::Environment(name));
    }
    let said = file.is_some_and(|file| file.says(setting.key));
    Ok(if said { Source::File } else { Source::Default })
}

/// The agent of tasks that name none: the one that is set, or the only one (rulings).
fn default_agent(
    config: &Config,
    agents: &BTreeMap<AgentId, AgentDefinition>,
) -> Result<Option<AgentId>, Failure> {
    if let Some(name) = &config.server.default_agent {
        return Ok(Some(AgentId::new(name.as_str()).map_err(tenure::Error::from)?));
    }
    let mut ids = agents.keys();
    Ok(ids.next().filter(|_| ids.next().is_none()).cloned())
}

/// `tenure config`.
pub(crate) fn show(_args: &ConfigArgs, global: &Global, _output: Output) -> Result<Exit, Failure> {
    Loaded::load(global)?;
    Ok(Exit::Ok)
}
