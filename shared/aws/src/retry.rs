//! The SDK's standard retry: its limits, one additional classifier, and the conversion of failed
//! requests to errors.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::interceptors::InterceptorContext;
use aws_sdk_dynamodb::config::retry::{
    ClassifyRetry, RetryAction, RetryConfig, RetryPartition, TokenBucket,
};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::CancellationReason;
use vault_store::StoreError;

/// Limits on the repetitions of a request and on the time of an operation.
#[derive(Clone, Copy, Debug)]
pub struct RetryLimits {
    /// Maximum number of attempts of one request, including the first.
    pub attempts: u32,
    /// Maximum wait before the second attempt. It doubles with each attempt, and the SDK waits a
    /// random part of it.
    pub initial_backoff: Duration,
    /// Maximum length of a single wait.
    pub max_backoff: Duration,
    /// Maximum time of one attempt.
    pub attempt_timeout: Duration,
    /// Maximum time of one operation of a port, including all its requests and waits.
    pub operation_timeout: Duration,
}

impl Default for RetryLimits {
    /// Eight attempts with less than two seconds of waits in total, and ten seconds per operation:
    /// half of the twenty that a handler has.
    fn default() -> Self {
        Self {
            attempts: 8,
            initial_backoff: Duration::from_millis(25),
            max_backoff: Duration::from_millis(400),
            attempt_timeout: Duration::from_secs(4),
            operation_timeout: Duration::from_secs(10),
        }
    }
}

impl RetryLimits {
    pub(crate) fn retry_config(&self) -> RetryConfig {
        RetryConfig::standard()
            .with_max_attempts(self.attempts)
            .with_initial_backoff(self.initial_backoff)
            .with_max_backoff(self.max_backoff)
    }

    pub(crate) fn timeout_config(&self) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.attempt_timeout.min(Duration::from_secs(2)))
            .operation_attempt_timeout(self.attempt_timeout)
            .build()
    }

    /// Returns the operation's result, or `Unavailable` if it exceeds `operation_timeout`. The
    /// SDK's own limit covers one request, but an operation of a port may need several.
    pub(crate) async fn run_within<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.operation_timeout, operation).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unavailable("operation timed out")),
        }
    }
}

/// Disables the SDK's retry quota over all requests: `RetryLimits` bounds each operation, and a
/// function handles one request at a time.
pub(crate) fn no_quota() -> RetryPartition {
    RetryPartition::custom("vault")
        .token_bucket(TokenBucket::unlimited())
        .build()
}

/// Retries what the SDK's own classifiers leave out: statuses 409 and 429, a success that cannot be
/// parsed (a write may have happened), and transactions that were cancelled only by contention.
#[derive(Debug)]
pub(crate) struct Classifier;

impl ClassifyRetry for Classifier {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let Some(Err(error)) = context.output_or_error() else {
            return RetryAction::NoActionIndicated;
        };
        let operation_error = error.as_operation_error();
        let reasons = operation_error.and_then(|error| {
            let get = error.downcast_ref().and_then(get_cancelled);
            get.or_else(|| error.downcast_ref().and_then(write_cancelled))
        });
        if let Some(reasons) = reasons {
            // Report contention as throttling. For a transient error, the SDK would also close the
            // connection.
            return if is_contention(reasons) {
                RetryAction::throttling_error()
            } else {
                RetryAction::NoActionIndicated
            };
        }
        match context.response().map(|answer| answer.status().as_u16()) {
            Some(409 | 429) => RetryAction::throttling_error(),
            Some(200..300) => RetryAction::transient_error(),
            _ => RetryAction::NoActionIndicated,
        }
    }

    fn name(&self) -> &'static str {
        "vault"
    }
}

/// Returns whether the transaction was cancelled only because of other requests, so that it can be
/// retried. A failed condition is final, even if other requests interfered as well.
fn is_contention(reasons: &[CancellationReason]) -> bool {
    // DynamoDB gives one reason per item, and "None" to those that did not cause the cancellation.
    let mut codes = reasons.iter().filter_map(CancellationReason::code);
    let mut contended = false;
    let only = codes.all(|code| {
        let other = matches!(
            code,
            "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded"
        );
        contended |= other;
        other || code == "None"
    });
    only && contended
}

/// Returns the reasons of a cancelled read.
pub(crate) fn get_cancelled(error: &TransactGetItemsError) -> Option<&[CancellationReason]> {
    match error {
        TransactGetItemsError::TransactionCanceledException(cancelled) => {
            Some(cancelled.cancellation_reasons())
        }
        _ => None,
    }
}

/// Returns the reasons of a cancelled commit.
pub(crate) fn write_cancelled(error: &TransactWriteItemsError) -> Option<&[CancellationReason]> {
    match error {
        TransactWriteItemsError::TransactionCanceledException(cancelled) => {
            Some(cancelled.cancellation_reasons())
        }
        _ => None,
    }
}

/// Converts an error of the SDK about `subject` (a table or bucket). The result is always
/// `Unavailable`: the callers have already handled the answers that are no failures, such as a
/// missing key or a failed condition.
pub(crate) fn sdk_unavailable<E>(subject: &str, error: SdkError<E, HttpResponse>) -> StoreError
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    StoreError::unavailable(Cause {
        message: format!("{subject}: {}", describe_error(&error)),
        source: error.into(),
    })
}

/// Describes an error for the log: the code, message and status of the service's answer.
fn describe_error<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> String {
    match error {
        SdkError::ServiceError(answer) => format!(
            "{}: {} (status {})",
            answer.err().code().unwrap_or("no code"),
            answer.err().message().unwrap_or("no message"),
            answer.raw().status().as_u16(),
        ),
        SdkError::TimeoutError(_) => "request timed out".to_owned(),
        SdkError::DispatchFailure(_) => "connection failed".to_owned(),
        SdkError::ResponseError(_) => "response cannot be parsed".to_owned(),
        _ => "request cannot be built".to_owned(),
    }
}

/// A failure in one line, with the SDK's error as its source.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Cause {
    message: String,
    source: Box<dyn Error + Send + Sync>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_operation_that_never_ends_is_unavailable() {
        let limits = RetryLimits {
            operation_timeout: Duration::from_millis(5),
            ..RetryLimits::default()
        };
        let answer: Result<(), _> = limits.run_within(std::future::pending()).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))));
    }
}
