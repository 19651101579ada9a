//! Finds the client that a request names: one that registered here, or one whose id is the URL of a
//! metadata document (see `document`).

use std::net::IpAddr;

use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document as Content, When, Write};

use super::document::{self, BadDocument, MIN_FRESH_SECONDS, STALE_SECONDS};
use crate::app::App;
use crate::documents::{ClientName, ClientUrl, FetchError};
use crate::error::Refusal;
use crate::model::Versioned;
use crate::model::client::{Client, ClientDocument, DOCUMENT_SECONDS, client_key};
use crate::model::limits::{NetworkLimit, Networks, count_or_refuse, release_counts};

/// Maximum number of failed fetches from one host for one address, in an hour; a wider network may
/// have more.
const MAX_FAILURES_PER_HOST: u32 = 20;

/// Finds the client that a request names; `None` when there is none, or when its document is
/// unavailable or invalid.
///
/// Only this function fetches documents. It caches them as long as their headers say, within
/// bounds. While the host of a cached document fails, the cached copy is used for another day.
/// Failures are not cached but counted for each host and network (429): one network cannot block a
/// host for others, and no host gets endless requests for a document that it does not have.
pub async fn find_client(
    app: &App,
    name: &ClientName,
    source: Option<IpAddr>,
) -> Result<Option<Client>, Refusal> {
    let stored_client = app.get::<Client>(&client_key(&name.id())).await?;
    // For a client with a document, the key is a shortened hash of the URL, so the URL itself is
    // compared too.
    let stored_client = stored_client.filter(|client| name.is_name_of(&client.value));
    let ClientName::Document(url) = name else {
        return Ok(stored_client.map(|client| client.value));
    };
    let now = app.clock.now();
    match stored_client {
        Some(client) if is_usable(&client.value, now) => Ok(Some(client.value)),
        Some(client) => refresh_document(app, url, client).await,
        None => fetch_new(app, url, source).await,
    }
}

/// Whether the cached document may be used without a fetch.
fn is_usable(client: &Client, now: Timestamp) -> bool {
    client.document.as_ref().is_some_and(|document| {
        // After a failure, no request is sent to the host for some minutes, and the stale copy is
        // used.
        let failing = document.retry_at.is_some_and(|retry_at| now < retry_at);
        now < document.fresh_until || (failing && now < stale_until(document))
    })
}

/// Returns the time until which the copy may be used while its host fails.
fn stale_until(document: &ClientDocument) -> Timestamp {
    document.fresh_until.plus_seconds(STALE_SECONDS)
}

/// Fetches a document that is not cached.
async fn fetch_new(
    app: &App,
    url: &ClientUrl,
    source: Option<IpAddr>,
) -> Result<Option<Client>, Refusal> {
    if app.documents.is_none() {
        return Ok(None);
    }
    let (now, networks) = (app.clock.now(), Networks::of(source));
    let limit = app.config.limits.register_per_source;
    let windows = |name, about, limit| {
        let limit = NetworkLimit {
            name,
            about,
            limit,
            seconds: 3600,
        };
        limit.windows(&networks)
    };
    let host = Some(url.host().to_owned());
    let of_host = windows("document-host", host, limit.min(MAX_FAILURES_PER_HOST));
    let windows = [windows("document", None, limit), of_host].concat();
    // Counted before the fetch and taken back after a success, so that parallel requests cannot
    // exceed the limit together.
    count_or_refuse(app, &windows, now).await?;
    let fetched = fetch_client(app, url).await;
    match fetched {
        Ok(client) => {
            release_counts(app, &windows, now).await;
            // The record must live at least as long as the copy may be used while its host fails.
            let until = now
                .plus_seconds(DOCUMENT_SECONDS)
                .max(client.document.as_ref().map_or(now, stale_until));
            store_client(app, &client, When::Absent, until).await?;
            Ok(Some(client))
        }
        Err(ClientDocumentError::Internal(refusal)) => Err(refusal),
        Err(ClientDocumentError::HostUnavailable | ClientDocumentError::Invalid) => Ok(None),
    }
}

/// Fetches a cached document again. No further limit is needed, because a document is fresh for at
/// least five minutes.
async fn refresh_document(
    app: &App,
    url: &ClientUrl,
    cached: Versioned<Client>,
) -> Result<Option<Client>, Refusal> {
    let now = app.clock.now();
    let when = When::At(cached.revision);
    match fetch_client(app, url).await {
        Ok(mut client) => {
            // Pages show since when the client has been known, which a new copy does not change.
            client.created_at = cached.value.created_at;
            let stale = client.document.as_ref().map_or(now, stale_until);
            let until = cached.expires_at.map_or(stale, |until| until.max(stale));
            store_client(app, &client, when, until).await?;
            Ok(Some(client))
        }
        Err(ClientDocumentError::HostUnavailable) => {
            let mut client = cached.value;
            let Some(document) = client.document.as_mut() else {
                return Ok(None);
            };
            if now >= stale_until(document) {
                return Ok(None);
            }
            document.retry_at = Some(now.plus_seconds(MIN_FRESH_SECONDS));
            let until = stale_until(document);
            let until = cached.expires_at.map_or(until, |held| held.max(until));
            store_client(app, &client, when, until).await?;
            Ok(Some(client))
        }
        // The host answered and no longer describes this client, so the stale copy must not be
        // used.
        Err(ClientDocumentError::Invalid) => Ok(None),
        Err(ClientDocumentError::Internal(refusal)) => Err(refusal),
    }
}

/// Stores the client until `until`, if its record still is as it was read.
async fn store_client(
    app: &App,
    client: &Client,
    when: When,
    until: Timestamp,
) -> Result<(), Refusal> {
    let write = Write::put_until(
        client_key(&client.id),
        Content::from_value(client)?,
        when,
        until,
    );
    // If the write fails, another request has just stored the same document.
    let _ = app.records.commit_writes(vec![write]).await?;
    Ok(())
}

/// Error: the document of a client is not available.
enum ClientDocumentError {
    /// The host does not answer, or answers with 429 or 5xx.
    HostUnavailable,
    /// The host answers, but with no valid document of this client.
    Invalid,
    /// The fault is on the side of this service.
    Internal(Refusal),
}

async fn fetch_client(app: &App, url: &ClientUrl) -> Result<Client, ClientDocumentError> {
    let Some(documents) = &app.documents else {
        return Err(ClientDocumentError::Invalid);
    };
    let now = app.clock.now();
    let fetched = documents.fetch(url).await.map_err(|error| {
        // The failure is on this side, so the answer is 503 and blames neither the client nor its
        // host.
        if let FetchError::Ours(cause) = error {
            return ClientDocumentError::Internal(
                StoreError::unavailable(cause.to_string()).into(),
            );
        }
        let chain = error_chain(&error);
        tracing::info!(
            host = url.host(),
            error = chain,
            "a client's document was not fetched"
        );
        match error {
            FetchError::Unreachable(_) => ClientDocumentError::HostUnavailable,
            _ => ClientDocumentError::Invalid,
        }
    })?;
    document::read_client(url, &fetched, now).map_err(|error| {
        tracing::info!(host = url.host(), %error, "a client's document is not good");
        // Overload and server errors may pass; any other status is a statement about the document.
        match error {
            BadDocument::Status(429 | 500..) => ClientDocumentError::HostUnavailable,
            _ => ClientDocumentError::Invalid,
        }
    })
}
