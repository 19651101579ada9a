//! `…/objects`: tells a client which objects a namespace lacks, and stores them, one by one or many
//! at once. An object is a file of a release (a bundle or a policy), stored under the SHA-256 of
//! its bytes.

use axum::http::StatusCode;
use bytes::Bytes;
use vault_api::{MAX_PACK_OBJECTS, MissingObjects, ObjectQuestion, ObjectReference, StoredObjects};
use vault_format::hash::Digest;
use vault_store::objects::{Class, MAX_ASKED, MAX_OBJECT_BYTES, ObjectKey, Stored};

use super::call::{Answer, Call, exact_answer};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::{json_answer, parse_json, require_media_type};
use crate::model::namespace::Namespace;
use crate::publish;
use crate::uploads::{self, Purpose, UploadError};

/// Maximum size of a request for missing objects, in bytes: ten thousand hashes with their sizes.
const MAX_QUESTION_BYTES: usize = 1024 * 1024;

/// Returns the hashes of those objects in the request that the namespace lacks.
pub(super) async fn list_missing(call: Call) -> Answer {
    let (namespace, _) = call.hosted_namespace()?;
    let bytes = call.read_body(MAX_QUESTION_BYTES).await?;
    require_media_type(&call.parts.headers, "application/json")?;
    let question: ObjectQuestion = parse_json(&bytes)?;
    let class = parse_writable_class(question.class.as_str()).ok_or(ErrorCode::ParameterInvalid)?;
    if question.objects.len() > MAX_ASKED {
        return Err(Refusal::new(ErrorCode::ParameterInvalid)
            .detail("A request must not name more than 10,000 objects."));
    }
    let named: Vec<_> = question
        .objects
        .iter()
        .map(|asked| (namespace.object_key(class, asked.sha256), asked.size))
        .collect();
    let missing = uploads::list_missing(&call.app, namespace.id, &named).await?;
    let missing = missing.into_iter().map(|key| key.digest).collect();
    Ok(json_answer(StatusCode::OK, &MissingObjects { missing }))
}

/// Stores exact bytes under their hash; answers 201, or 200 if they were stored before.
pub(super) async fn put_object(call: Call) -> Answer {
    let (namespace, _) = call.hosted_namespace()?;
    let class = parse_writable_class(call.param("class")).ok_or(ErrorCode::NotFound)?;
    let sha256: Digest = call
        .param("sha256")
        .parse()
        .map_err(|_| ErrorCode::NotFound)?;
    let bytes = call.read_body(MAX_OBJECT_BYTES).await?;
    require_media_type(&call.parts.headers, "application/octet-stream")?;
    // Objects are named by their hash, and readers verify it: wrong bytes under a hash would make
    // every later read fail.
    if Digest::of(&bytes) != sha256 {
        return Err(ErrorCode::ObjectHash.into());
    }
    let size = bytes.len() as u64;
    let object = (namespace.object_key(class, sha256), bytes);
    let stored = upload(&call.app, &namespace, vec![object]).await?;
    let status = match stored.first() {
        Some(Stored::Present) => StatusCode::OK,
        _ => StatusCode::CREATED,
    };
    Ok(json_answer(status, &ObjectReference { sha256, size }))
}

/// Stores the objects of a pack at once. If one is invalid, none is stored. After another error
/// some may be stored, which is harmless: the request can be repeated.
pub(super) async fn put_pack(call: Call) -> Answer {
    let (namespace, _) = call.hosted_namespace()?;
    let class = parse_writable_class(call.param("class")).ok_or(ErrorCode::NotFound)?;
    let bytes = call.read_body(MAX_OBJECT_BYTES).await?;
    require_media_type(&call.parts.headers, "application/vnd.vault.pack")?;
    let objects = parse_pack(&bytes).ok_or(ErrorCode::PackInvalid)?;
    if objects.len() > MAX_PACK_OBJECTS {
        let count = objects.len();
        return Err(Refusal::new(ErrorCode::PackInvalid).detail(format!(
            "This pack has {count} objects, and at most {MAX_PACK_OBJECTS} are allowed."
        )));
    }
    // All hashes are checked before the first object is stored: an invalid pack leaves nothing.
    if objects
        .iter()
        .any(|(hash, bytes)| Digest::of(bytes) != *hash)
    {
        return Err(ErrorCode::ObjectHash.into());
    }
    // Taken before sorting: the answer lists the objects in the order of the pack.
    let stored = objects.iter().map(|(hash, _)| *hash).collect();
    let mut keyed: Vec<(ObjectKey, Bytes)> = objects
        .into_iter()
        .map(|(hash, bytes)| (namespace.object_key(class, hash), bytes))
        .collect();
    // A pack may contain an object twice; a commit must not write the record of one object twice.
    keyed.sort_unstable_by_key(|(key, _)| *key);
    keyed.dedup_by(|(one, _), (other, _)| one == other);
    upload(&call.app, &namespace, keyed).await?;
    Ok(json_answer(StatusCode::OK, &StoredObjects { stored }))
}

/// Stores the objects of an upload. If the quota has no room, tries again with more room in one
/// case: the vault has revoked a key, and these are its skills, signed again.
async fn upload(
    app: &App,
    namespace: &Namespace,
    objects: Vec<(ObjectKey, Bytes)>,
) -> Result<Vec<Stored>, Refusal> {
    let first = uploads::put_objects(app, namespace, Purpose::Upload, objects.clone()).await;
    let Err(UploadError::Full(full)) = first else {
        return Ok(first?);
    };
    let Some(room) = publish::find_room_to_sign_again(app, namespace, &objects).await? else {
        return Err(full.into());
    };
    let stored = uploads::put_objects(app, namespace, Purpose::SignAgain(room), objects).await?;
    Ok(stored)
}

/// Parses a pack. Each object in it is 64 hexadecimal characters, a space, the decimal length, a
/// line feed, and the bytes. Returns `None` if the pack has any other form.
fn parse_pack(pack: &Bytes) -> Option<Vec<(Digest, Bytes)>> {
    let mut objects = Vec::new();
    let mut at = 0;
    while at < pack.len() {
        let rest = &pack[at..];
        // A line of a pack of 4 MiB has at most 72 characters. Without a bound, a pack without line
        // feeds would be searched to its end.
        let line = &rest[..rest.iter().take(80).position(|&byte| byte == b'\n')?];
        let (hash, length) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let plain = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        // One length has one spelling, without sign or leading zeros.
        if !plain || (length.len() > 1 && length.starts_with('0')) {
            return None;
        }
        let begin = at + line.len() + 1;
        let end = begin.checked_add(length.parse().ok()?)?;
        if end > pack.len() {
            return None;
        }
        objects.push((hash.parse().ok()?, pack.slice(begin..end)));
        at = end;
    }
    Some(objects)
}

/// Returns the exact bytes of an object; 404 if it was never stored or has been deleted.
pub(super) async fn read_object(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let class = parse_writable_class(call.param("class")).ok_or(ErrorCode::NotFound)?;
    let sha256: Digest = call
        .param("sha256")
        .parse()
        .map_err(|_| ErrorCode::NotFound)?;
    // As on the routes for machines, a bundle is served only while the vault's subscription is
    // live.
    if class == Class::Bundles && !namespace.subscription.is_live(call.app.clock.now()) {
        return Err(ErrorCode::SubscriptionLapsed.into());
    }
    let key = namespace.object_key(class, sha256);
    let object = call.app.object(&key).await?;
    let object = object.ok_or(ErrorCode::NotFound)?;
    Ok(exact_answer(
        object.bytes,
        &sha256,
        "application/octet-stream",
    ))
}

/// Parses the class of an object that publishers may write and read; `None` for the classes that
/// belong to the service.
fn parse_writable_class(class: &str) -> Option<Class> {
    match class.parse() {
        Ok(class @ (Class::Bundles | Class::Policies)) => Some(class),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_are_read_to_the_byte() {
        let hash = Digest::of(b"abc");
        let empty = Digest::of(b"");
        for (pack, count) in [
            (String::new(), Some(0)),
            (format!("{hash} 3\nabc"), Some(1)),
            (format!("{empty} 0\n"), Some(1)),
            (format!("{hash} 3\nabc{empty} 0\n{hash} 3\nabc"), Some(3)),
            (format!("{hash} 3\nabc\n"), None),
            (format!("{hash} 3\nab"), None),
            (format!("{hash} 3"), None),
            (format!("{hash} 03\nabc"), None),
            (format!("{hash} +3\nabc"), None),
            (format!("{hash} \nabc"), None),
            (format!("{hash}  3\nabc"), None),
            (format!("{hash} 18446744073709551616\nabc"), None),
            (format!("{hash} 18446744073709551615\nabc"), None),
            (format!("{} 3\nabc", hash.to_string().to_uppercase()), None),
            (format!("{} 3\nabc", &hash.to_string()[1..]), None),
            (format!("{hash} 3\r\nabc"), None),
            ("x".repeat(200), None),
        ] {
            let read = parse_pack(&Bytes::from(pack.clone()));
            assert_eq!(read.map(|objects| objects.len()), count, "{pack}");
        }
    }
}
