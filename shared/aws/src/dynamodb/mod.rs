//! `Records` in one DynamoDB table with the keys `pk` and `sk`.
//!
//! A commit is one `TransactWriteItems`, even for a single write, because its idempotency token
//! makes a retry after a lost answer safe. Several keys are read with one `TransactGetItems`,
//! because `BatchGetItem` may see half a commit. Expiry is compared with the port's clock, in
//! conditions and after reading; the TTL only collects.
//!
//! A revision starts at the time, in units of 2^-12 ms, and rises by one with each count. A put
//! whose clock is behind learns the existing revision and uses a higher one. A deleted record
//! leaves a tombstone for a day, so that a revision never names two states.

mod action;
mod item;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{CancellationReason, Get, TransactGetItem, TransactWriteItem};
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::random::{self, Random};
use vault_store::records::{self, Commit, Record, RecordKey, Records, Write};

use self::action::{KeyKnowledge, Moment, build_action};
use self::item::{Item, StoredItem};
use crate::Settings;
use crate::calls::Counters;
use crate::retry::{self, Classifier, RetryLimits};

pub use self::item::{PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE};

/// Number of bits by which a time in milliseconds is shifted to make a revision.
const REVISION_BITS: u32 = 12;
/// Number of keys in one reading if all keys together exceeded DynamoDB's limit of 4 MB. Ten items
/// of the largest size stay below it.
const MAX_KEYS_OF_LARGE_ITEMS: usize = 10;
/// Size of the next page if the earlier ones had too few live items.
const NEXT_PAGE: usize = 200;
/// Maximum number of rounds of a commit. Another round follows only if a condition of this adapter,
/// not of the caller, failed: this clock is behind, or a counter has to be created.
const MAX_ROUNDS: u32 = 40;

#[derive(Clone)]
pub(crate) struct Table {
    client: Client,
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    limits: RetryLimits,
}

enum TransactionResult {
    Written,
    Cancelled(Vec<CancellationReason>),
}

enum Read {
    Items(Vec<Option<Item>>),
    TooLarge,
}

/// Creates the client, with the retries of these limits. `calls` counts its requests.
pub(crate) fn new_client(config: &SdkConfig, limits: RetryLimits, calls: Counters) -> Client {
    let config = aws_sdk_dynamodb::config::Builder::from(config)
        .timeout_config(limits.timeout_config())
        .retry_config(limits.retry_config())
        .retry_partition(retry::no_quota())
        .retry_classifier(Classifier)
        .interceptor(calls)
        .interceptor(NotEmpty)
        .build();
    Client::from_conf(config)
}

impl Table {
    pub(crate) fn new(
        client: Client,
        settings: &Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        limits: RetryLimits,
    ) -> Self {
        Self {
            client,
            name: settings.table.as_str().into(),
            clock,
            random,
            limits,
        }
    }

    fn unavailable<E>(&self, error: SdkError<E, HttpResponse>) -> StoreError
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        retry::sdk_unavailable(&format!("table {}", self.name), error)
    }

    async fn read_one(&self, key: &RecordKey) -> Result<Option<Item>, StoreError> {
        let request = self.client.get_item().table_name(&*self.name);
        let request = request
            .set_key(Some(item::key_attributes(key)))
            .consistent_read(true);
        let answer = request.send().await;
        Ok(answer.map_err(|error| self.unavailable(error))?.item)
    }

    /// Reads the items under these distinct keys, at one moment.
    async fn read_many(&self, keys: &[&RecordKey]) -> Result<Vec<Option<Item>>, StoreError> {
        match keys {
            [] => Ok(Vec::new()),
            [key] => Ok(vec![self.read_one(key).await?]),
            keys => match self.read_together(keys).await? {
                Read::Items(items) => Ok(items),
                Read::TooLarge => self.read_in_parts(keys).await,
            },
        }
    }

    async fn read_together(&self, keys: &[&RecordKey]) -> Result<Read, StoreError> {
        let gets = keys.iter().map(|key| {
            let get = Get::builder()
                .table_name(&*self.name)
                .set_key(Some(item::key_attributes(key)));
            let get = get.build().map_err(StoreError::unavailable)?;
            Ok(TransactGetItem::builder().get(get).build())
        });
        let gets: Vec<TransactGetItem> = gets.collect::<Result<_, StoreError>>()?;
        let request = self.client.transact_get_items();
        let error = match request.set_transact_items(Some(gets)).send().await {
            Ok(answer) => {
                let answers = answer.responses.unwrap_or_default();
                // If answers are missing, their keys must not count as absent.
                if answers.len() != keys.len() {
                    return Err(StoreError::unavailable("answer for other keys"));
                }
                let items = answers.into_iter().map(|answer| answer.item);
                return Ok(Read::Items(items.collect()));
            }
            Err(error) => error,
        };
        // The two forms of "too large": a cancelled transaction, or a request that is rejected as a
        // whole.
        let reasons = error.as_service_error().and_then(retry::get_cancelled);
        let has = |code| reasons.is_some_and(|all| all.iter().any(|one| one.code() == Some(code)));
        let invalid = error.code() == Some("ValidationException");
        if has("ValidationError") || (invalid && keys.len() > MAX_KEYS_OF_LARGE_ITEMS) {
            return Ok(Read::TooLarge);
        }
        if has("TransactionConflict") {
            return Err(StoreError::Conflict);
        }
        Err(self.unavailable(error))
    }

    /// Reads items that are too large for one transaction in parts, again and again until two
    /// readings in a row have the same revisions. Then all items existed together at one moment:
    /// after the first of the two readings ended and before the second began.
    async fn read_in_parts(&self, keys: &[&RecordKey]) -> Result<Vec<Option<Item>>, StoreError> {
        let mut before = self.read_parts(keys).await?;
        for _ in 0..self.limits.attempts {
            let after = self.read_parts(keys).await?;
            let revision =
                |item: &Option<Item>| item.as_ref().map(|i| i.get(item::REVISION).cloned());
            if before.iter().map(revision).eq(after.iter().map(revision)) {
                return Ok(after);
            }
            before = after;
        }
        Err(StoreError::Conflict)
    }

    async fn read_parts(&self, keys: &[&RecordKey]) -> Result<Vec<Option<Item>>, StoreError> {
        let mut items = Vec::with_capacity(keys.len());
        for part in keys.chunks(MAX_KEYS_OF_LARGE_ITEMS) {
            match self.read_together(part).await? {
                Read::Items(read) => items.extend(read),
                Read::TooLarge => {
                    return Err(StoreError::unavailable("table cannot be read in parts"));
                }
            }
        }
        Ok(items)
    }

    async fn get_all(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        // A transaction rejects duplicate keys, which callers may pass.
        let mut different: Vec<&RecordKey> = keys.iter().collect();
        different.sort_unstable();
        different.dedup();
        let items = self.read_many(&different).await?;
        let now = self.clock.now();
        let mut found = HashMap::with_capacity(different.len());
        for (key, item) in different.into_iter().zip(items) {
            let record = match item {
                Some(item) => StoredItem::parse_item(key.clone(), &item, now)?.record,
                None => None,
            };
            found.insert(key, record);
        }
        Ok(keys
            .iter()
            .map(|key| found.get(key).cloned().flatten())
            .collect())
    }

    async fn list_all(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        // DynamoDB rejects a start key outside of the range. A key before the range means its
        // beginning, and a key behind it means that nothing is left.
        let after = match after {
            Some(after) if after.starts_with(prefix) => Some(after),
            Some(after) if after > prefix => return Ok(Vec::new()),
            _ => None,
        };
        let mut start = after.map(|after| item::key_attributes(&RecordKey::new(partition, after)));
        let (mut listed, mut pages) = (Vec::new(), 0);
        loop {
            // The first page has the requested size. If dead items took places on it, the next
            // pages are larger: a long run of dead items must not cost one request each.
            let page = if pages == 0 {
                limit
            } else {
                limit.max(NEXT_PAGE)
            };
            pages += 1;
            let condition = match prefix {
                "" => "#pk = :pk",
                _ => "#pk = :pk AND begins_with(#sk, :prefix)",
            };
            let mut request = self.client.query().table_name(&*self.name);
            request = request
                // An eventually consistent page could miss a commit that was acknowledged before.
                .consistent_read(true)
                .key_condition_expression(condition)
                .expression_attribute_names("#pk", PARTITION_KEY)
                .expression_attribute_values(":pk", item::text_value(partition))
                .set_exclusive_start_key(start)
                .limit(i32::try_from(page).unwrap_or(i32::MAX));
            if !prefix.is_empty() {
                request = request
                    .expression_attribute_names("#sk", SORT_KEY)
                    .expression_attribute_values(":prefix", item::text_value(prefix));
            }
            let answer = request
                .send()
                .await
                .map_err(|error| self.unavailable(error))?;
            let Some(items) = answer.items else {
                // An answer without a list must not be read as an empty partition.
                return Err(StoreError::unavailable("answer without items"));
            };
            let now = self.clock.now();
            for found in &items {
                listed.extend(StoredItem::parse_item(item::key_of(found)?, found, now)?.record);
            }
            // Only a missing last key means the end: a page may be short or empty before it.
            start = answer.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() || listed.len() >= limit {
                listed.truncate(limit);
                return Ok(listed);
            }
        }
    }

    async fn commit_all(&self, writes: &[Write]) -> Result<Commit, StoreError> {
        let now = self.clock.now();
        let moment = Moment {
            table: &self.name,
            now,
            first_revision: self.clock.now_millis().saturating_mul(1 << REVISION_BITS),
        };
        let mut known = vec![KeyKnowledge::default(); writes.len()];
        for _ in 0..MAX_ROUNDS {
            let mut revisions = vec![None; writes.len()];
            let (mut items, mut places) = (Vec::new(), Vec::new());
            for (index, (write, known)) in writes.iter().zip(&known).enumerate() {
                if let Some(action) = build_action(write, *known, moment)? {
                    revisions[index] = action.revision;
                    items.push(action.item);
                    places.push(index);
                }
            }
            if items.is_empty() {
                return Ok(Commit::Done(revisions));
            }
            let reasons = match self.write_transaction(items).await? {
                TransactionResult::Written => return Ok(Commit::Done(revisions)),
                TransactionResult::Cancelled(reasons) => reasons,
            };
            // With another number of reasons, they cannot be assigned to the writes.
            if reasons.len() != places.len() {
                return Err(StoreError::unavailable("reasons for other writes"));
            }
            let mut learned = false;
            for (&index, reason) in places.iter().zip(&reasons) {
                if reason.code() != Some("ConditionalCheckFailed") {
                    continue;
                }
                let key = writes[index].key();
                let held = match reason.item() {
                    Some(item) if !item.is_empty() => {
                        Some(StoredItem::parse_item(key.clone(), item, now)?)
                    }
                    _ => None,
                };
                let found = held.as_ref().and_then(|held| held.record.as_ref());
                // Decide like every other adapter whether the port's condition failed. If it holds,
                // only our own condition on the revision failed, and the next round starts from
                // what was found.
                if writes[index].applied_to(found).is_none() {
                    return Ok(Commit::Failed {
                        index,
                        found: found.cloned(),
                    });
                }
                known[index].learn_from(held.as_ref());
                learned = true;
            }
            if !learned {
                return Err(self.cancellation_error(&reasons));
            }
        }
        Err(StoreError::Conflict)
    }

    /// Returns the error of a transaction that was cancelled although no condition failed.
    fn cancellation_error(&self, reasons: &[CancellationReason]) -> StoreError {
        let mut others = reasons
            .iter()
            .filter(|reason| !matches!(reason.code(), None | Some("None")));
        let Some(reason) = others.next() else {
            return StoreError::unavailable("transaction cancelled without a reason");
        };
        match reason.code().unwrap_or_default() {
            "TransactionConflict" => StoreError::Conflict,
            code => StoreError::unavailable(format!(
                "table {}: {code}: {}",
                self.name,
                reason.message().unwrap_or_default()
            )),
        }
    }

    /// Sends one transaction. All attempts carry the same token, so that a retry after a lost
    /// answer is recognised and writes nothing twice. A cancelled transaction has written nothing.
    async fn write_transaction(
        &self,
        items: Vec<TransactWriteItem>,
    ) -> Result<TransactionResult, StoreError> {
        let request = self.client.transact_write_items();
        let request = request
            .set_transact_items(Some(items))
            .client_request_token(random::new_ulid(&*self.clock, &*self.random));
        let Err(error) = request.send().await else {
            return Ok(TransactionResult::Written);
        };
        match error.as_service_error().and_then(retry::write_cancelled) {
            Some(reasons) if !reasons.is_empty() => {
                Ok(TransactionResult::Cancelled(reasons.to_vec()))
            }
            _ => Err(self.unavailable(error)),
        }
    }
}

#[async_trait]
impl Records for Table {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        records::check_get_many(keys)?;
        self.limits.run_within(self.get_all(keys)).await
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        records::check_list(partition, prefix, after, limit)?;
        let list = self.list_all(partition, prefix, after, limit);
        self.limits.run_within(list).await
    }

    async fn commit_writes(&self, writes: Vec<Write>) -> Result<Commit, StoreError> {
        records::check_commit(&writes)?;
        self.limits.run_within(self.commit_all(&writes)).await
    }

    /// Does nothing: DynamoDB collects by the attribute `ttl`.
    async fn sweep_expired(&self, _limit: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        let key = RecordKey::new("ping", "ping");
        self.limits.run_within(self.read_one(&key)).await.map(drop)
    }
}

/// Rejects an answer without a body. The SDK would parse it as an empty object, which means that
/// the record is absent.
#[derive(Debug)]
struct NotEmpty;

impl Intercept for NotEmpty {
    fn name(&self) -> &'static str {
        "NotEmpty"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response().body().bytes();
        if context.response().status().is_success() && body.is_some_and(<[u8]>::is_empty) {
            return Err("an answer without a body".into());
        }
        Ok(())
    }
}
