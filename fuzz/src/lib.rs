//! What the fuzz targets share: the open test keys of the vectors, so that a mutated vector is still signed where the
//! mutation left the signed part alone.

use vault_skill::hash::Digest;
use vault_skill::keys::{PublicKey, SecretKey};

/// A test key of the vectors, derived in the open.
pub fn secret(name: &str) -> SecretKey {
    SecretKey::from_seed(*Digest::of(format!("vault test {name}").as_bytes()).as_bytes())
}

/// The keys that sign the vectors' manifests.
pub fn signers() -> [PublicKey; 2] {
    ["release 0", "release 1"].map(|name| secret(name).public())
}
