//! Settings that are given as flags. The table says which there are.

use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::table::TABLE;

/// The flags that were given, with what they were given.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenFlags(Vec<(&'static str, String)>);

impl GivenFlags {
    /// What was given for the setting with this flag.
    pub(crate) fn get(&self, flag: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == flag).map(|(_, value)| value.as_str())
    }
}

impl clap::Args for GivenFlags {
    fn augment_args(command: Command) -> Command {
        let flags = TABLE.iter().filter_map(|setting| Some((setting, setting.flag?)));
        flags.fold(command, |command, (setting, flag)| {
            let arg = Arg::new(flag).long(flag).value_name(setting.value).global(true);
            let help = setting.meaning.split(". ").next().unwrap_or_default().trim_end_matches('.');
            let arg = if setting.value == "BOOL" {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                arg
            };
            command.arg(arg.help(format!("{help} [{}]", setting.env)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |flag: &'static str| Some((flag, matches.get_one::<String>(flag)?.clone()));
        Ok(Self(TABLE.iter().filter_map(|setting| given(setting.flag?)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
