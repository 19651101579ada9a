//! `…/releases`: what was published, and each release's exact bytes as long as they are kept.

use axum::http::StatusCode;
use vault_store::objects::Class;

use super::{Answer, Call, Items, cut, exact};
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::namespace::Namespace;
use crate::model::release::{self, Release};

/// Releases, oldest first; `after` is a release number.
pub(super) async fn list(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    let page = call.page()?;
    let after = match page.after {
        Some(text) => Some(number(&text).ok_or(Code::ParameterInvalid)?),
        None => None,
    };
    let after = after.map(release::sort_key);
    let partition = release::partition(&namespace.id);
    let records = &call.app.records;
    let found = records
        .list(&partition, "", after.as_deref(), page.limit + 1)
        .await?;
    let (found, next) = cut(found, page.limit);
    let items = found
        .iter()
        .map(vault_store::records::Record::read)
        .collect::<Result<Vec<Release>, _>>()?;
    let next = next.map(|key| key.trim_start_matches('0').to_owned());
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// One release.
pub(super) async fn show(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    Ok(json_answer(StatusCode::OK, &find(&call, &namespace).await?))
}

/// One release's catalog, 404 once it was collected.
pub(super) async fn catalog(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    let release = find(&call, &namespace).await?;
    let key = namespace.object(Class::Catalogs, release.sha256);
    let object = call.app.cache.get(&*call.app.objects, &key).await?;
    let object = object.ok_or(Code::NotFound)?;
    Ok(exact(object.bytes, &release.sha256, "application/json"))
}

async fn find(call: &Call, namespace: &Namespace) -> Result<Release, Refusal> {
    let release = number(call.param("release")).ok_or(Code::NotFound)?;
    let record = call
        .app
        .records
        .get(&release::key(&namespace.id, release))
        .await?;
    Ok(record.ok_or(Code::NotFound)?.read()?)
}

/// A release number as it is written: decimal, no sign, no leading zero.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_digit());
    (plain && !text.starts_with('0'))
        .then(|| text.parse().ok())
        .flatten()
}
