//! Reads the test vectors and makes values of our types out of them.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;
use serde_json::value::RawValue;
use vault_format::bundle;
use vault_format::bundle::EncodedPart;
use vault_format::catalog::{
    CatalogError, CatalogOutcome, CatalogReader, CountedCatalog, LastCatalog, ReaderKind,
    SignedCatalog, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::manifest::ManifestTrust;
use vault_format::name::Slug;
use vault_format::root::{RootChain, RootList, RootState, SkillPlace};

pub fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors"))
}

pub fn bytes(name: &str) -> Vec<u8> {
    let path = folder().join("formats").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn json(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

/// Names of the exact files that begin so.
pub fn file_names(prefix: &str) -> Vec<String> {
    let list = json("files.json");
    let names = list["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["file"].as_str().unwrap().to_owned());
    let names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    assert!(!names.is_empty(), "{prefix}");
    names
}

pub fn secret(name: &str) -> SecretKey {
    let seed = unhex(json("keys.json")[name]["seed_hex"].as_str().unwrap());
    SecretKey::from_seed(seed.try_into().unwrap())
}

pub fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// A member of a case's own context, else of the default one.
pub fn member<'a>(case: &'a Value, default: &'a Value, name: &str) -> &'a Value {
    case["context"].get(name).unwrap_or(&default[name])
}

/// The bytes of a case: changed ones, or those of its file.
pub fn case_bytes(case: &Value) -> Vec<u8> {
    use base64::Engine as _;
    if let Some(text) = case["bytes"].as_str() {
        text.as_bytes().to_vec()
    } else if let Some(text) = case["bytes_base64"].as_str() {
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap()
    } else {
        bytes(case["file"].as_str().unwrap())
    }
}

/// The reader's own state: a chain by names of `roots.json`.
pub fn state(names: &Value) -> RootState {
    static ROOTS: LazyLock<HashMap<String, Box<RawValue>>> =
        LazyLock::new(|| serde_json::from_slice(&bytes("roots.json")).unwrap());
    let named = |name: &Value| ROOTS[name.as_str().unwrap()].get();
    let envelopes: Vec<&str> = names.as_array().unwrap().iter().map(named).collect();
    let list: RootList = serde_json::from_str(&format!("[{}]", envelopes.join(","))).unwrap();
    RootState::new(RootChain::verify(&list).unwrap(), BTreeSet::new())
}

/// After all rotations: every publisher's manifest counts where a catalog lists it.
pub fn newest() -> RootState {
    state(&serde_json::json!(["1", "2", "3", "4"]))
}

pub const fn listed(state: &RootState) -> ManifestTrust<'_> {
    ManifestTrust {
        state,
        place: SkillPlace::Listed,
    }
}

pub const fn owned(state: &RootState) -> ManifestTrust<'_> {
    ManifestTrust {
        state,
        place: SkillPlace::Own { taken_over: true },
    }
}

/// What follows from a catalog in the context of a case.
pub fn judge_case(file: &[u8], case: &Value, default: &Value) -> Result<Judged, CatalogError> {
    let text = |name: &str| member(case, default, name).as_str();
    let roots = member(case, default, "roots");
    let own = (!roots.is_null()).then(|| state(roots));
    let last = text("stored").map(|name| {
        let bytes = bytes(name);
        let file = SignedCatalog::parse(&bytes).unwrap();
        let catalog = file.read_counted(&file.payload_sha256()).unwrap();
        let signers = vec![catalog.public_key];
        LastCatalog::read_stored(&bytes, &file.payload_sha256(), signers).unwrap()
    });
    let slug: Slug = text("slug").unwrap().parse().unwrap();
    let reader = CatalogReader {
        side: if text("side") == Some("service") {
            ReaderKind::Service
        } else {
            ReaderKind::Device
        },
        base: text("base").unwrap(),
        slug: &slug,
        now: text("now").unwrap().parse().unwrap(),
        latest_seen_at: text("latest_seen_at").map(|text| text.parse().unwrap()),
        own: own.as_ref(),
        expected: None,
        last: last.as_ref(),
        accept_fork: false,
    };
    match judge_catalog(file, &reader).outcome? {
        CatalogOutcome::Release(release) => Ok(Judged::Release(Box::new(
            release.settle_versions(|_| true)?,
        ))),
        CatalogOutcome::Equal { .. } => Ok(Judged::Equal),
        CatalogOutcome::RootsOnly => panic!("no case shows roots alone"),
    }
}

pub enum Judged {
    Release(Box<CountedCatalog>),
    Equal,
}

/// Makes the bytes of a file by the rule in `parts.json`.
pub fn by_rule(rule: &Value) -> Vec<u8> {
    let size = usize::try_from(rule["size"].as_u64().unwrap()).unwrap();
    match rule["rule"].as_str().unwrap() {
        "counter-be32" => (0_u32..).flat_map(u32::to_be_bytes).take(size).collect(),
        "repeat" => vec![rule["byte"].as_str().unwrap().as_bytes()[0]; size],
        other => panic!("unknown rule {other}"),
    }
}

/// Cuts a file into part objects, by the words of the format and not by our own encoder.
pub fn cut(bytes: &[u8]) -> Vec<EncodedPart> {
    use base64::Engine as _;
    let part = |chunk: &[u8]| {
        let content = base64::engine::general_purpose::STANDARD.encode(chunk);
        let bytes = format!(r#"{{"schema":"vault.part/1","content":"{content}"}}"#).into_bytes();
        EncodedPart {
            hash: Digest::of(&bytes),
            bytes,
        }
    };
    bytes.chunks(bundle::PART_BYTES).map(part).collect()
}

/// All part objects that the vectors know of.
pub fn parts() -> &'static HashMap<Digest, Vec<u8>> {
    static PARTS: LazyLock<HashMap<Digest, Vec<u8>>> = LazyLock::new(make_parts);
    &PARTS
}

fn make_parts() -> HashMap<Digest, Vec<u8>> {
    let vectors = json("parts.json");
    let mut parts = HashMap::new();
    for case in vectors["cases"].as_array().unwrap() {
        for rule in case["rules"].as_array().unwrap() {
            parts.extend(
                cut(&by_rule(rule))
                    .into_iter()
                    .map(|part| (part.hash, part.bytes)),
            );
        }
    }
    for part in vectors["small_parts"].as_array().unwrap() {
        let bytes = part["bytes"].as_str().unwrap().as_bytes().to_vec();
        parts.insert(
            part["bundle_hash"].as_str().unwrap().parse().unwrap(),
            bytes,
        );
    }
    parts
}
