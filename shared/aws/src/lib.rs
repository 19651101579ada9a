//! S3 and DynamoDB behind the data ports of `vault-store`: objects in one bucket, records in one
//! table.
//!
//! Both clients come from one SDK configuration ([`sdk_config`]), made before a function begins to
//! serve. The crate reads no environment variable and no clock of its own; only the SDK looks for
//! credentials. The SDK retries with jitter and within [`RetryLimits`]. An interceptor counts each
//! attempt ([`Aws::calls`]). A write that may have happened is repeated under the same idempotency
//! token. A missing table or bucket, a missing permission or a truncated answer is
//! `StoreError::Unavailable`, never "not found".
//!
//! Permissions of a role. To read records: `dynamodb:GetItem`, `Query`; to commit also `PutItem` (a
//! deletion puts a tombstone, so `DeleteItem` is never used), `UpdateItem`, `ConditionCheckItem`.
//! To read objects: `s3:GetObject` and `ListBucket`, without which S3 answers 403 for a missing
//! key; to write them also `PutObject`; to collect them `DeleteObject`. The table has the keys
//! [`PARTITION_KEY`] and [`SORT_KEY`], both text, and collects by [`TTL_ATTRIBUTE`].

mod calls;
mod config;
mod dynamodb;
mod retry;
mod s3;

use std::sync::Arc;

use aws_sdk_dynamodb::config::Credentials;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::objects::Objects;
use vault_store::random::Random;
use vault_store::records::Records;

pub use aws_config::SdkConfig;
pub use calls::Calls;
pub use config::{sdk_config, sdk_config_with};
pub use dynamodb::{PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE};
pub use retry::RetryLimits;

/// The location of the table and the bucket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Name of the DynamoDB table that holds the records.
    pub table: String,
    /// Name of the S3 bucket that holds the objects.
    pub bucket: String,
    /// The address of an emulator, used for both stores and with the bucket in the path; `None`
    /// means AWS.
    pub endpoint: Option<String>,
    /// The region, such as `eu-central-1`.
    pub region: String,
}

/// Creates credentials from an access key and a secret key, for an emulator that accepts any.
pub fn fixed_credentials(access_key: &str, secret_key: &str) -> Credentials {
    Credentials::new(access_key, secret_key, None, None, "fixed")
}

/// The open stores: two clients on one connection pool.
#[derive(Clone)]
pub struct Aws {
    objects: Arc<s3::Bucket>,
    records: Arc<dynamodb::Table>,
    calls: calls::Counters,
}

impl Aws {
    /// Creates both stores from `settings` and this SDK configuration. `clock` decides which
    /// records are expired, `random` creates idempotency tokens. Sends no request yet: see
    /// [`Aws::check_table`].
    pub fn new(
        config: &SdkConfig,
        settings: &Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self::with_limits(config, settings, clock, random, RetryLimits::default())
    }

    /// Creates both stores like [`Aws::new`], with other retry limits.
    pub fn with_limits(
        config: &SdkConfig,
        settings: &Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        limits: RetryLimits,
    ) -> Self {
        let calls = calls::Counters::default();
        let bucket = s3::Bucket::new(config, settings, limits, calls.clone());
        let table = dynamodb::Table::new(
            dynamodb::new_client(config, limits, calls.clone()),
            settings,
            clock,
            random,
            limits,
        );
        Self {
            objects: Arc::new(bucket),
            records: Arc::new(table),
            calls,
        }
    }

    /// Returns the store of objects, in the bucket [`Settings::bucket`].
    pub fn objects(&self) -> Arc<dyn Objects> {
        self.objects.clone()
    }

    /// Returns the store of records, in the table [`Settings::table`].
    pub fn records(&self) -> Arc<dyn Records> {
        self.records.clone()
    }

    /// Checks that the table answers. Fails if it does not exist, has other keys, or may not be
    /// read.
    pub async fn check_table(&self) -> Result<(), StoreError> {
        self.records.check_health().await
    }

    /// Checks that the bucket answers. Fails if it does not exist or may not be listed.
    pub async fn ping_bucket(&self) -> Result<(), StoreError> {
        self.objects.check_bucket().await
    }

    /// Returns the number of requests sent so far, including retries.
    pub fn calls(&self) -> Calls {
        self.calls.read_counts()
    }
}
