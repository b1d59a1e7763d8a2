//! `tenure config`: the settings as they come out, and where each comes from.

use serde_json::{Value, json};

use super::table::{Setting, TABLE};
use super::{HostFlags, Loaded, Source};
use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, plain};

/// The settings as they come out, and where each comes from
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tenure config --listen 127.0.0.1:9000 --json")]
pub(crate) struct ConfigArgs {
    /// As one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: HostFlags,
}

/// `tenure config`.
pub(crate) fn show(args: &ConfigArgs, global: &Global, output: Output) -> Result<Exit, Failure> {
    let loaded = Loaded::load(&global.and(&args.flags))?;
    if args.json {
        output.line(document(&loaded))?
    } else {
        table(&loaded, output)?
    }
    Ok(Exit::Ok)
}

fn value_of(setting: &Setting, loaded: &Loaded) -> Option<String> {
    (setting.get)(&loaded.config)
}

fn document(loaded: &Loaded) -> Value {
    let settings = TABLE.iter().zip(&loaded.sources).map(|(setting, source)| {
        json!({
            "key": setting.key,
            "value": value_of(setting, loaded),
            "source": source.to_string(),
            "env": setting.env,
            "flag": setting.flag.map(|flag| format!("--{flag}")),
        })
    });
    json!({
        "file": loaded.file,
        "settings": settings.collect::<Vec<_>>(),
        "agents": loaded.agents.keys().collect::<Vec<_>>(),
        "tasks": loaded.tasks.iter().map(|task| &task.spec.task_id).collect::<Vec<_>>(),
    })
}

fn table(loaded: &Loaded, output: Output) -> Result<(), Failure> {
    let rows: Vec<[String; 3]> = TABLE
        .iter()
        .zip(&loaded.sources)
        .map(|(setting, source)| {
            let value =
                value_of(setting, loaded).filter(|value| !value.is_empty()).unwrap_or_else(|| "-".to_owned());
            [setting.key.to_owned(), plain(&value).into_owned(), source.to_string()]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (keys, values) = (width(0), width(1));
    for [key, value, source] in rows {
        let source = if source == Source::Default.to_string() {
            output.paint(Style::Dim, source)
        } else {
            output.paint(Style::Green, source)
        };
        output.line(format_args!("{key:keys$}  {value:values$}  {source}"))?;
    }
    match &loaded.file {
        Some(file) => output.note(format_args!(
            "{}: {}, {}",
            file.display(),
            so_many(loaded.agents.len(), "agent"),
            so_many(loaded.tasks.len(), "task")
        )),
        None => output.note("no file: there is no tenure.toml here, and none was named with --config"),
    }
    Ok(())
}

/// `1 agent`, `3 tasks`.
fn so_many(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}
