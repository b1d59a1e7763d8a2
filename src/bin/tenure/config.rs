//! The settings of the program: defaults, then the file, then the environment, then flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use tenure::agents::AgentDefinition;
use tenure::model::AgentId;

use crate::args::Global;
use crate::exit::Failure;

mod check;
mod file;
mod flags;
mod missing;
#[cfg(test)]
mod page;
mod places;
mod sections;
mod show;
mod table;
mod values;
mod wrong;

pub(crate) use file::FileTask;
pub(crate) use flags::{GivenFlags, HostFlags};
pub(crate) use missing::near_files;
pub(crate) use places::StoreUrl;
pub(crate) use sections::Config;
pub(crate) use show::{ConfigArgs, show};
pub(crate) use table::TABLE;
pub(crate) use values::{LogFormat, Secret, Sync};

use file::File;
use table::Setting;
use wrong::Wrong;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File,
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("file"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(flag) => write!(f, "--{flag}"),
        }
    }
}

impl Loaded {
    /// Reads the file that is named, or else `tenure.toml` if there is one; then the environment and the flags.
    pub(crate) fn load(global: &Global) -> Result<Self, Failure> {
        let usual = Path::new(DEFAULT_FILE);
        let file = global.config.as_deref().or_else(|| usual.exists().then_some(usual));
        Self::read(file, &global.flags, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Where the setting with this key comes from.
    pub(crate) fn source(&self, key: &str) -> Source {
        let place = TABLE.iter().position(|setting| setting.key == key);
        place.and_then(|place| self.sources.get(place)).cloned().unwrap_or(Source::Default)
    }

    /// The task of the file with this name.
    pub(crate) fn task(&self, name: &str) -> Option<&FileTask> {
        self.tasks.iter().find(|task| task.spec.task_id.as_str() == name)
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
        let mut wrong = Wrong::default();
        let config = file.as_ref().map(|file| file.config(&mut wrong)).transpose()?;
        let mut config = config.unwrap_or_default();
        let mut sources = Vec::with_capacity(TABLE.len());
        for setting in TABLE {
            let source = apply(setting, &mut config, file.as_ref(), flags, variable);
            sources.push(wrong.take(source).unwrap_or(Source::Default));
        }
        wrong.take(find_token(&mut config, &mut sources, variable));
        for (key, expected) in check::faults(&config) {
            wrong.tell(blame(key, expected, &sources, file.as_ref()));
        }
        let default = wrong.take(default_agent(&config)).flatten();
        let (mut agents, mut tasks) = (BTreeMap::new(), Vec::new());
        if let Some(file) = &file {
            agents = file.agents(&config.agents, &mut wrong);
            tasks = file.tasks(&config.tasks, default.as_ref(), &mut wrong);
        }
        wrong.done(Self { config, agents, tasks, file: file.map(|file| file.path), sources })
    }
}

/// The settings that differ, and can change only with a new start.
pub(crate) fn restarts<'a>(
    before: &'a Config,
    after: &'a Config,
) -> impl Iterator<Item = &'static str> + use<'a> {
    let shown = |setting: &Setting| (setting.get)(before) != (setting.get)(after);
    // What differs in its password alone is shown as the same.
    let hidden = |setting: &Setting| setting.key == "store.url" && before.store.url != after.store.url;
    let changed = move |setting: &&Setting| setting.restart && (shown(setting) || hidden(setting));
    TABLE.iter().filter(changed).map(|setting| setting.key)
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
        return Ok(Source::Environment(setting.env.to_owned()));
    }
    if setting.key == "store.url"
        && let Some((name, store)) = places::by_known_names(variable)
    {
        config.store.url =
            store.map_err(|expected| Failure::usage(format!("{name}: expected {expected}")))?;
        return Ok(Source::Environment(name.to_owned()));
    }
    let said = file.is_some_and(|file| file.says(setting.key));
    Ok(if said { Source::File } else { Source::Default })
}

/// A setting that is well-formed and cannot be, where it was said.
fn blame(key: &str, expected: &str, sources: &[Source], file: Option<&File>) -> String {
    let source = TABLE.iter().zip(sources).find(|(setting, _)| setting.key == key).map(|(_, source)| source);
    match (source, file) {
        (Some(Source::File), Some(file)) => file.wrong_at(key, expected),
        (Some(source @ (Source::Environment(_) | Source::Flag(_))), _) => {
            format!("{source}: expected {expected}")
        }
        _ => format!("\"{key}\": expected {expected}"),
    }
}

/// The token is read from the variable that is named for it, unless it was said itself.
fn find_token(
    config: &mut Config,
    sources: &mut [Source],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    let Some(name) = config.server.token_env.clone().filter(|_| config.server.token.is_none()) else {
        return Ok(());
    };
    let token = variable(&name).ok_or_else(|| {
        Failure::usage(format!(
            "\"server.token_env\": expected the name of a variable that is set, found {name:?}"
        ))
        .hint(format!("set the variable {name} to the token"))
    })?;
    config.server.token = Some(Secret::new(token));
    let place = TABLE.iter().position(|setting| setting.key == "server.token");
    if let Some(source) = place.and_then(|place| sources.get_mut(place)) {
        *source = Source::Environment(name);
    }
    Ok(())
}

/// The agent of tasks that name none: the one that is set, or the only one (rulings).
///
/// One that is wrong in itself counts: of its tasks there is nothing more to say.
fn default_agent(config: &Config) -> Result<Option<AgentId>, Failure> {
    if let Some(name) = &config.server.default_agent {
        return Ok(Some(AgentId::new(name.as_str()).map_err(tenure::Error::from)?));
    }
    let mut names = config.agents.keys().filter_map(|name| AgentId::new(name.as_str()).ok());
    Ok(names.next().filter(|_| names.next().is_none()))
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_new_start_is_named_also_if_only_a_password_differs() {
        let of = |url: &str| {
            let mut config = Config::default();
            config.store.url = url.parse().unwrap();
            config
        };
        let [before, other] = ["before", "other"].map(|word| of(&format!("postgres://u:{word}@db/tenure")));
        assert_eq!(restarts(&before, &before.clone()).count(), 0);
        assert_eq!(restarts(&before, &other).collect::<Vec<_>>(), ["store.url"]);
        assert_eq!(before.store.url.to_string(), other.store.url.to_string(), "neither is shown");
    }
}
