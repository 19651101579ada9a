//! Runs long computations of a shelf without delaying other requests.

use vault_shelf::ShelfError;

/// Runs `work`, which needs the processor for long, on a thread for blocking work.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ShelfError> + Send + 'static,
) -> Result<T, ShelfError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|broken| ShelfError::Failed(format!("a task ended unexpectedly: {broken}")))?
}
