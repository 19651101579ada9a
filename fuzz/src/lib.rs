//! Shared parts of the fuzz targets: the open test keys of the vectors, so that a mutated vector is
//! still signed if the mutation left the signed part alone, and a vault of these keys.

use std::collections::BTreeSet;

use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::manifest::ManifestTrust;
use vault_format::root::{KeyEntry, KeyName, RootChain, RootEdit, RootState, SkillPlace};
use vault_format::time::Timestamp;

/// Time at which the targets read: shortly after the releases of the vectors.
pub const NOW: Timestamp = Timestamp::from_unix(1_795_226_410);

/// Returns a test key of the vectors. It is derived from its name, so anyone can compute it.
pub fn secret(name: &str) -> SecretKey {
    SecretKey::from_seed(*Digest::of(format!("vault test {name}").as_bytes()).as_bytes())
}

/// Returns an entry of a root document for a test key.
pub fn entry(name: &str) -> KeyEntry {
    let public_key = secret(name).public();
    KeyEntry {
        public_key,
        name: KeyName::default_for(&public_key),
    }
}

/// Returns a chain of one version: `recovery` is the root key, `release 0` and `release 1` are the
/// publishers.
pub fn chain() -> RootChain {
    let mut edit = RootEdit::begin_first(Timestamp::from_unix(1_795_000_000));
    edit.add_root_key(entry("recovery")).expect("a new key");
    edit.add_publisher(entry("release 0")).expect("a new key");
    edit.add_publisher(entry("release 1")).expect("a new key");
    edit.sign(&[&secret("recovery")]).expect("a root version")
}

/// Returns the state of a reader that knows this chain and nothing else.
pub fn known(chain: RootChain) -> RootState {
    RootState::new(chain, BTreeSet::new())
}

/// Returns the trust in manifests that a catalog lists.
pub const fn listed(state: &RootState) -> ManifestTrust<'_> {
    ManifestTrust {
        state,
        place: SkillPlace::Listed,
    }
}
