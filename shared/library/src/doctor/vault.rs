//! The vault's own folder, its keys, this machine's clock, and what killed writers left.

use vault_skill::time::Timestamp;

use super::{Doctor, Severity};
use crate::files;
use crate::files::scratch;
use crate::keys::KeyError;
use crate::vault::VaultError;

impl Doctor<'_> {
    /// The vault's own folder: whose it is, and who may write to it.
    pub(super) fn folder(&mut self) {
        let root = self.vault.paths().root.clone();
        let Ok(Some((mode, owner))) = files::mode_and_owner(&root) else {
            return;
        };
        if owner != files::effective_user() {
            self.find(
                Severity::Warning,
                "foreign_owner",
                format!("{} belongs to another user", root.display()),
                format!("chown -R $(id -un) {}", root.display()),
            )
            .at(root.clone());
        }
        if mode & 0o022 != 0 {
            self.find(
                Severity::Error,
                "open_to_others",
                format!("others may write to {} (mode {mode:04o})", root.display()),
                format!("chmod go-w {}", root.display()),
            )
            .at(root.clone());
        }
        if !files::may_write(&root) {
            self.find(
                Severity::Warning,
                "read_only",
                format!("{} can't be written to", root.display()),
                "skills can be read and run; nothing can be added or removed",
            )
            .at(root);
        }
    }

    pub(super) fn keys(&mut self) {
        let keys = self.vault.keys();
        if let Err(error) = keys.release() {
            let (code, hint, path) = match &error {
                KeyError::Missing(path) => (
                    "key_missing",
                    "bring it back from where the vault was copied from, or vault key recovery use <file>".to_owned(),
                    Some(path.clone()),
                ),
                KeyError::Open { path, .. } => (
                    "key_open",
                    format!("chmod go-rwx {}", path.display()),
                    Some(path.clone()),
                ),
                KeyError::Foreign(path) => (
                    "key_foreign",
                    format!("chown $(id -un) {}", path.display()),
                    Some(path.clone()),
                ),
                KeyError::Malformed { path, .. } | KeyError::Mismatch(path) => (
                    "key_damaged",
                    "bring back the file as it was, or vault key recovery use <file>".to_owned(),
                    Some(path.clone()),
                ),
                KeyError::File(failed) => (
                    "key_unreadable",
                    "give this user the right to read it".to_owned(),
                    Some(failed.path.clone()),
                ),
            };
            self.find(Severity::Error, code, error.to_string(), hint)
                .path = path;
        }
        if let Ok(Some(path)) = keys.recovery_left_here() {
            self.find(
                Severity::Warning,
                "recovery_here",
                format!("the recovery key still lies in {}", path.display()),
                "move it to a safe place: it replaces a lost or stolen key",
            )
            .at(path);
        }
    }

    /// Nothing is signed in the future: a clock that says otherwise was put back.
    pub(super) fn clock(&mut self, signed: impl Iterator<Item = Timestamp>) {
        let now = self.vault.clock().now();
        if let Some(latest) = signed.max()
            && latest > now.plus_days(1)
        {
            self.find(
                Severity::Warning,
                "clock_behind",
                format!("this machine's clock says {now}, but a skill was signed at {latest}"),
                "set the clock: releases expire by it, and services refuse requests that are 300 s off",
            );
        }
    }

    pub(super) fn leftovers(&mut self) -> Result<(), VaultError> {
        let tmp = self.vault.tmp();
        let generation = self.vault.generation()?;
        let dead = scratch::dead(&tmp).unwrap_or_default();
        let unfinished = !dead.is_empty() || generation % 2 == 1;
        if unfinished && self.input.clean {
            // Taking the lock clears away what a killed writer left.
            let mut change = self.vault.change()?;
            change.switching()?;
            self.report.cleaned.extend(dead);
        } else if unfinished {
            self.find(
                Severity::Note,
                "unfinished",
                "a command was killed in the middle; what it left is no part of the vault",
                "vault doctor --clean removes it, as the next change does",
            );
        }
        let parked = self.vault.paths().root.join("set-aside");
        for (name, _) in files::list(&parked)? {
            let path = parked.join(name);
            self.find(
                Severity::Warning,
                "set_aside",
                format!("{} was set aside and never signed", path.display()),
                format!("vault add {0}, then rm -r {0}", path.display()),
            )
            .at(path);
        }
        Ok(())
    }
}
