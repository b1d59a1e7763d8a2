//! stub
use super::Instance;
use std::sync::Arc;
use tenure_actors::{ProcessContext, ProcessResult};
pub(super) async fn serve(_instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    context.cancelled().await;
    Ok(())
}
