//! The service and vault that this library is connected to, as recorded by `vault cloud connect`.
//!
//! The record is the file `connection.json` in the vault and contains no secrets. Tokens are in the
//! user's configuration folder.

use serde::{Deserialize, Serialize};
use vault_library::Vault;
use vault_skill::{json::to_bytes, name::Slug};

use crate::{
    context::Context,
    errors::Failure,
    service::{Base, OwnerClient},
};

const FILE: &str = "connection.json";

/// A connected vault.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Connection {
    /// The service.
    pub base: Base,
    /// The vault on it.
    pub slug: Slug,
}

impl Connection {
    /// Loads the connection of this vault. Fails with exit 2 if the vault is not connected.
    pub fn load(context: &Context) -> Result<Self, Failure> {
        Self::find(context)?.ok_or_else(|| {
            fail!(NotConnected, "this vault is not connected to a service")
                .hint("vault cloud connect <url>")
        })
    }

    /// Loads the connection of this vault, or returns `None` if it is not connected.
    pub fn find(context: &Context) -> Result<Option<Self>, Failure> {
        let path = context.paths()?.root.join(FILE);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| Failure::io("reading", &path, &error))?,
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|_| {
            fail!(ConnectionDamaged, "{} is damaged", path.display())
                .hint("vault cloud connect <url> writes it anew")
        })
    }

    /// Stores the connection in the vault, atomically.
    pub fn save(&self, vault: &Vault) -> Result<(), Failure> {
        Ok(vault.replace_file(FILE, &to_bytes(self))?)
    }

    /// Creates the owner's client. Fails with exit 4 if the owner is not signed in.
    pub fn owner(&self, context: &Context) -> Result<OwnerClient, Failure> {
        OwnerClient::open(context, &self.base, self.slug.as_str())
    }

    /// The address that other machines link to.
    pub fn address(&self) -> String {
        self.base.at(&format!("/v/{}", self.slug))
    }
}
