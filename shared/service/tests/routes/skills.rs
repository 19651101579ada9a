//! Signed skills of one file, as small as skills are, and the index over them.

use std::collections::BTreeMap;

use vault_format::bundle::{self, EncodedPart, File};
use vault_format::catalog::{ObjectEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::index::{self, IndexEntry};
use vault_format::keys::SecretKey;
use vault_format::manifest::{FileEntry, Gate, Manifest, Mode, SignedManifest};
use vault_format::provenance::Provenance;
use vault_format::root::VaultId;
use vault_format::time::Timestamp;
use vault_gate::derived;
use vault_gate::document::Document;
use vault_service::model::namespace::Namespace;
use vault_store::objects::Class;

use crate::support::World;

/// A skill of version 1, and what a release says about it.
pub(crate) struct PlainSkill {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entry: SkillEntry,
    pub(crate) texts: IndexEntry,
}

/// A skill that `key` has signed at this time.
pub(crate) fn plain_skill(
    vault_id: &VaultId,
    key: &SecretKey,
    name: &str,
    at: Timestamp,
) -> PlainSkill {
    changed_skill(vault_id, key, name, at, |_| {})
}

/// The same skill with a manifest that was changed before it was signed.
pub(crate) fn changed_skill(
    vault_id: &VaultId,
    key: &SecretKey,
    name: &str,
    at: Timestamp,
    change: impl FnOnce(&mut Manifest),
) -> PlainSkill {
    let mut manifest = manifest_of(vault_id, name, at);
    change(&mut manifest);
    skill_of(manifest, key, None).0
}

/// A skill with a second file, which has this text, and the parts of its bundle.
pub(crate) fn skill_with_text(
    vault_id: &VaultId,
    key: &SecretKey,
    (name, text): (&str, &str),
    at: Timestamp,
) -> (PlainSkill, Vec<EncodedPart>) {
    skill_of(manifest_of(vault_id, name, at), key, Some(text))
}

/// A manifest of version 1 whose list of files is empty.
fn manifest_of(vault_id: &VaultId, name: &str, at: Timestamp) -> Manifest {
    Manifest {
        vault_id: *vault_id,
        name: name.parse().unwrap(),
        frontmatter_name: None,
        version: 1,
        signed_at: at,
        files: Vec::new(),
        actions: BTreeMap::new(),
        agents: Vec::new(),
        rendered_from: None,
        provenance: Provenance {
            identifier: "local:made".parse().unwrap(),
            revision: None,
            fetched_at: at,
        },
        gate: Gate {
            strict: true,
            rules: "structure/1".to_owned(),
            flags: Vec::new(),
            waivers: Vec::new(),
        },
    }
}

/// Signs a manifest for a skill with a `SKILL.md`, and with this text as a second file.
fn skill_of(
    mut manifest: Manifest,
    key: &SecretKey,
    text: Option<&str>,
) -> (PlainSkill, Vec<EncodedPart>) {
    let name = &manifest.name;
    let document = format!("---\nname: {name}\ndescription: One of many.\n---\n");
    let contents = [("SKILL.md", Some(document.as_str())), ("notes.md", text)];
    let file = |(path, content): (&str, Option<&str>)| {
        Some(File {
            path: path.parse().unwrap(),
            mode: Mode::Plain,
            bytes: content?.as_bytes().to_vec(),
        })
    };
    let files: Vec<File> = contents.into_iter().filter_map(file).collect();
    let entry = |file: &File| FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    };
    manifest.files = files.iter().map(entry).collect();
    let document = Document::parse_known(document.as_bytes(), &manifest.name).unwrap();
    let signed = SignedManifest::sign(&manifest, key).unwrap();
    let encoded = bundle::encode(&signed, &manifest, &files).unwrap();
    let skill = PlainSkill {
        entry: SkillEntry {
            name: manifest.name.clone(),
            version: manifest.version,
            bundle_hash: encoded.hash,
            size: encoded.bytes.len() as u64,
        },
        texts: derived::index_entry(&manifest, Some(document.frontmatter()), encoded.hash),
        bytes: encoded.bytes,
    };
    (skill, encoded.parts)
}

impl World {
    /// Puts the objects of an index and answers how a catalog names them.
    pub(crate) async fn put_index(
        &self,
        namespace: &Namespace,
        vault_id: &VaultId,
        texts: impl IntoIterator<Item = IndexEntry>,
    ) -> Vec<ObjectEntry> {
        let mut named = Vec::new();
        for object in index::build_objects(vault_id, texts) {
            let size = object.len() as u64;
            let bundle_hash = self.put_object(namespace, Class::Bundles, object).await;
            named.push(ObjectEntry { bundle_hash, size });
        }
        named
    }
}
