//! Makes vaults, skills and catalogs for the tests, as an owner's machine would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use vault_format::bundle::{EncodedBundle, File, encode};
use vault_format::catalog;
use vault_format::catalog::{
    Catalog, CatalogError, CatalogOutcome, CatalogReader, CountedCatalog, LastCatalog, ReaderKind,
    ReleaseRef, SignedCatalog, SkillEntry, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::keys::{SecretKey, Signer};
use vault_format::manifest::{
    FileEntry, Gate, Manifest, ManifestExpectation, ManifestTrust, Mode, SignedManifest,
};
use vault_format::name::Slug;
use vault_format::provenance::Provenance;
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit, RootState, SkillPlace, VaultId};
use vault_format::time::Timestamp;

pub const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
/// The root key of the vault.
pub const ROOT: u8 = 200;

pub fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

pub fn key_entry(number: u8) -> KeyEntry {
    let public_key = key(number).public();
    KeyEntry {
        public_key,
        name: KeyName::default_for(&public_key),
    }
}

/// A vault whose publishers hold the keys 0 and 1.
pub fn state() -> &'static RootState {
    static STATE: LazyLock<RootState> = LazyLock::new(|| {
        let mut edit = RootEdit::begin_first(NOW);
        edit.add_root_key(key_entry(ROOT)).unwrap();
        edit.add_publisher(key_entry(0)).unwrap();
        edit.add_publisher(key_entry(1)).unwrap();
        known(edit.sign(&[&key(ROOT)]).unwrap())
    });
    &STATE
}

pub fn known(chain: RootChain) -> RootState {
    RootState::new(chain, BTreeSet::new())
}

/// The chain after one more version, signed by the root key.
pub fn next(chain: &RootChain, change: impl FnOnce(&mut RootEdit<'_>)) -> RootChain {
    let mut edit = RootEdit::begin_after(chain, NOW);
    change(&mut edit);
    edit.sign(&[&key(ROOT)]).unwrap()
}

/// The chain, continued until not even the smallest version fits any more.
pub fn filled(chain: &RootChain) -> RootChain {
    let mut full = chain.clone();
    loop {
        let mut edit = RootEdit::begin_after(&full, NOW);
        match edit.use_reserve().sign(&[&key(ROOT)]) {
            Ok(longer) => full = longer,
            Err(_) => return full,
        }
    }
}

pub fn trust() -> ManifestTrust<'static> {
    ManifestTrust {
        state: state(),
        place: SkillPlace::Listed,
    }
}

pub fn vault_id() -> VaultId {
    state().vault_id()
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

/// An empty catalog under the newest version of a chain.
pub fn catalog_of(chain: &RootChain, release: u64, signer: u8) -> Catalog {
    Catalog {
        schema: catalog::Schema,
        vault_id: chain.vault_id(),
        slug: slug(),
        audience: vec!["https://vault.example/v/acme/".to_owned()],
        release,
        issued_at: NOW,
        expires_at: NOW.plus_days(90),
        public_key: key(signer).public(),
        root_version: chain.version(),
        root_sha256: *chain.newest().payload_sha256(),
        previous: (release > 1).then(|| stored(release - 1)),
        skills: Vec::new(),
        index: Vec::new(),
        policy: None,
        profiles: Vec::new(),
        withdrawn: Vec::new(),
    }
}

pub fn catalog(release: u64, signer: u8) -> Catalog {
    catalog_of(state().chain(), release, signer)
}

/// The release before a catalog that nobody has made, with a hash that follows from its number.
pub fn stored(release: u64) -> ReleaseRef {
    ReleaseRef {
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

/// The file of a catalog, signed by these keys under a chain.
pub fn sign_under(chain: &RootChain, catalog: &Catalog, signers: &[u8]) -> Vec<u8> {
    let keys: Vec<SecretKey> = signers.iter().map(|number| key(*number)).collect();
    let signers: Vec<&dyn Signer> = keys.iter().map(|key| key as &dyn Signer).collect();
    let file = SignedCatalog::sign(catalog, chain, &signers).unwrap();
    file.to_bytes()
}

pub fn sign(catalog: &Catalog, signer: u8) -> Vec<u8> {
    sign_under(state().chain(), catalog, &[signer])
}

/// What a reader keeps of a file that counted.
pub fn last(bytes: &[u8], signers: &[u8]) -> LastCatalog {
    let payload_sha256 = SignedCatalog::parse(bytes).unwrap().payload_sha256();
    let signers = signers.iter().map(|number| key(*number).public()).collect();
    LastCatalog::read_stored(bytes, &payload_sha256, signers).unwrap()
}

pub fn reader<'a>(
    side: ReaderKind,
    slug: &'a Slug,
    own: Option<&'a RootState>,
    last: Option<&'a LastCatalog>,
) -> CatalogReader<'a> {
    CatalogReader {
        side,
        base: "https://vault.example",
        slug,
        now: NOW,
        latest_seen_at: None,
        own,
        expected: None,
        last,
        accept_fork: false,
    }
}

/// A release that counts, or nothing new.
#[derive(Debug)]
pub enum Pulled {
    Release(Box<CountedCatalog>),
    Equal,
}

impl Pulled {
    pub fn release(self) -> CountedCatalog {
        match self {
            Self::Release(release) => *release,
            Self::Equal => panic!("no new release"),
        }
    }
}

fn judge(
    bytes: &[u8],
    side: ReaderKind,
    own: Option<&RootState>,
    last: Option<&LastCatalog>,
) -> Result<Pulled, CatalogError> {
    let slug = slug();
    match judge_catalog(bytes, &reader(side, &slug, own, last)).outcome? {
        CatalogOutcome::Release(release) => {
            let counted = release.settle_versions(|_| true)?;
            Ok(Pulled::Release(Box::new(counted)))
        }
        CatalogOutcome::Equal { .. } | CatalogOutcome::RootsOnly => Ok(Pulled::Equal),
    }
}

pub fn pull(bytes: &[u8], last: Option<&LastCatalog>) -> Result<Pulled, CatalogError> {
    judge(bytes, ReaderKind::Device, Some(state()), last)
}

pub fn push(bytes: &[u8], last: Option<&LastCatalog>) -> Result<Pulled, CatalogError> {
    judge(bytes, ReaderKind::Service, Some(state()), last)
}

/// A device that has no pin.
pub fn link(bytes: &[u8]) -> Result<Pulled, CatalogError> {
    judge(bytes, ReaderKind::Device, None, None)
}
