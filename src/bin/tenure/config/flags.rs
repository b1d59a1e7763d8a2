//! Settings that are given as flags. The table says which there are.

use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::table::{Setting, TABLE};

/// The flags that were given, with what they were given: those that every command has.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenFlags(Vec<(&'static str, String)>);

/// Those of a host that serves.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostFlags(GivenFlags);

impl GivenFlags {
    /// What was given for the setting with this flag.
    pub(crate) fn get(&self, flag: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == flag).map(|(_, value)| value.as_str())
    }

    /// These, and those of a host.
    pub(crate) fn and(&self, host: &HostFlags) -> Self {
        Self(self.0.iter().chain(&host.0.0).cloned().collect())
    }
}

/// The flags of the settings that this holds for.
fn flags(everywhere: bool) -> impl Iterator<Item = (&'static Setting, &'static str)> {
    let these = TABLE.iter().filter(move |setting| setting.everywhere == everywhere);
    these.filter_map(|setting| Some((setting, setting.flag?)))
}

fn add(command: Command, everywhere: bool) -> Command {
    flags(everywhere).fold(command, |command, (setting, flag)| {
        let arg = Arg::new(flag).long(flag).value_name(setting.value).global(everywhere);
        let help = setting.meaning.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let arg = if setting.value == "BOOL" {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        } else {
            arg
        };
        command.arg(arg.help(format!("{help} [{}]", setting.env)))
    })
}

fn given(matches: &ArgMatches, everywhere: bool) -> GivenFlags {
    let value = |flag: &'static str| Some((flag, matches.get_one::<String>(flag)?.clone()));
    GivenFlags(flags(everywhere).filter_map(|(_, flag)| value(flag)).collect())
}

impl clap::Args for GivenFlags {
    fn augment_args(command: Command) -> Command {
        add(command, true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add(command, true)
    }
}

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(given(matches, true))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = given(matches, true);
        Ok(())
    }
}

impl clap::Args for HostFlags {
    fn augment_args(command: Command) -> Command {
        add(command, false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add(command, false)
    }
}

impl FromArgMatches for HostFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given(matches, false)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = given(matches, false);
        Ok(())
    }
}
