//! The service and vault that this library is connected to, as recorded by `vault cloud connect`.
//!
//! The record is the file `connection.json`. It is in the vault's part of the trust folder (the
//! user's configuration folder, outside the vault), because anyone who can change it could make the
//! vault be published elsewhere. It contains no secrets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::{json::to_bytes, name::Slug};
use vault_library::Vault;

use crate::{
    context::Context,
    errors::Failure,
    service::{Base, OwnerClient},
};

const FILE: &str = "connection.json";

/// A connected vault.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Connection {
    /// Base address of the service.
    pub base: Base,
    /// Slug of the vault at the service.
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
        let Some(vault) = context.existing_vault()? else {
            return Ok(None);
        };
        let Some(bytes) = vault.read_private(FILE)? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|_| {
            fail!(ConnectionDamaged, "the record of the connection is damaged")
                .hint("vault cloud connect <url> writes it again")
        })
    }

    /// Stores the connection of the vault, atomically.
    pub fn save(&self, vault: &Vault) -> Result<(), Failure> {
        Ok(vault.write_private(FILE, &to_bytes(self))?)
    }

    /// Creates the owner's client. Fails with exit 4 if the owner is not signed in.
    pub fn owner_client(&self, context: &Context) -> Result<OwnerClient, Failure> {
        OwnerClient::open(context, &self.base, self.slug.as_str())
    }

    /// Returns the address that other machines link to.
    pub fn address(&self) -> String {
        self.base.address_of(&format!("/v/{}", self.slug))
    }
}
