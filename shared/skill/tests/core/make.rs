//! Makes vaults, skills and catalogs for the tests, as an owner's machine would.

use std::collections::BTreeMap;

use vault_skill::bundle::{EncodedBundle, File, encode};
use vault_skill::catalog::{
    self, Accepted, Catalog, CatalogError, Expectation, Side, SignedCatalog, SkillEntry, Stored,
    Trust, accept,
};
use vault_skill::dsse::Envelope;
use vault_skill::hash::Digest;
use vault_skill::keys::{PublicKey, SecretKey};
use vault_skill::manifest::{FileEntry, Gate, Manifest, ManifestExpectation, Mode, SignedManifest};
use vault_skill::name::{Slug, VaultId};
use vault_skill::provenance::Provenance;
use vault_skill::rotation::{self, Reason, Rotation};
use vault_skill::time::Timestamp;

pub const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
pub const RECOVERY: u8 = 200;

pub fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

pub fn vault_id() -> VaultId {
    VaultId::from_parts(1_800_000_000_000, 7)
}

pub fn slug() -> Slug {
    "acme".parse().unwrap()
}

pub fn file(path: &str, bytes: impl Into<Vec<u8>>) -> File {
    File {
        path: path.parse().unwrap(),
        mode: Mode::Plain,
        bytes: bytes.into(),
    }
}

/// A manifest of the files, in the order given.
pub fn manifest(name: &str, files: &[File]) -> Manifest {
    let entry = |file: &File| FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    };
    Manifest {
        vault_id: vault_id(),
        name: name.parse().unwrap(),
        frontmatter_name: None,
        version: 1,
        signed_at: NOW,
        files: files.iter().map(entry).collect(),
        actions: BTreeMap::new(),
        agents: Vec::new(),
        rendered_from: None,
        provenance: Provenance {
            identifier: "local:made".parse().unwrap(),
            revision: None,
            fetched_at: NOW,
        },
        gate: Gate {
            strict: true,
            rules: "structure/1".to_owned(),
            flags: Vec::new(),
            waivers: Vec::new(),
        },
    }
}

pub fn expectation(manifest: &Manifest) -> ManifestExpectation<'_> {
    ManifestExpectation {
        vault_id: vault_id(),
        name: &manifest.name,
        version: Some(manifest.version),
        stored_version: None,
    }
}

/// Signs and encodes a skill with key 0; the files are sorted here.
pub fn skill(name: &str, mut files: Vec<File>) -> (EncodedBundle, Manifest, Vec<File>) {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let manifest = manifest(name, &files);
    let signed = SignedManifest::sign(&manifest, &key(0)).unwrap();
    (encode(&signed, &manifest, &files).unwrap(), manifest, files)
}

pub fn catalog(release: u64, signer: u8) -> Catalog {
    Catalog {
        schema: catalog::Schema,
        vault_id: vault_id(),
        slug: slug(),
        audience: vec!["https://vault.example/v/acme/".to_owned()],
        release,
        issued_at: NOW,
        expires_at: NOW.plus_days(90),
        public_key: key(signer).public(),
        recovery_key_sha256: Some(key(RECOVERY).public().key_id()),
        previous: (release > 1).then(|| stored(release - 1)),
        skills: Vec::new(),
        index: Vec::new(),
        policy: None,
        profiles: Vec::new(),
        withdrawn: Vec::new(),
    }
}

/// A release that nobody has seen, with a hash that follows from its number.
pub fn stored(release: u64) -> Stored {
    Stored {
        release,
        payload_sha256: Digest::of(&release.to_be_bytes()),
    }
}

pub fn entry(name: &str) -> SkillEntry {
    SkillEntry {
        name: name.parse().unwrap(),
        version: 1,
        bundle_hash: Digest::of(name.as_bytes()),
        size: 1_747,
    }
}

pub fn trust(keys: &[u8], sequence: u64, release: u64) -> Trust {
    let mut keys: Vec<PublicKey> = keys.iter().map(|number| key(*number).public()).collect();
    Trust {
        vault_id: Some(vault_id()),
        public_key: keys.pop(),
        former_keys: keys,
        rotation_sequence: sequence,
        recovery_key_sha256: Some(key(RECOVERY).public().key_id()),
        stored: Some(stored(release)),
    }
}

pub fn sign(catalog: &Catalog, rotations: &[Envelope], signer: u8) -> Vec<u8> {
    SignedCatalog::sign(catalog, rotations, &key(signer)).unwrap()
}

pub fn expected(side: Side, slug: &Slug) -> Expectation<'_> {
    Expectation {
        side,
        base: "https://vault.example",
        slug,
        now: NOW,
        latest_seen_at: None,
        history: &|release| Some(stored(release).payload_sha256),
    }
}

pub fn pull(bytes: &[u8], trust: &Trust) -> Result<Accepted, CatalogError> {
    accept(bytes, trust, &expected(Side::Client, &slug()))
}

pub fn push(bytes: &[u8], trust: &Trust) -> Result<Accepted, CatalogError> {
    accept(bytes, trust, &expected(Side::Service, &slug()))
}

pub fn rotate(sequence: u64, from: u8, to: u8, reason: Reason, effective_release: u64) -> Envelope {
    let statement = Rotation {
        schema: rotation::Schema,
        vault_id: vault_id(),
        sequence,
        from: key(from).public(),
        to: key(to).public(),
        reason,
        effective_release,
        issued_at: NOW,
        recovery_key: (reason != Reason::Rotation).then(|| key(RECOVERY).public()),
        new_recovery_key_sha256: (reason == Reason::Recovery)
            .then(|| key(RECOVERY + 1).public().key_id()),
    };
    let first = if reason == Reason::Rotation {
        from
    } else {
        RECOVERY
    };
    statement.sign(&[&key(first), &key(to)]).unwrap()
}
