//! A plugin that has a session summarised in the background.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure::actors::{BoxError, Generation, OperationRequest, ProcessContext, ProcessHandle, ProcessSpec};

/// A session of a chat; others write to it too.
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) entries: Mutex<Vec<String>>,
}

/// Who makes summaries: a service that is slow, and that cannot be interrupted.
pub(crate) trait Provider: Send + Sync + 'static {
    /// Summarises a text.
    fn summarise(&self, text: String) -> impl Future<Output = String> + Send;
}

/// Starts the summary of a session and answers at once.
///
/// # Errors
/// When work is active on the session already, or the generation is closed.
pub(crate) async fn summarise<P: Provider>(
    generation: &Generation,
    session: &Arc<Session>,
    provider: &Arc<P>,
) -> Result<ProcessHandle, BoxError> {
    let id = format!("summary:{}", session.name);
    // Keeps other work off the session until the process has ended, however it ends.
    let request = OperationRequest::new(id.as_str(), "summary")?.on_session(session.name.as_str())?;
    let lease = generation.operations().reserve(request).await?;
    let (session, provider) = (Arc::clone(session), Arc::clone(provider));
    let process = ProcessSpec::function("summary", move |context| async move {
        context.progress(None, "asking the provider");
        let text = session.entries.lock().join("\n");
        let summary = provider.summarise(text).await;
        replace(&context, &session, summary);
        Ok(())
    });
    Ok(generation.registry().start(id, process.holding(lease)).await?)
}

/// The one effect of the process. It happens while the process has its authority, or not at all.
fn replace(context: &ProcessContext, session: &Session, summary: String) {
    let replaced = context.commit_named("the summary", || *session.entries.lock() = vec![summary]);
    if replaced.is_err() {
        // Nobody waits for this summary any more; the refusal is an event already.
        context.progress(None, "too late");
    }
}
