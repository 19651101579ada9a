//! Work of a shelf that must not keep other requests waiting.

use vault_shelf::ShelfError;

/// Does work that takes the processor for long on a thread for it.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ShelfError> + Send + 'static,
) -> Result<T, ShelfError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|broken| ShelfError::Failed(format!("a task ended unexpectedly: {broken}")))?
}
