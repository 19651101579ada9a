//! `Objects` in one S3 bucket: the key's text is the object's name.
//!
//! Bytes are hashed before they are sent and after they are read. S3 receives their SHA-256, so
//! that a body changed on the way does not become an object. A write carries `If-None-Match: *`:
//! 412 means that the object exists, 409 that another writer is storing it at this moment, which
//! the SDK retries.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ChecksumMode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use tokio::task::JoinSet;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::objects::{self, Class, MAX_OBJECT_BYTES, MAX_PAGE, ObjectKey, Objects, Stored};

use crate::Settings;
use crate::calls::Counters;
use crate::retry::{self, Classifier, RetryLimits};

/// Number of keys above which a listing of the bucket costs less than one request per key.
const MAX_HEAD_REQUESTS: usize = 500;
/// Maximum number of concurrent requests of one call.
const AT_ONCE: usize = 16;

#[derive(Clone)]
pub(crate) struct Bucket {
    client: Client,
    name: Arc<str>,
    limits: RetryLimits,
}

/// The properties of an object, from a HEAD request.
struct Head {
    size: u64,
    /// The base64 SHA-256 that S3 checked when the object was written.
    sha256: Option<String>,
}

impl Bucket {
    pub(crate) fn new(
        config: &SdkConfig,
        settings: &Settings,
        limits: RetryLimits,
        calls: Counters,
    ) -> Self {
        let config = aws_sdk_s3::config::Builder::from(config)
            // An emulator has no host name for each bucket. The SDK may have found the emulator's
            // address by itself.
            .force_path_style(settings.endpoint.is_some() || config.endpoint_url().is_some())
            .timeout_config(limits.timeout_config())
            .retry_config(limits.retry_config())
            .retry_partition(retry::no_quota())
            .retry_classifier(Classifier)
            .interceptor(calls)
            // The SHA-256 that is sent and compared here is stronger than the SDK's CRC.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .build();
        Self {
            client: Client::from_conf(config),
            name: settings.bucket.as_str().into(),
            limits,
        }
    }

    pub(crate) async fn check_bucket(&self) -> Result<(), StoreError> {
        self.limits.run_within(self.check_exists()).await
    }

    /// Checks the bucket. Fails if it does not exist or may not be listed.
    async fn check_exists(&self) -> Result<(), StoreError> {
        let asked = self.client.head_bucket().bucket(&*self.name).send().await;
        asked.map(drop).map_err(|error| self.unavailable(error))
    }

    fn unavailable<E>(&self, error: SdkError<E, HttpResponse>) -> StoreError
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        retry::sdk_unavailable(&format!("bucket {}", self.name), error)
    }

    async fn read_verified(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        let mut attempt = 1;
        loop {
            let request = self.client.get_object().bucket(&*self.name);
            let answer = match request.key(key.to_string()).send().await {
                Ok(answer) => answer,
                // Only this code means that the key does not exist: a missing bucket is a 404 too.
                Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
                Err(error) => return self.confirm_absence(key, error).await.map(|()| None),
            };
            let body = tokio::time::timeout(self.limits.attempt_timeout, read_body(answer)).await;
            match body.unwrap_or_else(|_| Err(StoreError::unavailable("object body timed out"))) {
                Ok(bytes) if key.check_bytes(&bytes).is_ok() => return Ok(Some(bytes)),
                Ok(_) => {
                    return Err(StoreError::Corrupt(format!(
                        "the bytes under {key} do not match its hash"
                    )));
                }
                // The SDK retries until it has the head of an answer. A body that ends early is
                // read again here.
                Err(StoreError::Unavailable(_)) if attempt < self.limits.attempts => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Succeeds if S3 has `refused` to answer about a key that does not exist: to a role that may
    /// list only some classes of the bucket, it does not say that an object is absent. The list of
    /// the class does. Any other refusal is returned as the error that it is.
    async fn confirm_absence<E>(
        &self,
        key: &ObjectKey,
        refused: SdkError<E, HttpResponse>,
    ) -> Result<(), StoreError>
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let status = refused.raw_response().map(|raw| raw.status().as_u16());
        if status == Some(403) && matches!(self.is_listed(key).await, Ok(false)) {
            return Ok(());
        }
        Err(self.unavailable(refused))
    }

    /// Returns whether the list of the bucket has the key. Fails if the bucket does not exist.
    async fn is_listed(&self, key: &ObjectKey) -> Result<bool, StoreError> {
        let page = self.list_keys(&key.to_string(), None, 1).await?;
        // No other key of the adapter begins with this one, which ends with a hash.
        Ok(!page.contents().is_empty())
    }

    async fn write_object(
        &self,
        key: &ObjectKey,
        bytes: &Bytes,
        overwrite: bool,
    ) -> Result<Stored, StoreError> {
        let request = self.client.put_object().bucket(&*self.name);
        let request = request
            .key(key.to_string())
            .set_if_none_match((!overwrite).then(|| "*".to_owned()))
            .checksum_sha256(checksum_header(&key.digest))
            .content_length(i64::try_from(bytes.len()).unwrap_or(i64::MAX))
            .content_type("application/octet-stream")
            .body(ByteStream::from(bytes.clone()));
        match request.send().await {
            Ok(_) => Ok(Stored::New),
            Err(error) if error.code() == Some("PreconditionFailed") && !overwrite => {
                Ok(Stored::Present)
            }
            Err(error) => Err(self.unavailable(error)),
        }
    }

    async fn put_one(&self, key: &ObjectKey, bytes: &Bytes) -> Result<Stored, StoreError> {
        let stored = self.write_object(key, bytes, false).await?;
        if stored == Stored::Present && !self.has_bytes(key, bytes).await? {
            // The object was damaged by something else, or deleted since the first write. Every
            // writer of this key has the same bytes, so overwriting it is safe.
            tracing::warn!(%key, "wrote an object again that did not match its hash");
            self.write_object(key, bytes, true).await?;
        }
        Ok(stored)
    }

    /// Returns whether there is an object under the key with exactly these bytes.
    async fn has_bytes(&self, key: &ObjectKey, bytes: &Bytes) -> Result<bool, StoreError> {
        match self.head_object(key).await? {
            Some(head) if head.size != bytes.len() as u64 => Ok(false),
            Some(Head {
                sha256: Some(sha256),
                ..
            }) => Ok(sha256 == checksum_header(&key.digest)),
            // An object without a checksum was not written by this adapter, so its bytes have to be
            // read and compared.
            Some(_) => match self.read_verified(key).await {
                Ok(read) => Ok(read.is_some()),
                Err(StoreError::Corrupt(_)) => Ok(false),
                Err(error) => Err(error),
            },
            // The object was deleted in the meantime.
            None => Ok(false),
        }
    }

    /// Returns the properties of an object; `None` if it is absent, or for 404, which a HEAD request
    /// also gets for a missing bucket.
    async fn head_object(&self, key: &ObjectKey) -> Result<Option<Head>, StoreError> {
        let request = self.client.head_object().bucket(&*self.name);
        let request = request
            .key(key.to_string())
            .checksum_mode(ChecksumMode::Enabled);
        match request.send().await {
            Ok(answer) if answer.content_length().is_some() => Ok(Some(Head {
                size: to_size(answer.content_length()),
                sha256: answer.checksum_sha256().map(str::to_owned),
            })),
            Ok(_) => Err(StoreError::unavailable("answer without a length")),
            Err(error)
                if error
                    .raw_response()
                    .is_some_and(|raw| raw.status().as_u16() == 404) =>
            {
                Ok(None)
            }
            Err(error) => self.confirm_absence(key, error).await.map(|()| None),
        }
    }

    /// Returns the sizes of the existing objects, with one request for each key.
    async fn sizes_by_head(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<HashMap<ObjectKey, u64>, StoreError> {
        let mut keys: Vec<ObjectKey> = wanted.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let heads = run_concurrently(keys, |key| {
            let bucket = self.clone();
            async move { Ok((key, bucket.head_object(&key).await?)) }
        });
        let heads = heads.await?;
        // A 404 may also mean that the bucket is gone. Then nothing is known about the keys. A list is
        // asked for and not the bucket itself, which a role may ask only if it may list all of it.
        if let Some((absent, _)) = heads.iter().find(|(_, head)| head.is_none()) {
            self.is_listed(absent).await?;
        }
        let there = heads.into_iter();
        Ok(there
            .filter_map(|(key, head)| Some((key, head?.size)))
            .collect())
    }

    /// Returns the sizes of the existing objects by listing their classes, each from its start to
    /// the last of the keys.
    async fn sizes_by_listing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<HashMap<ObjectKey, u64>, StoreError> {
        let mut places: BTreeMap<(NamespaceId, Class), Vec<Digest>> = BTreeMap::new();
        for (key, _) in wanted {
            let place = places.entry((key.namespace, key.class)).or_default();
            place.push(key.digest);
        }
        let mut sizes = HashMap::new();
        for ((namespace, class), mut digests) in places {
            digests.sort_unstable();
            let Some(last) = digests.last().copied() else {
                continue;
            };
            // The first page begins at the start of the class.
            let mut after: Option<Digest> = None;
            loop {
                let page = match after {
                    Some(after) => {
                        self.list_class(&namespace, class, Some(&after), MAX_PAGE)
                            .await?
                    }
                    None => self.list_class(&namespace, class, None, MAX_PAGE).await?,
                };
                after = page.last().map(|(digest, _)| *digest);
                let full = page.len() == MAX_PAGE;
                for (digest, size) in page {
                    if digests.binary_search(&digest).is_ok() {
                        sizes.insert(ObjectKey::new(namespace, class, digest), size);
                    }
                }
                if !full || after.is_some_and(|after| after >= last) {
                    break;
                }
            }
        }
        Ok(sizes)
    }

    /// Returns at most `limit` keys that begin with the prefix and come after `behind`.
    async fn list_keys(
        &self,
        prefix: &str,
        behind: Option<String>,
        limit: usize,
    ) -> Result<ListObjectsV2Output, StoreError> {
        let request = self.client.list_objects_v2().bucket(&*self.name);
        let request = request
            .prefix(prefix)
            .set_start_after(behind)
            .max_keys(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = request
            .send()
            .await
            .map_err(|error| self.unavailable(error))?;
        // The SDK parses a truncated answer as a shorter list.
        let count = answer.key_count().and_then(|n| usize::try_from(n).ok());
        if answer.is_truncated().is_none() || count != Some(answer.contents().len()) {
            return Err(StoreError::unavailable("incomplete page of keys"));
        }
        Ok(answer)
    }

    /// Returns one page of a class, sorted by hash. Objects with other names are skipped.
    async fn list_class(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        let prefix = format!("ns/{namespace}/{class}/");
        let mut behind = after.map(|digest| format!("{prefix}{digest}"));
        let mut listed = Vec::new();
        loop {
            let left = limit - listed.len();
            let answer = self.list_keys(&prefix, behind.take(), left).await?;
            for object in answer.contents() {
                let name = object.key().and_then(|key| key.strip_prefix(&prefix));
                if let Some(digest) = name.and_then(|name| name.parse::<Digest>().ok()) {
                    listed.push((digest, to_size(object.size())));
                }
            }
            let last = answer.contents().last().and_then(|object| object.key());
            match last {
                Some(last) if answer.is_truncated() == Some(true) && listed.len() < limit => {
                    behind = Some(last.to_owned());
                }
                _ => return Ok(listed),
            }
        }
    }
}

#[async_trait]
impl Objects for Bucket {
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError> {
        self.limits.run_within(self.read_verified(key)).await
    }

    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError> {
        key.check_bytes(&bytes)?;
        self.limits
            .run_within(Box::pin(self.put_one(key, &bytes)))
            .await
    }

    async fn put_many(&self, objects: Vec<(ObjectKey, Bytes)>) -> Result<Vec<Stored>, StoreError> {
        objects::check_put_many(&objects)?;
        let keys: Vec<ObjectKey> = objects.iter().map(|(key, _)| *key).collect();
        let different: HashMap<ObjectKey, Bytes> = objects.into_iter().collect();
        let written = run_concurrently(different, |(key, bytes)| {
            let bucket = self.clone();
            async move { Ok((key, bucket.put_object(&key, bytes).await?)) }
        });
        let mut written: HashMap<ObjectKey, Stored> = written.await?.into_iter().collect();
        // The first occurrence of a key gets the result; at the second one the object existed.
        let answers = keys.iter().map(|key| {
            written
                .insert(*key, Stored::Present)
                .unwrap_or(Stored::Present)
        });
        Ok(answers.collect())
    }

    async fn find_missing(
        &self,
        wanted: &[(ObjectKey, u64)],
    ) -> Result<Vec<ObjectKey>, StoreError> {
        objects::check_missing(wanted)?;
        let sizes = if wanted.len() > MAX_HEAD_REQUESTS {
            self.limits
                .run_within(self.sizes_by_listing(wanted))
                .await?
        } else {
            self.limits.run_within(self.sizes_by_head(wanted)).await?
        };
        let absent = wanted
            .iter()
            .filter(|(key, size)| sizes.get(key) != Some(size));
        Ok(absent.map(|(key, _)| *key).collect())
    }

    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError> {
        objects::check_list(limit)?;
        let page = self.list_class(namespace, class, after, limit);
        self.limits.run_within(page).await
    }

    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let request = self.client.delete_object().bucket(&*self.name);
        let delete = async {
            match request.key(key.to_string()).send().await {
                Ok(_) => Ok(()),
                // S3 reports success for an absent key. A server that reports it as missing means
                // the same.
                Err(error) if error.code() == Some("NoSuchKey") => Ok(()),
                Err(error) => Err(self.unavailable(error)),
            }
        };
        self.limits.run_within(delete).await
    }

    async fn delete_many(&self, keys: &[ObjectKey]) -> Result<(), StoreError> {
        let deleted = run_concurrently(keys.to_vec(), |key| {
            let bucket = self.clone();
            async move { bucket.delete_object(&key).await }
        });
        deleted.await.map(drop)
    }
}

/// Reads the whole body. Fails if it exceeds 4 MiB.
async fn read_body(answer: GetObjectOutput) -> Result<Bytes, StoreError> {
    let announced_length = answer.content_length().map(|length| to_size(Some(length)));
    let too_large = || StoreError::Corrupt("object is larger than 4 MiB".to_owned());
    if announced_length.is_some_and(|length| length > MAX_OBJECT_BYTES as u64) {
        return Err(too_large());
    }
    let mut stream = answer.body;
    let mut whole = BytesMut::with_capacity(announced_length.map_or(0, |length| {
        usize::try_from(length).unwrap_or(MAX_OBJECT_BYTES)
    }));
    while let Some(part) = stream.next().await {
        let part = part.map_err(StoreError::unavailable)?;
        if whole.len() + part.len() > MAX_OBJECT_BYTES {
            return Err(too_large());
        }
        whole.extend_from_slice(&part);
    }
    // A body that ended early must be read again, not be reported as a damaged object.
    if announced_length.is_some_and(|length| length != whole.len() as u64) {
        return Err(StoreError::unavailable("object body ended early"));
    }
    Ok(whole.freeze())
}

/// Runs `work` for each item, several at a time. The first failure cancels the others.
async fn run_concurrently<I, T, F>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> F,
) -> Result<Vec<T>, StoreError>
where
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
    T: Send + 'static,
{
    let mut running = JoinSet::new();
    let mut done = Vec::new();
    for item in items {
        if running.len() == AT_ONCE {
            done.extend(next_result(&mut running).await?);
        }
        running.spawn(work(item));
    }
    while let Some(answer) = next_result(&mut running).await? {
        done.push(answer);
    }
    Ok(done)
}

async fn next_result<T: 'static>(
    running: &mut JoinSet<Result<T, StoreError>>,
) -> Result<Option<T>, StoreError> {
    match running.join_next().await {
        Some(Ok(answer)) => answer.map(Some),
        Some(Err(stopped)) => Err(StoreError::unavailable(stopped)),
        None => Ok(None),
    }
}

fn checksum_header(digest: &Digest) -> String {
    STANDARD.encode(digest.as_bytes())
}

/// Converts a length from S3, which is never negative. A missing length counts as 0.
fn to_size(reported: Option<i64>) -> u64 {
    reported
        .and_then(|length| u64::try_from(length).ok())
        .unwrap_or_default()
}
