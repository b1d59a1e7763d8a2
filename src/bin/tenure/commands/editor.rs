//! A task in the editor of whoever types: its fields as JSON, so that no digit of them is lost. What was written is
//! kept until it is taken.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::value::RawValue;
use tenure::model::TaskId;

use super::common::Session;
use super::form::Fields;
use crate::client::{Answer, Ask, strange};
use crate::exit::{Exit, Failure, reason};
use crate::given;

/// The fields that can be changed, in the order in which they are shown.
const FIELDS: [&str; 14] = [
    "agent_id",
    "query",
    "enabled",
    "schedule",
    "timeout_seconds",
    "deadline_seconds",
    "retry_policy",
    "overlap_policy",
    "session_policy",
    "workspace_policy",
    "priority",
    "concurrency_key",
    "concurrency_limit",
    "metadata",
];

/// Has a task edited, and changes what was changed. None if nothing was.
pub(super) async fn edit(
    session: &Session,
    task_id: &TaskId,
    current: &Answer,
) -> Result<Option<Answer>, Failure> {
    let current: Fields = serde_json::from_str(&current.body).map_err(|error| strange(&error))?;
    let text = shown(&current);
    // As it is shown: what stands in another order has not changed.
    let before: Fields = serde_json::from_str(&text).map_err(|error| strange(&error))?;
    let page = Page::write(task_id, &text)?;
    loop {
        page.open()?;
        let failure = match page.read().and_then(|after| changes(&before, &after)) {
            Ok(None) => {
                page.remove();
                return Ok(None);
            }
            Ok(Some(body)) => {
                match session.client.ask(Ask::patch(["tasks", task_id.as_str()]).json(body)).await {
                    Ok(answer) => {
                        page.remove();
                        return Ok(Some(answer));
                    }
                    Err(failure) => failure,
                }
            }
            Err(failure) => failure,
        };
        let can_be_mended = failure.exit == Exit::Usage;
        if !(can_be_mended && again(session, &failure)?) {
            return Err(page.kept(task_id, failure));
        }
    }
}

/// The fields as a person edits them.
fn shown(fields: &Fields) -> String {
    let lines =
        FIELDS.iter().filter_map(|name| Some(format!("  {name:?}: {}", indented(fields.get(*name)?))));
    format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"))
}

/// An object of several fields in a line each; anything else as it is.
fn indented(value: &RawValue) -> String {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).unwrap_or_default();
    if fields.len() < 2 {
        return value.get().to_owned();
    }
    let lines = fields.iter().map(|(name, value)| {
        let name = serde_json::Value::from(name.as_str());
        format!("    {name}: {}", value.get())
    });
    format!("{{\n{}\n  }}", lines.collect::<Vec<_>>().join(",\n"))
}

/// The body that changes what differs; none if nothing does. What was taken out has its default again.
fn changes(before: &Fields, after: &Fields) -> Result<Option<String>, Failure> {
    let null = RawValue::NULL.to_owned();
    let mut changed: BTreeMap<&str, &RawValue> = BTreeMap::new();
    for name in FIELDS.iter().filter(|name| before.contains_key(**name) && !after.contains_key(**name)) {
        changed.insert(*name, &null);
    }
    let is_same = |name: &str, value: &RawValue| {
        before.get(name).is_some_and(|before| compact(before) == compact(value))
    };
    for (name, value) in after.iter().filter(|(name, value)| !is_same(name, value)) {
        changed.insert(name, value);
    }
    if changed.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(&changed).map(Some).map_err(|error| Failure::usage(error.to_string()))
}

/// JSON without the blanks between its parts: every digit stays.
fn compact(json: &RawValue) -> String {
    let (mut in_text, mut escaped) = (false, false);
    let is_part = |c: &char| {
        let blank = !in_text && c.is_ascii_whitespace();
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ => {}
        }
        !blank
    };
    json.get().chars().filter(is_part).collect()
}

/// Whether to open the editor again; asked of a person alone.
fn again(session: &Session, failure: &Failure) -> Result<bool, Failure> {
    if !(std::io::stdin().is_terminal() && session.output.is_watched()) {
        return Ok(false);
    }
    session.output.failure(failure);
    session.output.note("edit it again? [Y/n]");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let read = read.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
    Ok(read > 0 && !answer.trim().to_ascii_lowercase().starts_with('n'))
}

/// A file with what is edited.
struct Page {
    path: PathBuf,
    editor: String,
}

impl Page {
    fn write(task_id: &TaskId, text: &str) -> Result<Self, Failure> {
        let named = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok());
        let editor = named.filter(|editor| !editor.trim().is_empty()).ok_or_else(|| {
            Failure::usage("there is no editor").hint("name one in the environment variable EDITOR")
        })?;
        let name: String = task_id.as_str().chars().take(100).collect();
        let path = std::env::temp_dir().join(format!("tenure-{name}-{}.json", std::process::id()));
        // Nobody else reads it, and nothing that lies there already is written to.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("\"{}\" cannot be written: {}", path.display(), reason(&error)),
            )
        })?;
        Ok(Self { path, editor })
    }

    /// Waits until the editor has ended. What names it may have arguments, as the shell reads them.
    fn open(&self) -> Result<(), Failure> {
        let mut editor = Command::new("sh");
        editor.arg("-c").arg(format!("{} \"$1\"", self.editor)).arg("sh").arg(&self.path);
        let ended = editor.status();
        let why = match ended {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => status.to_string(),
            Err(error) => reason(&error),
        };
        self.remove();
        let message = format!("the editor {:?} ended with {why}: nothing was changed", self.editor);
        Err(Failure::new(Exit::Failed, message))
    }

    fn read(&self) -> Result<Fields, Failure> {
        let text = given::file(&self.path.to_string_lossy())?;
        serde_json::from_str(&text).map_err(|error| {
            Failure::usage(format!("expected a JSON object with the fields of a task: {error}"))
        })
    }

    fn remove(&self) {
        // It lies among what is temporary anyway.
        drop(std::fs::remove_file(&self.path));
    }

    /// Says where what was written is.
    fn kept(&self, task_id: &TaskId, failure: Failure) -> Failure {
        let path: &Path = &self.path;
        failure.hint(format!(
            "what you wrote is kept: mend it, and give it with `tenure tasks edit {task_id} --file {}`",
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_was_changed_is_sent_and_nothing_else() {
        let before =
            fields(r#"{"task_id":"t","query":"a  b","priority":1,"metadata":{"n":1.00,"m":2},"revision":3}"#);
        let text = shown(&before);
        assert_eq!(
            text,
            "{\n  \"query\": \"a  b\",\n  \"priority\": 1,\n  \"metadata\": {\n    \"m\": 2,\n    \"n\": 1.00\n  }\n}\n"
        );
        let change = |after: &str| changes(&before, &fields(after)).unwrap();
        assert_eq!(change(r#"{"query": "a  b", "priority": 1, "metadata": {"n": 1.00, "m": 2}}"#), None);
        assert_eq!(
            change(r#"{"query":"a b","priority":1,"metadata":{"n":1.00,"m":2}}"#).unwrap(),
            r#"{"query":"a b"}"#
        );
        assert_eq!(
            change(r#"{"query":"a  b","metadata":{"n":1.00,"m":2}}"#).unwrap(),
            r#"{"priority":null}"#
        );
        assert_eq!(
            change(r#"{"query":"a  b","priority":1,"metadata":{"n":1.0,"m":2},"colour":7}"#).unwrap(),
            r#"{"colour":7,"metadata":{"n":1.0,"m":2}}"#
        );
    }
}
