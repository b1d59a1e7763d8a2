//! Where the answer of an attempt goes as it comes: to `output.md` of its workspace, bit by bit, so that people can
//! read along and a large answer fills no memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::mask::{Mask, Rolling};
use crate::agent::{AgentError, AgentResult, Answer, WrittenResult};
use crate::instance::{AuthorityError, RunContext};
use crate::model::Payload;
use crate::workspace::{GuardedWorkspace, LOGS, OUTPUT_MD, WorkspaceError};

/// What is kept in memory at least of what is in the file: enough for a preview.
const LEAST_KEPT: usize = 8 * 1024;
/// The pause while the store does not say whether the run is still held.
const PAUSE: Duration = Duration::from_millis(200);

/// The answer of an attempt so far.
pub(super) struct Output {
    context: RunContext,
    workspace: Option<GuardedWorkspace>,
    /// All of it, or the beginning if it is kept in the file.
    head: Vec<u8>,
    most_in_head: usize,
    inline: usize,
    size: u64,
    limit: u64,
    utf8: Utf8,
    /// What it is said to be, if it is.
    media_type: Option<Arc<str>>,
}

/// The answer of an endpoint: secrets that it repeats are not kept.
pub(super) struct MaskedOutput<'a> {
    output: Output,
    mask: Rolling<'a>,
}

impl<'a> MaskedOutput<'a> {
    pub(super) async fn open(context: &RunContext, mask: &'a Mask) -> Result<Self, AgentError> {
        Ok(Self { output: Output::open(context).await?, mask: mask.rolling() })
    }

    /// It is of this type, whatever it looks like.
    pub(super) fn of_type(mut self, media_type: Arc<str>) -> Self {
        self.output.media_type = Some(media_type);
        self
    }

    /// As [`Output::write`].
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let masked = self.mask.feed(bytes);
        if masked.is_empty() { Ok(()) } else { self.output.write(&masked).await }
    }

    /// As [`Output::note`].
    pub(super) async fn note(&self, text: &str) {
        self.output.note(&self.mask.text(text)).await;
    }

    /// All of it as the answer.
    pub(super) async fn finish(mut self) -> AgentResult {
        match self.write_rest().await {
            Ok(()) => Ok(self.output.finish()),
            Err(error) => Err(self.output.fail(error)),
        }
    }

    /// This error, with what was answered so far if it is short.
    pub(super) async fn fail(mut self, error: AgentError) -> AgentError {
        if let Err(error) = self.write_rest().await {
            tracing::debug!(error = %error.error.message, "the end of an answer was not written");
        }
        self.output.fail(error)
    }

    async fn write_rest(&mut self) -> Result<(), AgentError> {
        let rest = self.mask.end();
        if rest.is_empty() { Ok(()) } else { self.output.write(&rest).await }
    }
}

impl Output {
    /// Nothing yet: what an earlier attempt answered is gone.
    pub(super) async fn open(context: &RunContext) -> Result<Self, AgentError> {
        let settings = context.settings();
        let workspace = if settings.workspace.is_some() { Some(workspace(context).await?) } else { None };
        let mut limit = u64::try_from(settings.result_limit).unwrap_or(u64::MAX);
        let mut most_in_head = settings.result_limit;
        if let Some(workspace) = &workspace {
            limit = limit.min(workspace.limits().max_file_bytes);
            most_in_head = settings.result_inline.max(LEAST_KEPT);
            let forget = |workspace: &GuardedWorkspace| match workspace.remove_file(OUTPUT_MD) {
                Err(WorkspaceError::NotFound { .. }) => Ok(()),
                removed => removed,
            };
            workspace.blocking(forget).await.map_err(|error| failed(&error))?;
        }
        Ok(Self {
            context: context.clone(),
            workspace,
            head: Vec::new(),
            most_in_head,
            inline: settings.result_inline,
            size: 0,
            limit,
            utf8: Utf8::default(),
            media_type: None,
        })
    }

    pub(super) fn workspace(&self) -> Option<&GuardedWorkspace> {
        self.workspace.as_ref()
    }

    /// Adds to it. What would be more than is allowed is left out as a whole, and is an error: a result that is cut
    /// is none.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        let size = self.size.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if size > self.limit {
            let limit = self.limit;
            let message = format!("the output has more than {limit} bytes, which is the limit of a result");
            return Err(AgentError::new("output_too_large", message));
        }
        if let Some(workspace) = &self.workspace {
            add(&self.context, workspace, self.size == 0, bytes).await?;
        }
        let room = self.most_in_head.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.size = size;
        self.utf8.feed(bytes);
        Ok(())
    }

    /// Notes something about the attempt where people look for it.
    pub(super) async fn note(&self, text: &str) {
        let Some(workspace) = &self.workspace else { return };
        let path = format!("{LOGS}/attempt-{}.log", self.context.attempt());
        let line = format!("{text}\n");
        if let Err(error) =
            workspace.blocking(move |workspace| workspace.append(&path, line.as_bytes())).await
        {
            tracing::debug!(%error, "a note about an attempt was not written");
        }
    }

    /// All of it as the answer.
    pub(super) fn finish(mut self) -> Answer {
        match self.whole() {
            Some(payload) => Answer::Done(payload),
            None => {
                let media_type = self.media_type();
                let head = Payload { media_type: Arc::clone(&media_type), bytes: self.head.into() };
                let (size, preview) = (self.size, head.preview().into());
                Answer::Written(WrittenResult { media_type, size, path: OUTPUT_MD.into(), preview })
            }
        }
    }

    /// This error, with what was answered so far if it is short. What is long is in the workspace.
    pub(super) fn fail(mut self, error: AgentError) -> AgentError {
        match self.whole().filter(|payload| !payload.bytes.is_empty()) {
            Some(payload) => error.with_partial(payload),
            None => error,
        }
    }

    fn media_type(&self) -> Arc<str> {
        self.media_type.clone().unwrap_or_else(|| self.utf8.media_type())
    }

    /// All of it, if it is kept in memory.
    fn whole(&mut self) -> Option<Payload> {
        let in_memory = self.workspace.is_none() || self.size <= self.inline as u64;
        let media_type = self.media_type();
        in_memory.then(|| Payload { media_type, bytes: std::mem::take(&mut self.head).into() })
    }
}

/// The workspace of an attempt on a host that keeps files.
async fn workspace(context: &RunContext) -> Result<GuardedWorkspace, AgentError> {
    let asks = context.clone();
    let found = crate::tasks::blocking(move || asks.workspace()).await;
    found.ok().flatten().ok_or_else(|| {
        let message = "the workspace of the run could not be made; the log of the host says why";
        AgentError::new("workspace", message).within("exception")
    })
}

/// Writes when the attempt may. While the store does not say whether it may, it waits.
async fn add(
    context: &RunContext,
    workspace: &GuardedWorkspace,
    first: bool,
    bytes: &[u8],
) -> Result<(), AgentError> {
    let bytes: Arc<[u8]> = bytes.into();
    loop {
        let part = Arc::clone(&bytes);
        let write = move |workspace: &GuardedWorkspace| match first {
            true => workspace.write(OUTPUT_MD, &part),
            false => workspace.append(OUTPUT_MD, &part),
        };
        match workspace.blocking(write).await {
            Ok(()) => return Ok(()),
            Err(WorkspaceError::AuthorityLost { .. }) => held(context).await?,
            Err(error) => return Err(failed(&error)),
        }
    }
}

/// Waits until the store says that the run is still held.
async fn held(context: &RunContext) -> Result<(), AgentError> {
    loop {
        match context.commit(|| ()).await {
            Ok(()) => return Ok(()),
            Err(lost @ (AuthorityError::Fenced { .. } | AuthorityError::Revoked(_))) => {
                return Err(AgentError::new("lost", lost.to_string()));
            }
            Err(AuthorityError::Suspended { .. } | AuthorityError::Store(_)) => sleep(PAUSE).await,
        }
    }
}

/// How a failure of the workspace is told.
fn failed(error: &WorkspaceError) -> AgentError {
    match error {
        WorkspaceError::FileTooLarge { .. }
        | WorkspaceError::TooManyBytes { .. }
        | WorkspaceError::TooManyFiles { .. } => AgentError::new("output_too_large", error.to_string()),
        _ => AgentError::new("workspace", error.to_string()).within("exception"),
    }
}

/// Whether what came so far is UTF-8, without keeping it.
#[derive(Default)]
struct Utf8 {
    /// The beginning of a character whose end has not come.
    begun: Vec<u8>,
    broken: bool,
}

impl Utf8 {
    fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !self.broken && !self.begun.is_empty() && !rest.is_empty() {
            self.begun.push(rest[0]);
            rest = &rest[1..];
            match std::str::from_utf8(&self.begun) {
                Ok(_) => self.begun.clear(),
                Err(error) => self.broken = error.error_len().is_some(),
            }
        }
        if self.broken || rest.is_empty() {
            return;
        }
        if let Err(error) = std::str::from_utf8(rest) {
            self.broken = error.error_len().is_some();
            if !self.broken {
                self.begun = rest[error.valid_up_to()..].to_vec();
            }
        }
    }

    /// What the bytes are.
    fn media_type(&self) -> Arc<str> {
        let is_text = !self.broken && self.begun.is_empty();
        if is_text { "text/plain; charset=utf-8".into() } else { "application/octet-stream".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_text(parts: &[&[u8]]) -> bool {
        let mut utf8 = Utf8::default();
        parts.iter().for_each(|part| utf8.feed(part));
        utf8.media_type().starts_with("text/plain")
    }

    #[test]
    fn text_is_told_from_bytes_wherever_they_are_cut() {
        let text = "aé€😀z".as_bytes();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                assert!(is_text(&[&text[..first], &text[first..second], &text[second..]]));
            }
        }
        assert!(is_text(&[]));
        assert!(!is_text(&[b"a\xff", b"b"]));
        assert!(!is_text(&["€".as_bytes(), &"€".as_bytes()[..2]]), "a character without its end");
        assert!(!is_text(&[&"€".as_bytes()[..2], b"x"]));
    }
}
