//! Posts a run to a URL, and takes what is answered as its result.

use std::sync::Arc;

use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::definition::HttpAgent;
use super::mask::Secrets;
use super::output::MaskedOutput;
use super::remote::{self, Patience};
use super::toolbox::Toolbox;
use crate::agent::{Agent, AgentError, AgentResult, Answer};
use crate::instance::RunContext;
use crate::model::{Approval, ApprovalAnswer, Metadata, Payload, Timestamp, Trigger, value_of};

/// The largest answer in JSON: it is read as a whole. Others go to the workspace as they come.
const MOST_JSON: usize = 16 * 1024 * 1024;

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
    awaiting_approval: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Asked {
    question: String,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

impl HttpRunner {
    pub(super) fn new(agent: HttpAgent, tools: Arc<Toolbox>) -> Self {
        Self { agent, tools }
    }

    fn request(&self, context: &RunContext, secrets: &Secrets) -> Result<RequestBuilder, AgentError> {
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
        for (name, secret) in self.agent.headers_env.keys().zip(&secrets.values) {
            request = request.header(remote::header(name)?, remote::secret_header("", secret)?);
        }
        Ok(request)
    }

    async fn answer(&self, context: &RunContext) -> AgentResult {
        let secrets = Secrets::read(self.agent.headers_env.values())?;
        self.answer_with(context, &secrets).await.map_err(|error| secrets.masked(error))
    }

    async fn answer_with(&self, context: &RunContext, secrets: &Secrets) -> AgentResult {
        let request = self.request(context, secrets)?;
        let response = request.send().await.map_err(remote::connection)?;
        let response = remote::accepted(response, secrets).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(().into());
        }
        let media_type = media_type_of(&response, secrets);
        if remote::is_of_type(response.headers(), "application/json") {
            let bytes = remote::whole(response, context.settings().result_limit.min(MOST_JSON)).await?;
            return take_json(&bytes, media_type, secrets);
        }
        let output = MaskedOutput::open(context, &secrets.in_results).await?;
        take(response, output.of_type(media_type)).await
    }
}

/// What the answer is said to be. A type that repeats a secret is none.
fn media_type_of(response: &Response, secrets: &Secrets) -> Arc<str> {
    let said = response.headers().get(CONTENT_TYPE).and_then(|said| said.to_str().ok());
    let said = said.filter(|said| said.len() <= 255 && secrets.in_results.text(said) == **said);
    said.unwrap_or("application/octet-stream").into()
}

/// Passes on what comes as it comes.
async fn take(mut response: Response, mut output: MaskedOutput<'_>) -> AgentResult {
    let mut patience = Patience::new();
    let ended = loop {
        match patience.wait(response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                patience.heard();
                if let Err(error) = output.write(&chunk).await {
                    break Err(error);
                }
            }
            Ok(Ok(None)) => break Ok(()),
            Ok(Err(error)) => break Err(remote::connection(error)),
            Err(error) => break Err(error),
        }
    };
    match ended {
        Ok(()) => output.finish().await,
        Err(error) => Err(output.fail(error).await),
    }
}

fn take_json(bytes: &[u8], media_type: Arc<str>, secrets: &Secrets) -> AgentResult {
    let mut mask = secrets.in_results.rolling();
    let bytes = [mask.feed(bytes), mask.end()].concat();
    let value: &RawValue = serde_json::from_slice(&bytes)
        .map_err(|error| remote::no_answer(format!("the endpoint answered what is no JSON: {error}")))?;
    // What has another form is the result as it is. A list would be read as the fields in their order.
    if value.get().starts_with('{')
        && let Ok(Answered { output, awaiting_approval }) = serde_json::from_str(value.get())
    {
        if let Some(asked) = awaiting_approval {
            return question_of(&asked, secrets);
        }
        if let Some(output) = output {
            return Ok(Answer::Done(output_of(&output, secrets)));
        }
    }
    Ok(Answer::Done(Payload { media_type, bytes: bytes.into() }))
}

/// A question that cannot be read must not pass for a result: nobody would be asked.
fn question_of(asked: &RawValue, secrets: &Secrets) -> AgentResult {
    let unreadable = |error: serde_json::Error| {
        let error = remote::shown(&error.to_string(), secrets);
        remote::no_answer(format!("\"awaiting_approval\" of the answer cannot be read: {error}"))
    };
    let Asked { question, data } = serde_json::from_str(asked.get()).map_err(unreadable)?;
    let data = match data {
        // Not read at all: it takes many times the memory of its text.
        Some(data) if data.get().len() > Approval::MOST_DATA_BYTES => {
            let most = Approval::MOST_DATA_BYTES;
            let message = format!("the data of a question has more than {most} bytes, which is its limit");
            return Err(AgentError::new("output_too_large", message));
        }
        Some(data) => value_of(&data).map_err(|expected| {
            remote::no_answer(format!("\"awaiting_approval.data\" of the answer: expected {expected}"))
        })?,
        None => Value::Null,
    };
    Ok(Answer::AwaitingApproval { question: secrets.in_results.text(&question).into(), data })
}

/// A text is the text; anything else is JSON, digit for digit.
fn output_of(output: &RawValue, secrets: &Secrets) -> Payload {
    match serde_json::from_str::<String>(output.get()) {
        Ok(text) => Payload::text(secrets.in_results.text(&text)),
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
