//! Asks an OpenAI-compatible endpoint, and passes on what it answers as it comes.

use std::sync::Arc;

use reqwest::header::AUTHORIZATION;
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::definition::ChatAgent;
use super::mask::Secrets;
use super::output::MaskedOutput;
use super::remote::{self, Patience};
use super::sse::Events;
use super::toolbox::Toolbox;
use crate::agent::{Agent, AgentError, AgentResult};
use crate::instance::RunContext;

/// The largest answer that is not streamed: it is read as a whole.
const MOST_WHOLE: usize = 4 * 1024 * 1024;
/// How much is told of why a model ended its answer.
const MOST_REASON: usize = 100;

pub(super) struct ChatRunner {
    agent: ChatAgent,
    tools: Arc<Toolbox>,
}

/// An answer, whole or a part of it.
#[derive(Deserialize)]
struct Answered {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, alias = "message")]
    delta: Option<Said>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    content: Option<Content>,
    /// What it thinks before it answers, under either name. Not kept, but it is no silence.
    #[serde(default)]
    reasoning: Option<Box<RawValue>>,
    #[serde(default)]
    reasoning_content: Option<Box<RawValue>>,
}

/// A text, or the parts of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl Answered {
    fn text(&self) -> String {
        match self.choices.first().and_then(|choice| choice.delta.as_ref()?.content.as_ref()) {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts.iter().map(|part| part.text.as_str()).collect(),
            None => String::new(),
        }
    }

    /// Whether it has thought about something.
    fn thinks(&self) -> bool {
        // Two characters are a text, a list or an object with nothing in it.
        let says = |thought: &Option<Box<RawValue>>| thought.as_ref().is_some_and(|raw| raw.get().len() > 2);
        let said = self.choices.first().and_then(|choice| choice.delta.as_ref());
        said.is_some_and(|said| says(&said.reasoning) || says(&said.reasoning_content))
    }

    fn finish_reason(&self) -> Option<&str> {
        self.choices.first()?.finish_reason.as_deref()
    }
}

/// How an answer ended.
enum Ended {
    /// For this reason, if it said one.
    Whole(Option<String>),
    /// In the middle.
    Broken(AgentError),
}

impl ChatRunner {
    pub(super) fn new(agent: ChatAgent, tools: Arc<Toolbox>) -> Self {
        Self { agent, tools }
    }

    fn request(&self, query: &str, key: Option<&str>) -> Result<RequestBuilder, AgentError> {
        let url = format!("{}/chat/completions", self.agent.base_url.trim_end_matches('/'));
        let system = self.agent.system_instruction.as_ref();
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        let messages: Vec<Value> =
            system.into_iter().chain([json!({ "role": "user", "content": query })]).collect();
        let body = json!({ "model": self.agent.model, "messages": messages, "stream": true });
        let mut request = self.tools.client()?.post(url).json(&body);
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, remote::secret_header("Bearer ", key)?);
        }
        Ok(request)
    }

    async fn answer(&self, context: &RunContext) -> AgentResult {
        let secrets = Secrets::read(self.agent.api_key_env.iter())?;
        self.answer_with(context, &secrets).await.map_err(|error| secrets.masked(error))
    }

    async fn answer_with(&self, context: &RunContext, secrets: &Secrets) -> AgentResult {
        let request = self.request(context.query(), secrets.values.first().map(String::as_str))?;
        let patience = Patience::new();
        let response = patience.wait(request.send()).await?.map_err(remote::connection)?;
        let response = remote::accepted(response, secrets).await?;
        let mut output = MaskedOutput::open(context, &secrets.in_results).await?;
        let streamed = !remote::is_of_type(response.headers(), "application/json");
        let ended = match streamed {
            true => stream(response, &mut output, secrets, patience).await,
            false => take_whole(response, context, &mut output, secrets).await,
        };
        let reason = match ended {
            Ok(Ended::Whole(reason)) => reason,
            Ok(Ended::Broken(error)) | Err(error) => return Err(output.fail(error).await),
        };
        if let Some(reason) = reason.filter(|reason| reason != "stop") {
            let reason: String = secrets.in_errors.text(&reason).chars().take(MOST_REASON).collect();
            tracing::info!(run = %context.run_id(), reason, "the model ended its answer early");
            output.note(&format!("the model ended its answer early: \"{reason}\"")).await;
        }
        output.finish().await
    }
}

async fn take_whole(
    response: Response,
    context: &RunContext,
    output: &mut MaskedOutput<'_>,
    secrets: &Secrets,
) -> Result<Ended, AgentError> {
    let bytes = remote::whole(response, context.settings().result_limit.min(MOST_WHOLE)).await?;
    let answered = read(&bytes, secrets)?;
    if answered.choices.is_empty() {
        return Err(remote::no_answer("the endpoint answered no choice"));
    }
    let text = answered.text();
    if !text.is_empty() {
        output.write(text.as_bytes()).await?;
    }
    Ok(Ended::Whole(answered.finish_reason().map(str::to_owned)))
}

/// Passes on each part when it comes; what came in one piece is written in one.
async fn stream(
    mut response: Response,
    output: &mut MaskedOutput<'_>,
    secrets: &Secrets,
    mut patience: Patience,
) -> Result<Ended, AgentError> {
    let mut events = Events::default();
    let mut reason = None;
    loop {
        let chunk = match patience.wait(response.chunk()).await? {
            Ok(Some(chunk)) => chunk,
            Ok(None) if reason.is_some() => return Ok(Ended::Whole(reason)),
            Ok(None) => {
                let error = AgentError::new("connection", "the endpoint ended its answer in the middle");
                return Ok(Ended::Broken(error.within("exception")));
            }
            Err(error) => return Ok(Ended::Broken(remote::connection(error))),
        };
        let told = events.feed(&chunk).map_err(|_| remote::no_answer("an event of the stream has no end"))?;
        let mut text = String::new();
        let mut done = false;
        for data in told {
            if data.trim() == "[DONE]" {
                done = true;
                break;
            }
            let answered = read(data.as_bytes(), secrets)?;
            if answered.thinks() {
                patience.heard();
            }
            text.push_str(&answered.text());
            reason = answered.finish_reason().map(str::to_owned).or(reason);
        }
        if !text.is_empty() {
            patience.heard();
            output.write(text.as_bytes()).await?;
        }
        if done {
            return Ok(Ended::Whole(reason));
        }
    }
}

fn read(bytes: &[u8], secrets: &Secrets) -> Result<Answered, AgentError> {
    let answered: Answered = serde_json::from_slice(bytes).map_err(|error| {
        let error = remote::shown(&error.to_string(), secrets);
        remote::no_answer(format!("the endpoint answered what is no answer: {error}"))
    })?;
    match &answered.error {
        None => Ok(answered),
        Some(error) => {
            let said = remote::said_in(error.get().as_bytes()).unwrap_or_else(|| "no reason".to_owned());
            let message = format!("the endpoint answered with an error: {}", remote::shown(&said, secrets));
            Err(AgentError::new("server_error", message).within("exception"))
        }
    }
}

impl Agent for ChatRunner {
    /// Dropping the request closes its connection: the endpoint is told to stop in the only way there is.
    async fn run(self: Arc<Self>, context: RunContext) -> AgentResult {
        tokio::select! {
            biased;
            result = self.answer(&context) => result,
            () = context.cancelled() => Err(AgentError::new("cancelled", "the attempt was told to stop")),
        }
    }
}
