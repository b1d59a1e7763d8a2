//! Asks an OpenAI-compatible endpoint, and passes on what it answers as it comes.

use std::sync::Arc;

use reqwest::header::AUTHORIZATION;
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::definition::ChatAgent;
use super::output::Output;
use super::remote;
use super::sse::Events;
use super::toolbox::Toolbox;
use crate::agent::{Agent, AgentError, AgentResult};
use crate::instance::RunContext;

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
    error: Option<Value>,
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

    /// The key, if the endpoint wants one.
    fn key(&self) -> Result<Option<String>, AgentError> {
        self.agent.api_key_env.as_deref().map(remote::secret).transpose()
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
        let key = self.key()?;
        let answer = self.answer_with(context, key.as_deref()).await;
        answer.map_err(|error| remote::masked(error, key.as_slice()))
    }

    async fn answer_with(&self, context: &RunContext, key: Option<&str>) -> AgentResult {
        let request = self.request(context.query(), key)?;
        let response = remote::accepted(request.send().await.map_err(remote::connection)?).await?;
        let mut output = Output::open(context).await?;
        let streamed = !remote::is_of_type(response.headers(), "application/json");
        let ended = match streamed {
            true => stream(response, &mut output).await,
            false => take_whole(response, context, &mut output).await,
        };
        let reason = match ended {
            Ok(Ended::Whole(reason)) => reason,
            Ok(Ended::Broken(error)) | Err(error) => return Err(output.fail(error)),
        };
        if let Some(reason) = reason.filter(|reason| reason != "stop") {
            tracing::info!(run = %context.run_id(), reason, "the model ended its answer early");
            output.note(&format!("the model ended its answer early: \"{reason}\"")).await;
        }
        Ok(output.finish())
    }
}

async fn take_whole(
    response: Response,
    context: &RunContext,
    output: &mut Output,
) -> Result<Ended, AgentError> {
    let bytes = remote::whole(response, context.settings().result_limit).await?;
    let answered = read(&bytes)?;
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
async fn stream(mut response: Response, output: &mut Output) -> Result<Ended, AgentError> {
    let mut events = Events::default();
    let mut reason = None;
    loop {
        let chunk = match response.chunk().await {
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
            let answered = read(data.as_bytes())?;
            text.push_str(&answered.text());
            reason = answered.finish_reason().map(str::to_owned).or(reason);
        }
        if !text.is_empty() {
            output.write(text.as_bytes()).await?;
        }
        if done {
            return Ok(Ended::Whole(reason));
        }
    }
}

fn read(bytes: &[u8]) -> Result<Answered, AgentError> {
    let answered: Answered = serde_json::from_slice(bytes)
        .map_err(|error| remote::no_answer(format!("the endpoint answered what is no answer: {error}")))?;
    match &answered.error {
        None | Some(Value::Null) => Ok(answered),
        Some(error) => {
            let said = error.get("message").and_then(Value::as_str).or(error.as_str()).unwrap_or("no reason");
            let said: String = said.chars().take(500).collect();
            let message = format!("the endpoint answered with an error: {said}");
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
