//! A task from flags, and from a file below them: what is sent is the text, so that no digit of it is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tenure::model::{AgentId, TaskId};

use super::common::{Session, agent_id};
use super::task_file;
use crate::client::{Answer, strange};
use crate::exit::Failure;
use crate::given::text_or_stdin;
use crate::when::{self, Toward};

/// Fields of a JSON object, each as it is written.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

/// The fields of a task.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "The task")]
pub(crate) struct TaskFlags {
    /// Who executes it
    #[arg(long, value_name = "AGENT", value_parser = agent_id)]
    agent: Option<AgentId>,
    /// What the agent is asked; `-` for standard input
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Every so often: `5m`, `1h30m`, `2 days`
    #[arg(long, value_name = "LENGTH", value_parser = when::some_length, group = "timing")]
    every: Option<Duration>,
    /// At the minutes that a cron expression names, in the zone of --timezone
    #[arg(long, value_name = "EXPRESSION", group = "timing")]
    cron: Option<String>,
    /// Once: `in 10m`, `tomorrow 09:00`, `monday 9:00`, `2026-12-01 09:00`
    #[arg(long, value_name = "TIME", group = "timing")]
    at: Option<String>,
    /// Only when it is asked for
    #[arg(long, group = "timing")]
    manual: bool,
    /// The zone of cron expressions and of the times given here; if nothing is said, that of this machine
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Nothing is due before this
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// Nothing is due at or after this
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// How much later than due it may begin, drawn for each occurrence
    #[arg(long, value_name = "LENGTH", value_parser = when::length)]
    jitter: Option<Duration>,
    /// What becomes of occurrences that were missed
    #[arg(long, value_name = "POLICY", value_parser = ["run_once", "skip_missed", "queue_all"])]
    misfire: Option<String>,
    /// The longest that an attempt may take
    #[arg(long, value_name = "LENGTH", value_parser = when::some_length, conflicts_with = "no_timeout")]
    timeout: Option<Duration>,
    /// Attempts may take as long as they take
    #[arg(long)]
    no_timeout: bool,
    /// The longest that a run may take, waiting included
    #[arg(long, value_name = "LENGTH", value_parser = when::some_length, conflicts_with = "no_deadline")]
    deadline: Option<Duration>,
    /// Runs may take as long as they take
    #[arg(long)]
    no_deadline: bool,
    /// How many failures are tried again
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// How long after the first failure
    #[arg(long, value_name = "LENGTH", value_parser = when::length)]
    retry_delay: Option<Duration>,
    /// The longest delay between attempts
    #[arg(long, value_name = "LENGTH", value_parser = when::length)]
    retry_max_delay: Option<Duration>,
    /// How the delay grows
    #[arg(long, value_name = "HOW", value_parser = ["fixed", "exponential"])]
    backoff: Option<String>,
    /// The error classes that are tried again; several with commas
    #[arg(long, value_name = "CLASS", value_delimiter = ',')]
    retry_on: Vec<String>,
    /// What happens when a run is wanted while another is active
    #[arg(
        long,
        value_name = "POLICY",
        value_parser = ["skip_if_running", "queue_next", "cancel_previous", "allow_parallel"]
    )]
    overlap: Option<String>,
    /// `task` for one session of all its runs, `run` for one each, or the name of a session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Higher is claimed first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Runs with this key share a limit, whatever their tasks
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// How many runs with the key execute at once
    #[arg(long, value_name = "N")]
    concurrency_limit: Option<u32>,
    /// The folder of a run's files, with {agent_id}, {task_id} and {run_id} put in
    #[arg(long, value_name = "TEMPLATE")]
    workspace_template: Option<String>,
    /// Any JSON object; it is kept digit for digit
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// Not dispatched until it is resumed
    #[arg(long)]
    paused: bool,
}

/// The body that makes a task.
pub(super) fn new_task(
    session: &Session,
    task_id: Option<&TaskId>,
    file: Option<&str>,
    flags: &TaskFlags,
) -> Result<String, Failure> {
    let mut fields = file.map(|file| task_file::read(file, task_id)).transpose()?.unwrap_or_default();
    if let Some(task_id) = task_id {
        put(&mut fields, "task_id", task_id.as_str())?;
    }
    flags.apply(session, &mut fields, None)?;
    written(&fields)
}

/// The body that changes a task.
pub(super) fn change(
    session: &Session,
    current: &Answer,
    file: Option<&str>,
    flags: &TaskFlags,
) -> Result<String, Failure> {
    let current: Fields = serde_json::from_str(&current.body).map_err(|error| strange(&error))?;
    let mut fields = file.map(|file| task_file::read(file, None)).transpose()?.unwrap_or_default();
    flags.apply(session, &mut fields, Some(&current))?;
    if fields.is_empty() {
        return Err(Failure::usage("nothing is to be changed").hint(
            "name what is, for example `--every 10m`; `tenure tasks edit --help` lists what there is",
        ));
    }
    written(&fields)
}

impl TaskFlags {
    /// Puts what was given over the fields. Policies keep what is not given, from the fields or from the task.
    fn apply(&self, session: &Session, fields: &mut Fields, current: Option<&Fields>) -> Result<(), Failure> {
        if let Some(query) = &self.query {
            put(fields, "query", text_or_stdin(query)?)?;
        }
        if let Some(metadata) = &self.metadata {
            fields.insert("metadata".to_owned(), raw("--metadata", metadata)?);
        }
        for (name, value) in self.plain() {
            put(fields, name, value)?;
        }
        for (name, value) in self.policies() {
            let whole = overlaid(&base(name, fields, current), value);
            put(fields, name, whole)?;
        }
        let timing = self.schedule(session)?;
        if !timing.as_object().is_none_or(serde_json::Map::is_empty) {
            let whole = schedule(&base("schedule", fields, current), timing);
            put(fields, "schedule", whole)?;
        }
        Ok(())
    }

    /// Fields that are replaced as a whole.
    fn plain(&self) -> Vec<(&'static str, Value)> {
        let mut given = Vec::new();
        let mut give = |name, value: Option<Value>| given.extend(value.map(|value| (name, value)));
        give("agent_id", self.agent.as_ref().map(|agent| agent.as_str().into()));
        give("enabled", self.paused.then(|| false.into()));
        give("timeout_seconds", self.timeout.map(seconds).or(self.no_timeout.then_some(Value::Null)));
        give("deadline_seconds", self.deadline.map(seconds).or(self.no_deadline.then_some(Value::Null)));
        give("overlap_policy", self.overlap.as_deref().map(Value::from));
        give("session_policy", self.session.as_deref().map(session_policy));
        give("priority", self.priority.map(Value::from));
        give("concurrency_key", self.concurrency_key.as_deref().map(Value::from));
        give("concurrency_limit", self.concurrency_limit.map(Value::from));
        given
    }

    /// Fields of which some parts are replaced.
    fn policies(&self) -> Vec<(&'static str, Value)> {
        let mut retry = json!({});
        let mut give = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                retry[name] = value;
            }
        };
        give("max_retries", self.retries.map(Value::from));
        give("initial_delay_seconds", self.retry_delay.map(seconds));
        give("max_delay_seconds", self.retry_max_delay.map(seconds));
        give("backoff", self.backoff.as_deref().map(Value::from));
        give("retry_on", (!self.retry_on.is_empty()).then(|| self.retry_on.clone().into()));
        let workspace =
            self.workspace_template.as_deref().map(|template| json!({ "namespace_template": template }));
        let retry = retry.as_object().is_some_and(|fields| !fields.is_empty()).then_some(retry);
        let given = [("retry_policy", retry), ("workspace_policy", workspace)];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// What is said of the schedule.
    fn schedule(&self, session: &Session) -> Result<Value, Failure> {
        let now = self.now(session)?;
        let instant = |flag: &str, text: &Option<String>| {
            let read = |text: &String| when::instant(text, &now, Toward::Future).map(|at| format!("{at:.3}"));
            text.as_ref().map(read).transpose().map_err(|error| Failure::usage(format!("{flag}: {error}")))
        };
        let at = instant("--at", &self.at)?;
        if let Some(at) = &at {
            to_come(at, &now)?;
        }
        let mut given = self.timing(at, &now);
        let mut give = |name: &str, value: Option<Value>| {
            given.extend(value.map(|value| (name.to_owned(), value)));
        };
        give("timezone", self.timezone.as_deref().map(Value::from));
        give("start_at", instant("--start", &self.start)?.map(Value::from));
        give("end_at", instant("--end", &self.end)?.map(Value::from));
        give("jitter_seconds", self.jitter.map(seconds));
        give("misfire_policy", self.misfire.as_deref().map(Value::from));
        Ok(Value::Object(given))
    }

    /// Now, in the zone that is meant.
    fn now(&self, session: &Session) -> Result<jiff::Zoned, Failure> {
        let Some(zone) = &self.timezone else { return Ok(session.now.clone()) };
        session.now.in_tz(zone).map_err(|_| {
            Failure::usage(format!("--timezone: expected a zone of the IANA database, found {zone:?}"))
                .hint("write it as \"Europe/Berlin\" or \"UTC\"")
        })
    }

    /// The type of the schedule, with what belongs to it; nothing if none is said.
    fn timing(&self, at: Option<String>, now: &jiff::Zoned) -> serde_json::Map<String, Value> {
        let fields = if let Some(every) = self.every {
            json!({ "type": "interval", "seconds": seconds(every) })
        } else if let Some(expression) = &self.cron {
            match now.time_zone().iana_name() {
                Some(zone) => json!({ "type": "cron", "expression": expression, "timezone": zone }),
                None => json!({ "type": "cron", "expression": expression }),
            }
        } else if let Some(at) = at {
            json!({ "type": "once", "run_at": at })
        } else if self.manual {
            json!({ "type": "manual" })
        } else {
            json!({})
        };
        fields.as_object().cloned().unwrap_or_default()
    }
}

/// A time that is past would be due at once: that has to be meant.
fn to_come(at: &str, now: &jiff::Zoned) -> Result<(), Failure> {
    // As it is written, without what lies below the millisecond.
    if at < format!("{:.3}", now.timestamp()).as_str() {
        return Err(Failure::usage(format!("--at: expected a time to come, found {at}, which is past"))
            .hint("for a run at once, write `--at now`"));
    }
    Ok(())
}

/// What a field is before the flags: as the file says it, or else as the task has it.
fn base(name: &str, fields: &Fields, current: Option<&Fields>) -> Value {
    let found = fields.get(name).or_else(|| current?.get(name));
    found.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_else(|| json!({}))
}

/// A schedule with what is given: another type begins anew, the same keeps what is not given.
fn schedule(base: &Value, given: Value) -> Value {
    let other =
        given.get("type").is_some_and(|kind| Some(kind) != base.get("type") && base.get("type").is_some());
    if other { given } else { overlaid(base, given) }
}

fn overlaid(base: &Value, over: Value) -> Value {
    let mut whole = match base {
        Value::Object(fields) => fields.clone(),
        // The bare word of a type.
        Value::String(word) => [("type".to_owned(), Value::from(word.as_str()))].into_iter().collect(),
        _ => serde_json::Map::new(),
    };
    if let Value::Object(over) = over {
        whole.extend(over);
    }
    Value::Object(whole)
}

fn session_policy(text: &str) -> Value {
    match text {
        "task" | "run" => json!({ "type": text }),
        name => json!({ "type": "fixed", "session_id": name }),
    }
}

/// A length as fields tell it: in seconds, whole if it is.
fn seconds(length: Duration) -> Value {
    let ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    if ms.is_multiple_of(1000) { (ms / 1000).into() } else { length.as_secs_f64().into() }
}

pub(super) fn put(fields: &mut Fields, name: &str, value: impl Into<Value>) -> Result<(), Failure> {
    let text = value.into().to_string();
    fields.insert(name.to_owned(), raw(name, &text)?);
    Ok(())
}

fn raw(what: &str, text: &str) -> Result<Box<RawValue>, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("{what}: expected JSON: {error}")).hint(r#"write it as `'{"key": "value"}'`"#)
    })
}

fn written(fields: &Fields) -> Result<String, Failure> {
    serde_json::to_string(fields).map_err(|error| Failure::usage(error.to_string()))
}
