//! What others changed: told over a channel of the server, which loses what is told while nobody listens.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use tokio::sync::broadcast;

use super::answer;
use super::fault::{Fault, Step};
use super::link::Shared;
use crate::store::{Hint, RefusedKind};

/// How long after the channel was lost it is looked for again.
const AGAIN: Duration = Duration::from_millis(500);

/// Listens from now on.
pub(super) async fn listen(shared: &Shared) -> Step<PubSub> {
    let connect = async {
        let mut channel = shared.client.get_async_pubsub().await?;
        channel.subscribe(format!("{}:hints", shared.prefix)).await?;
        Ok(channel)
    };
    let connected = tokio::time::timeout(shared.options.connect_timeout, connect).await;
    let late = || Fault::Refused(RefusedKind::Unavailable, "it did not answer in time; try again".to_owned());
    connected.map_err(|_| late())?.map_err(|error: redis::RedisError| Fault::of(&error, false))
}

/// Passes on what others tell, and says that anything may have changed when something may have been missed.
pub(super) async fn run(shared: Arc<Shared>, own: String, first: PubSub, hints: broadcast::Sender<Hint>) {
    let mut channel = Some(first);
    loop {
        if let Some(channel) = channel.take() {
            let mut messages = channel.into_on_message();
            while let Some(message) = messages.next().await {
                let told = std::str::from_utf8(message.get_payload_bytes()).ok().and_then(answer::told);
                if let Some((sender, hint)) = told
                    && sender != own
                {
                    // Nobody watches: fine.
                    let _ = hints.send(hint);
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
        match listen(&shared).await {
            Ok(again) => {
                channel = Some(again);
                let anything = Hint { ready: true, agenda: true, agents: true, ..Hint::default() };
                // Nobody watches: fine.
                let _ = hints.send(anything);
            }
            Err(fault) => tracing::debug!(?fault, "the channel of hints is not there yet"),
        }
    }
}
