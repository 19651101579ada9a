//! `/console/{slug}/export.jsonl`: everything that the service stores about a vault except its
//! skills, as JSON lines. The owner's machines already have the skills. Only the service has the
//! members, the machines, and the record of what was published, requested and done.
//!
//! An answer is bounded in lines and bytes, because a function on AWS can answer with at most 6 MB.
//! Its last line has the URL of the next part, so a program that follows these URLs gets
//! everything.

use axum::response::Response;
use serde_json::{Value, json};
use vault_store::StoreError;
use vault_store::records::{MAX_KEY_BYTES, Record};

use super::audit::file_download;
use super::guard::ConsolePage;
use crate::model::namespace::Namespace;
use crate::model::{audit, client, device, draft, release, user};
use crate::spending::count_export;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;

/// Maximum number of lines of one part.
const MAX_LINES: usize = 5_000;
/// Maximum size of one part without its last line, in bytes.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// Number of records that are read from the store at once.
const RECORDS_PER_LIST: usize = 500;

/// Returns the sections of the export in order: the `kind` of their lines, and the partition of
/// their records. No section contains a secret: codes, tokens and sessions are not exported.
fn export_sections(namespace: &Namespace) -> [(&'static str, String); 7] {
    let (id, slug) = (&namespace.id, &namespace.slug);
    [
        ("person", user::users_partition(id)),
        ("app", client::connections_partition(id)),
        ("machine", device::devices_partition(slug)),
        ("release", release::releases_partition(id)),
        ("draft", draft::drafts_partition(id)),
        ("ended_draft", draft::ended_partition(id)),
        ("log", audit::audit_partition(Some(id))),
    ]
}

/// Position at which a part begins: a section, and the key after which it continues there.
#[derive(Debug, Eq, PartialEq)]
struct ExportCursor {
    /// Index into [`export_sections`].
    section: usize,
    after: Option<String>,
}

impl ExportCursor {
    /// Parses the parameter `after`: the number of a section, a dot, and a key.
    fn parse_after(text: &str) -> Option<Self> {
        let (section, key) = text.split_once('.')?;
        // The store would report a malformed key as an error of the service.
        let is_key = key.len() <= MAX_KEY_BYTES && !key.chars().any(char::is_control);
        Some(Self {
            section: section.parse().ok().filter(|_| is_key)?,
            after: Some(key.to_owned()).filter(|key| !key.is_empty()),
        })
    }
}

pub(super) async fn export_part(page: ConsolePage) -> Result<Response, ErrorPage> {
    count_export(page.app())?;
    let mut place = match page.query.value("after") {
        None => ExportCursor {
            section: 0,
            after: None,
        },
        Some(text) => ExportCursor::parse_after(text).ok_or(ErrorPage::FormMalformed)?,
    };
    let mut text = String::new();
    let mut lines = 0;
    // The line about the vault is only at the beginning of the first part.
    if place.section == 0 && place.after.is_none() {
        append_line(&mut text, "vault", &describe_vault(&page.namespace));
        lines += 1;
    }
    let sections = export_sections(&page.namespace);
    while let Some((kind, partition)) = sections.get(place.section) {
        // Checked before each read, so a part exceeds the maximum by at most one read.
        if lines >= MAX_LINES || text.len() >= MAX_BYTES {
            let after = place.after.as_deref().unwrap_or_default();
            let after = format!("{}.{after}", place.section);
            let next = with_query(&page.url("/export.jsonl"), &[("after", &after)]);
            text.push_str(&json!({ "next": next }).to_string());
            text.push('\n');
            break;
        }
        let records = page
            .app()
            .records
            .list_page(partition, "", place.after.as_deref(), RECORDS_PER_LIST)
            .await?;
        let mut taken = 0;
        for record in &records {
            let document = read_document(record)?;
            if is_own(&page.namespace, kind, &document) {
                append_line(&mut text, kind, &document);
            }
            taken += 1;
            // Also checked between the records of one read: it has hundreds, which can be large.
            if text.len() >= MAX_BYTES {
                break;
            }
        }
        lines += taken;
        // There may be more after a full read, and there is more after one that was cut off.
        let is_open = taken < records.len() || records.len() == RECORDS_PER_LIST;
        let last = taken.checked_sub(1).and_then(|at| records.get(at));
        place = match last.filter(|_| is_open) {
            Some(last) => ExportCursor {
                after: Some(last.key.key.clone()),
                ..place
            },
            None => ExportCursor {
                section: place.section + 1,
                after: None,
            },
        };
    }
    Ok(file_download(
        &page,
        "export.jsonl",
        "application/jsonl",
        text,
    ))
}

fn append_line(text: &mut String, kind: &str, document: &Value) {
    text.push_str(&json!({ "kind": kind, "value": document }).to_string());
    text.push('\n');
}

/// Whether a document belongs to this vault. Machines are stored under the slug, which may have had
/// another namespace, so the id in their records is compared.
fn is_own(namespace: &Namespace, kind: &str, document: &Value) -> bool {
    kind != "machine" || document["namespace_id"] == json!(namespace.id)
}

fn read_document(record: &Record) -> Result<Value, StoreError> {
    record.read()
}

/// Describes the vault, for the first line of an export.
fn describe_vault(namespace: &Namespace) -> Value {
    let current = namespace.current.as_ref();
    json!({
        "slug": namespace.slug,
        "namespace_id": namespace.id,
        "kind": namespace.kind,
        "created_at": namespace.created_at,
        "vault_id": namespace.pin.vault_pin().map(|pin| pin.vault_id),
        "release": current.map(|current| current.release),
        "catalog_sha256": current.map(|current| current.sha256),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_section_and_a_key() {
        let place = |section, after: Option<&str>| {
            let after = after.map(str::to_owned);
            Some(ExportCursor { section, after })
        };
        for (text, read) in [
            ("0.", place(0, None)),
            ("6.01KD.x", place(6, Some("01KD.x"))),
            ("99.", place(99, None)),
            ("", None),
            ("x.y", None),
            ("1", None),
            ("1.a\u{0}", None),
        ] {
            assert_eq!(ExportCursor::parse_after(text), read, "{text:?}");
        }
        assert_eq!(
            ExportCursor::parse_after(&format!("1.{}", "x".repeat(513))),
            None
        );
    }
}
