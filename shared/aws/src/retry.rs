//! Waiting for a store: which failures may pass, how often a call is repeated, and how long all of it may take.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use vault_store::StoreError;
use vault_store::random::{Random, bytes};

/// The bounds of waiting.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The most tries of one call.
    pub tries: u32,
    /// The longest wait before the second try; it doubles with each try, and chance takes a part of it.
    pub first: Duration,
    /// The longest single wait.
    pub longest: Duration,
    /// The longest time of one try.
    pub attempt: Duration,
    /// The longest time of one operation of a port, tries and waits together.
    pub total: Duration,
}

impl Default for Patience {
    /// Eight tries whose waits stay under two seconds, ten seconds in all: below the twenty that a handler has.
    fn default() -> Self {
        Self {
            tries: 8,
            first: Duration::from_millis(25),
            longest: Duration::from_millis(400),
            attempt: Duration::from_secs(4),
            total: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// The SDK's time limits: one try alone, since the tries are made here.
    pub(crate) fn timeouts(&self) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.attempt.min(Duration::from_secs(2)))
            .operation_attempt_timeout(self.attempt)
            .build()
    }

    /// The operation's answer, or `Unavailable` when it takes longer than all of it may.
    pub(crate) async fn within<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.total, operation).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unavailable("no answer within the time limit")),
        }
    }
}

/// The tries of one call so far.
pub(crate) struct Tries<'a> {
    patience: &'a Patience,
    random: &'a dyn Random,
    made: u32,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(patience: &'a Patience, random: &'a dyn Random) -> Self {
        Self {
            patience,
            random,
            made: 0,
        }
    }

    /// Waits a random while and says whether to try again; false once there were enough tries.
    pub(crate) async fn again(&mut self) -> bool {
        match self.next_wait() {
            Some(wait) => {
                tokio::time::sleep(wait).await;
                true
            }
            None => false,
        }
    }

    /// A random part of a time that doubles: it keeps those who met once from meeting again.
    fn next_wait(&mut self) -> Option<Duration> {
        self.made += 1;
        if self.made >= self.patience.tries {
            return None;
        }
        let Patience { first, longest, .. } = *self.patience;
        let doubled = first.saturating_mul(1 << (self.made - 1).min(16));
        let part = f64::from(u32::from_be_bytes(bytes(self.random))) / f64::from(u32::MAX);
        Some(doubled.min(longest).mul_f64(part))
    }
}

/// Makes a call until it succeeds, fails for good, or was tried often enough. `store` is "object" or "record", for the log.
pub(crate) async fn repeat<T, F>(
    patience: &Patience,
    random: &dyn Random,
    store: &str,
    call: impl Fn() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, Failed>>,
{
    let mut tries = Tries::new(patience, random);
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(Failed::Passing(error)) => {
                tracing::debug!(%error, "the {store} store is asked again");
                if !tries.again().await {
                    return Err(error);
                }
            }
            Err(Failed::Lasting(error)) => return Err(error),
        }
    }
}

/// What to do after a call failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It may pass, and the call may have had its effect.
    Passing(StoreError),
    /// Repeating does not help.
    Lasting(StoreError),
}

impl Failed {
    /// Sorts what the SDK reports about `subject` (which table, which bucket). Whatever it is, it is `Unavailable` to the caller: an answer that the port knows
    /// (a missing key, a failed condition) was taken out before.
    pub(crate) fn of<E>(subject: &str, error: SdkError<E, HttpResponse>) -> Self
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let passing = match &error {
            SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
            SdkError::DispatchFailure(failure) => !failure.is_user(),
            SdkError::ServiceError(answer) => {
                let status = answer.raw().status().as_u16();
                // A success that does not read is an answer lost on the way: a write may have happened.
                let lost = answer.raw().status().is_success();
                let busy = status >= 500 || status == 429;
                lost || busy || answer.err().code().is_some_and(may_pass)
            }
            _ => false,
        };
        let told = format!("{subject}: {}", told(&error));
        let error = StoreError::unavailable(Cause {
            told,
            source: error.into(),
        });
        if passing {
            Self::Passing(error)
        } else {
            Self::Lasting(error)
        }
    }

    /// What the caller of the port is told.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::Passing(error) | Self::Lasting(error) => error,
        }
    }
}

/// Codes of answers below 500 that say "later". S3 tells `RequestTimeout` with status 400 when a body came too slowly.
fn may_pass(code: &str) -> bool {
    const CODES: [&str; 11] = [
        "ConditionalRequestConflict",
        "InternalServerError",
        "LimitExceededException",
        "OperationAborted",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "SlowDown",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    ];
    CODES.contains(&code)
}

/// Code, message and status of a service's answer: what an operator needs in the log.
fn told<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> String {
    match error {
        SdkError::ServiceError(answer) => format!(
            "{}: {} (status {})",
            answer.err().code().unwrap_or("no code"),
            answer.err().message().unwrap_or("no message"),
            answer.raw().status().as_u16(),
        ),
        SdkError::TimeoutError(_) => "no answer in time".to_owned(),
        SdkError::DispatchFailure(_) => "no connection".to_owned(),
        SdkError::ResponseError(_) => "an answer that does not read".to_owned(),
        _ => "a request that could not be made".to_owned(),
    }
}

/// A failure in one line, and what the SDK has to say about it.
#[derive(Debug, thiserror::Error)]
#[error("{told}")]
struct Cause {
    told: String,
    source: Box<dyn Error + Send + Sync>,
}

#[cfg(test)]
mod tests {
    use vault_testing::SeededRandom;

    use super::*;

    #[test]
    fn waits_are_bounded_in_number_and_length() {
        let patience = Patience::default();
        for seed in 0..50 {
            let random = SeededRandom::new(seed);
            let mut tries = Tries::new(&patience, &random);
            let waits: Vec<Duration> = std::iter::from_fn(|| tries.next_wait()).collect();
            assert_eq!(waits.len(), 7);
            assert!(waits.iter().all(|wait| *wait <= patience.longest));
            assert!(waits.iter().sum::<Duration>() < Duration::from_secs(2));
            assert_ne!(waits[5], waits[6], "seed {seed}: chance takes a part");
        }
    }

    #[tokio::test]
    async fn an_operation_that_never_ends_is_unavailable() {
        let patience = Patience {
            total: Duration::from_millis(5),
            ..Patience::default()
        };
        let answer: Result<(), _> = patience.within(std::future::pending()).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))));
    }
}
