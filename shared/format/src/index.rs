//! `vault.index/2`: the texts by which the skills of a release are searched, in objects of about 2
//! MiB.
//!
//! An index object does not name the release that uses it. If its skills do not change in the next
//! release, the object keeps its hash and is not uploaded again.

use crate::catalog::Catalog;
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::name::{ActionName, AgentId, SkillName};
use crate::root::VaultId;
use crate::text::quoted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of the member `schema`.
pub const SCHEMA: &str = "vault.index/2";
/// Size of an index object at which the writer starts the next one, in bytes.
pub const CUT_BYTES: usize = 2 * 1024 * 1024;
/// Largest index object that a reader accepts, in bytes; no stored object may be larger.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The search texts of one skill.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct IndexEntry {
    /// Name of the skill in the vault.
    pub name: SkillName,
    /// SHA-256 of the skill's bundle, from whose SKILL.md these texts are taken.
    pub bundle_hash: Digest,
    /// The description from the frontmatter of SKILL.md.
    pub description: String,
    /// Tags from the frontmatter; empty if none are stated.
    pub tags: Vec<String>,
    /// Categories from the frontmatter; empty if none are stated.
    pub categories: Vec<String>,
    /// The situations in which an agent should use the skill; empty if not stated.
    pub when_to_use: String,
    /// Agents that the skill is meant for; empty means any.
    pub agents: Vec<AgentId>,
    /// Names of the actions (declared programs) that the skill offers.
    pub actions: Vec<ActionName>,
}

#[derive(Deserialize, Serialize)]
struct Object {
    schema: String,
    vault_id: VaultId,
    skills: Vec<IndexEntry>,
}

/// A reason why bytes are not an index object of this vault.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The object has more than 4 MiB.
    #[error("the index has {0} bytes; {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// The bytes are not JSON of an index's shape.
    #[error("the index cannot be read: {0}")]
    Json(#[from] JsonError),
    /// The schema has another name or number.
    #[error("the schema is {}, not `{SCHEMA}`", quoted(.0))]
    Schema(String),
    /// The object names another vault than the reader asked about.
    #[error("the index is of another vault")]
    VaultId,
    /// The names are out of order or repeated.
    #[error("the index is not sorted by name at `{0}`")]
    Order(SkillName),
}

impl IndexError {
    /// Machine-readable class of the error: always `index_schema`.
    pub const fn error_code(&self) -> &'static str {
        "index_schema"
    }
}

/// Writes the objects for these entries, sorted by name. A later entry of the same name replaces an
/// earlier one. Without entries there are no objects.
pub fn build_objects(
    vault_id: &VaultId,
    entries: impl IntoIterator<Item = IndexEntry>,
) -> Vec<Vec<u8>> {
    let sorted: BTreeMap<SkillName, IndexEntry> = entries
        .into_iter()
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    let object = |skills| {
        json::to_bytes(&Object {
            schema: SCHEMA.to_owned(),
            vault_id: *vault_id,
            skills,
        })
    };
    let frame = object(Vec::new()).len();
    let mut objects = Vec::new();
    let (mut part, mut size) = (Vec::new(), frame);
    for entry in sorted.into_values() {
        // Add one byte for the comma. The first entry has none, so a part may end one byte earlier
        // than necessary.
        let length = json::to_bytes(&entry).len() + 1;
        // An entry larger than the limit gets an object of its own instead of an empty one before
        // it.
        if size + length > CUT_BYTES && !part.is_empty() {
            objects.push(object(std::mem::take(&mut part)));
            size = frame;
        }
        size += length;
        part.push(entry);
    }
    if !part.is_empty() {
        objects.push(object(part));
    }
    objects
}

/// Tells whether the index that a catalog names is built from exactly these entries. A signer uses
/// it to reject an index that does not fit the skills.
pub fn is_built_from(catalog: &Catalog, entries: impl IntoIterator<Item = IndexEntry>) -> bool {
    let objects = build_objects(&catalog.vault_id, entries);
    let built = objects
        .iter()
        .map(|object| (Digest::of(object), object.len() as u64));
    let named = catalog.index.iter();
    built.eq(named.map(|object| (object.bundle_hash, object.size)))
}

/// Reads one object of this vault. Fails unless the entries are in strictly rising order of their
/// names.
pub fn parse_object(bytes: &[u8], vault_id: &VaultId) -> Result<Vec<IndexEntry>, IndexError> {
    if bytes.len() > MAX_BYTES {
        return Err(IndexError::TooLarge(bytes.len()));
    }
    let object: Object = json::parse(bytes)?;
    if object.schema != SCHEMA {
        return Err(IndexError::Schema(object.schema));
    }
    // The object's hash is signed in a catalog, but a publisher could name the index of another
    // vault.
    if object.vault_id != *vault_id {
        return Err(IndexError::VaultId);
    }
    match object
        .skills
        .windows(2)
        .find(|pair| pair[0].name >= pair[1].name)
    {
        Some(pair) => Err(IndexError::Order(pair[1].name.clone())),
        None => Ok(object.skills),
    }
}

/// Tells whether the objects together hold exactly these skills in this order, which is the order
/// of the catalog.
pub fn covers_skills<'a>(
    parts: &'a [Vec<IndexEntry>],
    skills: impl IntoIterator<Item = (&'a SkillName, &'a Digest)>,
) -> bool {
    parts
        .iter()
        .flatten()
        .map(|entry| (&entry.name, &entry.bundle_hash))
        .eq(skills)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VAULT: &str = "vlt_42lxzqowomyghk6kpyjb2x6ywz";

    fn vault() -> VaultId {
        VAULT.parse().unwrap()
    }

    fn entry(name: &str, description: &str) -> IndexEntry {
        IndexEntry {
            name: name.parse().unwrap(),
            bundle_hash: Digest::of(name.as_bytes()),
            description: description.to_owned(),
            tags: vec!["a".to_owned(), "b".to_owned()],
            categories: Vec::new(),
            when_to_use: String::new(),
            agents: vec!["codex".parse().unwrap()],
            actions: vec!["check".parse().unwrap()],
        }
    }

    #[test]
    fn entries_come_back_sorted_and_equal() {
        let objects = build_objects(
            &vault(),
            [entry("b", "2"), entry("a", "1"), entry("b", "3")],
        );
        assert_eq!(objects.len(), 1);
        let read = parse_object(&objects[0], &vault()).unwrap();
        assert_eq!(read, [entry("a", "1"), entry("b", "3")]);
        assert!(covers_skills(
            std::slice::from_ref(&read),
            read.iter().map(|entry| (&entry.name, &entry.bundle_hash))
        ));
        assert!(!covers_skills(
            &[read[..1].to_vec()],
            read.iter().map(|entry| (&entry.name, &entry.bundle_hash))
        ));
        assert!(build_objects(&vault(), []).is_empty());
    }

    #[test]
    fn objects_are_cut_at_two_mebibytes_in_name_order() {
        let text = "x".repeat(60_000);
        let entries: Vec<_> = (0..100)
            .map(|n| entry(&format!("s{n:03}"), &text))
            .collect();
        let objects = build_objects(&vault(), entries.clone());
        assert_eq!(objects.len(), 3);
        assert!(objects.iter().all(|object| object.len() <= CUT_BYTES));
        assert!(
            objects[0].len() + 61_000 > CUT_BYTES,
            "a part is as full as it can be"
        );
        let parts: Vec<_> = objects
            .iter()
            .map(|object| parse_object(object, &vault()).unwrap())
            .collect();
        assert_eq!(parts.concat(), entries);
        let mut longer = entries;
        longer.push(entry("z", "new"));
        assert_eq!(
            build_objects(&vault(), longer)[..2],
            objects[..2],
            "earlier parts keep their bytes"
        );
    }

    #[test]
    fn a_part_may_be_exactly_full() {
        let one =
            |length| build_objects(&vault(), [entry("a", &"x".repeat(length)), entry("b", "")]);
        let spare = CUT_BYTES - one(0)[0].len();
        // The writer counts a comma for the first entry, too.
        assert_eq!(one(spare - 1).len(), 1);
        assert_eq!(one(spare + 1).len(), 2);
    }

    #[test]
    fn an_object_of_another_shape_is_refused() {
        let good = String::from_utf8(
            build_objects(&vault(), [entry("a", "1"), entry("b", "2")]).remove(0),
        )
        .unwrap();
        let cases = [
            good.replace("vault.index/2", "vault.index/3"),
            good.replace(VAULT, "vlt_42lxzqowomyghk6kpyjb2x6ywy"),
            good.replace("\"name\":\"b\"", "\"name\":\"a\""),
            good.replace("\"name\":\"a\"", "\"name\":\"c\""),
            good.replace("\"name\":\"a\"", "\"name\":\"A\""),
            good.replace("[\"codex\"]", "[\"Codex\"]"),
            good.replace("[\"check\"]", "[\"list\"]"),
            good.replace("[\"a\",\"b\"]", "null"),
            good.replace("\"when_to_use\":\"\",", ""),
            format!("{good}{{}}"),
        ];
        for text in cases {
            assert_ne!(text, good);
            assert_eq!(
                parse_object(text.as_bytes(), &vault())
                    .unwrap_err()
                    .error_code(),
                "index_schema",
                "{text}"
            );
        }
        assert!(matches!(
            parse_object(&vec![b' '; MAX_BYTES + 1], &vault()),
            Err(IndexError::TooLarge(_))
        ));
    }

    proptest! {
        #[test]
        fn any_texts_survive(texts in proptest::collection::btree_map("[a-z0-9]{1,8}", (".{0,40}", proptest::collection::vec(".{0,9}", 0..4)), 0..9)) {
            let entries: Vec<_> = texts.iter().filter(|(name, _)| name.parse::<SkillName>().is_ok()).map(|(name, (text, tags))| IndexEntry {
                tags: tags.clone(), when_to_use: text.clone(), ..entry(name, text)
            }).collect();
            let objects = build_objects(&vault(), entries.clone());
            let parts: Vec<_> = objects.iter().map(|object| parse_object(object, &vault()).unwrap()).collect();
            prop_assert_eq!(parts.concat(), entries);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            prop_assert!(parse_object(&bytes, &vault()).is_err());
        }
    }
}
