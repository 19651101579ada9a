//! Bounds the time of a pull from one linked vault.

use std::time::Duration;

use crate::errors::Failure;

/// Runs a pull, and fails if it takes longer than `limit`. Without the limit, a slow service could
/// delay it forever, although each single request has a timeout.
pub(super) async fn limit_time<T>(
    limit: Duration,
    pull: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(limit, pull).await.unwrap_or_else(|_| {
        let minutes = limit.as_secs() / 60;
        Err(fail!(
            Timeout,
            "the pull took longer than {minutes} minutes and was ended"
        )
        .hint("installed skills stay as they were; the service is slow: try again later"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::ErrorCode;

    #[tokio::test]
    async fn a_pull_that_never_ends_is_ended() {
        let failure = limit_time(
            Duration::from_millis(1),
            std::future::pending::<Result<(), _>>(),
        );
        assert_eq!(failure.await.unwrap_err().code, ErrorCode::Timeout);
        let pulled = limit_time(Duration::from_mins(1), async { Ok(7) }).await;
        assert_eq!(pulled.unwrap(), 7);
    }
}
