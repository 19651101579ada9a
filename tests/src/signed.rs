//! Creates what owners sign, valid and invalid, for a [`Host`] to serve: root versions (versions of
//! a vault's list of keys), skills and catalogs. Each key is named by a number, which is its seed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use serde_json::{Value, json};
use vault_format::bundle;
use vault_format::bundle::{EncodedBundle, File};
use vault_format::catalog;
use vault_format::catalog::{Catalog, CatalogError, ReleaseRef, SignedCatalog, SkillEntry};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::keys::{SecretKey, Signer};
use vault_format::manifest;
use vault_format::manifest::{FileEntry, Gate, Manifest, Mode, SignedManifest};
use vault_format::name::Slug;
use vault_format::provenance::Provenance;
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit, VaultId};
use vault_format::time::Timestamp;
use vault_store::clock::{Clock as _, SystemClock};

use crate::host::{Host, SLUG};

/// The number of the recovery key, which alone may sign root versions. Publishers have lower
/// numbers.
pub const RECOVERY: u8 = 200;
/// The time in every root version. It is fixed, so that each run makes the same bytes.
const ROOT_TIME: Timestamp = Timestamp::from_unix(1_795_000_000);

/// Returns the secret key with this number; the same number gives the same key.
pub fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

/// Returns the first root version of the vault of these tests: [`RECOVERY`] may change its keys,
/// and key 0 publishes.
pub fn first_root() -> RootChain {
    static CHAIN: LazyLock<RootChain> = LazyLock::new(|| vault_of(RECOVERY, 0));
    CHAIN.clone()
}

/// Creates the first root version of a vault in which the key `root` may change the keys and
/// `publisher` publishes.
pub fn vault_of(root: u8, publisher: u8) -> RootChain {
    let mut edit = RootEdit::begin_first(ROOT_TIME);
    edit.add_root_key(named(root))
        .and_then(|edit| edit.add_publisher(named(publisher)))
        .and_then(|edit| edit.sign(&[&key(root)]))
        .expect("a first root version")
}

/// Returns the chain with one more root version, which has the changes that `change` makes and is
/// signed by the keys `signers`.
pub fn next_root(
    chain: &RootChain,
    signers: &[u8],
    change: impl FnOnce(&mut RootEdit<'_>),
) -> RootChain {
    let mut edit = RootEdit::begin_after(chain, ROOT_TIME);
    change(&mut edit);
    let keys: Vec<SecretKey> = signers.iter().map(|number| key(*number)).collect();
    let signers: Vec<&dyn Signer> = keys.iter().map(|key| key as &dyn Signer).collect();
    edit.sign(&signers).expect("a good root version")
}

/// Returns the chain with a root version in which key `to` replaces the publisher `from`, without
/// revoking it.
pub fn rotated(chain: &RootChain, from: u8, to: u8) -> RootChain {
    next_root(chain, &[RECOVERY], |edit| {
        edit.replace(&key(from).public(), named(to))
            .expect("a publisher and a new key");
    })
}

/// Returns the chain with a root version that revokes the publisher `stolen` and adds the publisher
/// `new`.
pub fn revoked(chain: &RootChain, stolen: u8, new: u8) -> RootChain {
    next_root(chain, &[RECOVERY], |edit| {
        edit.add_publisher(named(new)).expect("a new key");
        edit.revoke(&key(stolen).public());
    })
}

/// Returns a test key as the entry of a root version.
pub fn named(number: u8) -> KeyEntry {
    let public_key = key(number).public();
    KeyEntry {
        public_key,
        name: KeyName::default_for(&public_key),
    }
}

/// Returns the signed envelope of each root version, the oldest first.
pub fn envelopes(chain: &RootChain) -> Vec<Envelope> {
    let versions = chain.versions().iter();
    versions.map(|version| version.envelope().clone()).collect()
}

/// Returns the id of the vault whose first root version is [`first_root`].
pub fn vault_id() -> VaultId {
    first_root().vault_id()
}

/// Returns the system time, which the tested binary reads too.
pub fn now() -> Timestamp {
    SystemClock.now()
}

/// Creates a file of a skill that is not executable.
pub fn file(path: &str, bytes: impl Into<Vec<u8>>) -> File {
    File {
        path: path.parse().expect("a path that a skill may have"),
        mode: Mode::Plain,
        bytes: bytes.into(),
    }
}

/// Creates an unsigned manifest of these files, in this order, for the vault of these tests.
pub fn manifest(name: &str, version: u64, files: &[File]) -> Manifest {
    let entry = |file: &File| FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    };
    Manifest {
        vault_id: vault_id(),
        name: name.parse().expect("the name of a skill"),
        frontmatter_name: None,
        version,
        signed_at: now(),
        files: files.iter().map(entry).collect(),
        actions: BTreeMap::new(),
        agents: Vec::new(),
        rendered_from: None,
        provenance: Provenance {
            identifier: "local:made".parse().expect("a provenance"),
            revision: None,
            fetched_at: now(),
        },
        gate: Gate {
            strict: true,
            rules: "structure/1".to_owned(),
            flags: Vec::new(),
            waivers: Vec::new(),
        },
    }
}

/// Creates the bundle of a skill with a SKILL.md and the files `more`, signed by the key `signer`.
pub fn skill_by(signer: u8, name: &str, version: u64, more: &[(&str, &[u8])]) -> EncodedBundle {
    let mut files = vec![file(
        "SKILL.md",
        crate::skills::skill_md(name, &format!("This is version {version}.")),
    )];
    files.extend(more.iter().map(|(path, bytes)| file(path, *bytes)));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    sign_skill(&manifest(name, version, &files), &files, signer)
}

/// Creates the bundle of a manifest, signed by the key `signer`, and these files.
pub fn sign_skill(manifest: &Manifest, files: &[File], signer: u8) -> EncodedBundle {
    let signed = SignedManifest::sign(manifest, &key(signer)).expect("a good manifest");
    bundle::encode(&signed, manifest, files).expect("a bundle")
}

/// Creates the bundle of a skill of the vault with this chain, signed by the key `signer`. The
/// skill has only a SKILL.md.
pub fn skill_of(chain: &RootChain, signer: u8, name: &str, version: u64) -> EncodedBundle {
    let text = format!("This is version {version}.");
    let files = [file("SKILL.md", crate::skills::skill_md(name, &text))];
    let manifest = Manifest {
        vault_id: chain.vault_id(),
        ..manifest(name, version, &files)
    };
    let signed = SignedManifest::sign(&manifest, &key(signer)).expect("a good manifest");
    bundle::encode(&signed, &manifest, &files).expect("a bundle")
}

/// Like [`skill_by`], signed by key 0, the publisher of [`first_root`].
pub fn skill(name: &str, version: u64, more: &[(&str, &[u8])]) -> EncodedBundle {
    skill_by(0, name, version, more)
}

/// Creates a bundle from JSON that no rule has checked, for tests of invalid ones: the manifest and
/// the files as given, signed by key 0.
pub fn bundle_of(manifest: &Value, files: &Value) -> EncodedBundle {
    let payload = canonical(manifest);
    let envelope = Envelope::sign(manifest::PAYLOAD_TYPE, payload.as_bytes(), &[&key(0)]);
    let envelope = String::from_utf8(envelope.to_bytes()).expect("an envelope is JSON");
    let files = canonical(files);
    let bytes = format!(r#"{{"schema":"vault.bundle/1","manifest":{envelope},"files":{files}}}"#)
        .into_bytes();
    EncodedBundle {
        hash: Digest::of(&bytes),
        bytes,
        parts: Vec::new(),
    }
}

/// Formats compact JSON with the members in the order of manifests and bundles, because a [`Value`]
/// sorts them alphabetically.
fn canonical(value: &Value) -> String {
    const ORDER: &[&str] = &[
        "schema",
        "vault_id",
        "name",
        "frontmatter_name",
        "version",
        "signed_at",
        "path",
        "encoding",
        "content",
        "parts",
        "bundle_hash",
        "size",
        "sha256",
        "mode",
        "files",
        "actions",
        "command",
        "args",
        "cwd",
        "agents",
        "rendered_from",
        "provenance",
        "identifier",
        "kind",
        "revision",
        "fetched_at",
        "gate",
        "strict",
        "rules",
        "flags",
        "waivers",
    ];
    match value {
        Value::Object(members) => {
            let rank = |name: &str| ORDER.iter().position(|known| *known == name);
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| rank(name).unwrap_or(ORDER.len()));
            let members: Vec<String> = members
                .into_iter()
                .map(|(name, value)| format!("{}:{}", json!(name), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

/// Returns the catalog entry of a skill with this bundle.
pub fn entry(name: &str, version: u64, bundle: &EncodedBundle) -> SkillEntry {
    SkillEntry {
        name: name.parse().expect("the name of a skill"),
        version,
        bundle_hash: bundle.hash,
        size: bundle.bytes.len() as u64,
    }
}

/// The owner of the vault that one host serves, who signs its catalogs.
#[derive(Clone, Debug)]
pub struct Owner {
    base: String,
    /// The root versions under which this owner signs.
    pub chain: RootChain,
}

impl Owner {
    /// Creates the owner of the vault at this host, under the first root version.
    pub fn at(host: &Host) -> Self {
        Self {
            base: host.url.clone(),
            chain: first_root(),
        }
    }

    /// Returns an owner of the same address who signs under other root versions.
    #[must_use]
    pub fn under(&self, chain: &RootChain) -> Self {
        Self {
            chain: chain.clone(),
            ..self.clone()
        }
    }

    /// Creates a valid catalog of these skills, unsigned. `signer` is the publisher that it names.
    pub fn catalog(&self, release: u64, signer: u8, skills: &[SkillEntry]) -> Catalog {
        let slug: Slug = SLUG.parse().expect("a slug");
        Catalog {
            schema: catalog::Schema,
            vault_id: self.chain.vault_id(),
            audience: vec![format!("{}/v/{slug}/", self.base)],
            slug,
            release,
            issued_at: now(),
            expires_at: now().plus_days(90),
            public_key: key(signer).public(),
            root_version: self.chain.version(),
            root_sha256: *self.chain.newest().payload_sha256(),
            // Names a release that no device of these tests has, so no device can find a
            // contradiction.
            previous: (release > 1).then(|| ReleaseRef {
                release: 1,
                payload_sha256: Digest::of(&release.to_be_bytes()),
            }),
            skills: skills.to_vec(),
            index: Vec::new(),
            policy: None,
            profiles: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    /// Returns the catalog of [`Self::catalog`] as a signed catalog file.
    pub fn signed(&self, release: u64, signer: u8, skills: &[SkillEntry]) -> Vec<u8> {
        self.sign(&self.catalog(release, signer, skills), signer)
    }

    /// Signs a catalog with the key `signer`, and returns the catalog file, which also has the
    /// owner's root versions.
    pub fn sign(&self, catalog: &Catalog, signer: u8) -> Vec<u8> {
        let payload = vault_format::json::to_bytes(catalog);
        sign_anything(&payload, &envelopes(&self.chain), signer)
    }
}

/// Returns the range of the list of root versions in the bytes of a catalog file, brackets
/// included.
pub fn roots_range(file: &[u8]) -> Range<usize> {
    let text = std::str::from_utf8(file).expect("a catalog file");
    let start = text.find("\"roots\":").expect("root versions") + 8;
    let end = text.find(",\"payloadType\":\"application/vnd.vault.catalog");
    start..end.expect("the catalog's own envelope")
}

/// Returns the envelopes of the root versions in a catalog file.
pub fn roots_of(file: &[u8]) -> Vec<Envelope> {
    let file: Value = serde_json::from_slice(file).expect("a catalog file");
    let roots = file["roots"].as_array().expect("root versions").iter();
    roots
        .map(|root| Envelope::parse(root.to_string().as_bytes()).expect("an envelope"))
        .collect()
}

/// Parses the catalog in a file without verifying its signatures.
pub fn read_catalog(bytes: &[u8]) -> Result<Catalog, CatalogError> {
    let file = SignedCatalog::parse(bytes)?;
    file.read_counted(&file.payload_sha256())
}

/// Creates a catalog file with any bytes as its signed payload and any root versions, which an
/// owner's own tool refuses.
pub fn sign_anything(payload: &[u8], roots: &[Envelope], signer: u8) -> Vec<u8> {
    let envelope = Envelope::sign(catalog::PAYLOAD_TYPE, payload, &[&key(signer)]);
    file_of(&envelope, roots, signer)
}

/// Creates the catalog file of a signed envelope. `named` is the key in its member `public_key`,
/// which need not be the signer.
pub fn file_of(envelope: &Envelope, roots: &[Envelope], named: u8) -> Vec<u8> {
    let text =
        |envelope: &Envelope| String::from_utf8(envelope.to_bytes()).expect("an envelope is JSON");
    let roots: Vec<String> = roots.iter().map(text).collect();
    format!(
        "{{\"public_key\":\"{}\",\"roots\":[{}],{}",
        key(named).public(),
        roots.join(","),
        &text(envelope)[1..]
    )
    .into_bytes()
}
