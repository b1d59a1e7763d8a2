//! Posts a run to a URL, and takes what is answered as its result.

use std::sync::Arc;

use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::definition::HttpAgent;
use super::remote;
use super::toolbox::Toolbox;
use crate::agent::{Agent, AgentError, AgentResult, Answer};
use crate::instance::RunContext;
use crate::model::{ApprovalAnswer, Metadata, Payload, Timestamp, Trigger};

pub(super) struct HttpRunner {
    agent: HttpAgent,
    tools: Arc<Toolbox>,
}

/// What is posted.
#[derive(Serialize)]
struct Body<'a> {
    run_id: &'a str,
    task_id: &'a str,
    agent_id: &'a str,
    attempt: u32,
    fence: u64,
    session_id: &'a str,
    query: &'a str,
    trigger_type: Trigger,
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<&'a ApprovalAnswer>,
}

/// What may be answered in JSON.
#[derive(Deserialize)]
struct Answered {
    #[serde(default)]
    output: Option<Box<RawValue>>,
    #[serde(default)]
    awaiting_approval: Option<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    question: String,
    #[serde(default)]
    data: Value,
}

impl HttpRunner {
    pub(super) fn new(agent: HttpAgent, tools: Arc<Toolbox>) -> Self {
        Self { agent, tools }
    }

    fn request(&self, context: &RunContext, secrets: &[String]) -> Result<RequestBuilder, AgentError> {
        let (spec, fence) = (context.spec(), context.fence().fence);
        let body = Body {
            run_id: context.run_id().as_str(),
            task_id: spec.task_id.as_str(),
            agent_id: spec.agent_id.as_str(),
            attempt: context.attempt(),
            fence,
            session_id: context.session_id(),
            query: context.query(),
            trigger_type: spec.trigger,
            metadata: &spec.metadata,
            deadline: super::deadline(context),
            approval: context.approval(),
        };
        let key = format!("{}:{}", context.run_id(), context.attempt());
        let client = self.tools.client()?;
        let mut request = client.post(&self.agent.url).json(&body);
        request = request.header("idempotency-key", key).header("tenure-fence", fence);
        for (name, secret) in self.agent.headers_env.keys().zip(secrets) {
            request = request.header(remote::header(name)?, remote::secret_header("", secret)?);
        }
        Ok(request)
    }

    async fn answer(&self, context: &RunContext) -> AgentResult {
        let variables = self.agent.headers_env.values();
        let secrets: Vec<String> = variables.map(|name| remote::secret(name)).collect::<Result<_, _>>()?;
        let answer = self.answer_with(context, &secrets).await;
        answer.map_err(|error| remote::masked(error, &secrets))
    }

    async fn answer_with(&self, context: &RunContext, secrets: &[String]) -> AgentResult {
        let request = self.request(context, secrets)?;
        let response = remote::accepted(request.send().await.map_err(remote::connection)?).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(().into());
        }
        take(response, context.settings().result_limit).await
    }
}

async fn take(response: Response, most: usize) -> AgentResult {
    let is_json = remote::is_of_type(response.headers(), "application/json");
    let said = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|said| said.to_str().ok())
        .filter(|said| said.len() <= 255);
    let media_type: Arc<str> = said.unwrap_or("application/octet-stream").into();
    let bytes = remote::whole(response, most).await?;
    if is_json {
        let value: &RawValue = serde_json::from_slice(&bytes)
            .map_err(|error| remote::no_answer(format!("the endpoint answered what is no JSON: {error}")))?;
        // What has another form is the result as it is.
        if let Ok(Answered { output, awaiting_approval }) = serde_json::from_str(value.get()) {
            if let Some(Asked { question, data }) = awaiting_approval {
                return Ok(Answer::AwaitingApproval { question: question.into(), data });
            }
            if let Some(output) = output {
                return Ok(Answer::Done(output_of(&output)));
            }
        }
    }
    Ok(Answer::Done(Payload { media_type, bytes: bytes.into() }))
}

/// A text is the text; anything else is JSON, digit for digit.
fn output_of(output: &RawValue) -> Payload {
    match serde_json::from_str::<String>(output.get()) {
        Ok(text) => Payload::text(text),
        Err(_) => Payload { media_type: "application/json".into(), bytes: output.get().as_bytes().into() },
    }
}

impl Agent for HttpRunner {
    async fn run(self: Arc<Self>, context: RunContext) -> AgentResult {
        tokio::select! {
            biased;
            result = self.answer(&context) => result,
            () = context.cancelled() => Err(AgentError::new("cancelled", "the attempt was told to stop")),
        }
    }
}
