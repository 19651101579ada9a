//! Where an installed skill comes from and whose key signed it.

use serde_json::{Value, json};
use vault_library::Origin;
use vault_skill::keys::PublicKey;

/// The origin as programs see it.
pub fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Local => "local".to_owned(),
        Origin::Linked(link) => format!("link:{link}"),
    }
}

/// The origin as people see it.
pub fn whose(origin: &Origin) -> String {
    match origin {
        Origin::Local => "this vault".to_owned(),
        Origin::Linked(link) => format!("linked vault {link}"),
    }
}

/// A key for programs.
pub fn signer(key: &PublicKey) -> Value {
    json!({ "key": key, "fingerprint": key.fingerprint() })
}
