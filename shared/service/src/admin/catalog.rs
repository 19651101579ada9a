//! `…/catalog`: returns the exact bytes of the current catalog, the signed list of a vault's
//! skills, and publishes the next one.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap};
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_OBJECT_BYTES};

use super::call::{Answer, Call, exact_answer};
use crate::error::{ErrorCode, Refusal};
use crate::http::{json_answer, require_media_type};
use crate::publish::{self, Precondition};

/// Returns the current catalog; a client reads it before it publishes the next one.
pub(super) async fn current_catalog(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let current = namespace
        .current
        .as_ref()
        .ok_or(ErrorCode::CatalogNotPublished)?;
    let key = namespace.object_key(Class::Catalogs, current.sha256);
    let object = call.app.object(&key).await?;
    // The namespace record names this catalog, so its absence is a failure of the store and must
    // not look like "nothing published".
    let object = object.ok_or_else(|| {
        StoreError::unavailable("the current catalog is missing from the object store")
    })?;
    Ok(exact_answer(
        object.bytes,
        &current.sha256,
        "application/json",
    ))
}

/// Makes a signed catalog the current one; answers 201 for the first, 200 for later ones.
pub(super) async fn publish_catalog(call: Call) -> Answer {
    let (namespace, _) = call.hosted_namespace()?;
    // Checked before the body is read, so that a client without a precondition does not upload up
    // to 4 MiB in vain.
    let precondition = parse_precondition(&call.parts.headers)?;
    let bytes = call.read_body(MAX_OBJECT_BYTES).await?;
    require_media_type(&call.parts.headers, "application/octet-stream")?;
    let published =
        publish::publish_release(&call.app, &namespace.slug, bytes, precondition, &call.actor)
            .await?;
    let status = if published.is_first {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(json_answer(status, &published.release))
}

/// Reads `If-Match: "<sha256>"` or `If-None-Match: *`. Fails with 428 if both are missing; a value
/// that no catalog has fails later, with 412.
fn parse_precondition(headers: &HeaderMap) -> Result<Precondition, Refusal> {
    let single_value = |name| {
        let mut values = headers.get_all(name).iter();
        values
            .next()
            .map(|first| match (first.to_str(), values.next()) {
                // Two values, or one that is no text, count as an empty tag, which no catalog has.
                (Ok(text), None) => text.trim(),
                _ => "",
            })
    };
    match (
        single_value(header::IF_MATCH),
        single_value(header::IF_NONE_MATCH),
    ) {
        (None, None) => Err(ErrorCode::PreconditionRequired.into()),
        (None, Some("*")) => Ok(Precondition::NothingYet),
        (Some(tag), None) => {
            let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            Ok(inner
                .and_then(|hash| hash.parse().ok())
                .map_or(Precondition::Never, Precondition::Current))
        }
        // Both headers at once contradict each other, and a tag of another form names no catalog.
        _ => Ok(Precondition::Never),
    }
}

#[cfg(test)]
mod tests {
    use vault_format::hash::Digest;

    use super::*;

    #[test]
    fn preconditions_are_one_strong_tag_or_none_at_all() {
        let hash = Digest::of(b"x");
        let tag = format!("\"{hash}\"");
        let weak = format!("W/{tag}");
        for (name, value, wanted) in [
            (header::IF_MATCH, tag.as_str(), Precondition::Current(hash)),
            (header::IF_NONE_MATCH, "*", Precondition::NothingYet),
            (header::IF_MATCH, "*", Precondition::Never),
            (header::IF_MATCH, weak.as_str(), Precondition::Never),
            (header::IF_MATCH, "\"\"", Precondition::Never),
            (header::IF_MATCH, "\"", Precondition::Never),
            (header::IF_NONE_MATCH, tag.as_str(), Precondition::Never),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(parse_precondition(&headers).unwrap(), wanted, "{value}");
        }
        let mut both = HeaderMap::new();
        both.insert(header::IF_MATCH, tag.parse().unwrap());
        both.insert(header::IF_NONE_MATCH, "*".parse().unwrap());
        assert_eq!(parse_precondition(&both).unwrap(), Precondition::Never);
        assert_eq!(
            parse_precondition(&HeaderMap::new()).unwrap_err().code(),
            ErrorCode::PreconditionRequired
        );
    }
}
