//! Checks the vault's folder, its keys, this machine's clock, and leftovers of killed writers.

use vault_skill::time::Timestamp;

use super::{Doctor, DoctorFinding};
use crate::disk;
use crate::disk::scratch;
use crate::vault::VaultError;

impl Doctor<'_> {
    /// Checks the owner and the write permissions of the vault's folder.
    pub(super) fn check_folder(&mut self) {
        let path = self.vault.paths().root.clone();
        let Ok(Some((mode, owner))) = disk::mode_and_owner(&path) else {
            return;
        };
        if owner != disk::effective_user() {
            self.find(DoctorFinding::ForeignOwner(path.clone()));
        }
        if mode & 0o022 != 0 {
            let path = path.clone();
            self.find(DoctorFinding::OpenToOthers { path, mode });
        }
        if !disk::may_write(&path) {
            self.find(DoctorFinding::ReadOnly(path));
        }
    }

    pub(super) fn check_keys(&mut self) {
        let keys = self.vault.keys();
        if let Err(error) = keys.release() {
            self.find(DoctorFinding::Key(error));
        }
        if let Ok(Some(path)) = keys.recovery_left_here() {
            self.find(DoctorFinding::RecoveryHere(path));
        }
    }

    /// Reports a signature more than a day in the future, which means that the clock was set back.
    pub(super) fn check_clock(&mut self, signed: impl Iterator<Item = Timestamp>) {
        let now = self.vault.clock().now();
        let latest = signed.max().filter(|latest| *latest > now.plus_days(1));
        if let Some(signed_at) = latest {
            self.find(DoctorFinding::ClockBehind { now, signed_at });
        }
    }

    /// Reports or removes leftovers of killed writers.
    pub(super) fn check_leftovers(&mut self) -> Result<(), VaultError> {
        let generation = self.vault.generation()?;
        let dead = scratch::abandoned(&self.vault.tmp()).unwrap_or_default();
        let unfinished = !dead.is_empty() || generation % 2 == 1;
        if unfinished && self.input.clean {
            // Taking the writer lock removes the leftovers of a killed writer.
            let mut change = self.vault.change()?;
            change.switching()?;
            self.report.cleaned.extend(dead);
        } else if unfinished {
            self.find(DoctorFinding::Unfinished);
        }
        let parked = self.vault.paths().root.join("set-aside");
        for (name, _) in disk::list(&parked)? {
            self.find(DoctorFinding::SetAside(parked.join(name)));
        }
        Ok(())
    }
}
