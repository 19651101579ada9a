//! The place of a secret key: a file in the trust folder (the user's configuration folder), or the
//! user's SSH agent. Also the options with which commands choose it for a new key.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use vault_format::keys::PublicKey;
use vault_library::{Vault, VaultError, keys::KeyError, vault::ssh_agent};

use crate::{context::Context, errors::Failure};

/// The options of a command that makes a key.
#[derive(Args, Debug)]
pub struct NewKey {
    /// Protect the new key file with a passphrase
    #[arg(long)]
    passphrase: bool,
    /// Sign with a key that the SSH agent holds instead of a key file
    #[arg(
        long,
        value_name = "ssh-agent:FINGERPRINT",
        conflicts_with = "passphrase"
    )]
    signer: Option<AgentFingerprint>,
}

/// The fingerprint of a key in the SSH agent, as `ssh-add -l` prints it.
#[derive(Clone, Debug)]
struct AgentFingerprint(String);

impl FromStr for AgentFingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fingerprint = text.strip_prefix("ssh-agent:");
        fingerprint
            // `SHA256:` and 43 characters: base64 of 32 bytes, without padding.
            .filter(|fingerprint| fingerprint.starts_with("SHA256:") && fingerprint.len() == 50)
            .map(|fingerprint| Self(fingerprint.to_owned()))
            .ok_or_else(|| {
                "write ssh-agent: and a fingerprint from ssh-add -l: ssh-agent:SHA256:47DEQ…"
                    .to_owned()
            })
    }
}

impl NewKey {
    /// Prepares the creation of a key: asks for the passphrase with `--passphrase`, and with
    /// `--signer` returns the public key that the SSH agent holds.
    pub fn prepare(&self, context: &Context) -> Result<Option<PublicKey>, Failure> {
        if self.passphrase {
            let passphrases = context.key_passphrases()?;
            passphrases.protect_with(passphrases.choose_passphrase(&context.ui, "the new key")?);
        }
        let Some(AgentFingerprint(fingerprint)) = &self.signer else {
            return Ok(None);
        };
        let socket = context.vault_paths()?.ssh_agent;
        // Check now that the agent has the key, before the vault's list of keys names it.
        let key = ssh_agent::find_agent_key(socket.as_deref(), fingerprint);
        Ok(Some(key.map_err(KeyError::from)?))
    }
}

/// Where this machine keeps a secret key: in a file, or in an SSH agent.
pub enum KeyPlace {
    /// A key file, and whether a passphrase encrypts it.
    File(PathBuf, bool),
    /// The SSH agent. The fingerprint is the one that `ssh-add -l` prints.
    Agent(String),
}

impl KeyPlace {
    /// Finds the place of a key of this machine.
    pub fn for_key(vault: &Vault, key: &PublicKey) -> Result<Self, Failure> {
        let keys = vault.keys();
        let find_place = || {
            Ok::<_, VaultError>(if keys.is_in_agent(key)? {
                Self::Agent(ssh_agent::fingerprint(key))
            } else {
                Self::File(keys.path(key), keys.is_encrypted(key)?)
            })
        };
        Ok(find_place()?)
    }

    /// Returns the path of the key file, if the key is in one.
    pub const fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path, _) => Some(path),
            Self::Agent(_) => None,
        }
    }

    /// Returns the fingerprint that `ssh-add -l` prints, if the key is in the SSH agent.
    pub fn in_agent(&self) -> Option<&str> {
        match self {
            Self::File(..) => None,
            Self::Agent(fingerprint) => Some(fingerprint),
        }
    }
}

impl std::fmt::Display for KeyPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, true) => write!(out, "{}  (with a passphrase)", path.display()),
            Self::File(path, false) => write!(out, "{}  (without a passphrase)", path.display()),
            Self::Agent(fingerprint) => write!(out, "in the SSH agent, {fingerprint}"),
        }
    }
}
