//! Resources: the files of each skill under `skill://<owner>/<name>/…`, the signed manifest beside
//! them, and folders.

use std::borrow::Cow;
use std::collections::BTreeSet;

use rmcp::ErrorData;
use rmcp::model::{
    DIRECTORY_MIME_TYPE, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
};
use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_format::manifest::{MAX_FILES, SKILL_MD};
use vault_format::name::SkillName;
use vault_policy::Reach;
use vault_shelf::{Entry, Loaded};

use crate::content::{
    MAX_ANSWER_BYTES, answer_bytes, file_contents, file_link, files_in_order, vault_meta,
};
use crate::cursor::{parse_cursor, write_cursor};
use crate::fault::{Fault, ToolError};
use crate::tools::Call;
use crate::uri::{self, FILES, MANIFEST, Target};

/// The largest number of resources on a page.
const PAGE: usize = 100;
/// The approximate limit of a page in bytes of JSON.
const PAGE_BYTES: usize = 1024 * 1024;

/// Returns the error for a cursor that no earlier answer contained.
pub fn foreign_cursor() -> ErrorData {
    ErrorData::invalid_params(
        "`params.cursor` is not from an earlier answer; leave it out to begin anew",
        Some(json!({ "member": "params.cursor" })),
    )
}

/// Parses the cursor of a request. Fails with -32602 for a text that no list returns as a cursor.
pub fn read_cursor(cursor: Option<String>) -> Result<Option<SkillName>, Fault> {
    let Some(text) = cursor else {
        return Ok(None);
    };
    let name = parse_cursor(&text).ok_or_else(|| Fault::Protocol(foreign_cursor()))?;
    Ok(Some(name))
}

/// Creates the error for a missing resource. It is the same for a resource that exists but that the
/// caller may not see.
pub fn not_found(uri: &str) -> Fault {
    Fault::Protocol(ErrorData::resource_not_found(
        "there is no such resource",
        Some(json!({ "uri": uri })),
    ))
}

/// Lists the SKILL.md of each skill, by name, page by page.
pub async fn list_resources(
    call: &Call<'_>,
    cursor: Option<String>,
) -> Result<ListResourcesResult, Fault> {
    let after = read_cursor(cursor)?;
    let visible = call.visible(Reach::List).await?;
    let mut resources = Vec::new();
    let mut size = 0;
    let mut last = None;
    let mut more = false;
    for entry in visible.entries_after(after.as_ref()) {
        // Estimate the size instead of serializing twice: 300 bytes for the frame, and escapes may
        // double a description.
        size += 300 + 2 * entry.texts.description.len();
        // A page has at least one item. Otherwise, a single long description would end the list.
        if resources.len() >= PAGE || (size > PAGE_BYTES && !resources.is_empty()) {
            more = true;
            break;
        }
        let texts = &entry.texts;
        resources.push(
            Resource::new(
                uri::file_uri(call.owner(), &texts.name, SKILL_MD),
                texts.name.as_str(),
            )
            .with_description(texts.description.as_str())
            .with_mime_type("text/markdown"),
        );
        last = Some(entry.name());
    }
    let next = last.filter(|_| more).map(write_cursor);
    let mut result = ListResourcesResult::with_all_items(resources);
    result.next_cursor = next;
    Ok(result)
}

/// Finds the skill that an address names and loads its files. Returns them with the owner's part of
/// the address.
async fn skill_at<'v>(
    call: &'v Call<'_>,
    visible: &'v crate::visible::Visible,
    id: &str,
    uri: &str,
) -> Result<(&'v str, &'v Entry, std::sync::Arc<Loaded>), Fault> {
    let found = visible.find_id(call.owner(), id);
    let (owner, entry) = found.ok_or_else(|| not_found(uri))?;
    Ok((owner, entry, call.load(entry).await?))
}

/// Reads a file of a skill, its signed manifest, or the generated list of its files.
pub async fn read_resource(call: &Call<'_>, uri: &str) -> Result<ReadResourceResult, Fault> {
    // Check the right before the address is parsed, so that a caller without it learns nothing from
    // the answer.
    call.may_read()?;
    let Some(Target::In(id, path)) = uri::parse_uri(call.owner(), uri) else {
        return Err(not_found(uri));
    };
    let visible = call.visible(Reach::Fetch).await?;
    let (_, entry, loaded) = skill_at(call, &visible, &id, uri).await?;
    let (bytes, digest) = if path == MANIFEST {
        let bytes = loaded.bundle.signed.as_bytes();
        (Cow::Borrowed(bytes), Digest::of(bytes))
    } else if let Some(file) = loaded.find_file(&path) {
        let entry = loaded.bundle.manifest.file(&path);
        let digest = entry.map_or_else(|| Digest::of(&file.bytes), |entry| entry.sha256);
        (Cow::Borrowed(file.bytes.as_slice()), digest)
    } else if path == FILES {
        // Check this after the files: a skill may have a file of this name, which takes precedence.
        let bytes = list_of_files(entry, &loaded).to_string().into_bytes();
        let digest = Digest::of(&bytes);
        (Cow::Owned(bytes), digest)
    } else {
        return Err(not_found(uri));
    };
    let is_list = path == FILES && loaded.find_file(&path).is_none();
    // The address of the generated list has no extension, but clients choose a parser by media
    // type, so take the type of a JSON file.
    let kind = if is_list { "list.json" } else { &path };
    let contents = file_contents(uri.to_owned(), kind, &bytes)
        .with_meta(vault_meta([("sha256", digest.to_string().into())]));
    if !fits_transports(&contents) {
        return Err(Fault::by_caller(
            ToolError::ResourceTooLarge,
            "the file is too large for every transport",
        )
        .with_member("uri", uri)
        .with_member("sha256", digest.to_string())
        .with_member("size", bytes.len()));
    }
    Ok(ReadResourceResult::new(vec![contents]))
}

/// Lists the files of a skill with size and digest.
fn list_of_files(entry: &Entry, loaded: &Loaded) -> Value {
    let files = files_in_order(loaded).map(|(file, _)| {
        json!({ "path": file.path, "size": file.size, "hash": format!("sha256:{}", file.sha256) })
    });
    json!({ "skill": entry.name(), "files": files.collect::<Vec<_>>() })
}

/// Tells whether an answer with these contents fits every transport.
fn fits_transports(contents: &ResourceContents) -> bool {
    /// Size that the envelope of the answer and the headers take at most, in bytes.
    const MAX_ENVELOPE_BYTES: usize = 4096;
    serde_json::to_vec(contents)
        .is_ok_and(|bytes| answer_bytes(&bytes) + MAX_ENVELOPE_BYTES <= MAX_ANSWER_BYTES)
}

/// Lists the direct children of a folder.
pub async fn list_directory(
    call: &Call<'_>,
    uri: &str,
    cursor: Option<String>,
) -> Result<ListResourcesResult, Fault> {
    let visible = call.visible(Reach::Fetch).await?;
    match uri::parse_uri(call.owner(), uri) {
        Some(Target::Owner) => owner_directory(call, cursor).await,
        Some(Target::In(id, path)) => {
            let (owner, entry, loaded) = skill_at(call, &visible, &id, uri).await?;
            skill_directory(owner, entry, &loaded, &path).ok_or_else(|| not_found(uri))
        }
        None => Err(not_found(uri)),
    }
}

async fn owner_directory(
    call: &Call<'_>,
    cursor: Option<String>,
) -> Result<ListResourcesResult, Fault> {
    let after = read_cursor(cursor)?;
    let visible = call.visible(Reach::List).await?;
    let names: Vec<&SkillName> = visible
        .entries_after(after.as_ref())
        .map(Entry::name)
        // Take one more name than a page has, to know whether there is a next page.
        .take(PAGE + 1)
        .collect();
    let page = names.get(..PAGE).unwrap_or(&names);
    let folders = page.iter().map(|name| {
        Resource::new(uri::folder_uri(call.owner(), name), name.as_str())
            .with_mime_type(DIRECTORY_MIME_TYPE)
    });
    let mut result = ListResourcesResult::with_all_items(folders.collect());
    if page.len() < names.len() {
        result.next_cursor = page.last().map(|last| write_cursor(last));
    }
    Ok(result)
}

/// Lists a folder of a skill, in one page: a skill has at most 1,024 files.
fn skill_directory(
    owner: &str,
    entry: &Entry,
    loaded: &Loaded,
    path: &str,
) -> Option<ListResourcesResult> {
    let name = entry.name();
    let path = path.trim_end_matches('/');
    let prefix = if path.is_empty() {
        String::new()
    } else {
        format!("{path}/")
    };
    let mut folders = BTreeSet::new();
    let mut children = Vec::new();
    for file in loaded.bundle.manifest.files.iter().take(MAX_FILES) {
        let Some(rest) = file.path.as_str().strip_prefix(&prefix) else {
            continue;
        };
        match rest.split_once('/') {
            Some((folder, _)) => {
                folders.insert(folder);
            }
            None => {
                let mut child = file_link(owner, name, file);
                rest.clone_into(&mut child.name);
                children.push(child);
            }
        }
    }
    let manifest = ".vault";
    if path.is_empty() {
        // The signed manifest is not among the skill's files, so its folder is added here.
        folders.insert(manifest);
    } else if path == manifest {
        children.push(manifest_link(owner, name, loaded));
    }
    let folders = folders.into_iter().map(|folder| {
        Resource::new(
            uri::file_uri(owner, name, &format!("{prefix}{folder}")),
            folder,
        )
        .with_mime_type(DIRECTORY_MIME_TYPE)
    });
    let all: Vec<Resource> = folders.chain(children).collect();
    (!all.is_empty()).then(|| ListResourcesResult::with_all_items(all))
}

/// Creates a link to the signed manifest.
fn manifest_link(owner: &str, name: &SkillName, loaded: &Loaded) -> Resource {
    let bytes = loaded.bundle.signed.as_bytes();
    Resource::new(uri::file_uri(owner, name, MANIFEST), "manifest.json")
        .with_mime_type("application/json")
        .with_size(bytes.len() as u64)
        .with_meta(vault_meta([(
            "sha256",
            Digest::of(bytes).to_string().into(),
        )]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_transport_carries_is_seen_before_it_leaves() {
        let blob = |bytes: usize| ResourceContents::blob("A".repeat(bytes), "skill://a/b/c");
        assert!(
            fits_transports(&blob(5_592_408)),
            "the largest file that a skill may have"
        );
        assert!(!fits_transports(&blob(5_900_000)));
        assert!(!fits_transports(&ResourceContents::text(
            "\"".repeat(4_000_000),
            "skill://a/b/c"
        )));
    }
}
