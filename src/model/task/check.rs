//! What a task must be beyond its form. All problems are found at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{RetryPolicy, WorkspacePolicy};
use crate::model::{Invalid, Problem, Seconds, WHOLE_CHARACTERS, has_half_a_pair};

/// The longest query, in bytes.
pub(super) const MOST_QUERY_BYTES: usize = 1 << 20;
/// The longest metadata, in bytes.
pub(super) const MOST_METADATA_BYTES: usize = 256 << 10;
/// How deep metadata may be nested.
pub(super) const MOST_METADATA_LEVELS: usize = 64;
const MOST_NAME_BYTES: usize = 255;
const MOST_TEMPLATE_BYTES: usize = 1024;
const MOST_TEMPLATE_NAMES: usize = 16;
/// The longest name of a folder, and the longest path, that every file system takes.
const MOST_FOLDER_BYTES: usize = 255;
const MOST_PATH_BYTES: usize = 2048;
/// The length of the ids that runs are given.
const RUN_ID_BYTES: usize = 32;
const MOST_RETRIES: u32 = 1000;
const MOST_CLASSES: usize = 100;

/// Collects what is wrong.
#[derive(Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    /// Notes a problem unless all is well.
    pub(super) fn expect(&mut self, well: bool, field: &str, expected: impl Into<String>) {
        if !well {
            self.0.push(Problem { field: field.to_owned(), expected: expected.into() });
        }
    }

    /// The value, or nothing and its problem noted, under the field's name.
    pub(super) fn take<T>(&mut self, field: &str, value: Result<T, impl Into<Vec<Problem>>>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(problems) => {
                let named = |problem: Problem| Problem { field: field.to_owned(), ..problem };
                self.0.extend(problems.into().into_iter().map(named));
                None
            }
        }
    }

    /// The value that must be there.
    pub(super) fn need<T>(&mut self, field: &str, value: Option<T>, expected: &str) -> Option<T> {
        self.expect(value.is_some(), field, format!("{expected}, found nothing"));
        value
    }

    /// A length that, if given, is above 0.
    pub(super) fn above_zero(&mut self, field: &str, length: Option<Seconds>) {
        self.expect(length != Some(Seconds::default()), field, "a number of seconds above 0, found 0");
    }

    /// The value, if nothing was wrong with it or anything else.
    pub(super) fn done<T>(self, value: Option<T>) -> Result<T, Invalid> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(Invalid { problems: self.0 }),
        }
    }

    pub(super) fn query(&mut self, query: &str) {
        self.expect(!query.trim().is_empty(), "query", "text that is not blank");
        let bytes = query.len();
        let fits = bytes <= MOST_QUERY_BYTES;
        self.expect(fits, "query", format!("at most {MOST_QUERY_BYTES} bytes, found {bytes}"));
    }

    /// A name of the user's own: of a session, a key, an error class.
    pub(super) fn name(&mut self, field: &str, name: &str) {
        let fits = (1..=MOST_NAME_BYTES).contains(&name.len());
        let well = fits && !name.trim().is_empty() && !name.chars().any(char::is_control);
        let shown: String = name.chars().take(40).collect();
        self.expect(
            well,
            field,
            format!("1 to {MOST_NAME_BYTES} bytes without control characters, not blank, found {shown:?}"),
        );
    }

    pub(super) fn retry_policy(&mut self, policy: &RetryPolicy) {
        let counts = [
            ("retry_policy.max_retries", policy.max_retries),
            ("retry_policy.max_interruptions", policy.max_interruptions),
        ];
        for (field, count) in counts {
            self.expect(count <= MOST_RETRIES, field, format!("0 to {MOST_RETRIES}, found {count}"));
        }
        let (initial, most) = (policy.initial_delay_seconds, policy.max_delay_seconds);
        self.expect(
            initial <= most,
            "retry_policy.max_delay_seconds",
            format!("at least the initial delay of {initial}, found {most}"),
        );
        // Also false for what is no number.
        let jitter = policy.jitter;
        let fits = (0.0..=1.0).contains(&jitter);
        self.expect(fits, "retry_policy.jitter", format!("a share from 0 to 1, found {jitter}"));
        self.classes(&policy.retry_on);
    }

    fn classes(&mut self, classes: &BTreeSet<Arc<str>>) {
        let count = classes.len();
        let field = "retry_policy.retry_on";
        self.expect(count <= MOST_CLASSES, field, format!("at most {MOST_CLASSES} classes, found {count}"));
        classes.iter().for_each(|class| self.name(field, class));
    }

    /// The names are those that the template is filled with, as far as they are good ones.
    pub(super) fn workspace_policy(&mut self, policy: &WorkspacePolicy, agent_id: &str, task_id: &str) {
        let template = &policy.namespace_template;
        if let Err(expected) =
            check_template(template).and_then(|()| check_lengths(template, agent_id, task_id))
        {
            self.expect(false, "workspace_policy.namespace_template", expected);
        }
    }

    pub(super) fn metadata(&mut self, json: &str) {
        let object = json.trim_start().starts_with('{');
        self.expect(object, "metadata", "a JSON object");
        let bytes = json.len();
        let fits = bytes <= MOST_METADATA_BYTES;
        self.expect(fits, "metadata", format!("at most {MOST_METADATA_BYTES} bytes, found {bytes}"));
        let levels = levels(json);
        let flat = levels <= MOST_METADATA_LEVELS;
        self.expect(flat, "metadata", format!("at most {MOST_METADATA_LEVELS} levels, found {levels}"));
        // Kept as text, and read by whoever is told of the task: all of them are to be able to.
        self.expect(!has_half_a_pair(json), "metadata", WHOLE_CHARACTERS);
    }
}

impl From<Invalid> for Vec<Problem> {
    fn from(invalid: Invalid) -> Self {
        invalid.problems
    }
}

/// How deep JSON is nested. Without recursion: what is too deep is refused, and not a crash.
fn levels(json: &str) -> usize {
    let (mut level, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                level += 1;
                deepest = deepest.max(level);
            }
            b'}' | b']' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Checks that a template names a folder below the root, another for each run.
fn check_template(template: &str) -> Result<(), String> {
    if template.len() > MOST_TEMPLATE_BYTES {
        return Err(format!("at most {MOST_TEMPLATE_BYTES} bytes, found {}", template.len()));
    }
    let names = template.split('/').count();
    if names > MOST_TEMPLATE_NAMES {
        return Err(format!("at most {MOST_TEMPLATE_NAMES} folders, found {names}"));
    }
    if template.split('/').next().is_some_and(|first| first.eq_ignore_ascii_case(".tenure")) {
        return Err(
            "a path that does not begin with \".tenure\", where the host keeps its own files".to_owned()
        );
    }
    for segment in template.split('/') {
        if segment.is_empty() {
            return Err("a path below the workspace root, without empty segments".to_owned());
        }
        if matches!(segment, "." | "..") {
            return Err(format!("a path that does not leave its folder, found {segment:?}"));
        }
        check_segment(segment)?;
    }
    let each_its_own = template.contains("{run_id}");
    if each_its_own {
        Ok(())
    } else {
        Err("a path with \"{run_id}\", so that no two runs share it".to_owned())
    }
}

/// Checks that the folders it names can be made.
fn check_lengths(template: &str, agent_id: &str, task_id: &str) -> Result<(), String> {
    let run_id = "0".repeat(RUN_ID_BYTES);
    let filled =
        template.replace("{agent_id}", agent_id).replace("{task_id}", task_id).replace("{run_id}", &run_id);
    if let Some(long) = filled.split('/').map(str::len).find(|length| *length > MOST_FOLDER_BYTES) {
        return Err(format!(
            "names of at most {MOST_FOLDER_BYTES} bytes, found one of {long} with its ids filled in"
        ));
    }
    if filled.len() > MOST_PATH_BYTES {
        return Err(format!(
            "at most {MOST_PATH_BYTES} bytes with its ids filled in, found {}",
            filled.len()
        ));
    }
    Ok(())
}

fn check_segment(segment: &str) -> Result<(), String> {
    let plain = ["{agent_id}", "{task_id}", "{run_id}"]
        .iter()
        .fold(segment.to_owned(), |text, placeholder| text.replace(placeholder, ""));
    let odd = plain.chars().find(|c| c.is_control() || matches!(c, '{' | '}' | '\\' | ':'));
    match odd {
        None => Ok(()),
        Some('{' | '}') => {
            Err(format!("only {{agent_id}}, {{task_id}} and {{run_id}} in braces, found {segment:?}"))
        }
        Some(odd) => Err(format!("a path without {odd:?}, found {segment:?}")),
    }
}
