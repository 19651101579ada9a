//! OAuth tokens on this machine, one file for each sign-in: `services/<service>/<vault>.json` in
//! the user's configuration folder, with mode 0600 in folders with mode 0700.
//!
//! The files are outside the vault's folder, so that copying or syncing a vault never includes
//! them.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use vault_store::clock::{Clock as _, SystemClock};
use zeroize::Zeroize;

use super::Base;
use crate::{context::Context, errors::Failure, text::shell_path};

/// The tokens that a service granted in one sign-in, as the token file stores them.
#[derive(Clone, Deserialize, Serialize)]
pub struct Tokens {
    /// The id under which this client is registered.
    pub client_id: String,
    /// The bearer token that is sent with every request.
    pub access_token: String,
    /// The expiry of the access token, in Unix seconds by this machine's clock.
    pub expires_at: i64,
    /// The refresh token, which is exchanged once for the next pair of tokens. Empty for an
    /// operator, whose sign-in cannot be refreshed.
    pub refresh_token: String,
    /// The granted scopes, separated by blanks, as reported by the service; empty if it reports
    /// none.
    pub scope: String,
    /// The address where tokens are refreshed. It has the same origin as the service.
    pub token_endpoint: String,
    /// The address where tokens are revoked, if the service has one.
    pub revocation_endpoint: Option<String>,
}

impl Tokens {
    /// Creates the tokens that a service has just granted.
    pub(super) fn from_grant(
        grant: vault_api::Tokens,
        client_id: String,
        token_endpoint: String,
        revocation_endpoint: Option<String>,
    ) -> Self {
        Self {
            client_id,
            access_token: grant.access_token,
            // The service's number is untrusted: a huge one would make an expired token look valid.
            expires_at: SystemClock.now().unix() + grant.expires_in.clamp(0, 86_400),
            refresh_token: grant.refresh_token.unwrap_or_default(),
            scope: grant.scope,
            token_endpoint,
            revocation_endpoint,
        }
    }

    /// Returns whether the token has the rights of an operator.
    pub fn is_operator(&self) -> bool {
        self.has_scope("operator")
    }

    /// Returns whether the token may write, as far as is known.
    pub fn may_write(&self) -> bool {
        // Without a list of scopes, the service granted what was asked for (RFC 6749 section 5.1).
        self.scope.is_empty() || self.has_scope("write")
    }

    fn has_scope(&self, scope: &str) -> bool {
        self.scope.split(' ').any(|word| word == scope)
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.access_token.zeroize();
        self.refresh_token.zeroize();
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("scope", &self.scope)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// The token file of one sign-in. It may not exist.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// The slug of a vault, or a name that begins with `@` and is therefore no slug: `@operator`,
    /// or `@new` while the user chooses the vault on the sign-in pages.
    name: String,
}

impl TokenFile {
    /// Returns the token file for the owner of a vault, named by its slug, or for the operator of a
    /// service (`@operator`, which is not a valid slug).
    pub fn for_service(context: &Context, base: &Base, name: &str) -> Result<Self, Failure> {
        let path = context
            .config_folder()?
            .join("services")
            .join(base.file_name())
            .join(format!("{name}.json"));
        let name = name.to_owned();
        Ok(Self { path, name })
    }

    /// Returns the name of the sign-in: the slug of a vault, or a name that begins with `@`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the command that signs in again at this service.
    pub fn sign_in_command(&self, base: &Base) -> String {
        if self.name.starts_with('@') {
            format!("vault operator --url {base} namespace list")
        } else {
            format!("vault cloud connect {base}/v/{}", self.name)
        }
    }

    /// Reads the tokens, or returns `None` if there are none. Fails if other users can read the
    /// file.
    pub fn read(&self) -> Result<Option<Tokens>, Failure> {
        let fail = |error: std::io::Error| Failure::io("reading", &self.path, &error);
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(fail)?,
        };
        let mode = file.metadata().map_err(fail)?.mode();
        // Reject a file that other users can access: its tokens may already be compromised.
        if mode & 0o077 != 0 {
            let path = self.path.display();
            return Err(fail!(TokenReadableByOthers, "others can read {path}")
                .hint(format!("chmod 600 {}", shell_path(path))));
        }
        // A damaged file counts as not signed in.
        Ok(serde_json::from_reader(std::io::BufReader::new(file)).ok())
    }

    /// Replaces the tokens atomically. The lock permits a fixed name for the temporary file, and
    /// [`TokenFile::lock`] removes one that a killed process left behind.
    pub fn write(&self, tokens: &Tokens, _lock: &File) -> Result<(), Failure> {
        let fail = |error: &std::io::Error| Failure::io("writing", &self.path, error);
        let mut text = serde_json::to_vec(tokens).map_err(|error| fail(&error.into()))?;
        let temporary = self.temporary_path();
        let written = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&temporary, &self.path))
            // The service has already invalidated the previous pair. If a power cut restored it,
            // its reuse would revoke the whole token family. Sync the folder to make the rename
            // durable.
            .and_then(|()| match self.path.parent() {
                Some(folder) => File::open(folder)?.sync_all(),
                None => Ok(()),
            });
        text.zeroize();
        written.map_err(|error| {
            let _ = std::fs::remove_file(&temporary);
            fail(&error)
        })
    }

    /// Removes the tokens, for example after they were revoked.
    pub fn remove(&self, _lock: &File) -> Result<(), Failure> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Failure::io("removing", &self.path, &error))
            }
            _ => Ok(()),
        }
    }

    fn temporary_path(&self) -> PathBuf {
        self.path.with_extension("new")
    }

    /// Locks the token file, so that no other process refreshes the same token. The lock ends when
    /// the returned file is dropped.
    pub fn lock(&self) -> Result<File, Failure> {
        let path = self.path.with_extension("lock");
        let fail = |error: std::io::Error| Failure::io("locking", &path, &error);
        if let Some(folder) = path.parent() {
            let mut private = DirBuilder::new();
            private
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(fail)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        file.lock().map_err(fail)?;
        // A killed process may have left its temporary file behind.
        match std::fs::remove_file(self.temporary_path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(fail(error)),
            _ => Ok(file),
        }
    }
}
