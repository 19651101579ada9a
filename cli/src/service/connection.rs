//! The service and vault that this library is connected to, as `vault cloud connect` recorded them.
//!
//! It lies in the vault (`connection.json`) and holds no secret; tokens lie in the user's configuration folder.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vault_library::Vault;
use vault_skill::{json::to_bytes, name::Slug};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    service::{Address, Base, OwnerClient},
};

const FILE: &str = "connection.json";

/// A connected vault.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The service.
    pub base: Base,
    /// The vault on it.
    pub slug: Slug,
}

#[derive(Deserialize, Serialize)]
struct Stored {
    base: String,
    slug: Slug,
}

impl Connection {
    /// The connection of this vault. Fails with exit 2 where there is none.
    pub fn load(context: &Context) -> Result<Self, Failure> {
        Self::find(context)?.ok_or_else(|| {
            Failure::new(
                ErrorCode::NotConnected,
                "this vault is not connected to a service",
            )
            .hint("vault cloud connect <url>")
        })
    }

    /// The connection of this vault, when there is one.
    pub fn find(context: &Context) -> Result<Option<Self>, Failure> {
        let path = path(context)?;
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io("reading", path, &error)),
        };
        let damaged = || {
            Failure::new(
                ErrorCode::ConnectionDamaged,
                format!("{} is damaged", path.display()),
            )
            .hint("vault cloud connect <url> writes it anew")
        };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        let address: Address = stored.base.parse().map_err(|_| damaged())?;
        Ok(Some(Self {
            base: address.base,
            slug: stored.slug,
        }))
    }

    /// Makes this the connection of the vault, in one step.
    pub fn save(&self, vault: &Vault) -> Result<(), Failure> {
        let stored = Stored {
            base: self.base.to_string(),
            slug: self.slug.clone(),
        };
        Ok(vault.replace_file(FILE, &to_bytes(&stored))?)
    }

    /// The owner's client. Fails with exit 4 when nobody signed in.
    pub fn owner(&self, context: &Context) -> Result<OwnerClient, Failure> {
        OwnerClient::open(context, &self.base, self.slug.as_str())
    }

    /// The address under which machines link to the vault.
    pub fn address(&self) -> String {
        self.base.at(&format!("/v/{}", self.slug))
    }
}

fn path(context: &Context) -> Result<PathBuf, Failure> {
    Ok(context.paths()?.root.join(FILE))
}
