//! Finding the client of a request: the one that registered, or the one whose document says who it is.

use std::net::IpAddr;

use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::records::{Document as Content, When, Write};

use super::document;
use crate::app::App;
use crate::documents::{ClientName, ClientUrl, FetchError};
use crate::error::Refusal;
use crate::model::Seen;
use crate::model::client::{Client, DOCUMENT_SECONDS, client_key};
use crate::model::limits::{Window, count, source_name};

/// How many times as many documents of one host as of one source may be fetched: a host has many clients, but no stranger may make us
/// knock at its door for ever.
const HOST_SHARE: u32 = 3;

/// The client that a request names; `None` when there is none, or when its document cannot be had or is not good.
///
/// Documents are fetched here alone, and kept as long as their headers say, within bounds. What goes wrong is never kept. A fetch counts
/// against the limit of registrations, since it is one: 429.
pub async fn find(
    app: &App,
    name: &ClientName,
    source: Option<IpAddr>,
) -> Result<Option<Client>, Refusal> {
    let found = Seen::<Client>::read(app.records.get(&client_key(&name.id())).await?)?;
    let found = found.filter(|client| name.names(&client.value));
    let ClientName::Document(url) = name else {
        return Ok(found.map(|client| client.value));
    };
    let now = app.clock.now();
    let fresh = |client: &Seen<Client>| {
        let document = client.value.document.as_ref();
        document.is_some_and(|document| now < document.fresh_until)
    };
    match found {
        Some(client) if fresh(&client) => Ok(Some(client.value)),
        found => fetch(app, url, found, source).await,
    }
}

async fn fetch(
    app: &App,
    url: &ClientUrl,
    held: Option<Seen<Client>>,
    source: Option<IpAddr>,
) -> Result<Option<Client>, Refusal> {
    let Some(documents) = &app.documents else {
        return Ok(None);
    };
    let now = app.clock.now();
    let limit = app.config.limits.register_per_source;
    let window = |name, who, limit| Window {
        name,
        who,
        limit,
        seconds: 3600,
    };
    let windows = [
        window("document", source_name(source), limit),
        window(
            "document-host",
            url.host().to_owned(),
            limit.saturating_mul(HOST_SHARE),
        ),
    ];
    count(&*app.records, &windows, now, &*app.random).await?;
    let fetched = match documents.fetch(url).await {
        Ok(fetched) => fetched,
        Err(FetchError::Ours(cause)) => {
            return Err(Refusal::from(StoreError::unavailable(cause.to_string())));
        }
        Err(error) => {
            let error = error_chain(&error);
            tracing::info!(
                host = url.host(),
                error,
                "a client's document was not fetched"
            );
            return Ok(None);
        }
    };
    let mut client = match document::read(url, &fetched, now) {
        Ok(client) => client,
        Err(error) => {
            tracing::info!(host = url.host(), %error, "a client's document is not good");
            return Ok(None);
        }
    };
    let mut until = now.plus_seconds(DOCUMENT_SECONDS);
    let mut when = When::Absent;
    if let Some(held) = held {
        client.created_at = held.value.created_at;
        until = held.expires_at.map_or(until, |held| held.max(until));
        when = When::At(held.revision);
    }
    let write = Write::put_until(client_key(&client.id), Content::of(&client)?, when, until);
    // Whoever fetched it at the same time kept the same.
    let _ = app.records.commit(vec![write]).await?;
    Ok(Some(client))
}
