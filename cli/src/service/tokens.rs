//! Tokens on this machine: one file for each (service, vault), 0600 in a 0700 folder, outside the vault's own folder.
//!
//! A copied or synced vault never carries them.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::Base;
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
};

/// What signing in gave.
#[derive(Clone, Deserialize, Serialize)]
pub struct Tokens {
    /// The client that we registered as.
    pub client_id: String,
    /// Sent with every request.
    pub access_token: String,
    /// When the access token ends, in Unix seconds by this machine's clock.
    pub expires_at: i64,
    /// Exchanged once for the next pair.
    pub refresh_token: String,
    /// What was granted, as the service said it.
    pub scope: String,
    /// Where tokens are exchanged; of the same origin as the service.
    pub token_endpoint: String,
    /// Where tokens are revoked, when the service says so.
    pub revocation_endpoint: Option<String>,
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

/// The file of one (service, name) pair, there or not.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// The file for a vault's owner, by its slug, or for the operator of a service (`@operator`, which is no slug).
    pub fn of(context: &Context, base: &Base, name: &str) -> Result<Self, Failure> {
        let path = context
            .config_folder()?
            .join("tokens")
            .join(base.file_name())
            .join(format!("{name}.json"));
        Ok(Self { path })
    }

    /// The tokens, when somebody signed in here. Fails when others can read the file.
    pub fn read(&self) -> Result<Option<Tokens>, Failure> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io("reading", &self.path, &error)),
        };
        let mode = file
            .metadata()
            .map_err(|error| Failure::io("reading", &self.path, &error))?
            .mode();
        if mode & 0o077 != 0 {
            return Err(Failure::new(
                ErrorCode::TokenReadableByOthers,
                format!("others can read {}", self.path.display()),
            )
            .hint(format!("chmod 600 {}", self.path.display())));
        }
        // A file that was cut or changed by hand means: sign in again.
        Ok(serde_json::from_reader(std::io::BufReader::new(file)).ok())
    }

    /// Puts the tokens in place, in one step. With the lock in hand the file written aside has one name: what a killed
    /// process left of it is removed when the lock is next taken.
    pub fn write(&self, tokens: &Tokens, _lock: &File) -> Result<(), Failure> {
        let fail = |error: &std::io::Error| Failure::io("writing", &self.path, error);
        let mut text = serde_json::to_vec(tokens).map_err(|error| fail(&error.into()))?;
        let aside = self.aside();
        let written = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&aside)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&aside, &self.path))
            // The pair before is spent: after a power cut it would be the only one, and end the whole family.
            .and_then(|()| match self.path.parent() {
                Some(folder) => File::open(folder)?.sync_all(),
                None => Ok(()),
            });
        text.zeroize();
        written.map_err(|error| {
            let _ = std::fs::remove_file(&aside);
            fail(&error)
        })
    }

    fn aside(&self) -> PathBuf {
        self.path.with_extension("new")
    }

    /// Holds off other processes that would exchange the same refresh token; ends with the returned file.
    pub fn lock(&self) -> Result<File, Failure> {
        let path = self.path.with_extension("lock");
        let fail = |error: std::io::Error| Failure::io("locking", &path, &error);
        if let Some(folder) = path.parent() {
            private_folder(folder).map_err(fail)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        file.lock().map_err(fail)?;
        match std::fs::remove_file(self.aside()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fail(error)),
            _ => Ok(file),
        }
    }
}

fn private_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
