//! The record of a link's last pull: `last-pull.json` in the link's part of the trust folder. It is
//! only displayed; no decision depends on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;

use crate::installed::linked_pins::{self, Link};
use crate::vault::{Vault, VaultError};

const RECORD: &str = "last-pull.json";

/// The end of a pull and its result.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct LastPull {
    /// Time at which the pull ended, by this machine's clock.
    pub at: Timestamp,
    /// Number of the release that the pull installed; `null` if the pull failed or the vault has no
    /// release.
    pub release: Option<u64>,
    /// Why the pull failed; `null` if it succeeded.
    pub error: Option<PullError>,
}

/// Why a pull failed, as the command reported it.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct PullError {
    /// Stable code of the error, for programs.
    pub code: String,
    /// Message for people. It may contain text from the service.
    pub message: String,
}

/// Records how a pull ended.
pub fn note_pull(vault: &Vault, link: &Link, pull: &LastPull) -> Result<(), VaultError> {
    Ok(linked_pins::trust_folder(vault, link.id()).write_record(RECORD, pull)?)
}

/// Returns how the last pull of a link ended; `None` before the first one.
pub fn last_pull(vault: &Vault, link: &Link) -> Result<Option<LastPull>, VaultError> {
    linked_pins::trust_folder(vault, link.id()).read_record(RECORD)
}
