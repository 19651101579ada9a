//! The limits of the port `Records`, and the checks of arguments that every adapter makes first.

use std::collections::HashSet;

use super::{Document, RecordKey, Write};
use crate::StoreError;

/// Maximum number of writes in one commit.
pub const MAX_WRITES: usize = 100;
/// Maximum number of keys in one [`super::Records::get_many`].
pub const MAX_KEYS: usize = 100;
/// Maximum number of records that one [`super::Records::list_page`] returns.
pub const MAX_PAGE: usize = 1000;
/// Maximum length of a partition or key, in bytes of UTF-8.
pub const MAX_KEY_BYTES: usize = 512;
/// Maximum size of a document, in bytes of JSON: 256 KiB.
pub const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Maximum total size of the documents in one commit, in bytes: 3 MiB. A DynamoDB transaction may
/// have 4 MB in total.
pub const MAX_COMMIT_BYTES: usize = 3 * 1024 * 1024;
/// Maximum length of a counter's name, in bytes.
pub const MAX_FIELD_BYTES: usize = 64;
/// Maximum absolute value of a counter, its step and its bounds: 2^53 - 1, the largest integer that
/// every JSON reader represents exactly.
pub const MAX_COUNT: i64 = (1 << 53) - 1;

/// Checks a commit against the rules of the port. Every adapter calls it first. Fails with
/// `Invalid`.
pub fn check_commit(writes: &[Write]) -> Result<(), StoreError> {
    if writes.len() > MAX_WRITES {
        return Err(StoreError::invalid(format!(
            "the commit has {} writes; the maximum is {MAX_WRITES}",
            writes.len()
        )));
    }
    let mut seen = HashSet::with_capacity(writes.len());
    let mut bytes = 0;
    for write in writes {
        write.key().check()?;
        // A DynamoDB transaction may contain each item only once.
        if !seen.insert(write.key()) {
            // The key is left out: it may contain an address of a person, and errors are logged.
            return Err(StoreError::invalid(format!(
                "the commit has two writes of one record in the partition {:?}",
                write.key().partition
            )));
        }
        match write {
            Write::Put { document, .. } => {
                Document::check(document.as_str())?;
                bytes += document.as_str().len();
            }
            Write::Count {
                field,
                by,
                min,
                max,
                ..
            } => check_count(field, *by, *min, *max)?,
            Write::Delete { .. } | Write::Check { .. } => {}
        }
    }
    if bytes > MAX_COMMIT_BYTES {
        return Err(StoreError::invalid(format!(
            "the documents of the commit have {bytes} bytes; the maximum is {MAX_COMMIT_BYTES}"
        )));
    }
    Ok(())
}

/// Checks the keys of [`super::Records::get_many`]. Every adapter calls it first. Fails with
/// `Invalid`.
pub fn check_get_many(keys: &[RecordKey]) -> Result<(), StoreError> {
    if keys.len() > MAX_KEYS {
        return Err(StoreError::invalid(format!(
            "the reading names {} keys; the maximum is {MAX_KEYS}",
            keys.len()
        )));
    }
    keys.iter().try_for_each(RecordKey::check)
}

/// Checks the arguments of [`super::Records::list_page`]. Every adapter calls it first. Fails with
/// `Invalid`.
pub fn check_list(
    partition: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<(), StoreError> {
    check_name(partition)?;
    for text in [prefix, after.unwrap_or_default()] {
        if !text.is_empty() {
            check_name(text)?;
        }
    }
    if limit == 0 || limit > MAX_PAGE {
        return Err(StoreError::invalid(format!(
            "the limit of the page is {limit}; it must be 1 to {MAX_PAGE} records"
        )));
    }
    Ok(())
}

/// Returns the smallest text that sorts after every text that begins with `prefix`, in the order of
/// UTF-8 bytes; `None` if there is none. For adapters whose store can only query ranges.
pub fn prefix_end(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        // The range of `char` skips the surrogates, as UTF-8 does.
        if let Some(next) = (last..=char::MAX).nth(1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

pub(super) fn check_name(text: &str) -> Result<(), StoreError> {
    if text.is_empty() || text.len() > MAX_KEY_BYTES {
        return Err(StoreError::invalid(format!(
            "the partition or key has {} bytes; it must have 1 to {MAX_KEY_BYTES}",
            text.len()
        )));
    }
    // Control characters would let one key look like another in logs, and PostgreSQL rejects NUL.
    if text.chars().any(char::is_control) {
        return Err(StoreError::invalid(
            "the partition or key has a control character; remove it",
        ));
    }
    Ok(())
}

fn check_count(field: &str, by: i64, min: i64, max: i64) -> Result<(), StoreError> {
    let plain = field
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if field.is_empty() || field.len() > MAX_FIELD_BYTES || !plain {
        return Err(StoreError::invalid(format!(
            "the counter {field:?} must have a name of 1 to {MAX_FIELD_BYTES} characters a-z, 0-9 and _"
        )));
    }
    let bounds = -MAX_COUNT..=MAX_COUNT;
    if min > max || [by, min, max].iter().any(|number| !bounds.contains(number)) {
        return Err(StoreError::invalid(format!(
            "the counter {field:?} has the step {by} and the bounds {min} to {max}; each must be within 2^53, and the lower bound not above the upper one"
        )));
    }
    Ok(())
}

/// Returns whether the JSON text contains an escaped NUL. An unescaped one is not valid JSON.
pub(super) fn has_nul(text: &str) -> bool {
    // Nearly every document returns here. Only a text that contains this sequence needs the exact
    // check for a preceding backslash.
    if !text.contains("\\u0000") {
        return false;
    }
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        if rest[at..].starts_with(b"\\u0000") {
            return true;
        }
        // Skip a backslash and the character that it escapes: `\\u0000` is a backslash followed by
        // five plain characters.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}
