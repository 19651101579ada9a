//! `…/releases`: the published releases, and the exact bytes of each catalog while they are kept.

use axum::http::StatusCode;
use vault_format::name::NamespaceId;
use vault_format::root::MAX_VERSION;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::Record;

use super::call::{Answer, Call, Items, exact_answer, trim_page};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::kept;
use crate::model::namespace::Namespace;
use crate::model::release::{self, Release};

/// Lists the releases of the vault, oldest first; `after` is the `next` of the page before.
pub(super) async fn list_releases(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let page = call.page_params()?;
    if page.after.as_ref().is_some_and(|after| !is_sort_key(after)) {
        return Err(ErrorCode::ParameterInvalid.into());
    }
    let partition = release::releases_partition(&namespace.id);
    let records = &call.app.records;
    let page_records = records
        .list_page(&partition, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (page_records, next) = trim_page(page_records, page.limit);
    let items = page_records
        .iter()
        .map(vault_store::records::Record::read)
        .collect::<Result<Vec<Release>, _>>()?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Returns the record of the release with the number in the path; `?root_version=` selects among
/// releases with the same number.
pub(super) async fn show_release(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    Ok(json_answer(
        StatusCode::OK,
        &find_requested(&call, &namespace).await?,
    ))
}

/// Returns the catalog of one release; 404 once its bytes were deleted.
pub(super) async fn show_release_catalog(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let release = find_requested(&call, &namespace).await?;
    let key = namespace.object_key(Class::Catalogs, release.sha256);
    let object = call.app.object(&key).await?;
    let object = object.ok_or(ErrorCode::NotFound)?;
    Ok(exact_answer(
        object.bytes,
        &release.sha256,
        "application/json",
    ))
}

/// Finds the release that the path and `?root_version=` name.
async fn find_requested(call: &Call, namespace: &Namespace) -> Result<Release, Refusal> {
    let (number, root_version) = (call.param("release"), call.query_param("root_version"));
    let release = find_release(&call.app, namespace, number, root_version.as_deref()).await?;
    Ok(release.ok_or(ErrorCode::NotFound)?)
}

/// Finds the release with this number under this root version (the version of the vault's list of
/// keys); without a root version, the newest with that number. Fails with 422 if the root version
/// is not a number.
pub(crate) async fn find_release(
    app: &App,
    namespace: &Namespace,
    release: &str,
    under: Option<&str>,
) -> Result<Option<Release>, Refusal> {
    // Text that is not a number is an unknown release, so 404 and not 422.
    let Some(number) = parse_number(release) else {
        return Ok(None);
    };
    match under {
        Some(text) => {
            let root_version = parse_root_version(text).ok_or(ErrorCode::ParameterInvalid)?;
            let key = release::release_key(&namespace.id, root_version, number);
            Ok(app.get(&key).await?.map(|found| found.value))
        }
        None => {
            let pin = namespace.pin.vault_pin();
            let newest = pin.map_or(MAX_VERSION, |pin| pin.root_version);
            Ok(release::find_release(app, &namespace.id, newest, number).await?)
        }
    }
}

/// Reads all releases of a vault, ordered by root version and number; makes one call to the store
/// for each thousand.
pub(crate) async fn all_releases(
    app: &App,
    namespace: &NamespaceId,
) -> Result<Vec<Release>, StoreError> {
    let release_records = kept::all_records(app, &release::releases_partition(namespace)).await?;
    release_records.iter().map(Record::read).collect()
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

/// Parses a root version; 0 stands for releases that an earlier version of vault published.
fn parse_root_version(text: &str) -> Option<u64> {
    if text == "0" {
        Some(0)
    } else {
        parse_number(text)
    }
}

/// Parses a release number: decimal, no sign, no leading zero.
fn parse_number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_digit());
    (plain && !text.starts_with('0'))
        .then(|| text.parse().ok())
        .flatten()
}
