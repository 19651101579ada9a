//! Formats the origin of an installed skill: this vault, a linked vault (one whose releases this
//! machine installs) or a project.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{keys::PublicKey, root::KeyFingerprint};
use vault_library::Origin;

use crate::text::clean;

/// Formats the origin for JSON: `local`, `link:<id>` or `project:<path>`.
pub fn format_origin(origin: &Origin) -> String {
    match origin {
        Origin::Local => "local".to_owned(),
        Origin::Linked(link) => format!("link:{link}"),
        Origin::Project(path) => format!("project:{}", path.display()),
    }
}

/// Formats the origin for people. A linked vault is named by its id.
pub fn describe_owner(origin: &Origin) -> String {
    match origin {
        Origin::Local => "this vault".to_owned(),
        Origin::Linked(link) => format!("linked vault {link}"),
        Origin::Project(path) => format!("the project {}", clean(&path.display().to_string(), 400)),
    }
}

/// Formats the origin for people, with a linked vault's name on this machine. `qualified` is the
/// skill's qualified name, `<vault>/<skill>`, which has that name.
pub fn whose_skill(origin: &Origin, qualified: &str) -> String {
    match (origin, qualified.split_once('/')) {
        // The name is shorter than the id, and commands accept it.
        (Origin::Linked(_), Some((vault, _))) => format!("linked vault {vault}"),
        _ => describe_owner(origin),
    }
}

/// The key that signed a skill.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SigningKey {
    /// Public key (Ed25519): 43 characters of base64url.
    key: PublicKey,
    /// Fingerprint of the key: `pub:` and 8 groups of 4 characters.
    fingerprint: KeyFingerprint,
}

impl From<PublicKey> for SigningKey {
    fn from(key: PublicKey) -> Self {
        let fingerprint = KeyFingerprint::publisher(&key);
        Self { key, fingerprint }
    }
}
