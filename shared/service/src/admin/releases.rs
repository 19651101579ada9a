//! `…/releases`: the published releases, and the exact bytes of each catalog while they are kept.

use axum::http::StatusCode;
use vault_format::name::NamespaceId;
use vault_format::root::MAX_VERSION;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::Record;

use super::call::{Answer, Call, Items, cut, exact};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::kept;
use crate::model::namespace::Namespace;
use crate::model::release::{self, Release};

/// Lists releases, oldest first; `after` is `next` of the page before.
pub(super) async fn list(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    let page = call.page()?;
    if page.after.as_ref().is_some_and(|after| !is_sort_key(after)) {
        return Err(ErrorCode::ParameterInvalid.into());
    }
    let partition = release::partition(&namespace.id);
    let records = &call.app.records;
    let found = records
        .list(&partition, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (found, next) = cut(found, page.limit);
    let items = found
        .iter()
        .map(vault_store::records::Record::read)
        .collect::<Result<Vec<Release>, _>>()?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Returns one release.
pub(super) async fn show(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    Ok(json_answer(StatusCode::OK, &find(&call, &namespace).await?))
}

/// Returns the catalog of one release; 404 once its bytes were deleted.
pub(super) async fn catalog(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    let release = find(&call, &namespace).await?;
    let key = namespace.object(Class::Catalogs, release.sha256);
    let object = call.app.object(&key).await?;
    let object = object.ok_or(ErrorCode::NotFound)?;
    Ok(exact(object.bytes, &release.sha256, "application/json"))
}

/// Finds the release that the path and `?root_version=` name.
async fn find(call: &Call, namespace: &Namespace) -> Result<Release, Refusal> {
    let (number, root_version) = (call.param("release"), call.query("root_version"));
    let found = find_release(&call.app, namespace, number, root_version.as_deref()).await?;
    Ok(found.ok_or(ErrorCode::NotFound)?)
}

/// Finds the release of this number under this root version; without a root version, the newest of
/// that number. Fails with 422 if the root version is not a number.
pub(crate) async fn find_release(
    app: &App,
    namespace: &Namespace,
    release: &str,
    under: Option<&str>,
) -> Result<Option<Release>, Refusal> {
    // Text that is not a number names no release, which is 404 and not 422.
    let Some(wanted) = number(release) else {
        return Ok(None);
    };
    match under {
        Some(text) => {
            let root_version = root_version(text).ok_or(ErrorCode::ParameterInvalid)?;
            let key = release::key(&namespace.id, root_version, wanted);
            Ok(app.get(&key).await?.map(|found| found.value))
        }
        None => {
            let pin = namespace.pin.vault();
            let newest = pin.map_or(MAX_VERSION, |pin| pin.root_version);
            Ok(release::find(app, &namespace.id, newest, wanted).await?)
        }
    }
}

/// Reads all releases of a vault in the order of root versions and numbers, with one list per
/// thousand.
pub(crate) async fn all_releases(
    app: &App,
    namespace: &NamespaceId,
) -> Result<Vec<Release>, StoreError> {
    let found = kept::all(app, &release::partition(namespace)).await?;
    found.iter().map(Record::read).collect()
}

fn is_sort_key(text: &str) -> bool {
    // The cursor must have the width of a key: a shorter number would sort elsewhere and silently
    // skip releases.
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((root, release)) => digits(root, 4) && digits(release, 16),
        None => digits(text, 16),
    }
}

/// Parses a root version; 0 stands for releases of an earlier version of vault.
fn root_version(text: &str) -> Option<u64> {
    if text == "0" { Some(0) } else { number(text) }
}

/// Parses a release number: decimal, no sign, no leading zero.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_digit());
    (plain && !text.starts_with('0'))
        .then(|| text.parse().ok())
        .flatten()
}
