//! `tenure reference`: the page that documents the command line, made of what the program knows of itself.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use crate::args::Args;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Print the reference of the command line
#[derive(Debug, clap::Args)]
pub(crate) struct Reference {}

pub(super) fn print(_asked: &Reference, output: Output) -> Result<Exit, Failure> {
    output.text(page(Args::command()))?;
    Ok(Exit::Ok)
}

fn page(mut program: Command) -> String {
    program.build();
    let mut page = String::from(
        "# The command line\n\n\
         Written by `tests/cli_doc.rs` from the program itself; write it anew with\n\
         `TENURE_BLESS=1 cargo test --test cli_doc`.\n\n",
    );
    about(&mut page, &program);
    page.push_str("## Commands\n\n");
    let mut leaves = Vec::new();
    collect(&program, "tenure", &mut leaves);
    for (name, command) in &leaves {
        let says = command.get_about().map(ToString::to_string).unwrap_or_default();
        line(&mut page, format_args!("- [`{name}`](#{}): {says}", name.replace(' ', "-")));
    }
    page.push('\n');
    page.push_str("## Everywhere\n\nThese flags may stand behind every command.\n\n");
    flags(&mut page, program.get_arguments().filter(|arg| arg.is_global_set()));
    exit_codes(&mut page);
    times(&mut page);
    for (name, command) in &leaves {
        section(&mut page, name, command);
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Text can always be added to text.
    writeln!(page, "{text}").unwrap_or_default();
}

fn about(page: &mut String, program: &Command) {
    if let Some(about) = program.get_about() {
        line(page, format_args!("{about}"));
    }
    page.push_str(
        "\nCommands that look or act ask a server (`--url`, `TENURE_URL`; its token in `TENURE_TOKEN`) or, without \
         one, the store\nitself (`--store`, `TENURE_STORE`): both by the same interface, so that the answers are the \
         same. Tables are for people;\n`--json` prints an answer as it came, `--quiet` names alone.\n\n",
    );
}

/// Every command that does something, with its whole name.
fn collect<'a>(command: &'a Command, name: &str, leaves: &mut Vec<(String, &'a Command)>) {
    let shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    let subs: Vec<&Command> = command.get_subcommands().filter(shown).collect();
    if name != "tenure" && (subs.is_empty() || !command.is_subcommand_required_set()) {
        leaves.push((name.to_owned(), command));
    }
    for sub in subs {
        collect(sub, &format!("{name} {}", sub.get_name()), leaves);
    }
}

fn exit_codes(page: &mut String) {
    page.push_str("## Exit codes\n\n| code | what it means |\n|---|---|\n");
    for exit in Exit::ALL {
        line(page, format_args!("| {} | {} |", exit.number(), exit.meaning()));
    }
    page.push('\n');
}

fn times(page: &mut String) {
    page.push_str(
        "## Times and lengths of time\n\n\
         A length of time is a number of seconds, or words: `90`, `30s`, `5m`, `1h30m`, `2 days`.\n\n\
         A time is one of these, in the zone of this machine or, for tasks, of `--timezone`:\n\n\
         - `now`; `in 10m`; `2h ago`; a bare length, which is meant ahead for what is to happen, and back for what has \
         happened\n\
         - `today 18:00`, `tomorrow at 9am`, `yesterday`, `monday 9:00`; without a time of day its beginning\n\
         - `9:00`, `noon`: the next, or for what has happened the last\n\
         - `2026-12-01`, `2026-12-01 09:00`, `2026-12-01T09:00:00Z`\n\n",
    );
}

fn section(page: &mut String, name: &str, command: &Command) {
    line(page, format_args!("## {name}\n"));
    let says = command.get_long_about().or(command.get_about());
    line(
        page,
        format_args!("{}.\n", says.map(ToString::to_string).unwrap_or_default().trim_end_matches('.')),
    );
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        line(page, format_args!("Also as {}.\n", aliases.join(", ")));
    }
    let usage = command.clone().render_usage().to_string();
    line(page, format_args!("```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim_end()));
    let own = |arg: &&Arg| !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help";
    flags(page, command.get_arguments().filter(own));
    if let Some(after) = command.get_after_help() {
        examples(page, &after.to_string());
    }
}

/// What stands behind the flags: text, examples, text.
fn examples(page: &mut String, after: &str) {
    let Some(begin) = after.find("Example") else { return paragraph(page, after) };
    let (before, rest) = after.split_at(begin);
    paragraph(page, before);
    let (title, rest) = rest.split_once(':').unwrap_or(("Example", rest));
    let (code, more) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let lines = code.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    line(page, format_args!("{title}:\n\n```sh\n{}\n```\n", lines.join("\n")));
    paragraph(page, more);
}

fn paragraph(page: &mut String, text: &str) {
    if !text.trim().is_empty() {
        line(page, format_args!("{}\n", text.trim()));
    }
}

fn flags<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    let args: Vec<&Arg> = args.filter(|arg| !arg.is_hide_set()).collect();
    if args.is_empty() {
        return;
    }
    page.push_str("| argument | what it says |\n|---|---|\n");
    for arg in args {
        line(page, format_args!("| {} | {} |", cell(&spelled(arg)), cell(&meaning(arg))));
    }
    page.push('\n');
}

fn spelled(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| format!(" {name}")).collect();
    let takes = arg.get_action().takes_values();
    let values = if takes { values.concat() } else { String::new() };
    let Some(long) = arg.get_long() else { return format!("`{}`", values.trim_start()) };
    match arg.get_short() {
        Some(short) => format!("`-{short}`, `--{long}{values}`"),
        None => format!("`--{long}{values}`"),
    }
}

fn meaning(arg: &Arg) -> String {
    let mut says = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let words: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !words.is_empty() && arg.get_action().takes_values() {
        says.push_str(&format!("; one of {}", words.join(", ")));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        says.push_str(&format!("; {} if nothing is said", defaults.join(", ")));
    }
    if let Some(env) = arg.get_env() {
        says.push_str(&format!(" (`{}`)", env.to_string_lossy()));
    }
    says
}

/// Text that does not end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
