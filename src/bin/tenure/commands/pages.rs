//! Lists that come in pages, followed as far as is asked for.

use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

use super::common::Session;
use crate::client::{Answer, Ask, strange};
use crate::exit::{Exit, Failure};
use crate::render::Look;

/// How many entries a server puts on a page if nothing is said.
const PAGE: usize = 100;

/// How much of a list is wanted.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HowMany {
    /// The most entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one())]
    limit: usize,
    /// Every entry
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..)
}

/// Entries of a list, and the text they came in.
pub(super) struct Listed {
    name: &'static str,
    entries: Vec<Box<RawValue>>,
    /// How many there are in all, as far as that is known.
    total: Option<u64>,
    estimated: bool,
    /// Where the rest begins.
    next: Option<String>,
    /// The answers, as they came.
    answers: Vec<String>,
}

impl HowMany {
    /// All there is.
    pub(super) const ALL: Self = Self { limit: 0, all: true };

    const fn most(&self) -> usize {
        if self.all { usize::MAX } else { self.limit }
    }
}

/// Asks for page after page until there is as much as is wanted.
pub(super) async fn list(
    session: &Session,
    ask: Ask,
    name: &'static str,
    how_many: &HowMany,
) -> Result<Listed, Failure> {
    let mut listed =
        Listed { name, entries: Vec::new(), total: None, estimated: false, next: None, answers: Vec::new() };
    let mut cursor: Option<String> = None;
    loop {
        let left = how_many.most() - listed.entries.len();
        let answer = page(session, ask.clone().queries("cursor", &cursor), left).await?;
        // An empty page is no end: so much is looked at for one. The same cursor again would be none.
        cursor = listed.take(&answer)?.filter(|next| cursor.as_ref() != Some(next));
        listed.next.clone_from(&cursor);
        listed.answers.push(answer.body);
        if listed.entries.len() >= how_many.most() || cursor.is_none() {
            return Ok(listed);
        }
    }
}

/// The next page, with no more on it than is wanted.
async fn page(session: &Session, ask: Ask, left: usize) -> Result<Answer, Failure> {
    if left >= PAGE {
        return session.client.ask(ask).await;
    }
    match session.client.ask(ask.clone().query("limit", left)).await {
        // This server has smaller pages: it puts on them what it can. Else the second answer says what is wrong.
        Err(failure) if failure.exit == Exit::Usage => session.client.ask(ask).await,
        answer => answer,
    }
}

impl Listed {
    /// Takes what is on a page; answers the cursor of the next.
    fn take(&mut self, answer: &Answer) -> Result<Option<String>, Failure> {
        // By the text and not by way of a value: the digits of metadata are kept.
        let fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(&answer.body).map_err(|error| strange(&error))?;
        let entries: Vec<Box<RawValue>> = match fields.get(self.name) {
            Some(entries) => serde_json::from_str(entries.get()).map_err(|error| strange(&error))?,
            None => Vec::new(),
        };
        let word =
            |name: &str| fields.get(name).and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        if self.answers.is_empty() {
            self.total = word("total").and_then(|total| total.as_u64());
            self.estimated = word("total_estimated") == Some(Value::Bool(true));
        }
        self.entries.extend(entries);
        Ok(word("next_cursor").and_then(|cursor| cursor.as_str().map(str::to_owned)))
    }

    /// What the first answer says beside the entries.
    pub(super) fn field(&self, name: &str) -> Value {
        let first: Option<Value> = self.answers.first().and_then(|body| serde_json::from_str(body).ok());
        first.and_then(|mut answer| Some(answer.get_mut(name)?.take())).unwrap_or_default()
    }

    /// The entries, for people.
    pub(super) fn values(&self) -> Result<Vec<Value>, Failure> {
        self.entries
            .iter()
            .map(|entry| serde_json::from_str(entry.get()))
            .collect::<Result<_, _>>()
            .map_err(|error| strange(&error))
    }

    /// Shows the list: as it came, names alone, or as a table.
    pub(super) fn show(
        &self,
        session: &Session,
        id: &str,
        table: impl FnOnce(&Look, &[Value]) -> String,
    ) -> Result<(), Failure> {
        if session.json {
            return session.output.line(self.json()?);
        }
        let values = self.values()?;
        if session.quiet {
            let names = values.iter().filter_map(|value| value.get(id)?.as_str());
            return names.into_iter().try_for_each(|name| session.output.line(name));
        }
        session.output.line(table(&session.look, &values))?;
        if self.next.is_some() {
            session.tell(self.rest());
        }
        Ok(())
    }

    fn rest(&self) -> String {
        let shown = self.entries.len();
        match self.total {
            Some(total) if self.estimated => {
                format!("{shown} of about {total} {}; more with --limit N or --all", self.name)
            }
            Some(total) => format!("{shown} of {total} {}; more with --limit N or --all", self.name),
            None => format!("there are more {}; see them with --limit N or --all", self.name),
        }
    }

    /// The answer as it came; of several pages the first, with the entries of all, each as it came.
    fn json(&self) -> Result<String, Failure> {
        let [first, _, ..] = self.answers.as_slice() else {
            return Ok(self.answers.first().map_or("", |only| only.trim_end()).to_owned());
        };
        let raw = |text: String| RawValue::from_string(text).map_err(|error| strange(&error));
        let mut fields: BTreeMap<&str, Box<RawValue>> =
            serde_json::from_str(first).map_err(|error| strange(&error))?;
        let entries: Vec<&str> = self.entries.iter().map(|entry| entry.get()).collect();
        fields.insert(self.name, raw(format!("[{}]", entries.join(",")))?);
        fields.insert("next_cursor", raw(Value::from(self.next.clone()).to_string())?);
        serde_json::to_string(&fields).map_err(|error| strange(&error))
    }
}
