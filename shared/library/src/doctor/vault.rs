//! Checks the vault itself: its folder, its keys, linked vaults, this machine's clock, and
//! leftovers of killed writers.

use vault_format::manifest::SKILL_MD;
use vault_format::time::Timestamp;

use super::{Doctor, DoctorFinding};
use crate::admit::list_unsigned;
use crate::disk::scratch;
use crate::disk::{self, Location};
use crate::installed::{linked_pins, remembered_times};
use crate::publish::roots::releases_behind;
use crate::publish::{self, recovery};
use crate::vault::VaultError;
use crate::vault::authored::pending_files;
use crate::vault::keys::KeyError;

impl Doctor<'_> {
    /// Checks who owns the vault's folders and the trust folder, and who may write to them.
    pub(super) fn check_folder(&mut self) {
        let path = self.vault.paths().root.clone();
        match self.vault.check_folders() {
            Ok(()) => {}
            Err(VaultError::WritableByOthers { path, mode }) => {
                self.add_finding(DoctorFinding::OpenToOthers { path, mode });
            }
            Err(VaultError::OfAnotherUser(path)) => {
                self.add_finding(DoctorFinding::ForeignOwner(path));
            }
            Err(VaultError::Key(error)) => self.add_finding(DoctorFinding::Key(error)),
            Err(error) => self.add_finding(DoctorFinding::FolderUnusable(error.to_string())),
        }
        if !disk::may_write(&path) {
            self.add_finding(DoctorFinding::ReadOnly(path));
        }
    }

    pub(super) fn check_keys(&mut self) {
        match self.key_problem() {
            // A vault that only holds linked vaults needs no key.
            Ok(()) | Err(VaultError::ForLinks(_)) => {}
            // `check_folder` has reported a trust folder that others can access.
            Err(VaultError::Key(_))
                if matches!(self.vault.check_folders(), Err(VaultError::Key(_))) => {}
            Err(VaultError::Key(error)) => self.add_finding(DoctorFinding::Key(error)),
            Err(_) => {
                let missing = KeyError::Missing(self.vault.keys().folder());
                self.add_finding(DoctorFinding::Key(missing));
            }
        }
        let Ok(Some(trust)) = self.vault.trust() else {
            return;
        };
        let here = self.vault.keys().list().unwrap_or_default();
        let root = trust.chain().document().root();
        // Only a root key elsewhere can recover the vault after this machine is lost or stolen.
        if root.keys().iter().all(|key| here.contains(key)) {
            self.add_finding(DoctorFinding::NoRecoveryKey);
        }
        if let Ok(Some(checked_at)) = recovery::check_due(self.vault) {
            self.add_finding(DoctorFinding::RecoveryCheckDue(checked_at));
        }
        // Only a publisher can sign a newer release.
        if self.vault.release_key().is_ok() {
            for address in releases_behind(self.vault).unwrap_or_default() {
                self.add_finding(DoctorFinding::ReleaseBehind(address));
            }
            self.check_published();
        }
        for name in list_unsigned(self.vault).unwrap_or_default() {
            self.add_finding(DoctorFinding::NotSignedAgain(name));
        }
    }

    /// Reports own releases that have expired or expire soon.
    fn check_published(&mut self) {
        let now = self.vault.clock().now();
        for state in publish::state::list_states(self.vault).unwrap_or_default() {
            let ends = state.published.map(|published| published.expires_at);
            if let Some(at) = ends.filter(|at| publish::ends_soon(*at, now)) {
                let address = format!("{}/v/{}", state.base, state.slug);
                let own = true;
                self.add_finding(DoctorFinding::ReleaseEnds { address, at, own });
            }
        }
    }

    /// Reports linked vaults whose last catalog has expired or expires soon. The latest time that
    /// this machine remembers counts, so that setting the clock back hides nothing.
    pub(super) fn check_links_to_vaults(&mut self) {
        for link in linked_pins::list_links(self.vault).unwrap_or_default() {
            let (Ok(Some(catalog)), Ok(Some(trust))) =
                (link.catalog(self.vault), link.trust(self.vault))
            else {
                continue; // nothing has counted yet, or the check of its skills reports it
            };
            let now = self.vault.clock().now();
            let now = trust.latest_seen_at().map_or(now, |seen| seen.max(now));
            let pin = link.pin();
            let address = format!("{}/v/{}", pin.base, pin.slug);
            let at = catalog.expires_at;
            if at <= now {
                self.add_finding(DoctorFinding::LinkExpired { address, since: at });
            } else if publish::ends_soon(at, now) {
                let own = false;
                self.add_finding(DoctorFinding::ReleaseEnds { address, at, own });
            }
        }
    }

    /// Reports files of the owner that differ from their approved versions.
    pub(super) fn check_authored(&mut self) -> Result<(), VaultError> {
        for pending in pending_files(self.vault)? {
            self.add_finding(DoctorFinding::NotApproved {
                path: pending.file.path(self.vault),
                is_first: pending.approved.is_none(),
                file: pending.file,
            });
        }
        Ok(())
    }

    /// Returns why this machine can't sign. Asks the user nothing.
    fn key_problem(&self) -> Result<(), VaultError> {
        let key = self.vault.release_key()?;
        Ok(self.vault.keys().check_usable(&key)?)
    }

    /// Reports a signature more than a day in the future. Either this machine's clock was set back,
    /// or the clock of the signer is ahead.
    pub(super) fn check_clock(&mut self, signed: impl Iterator<Item = Timestamp>) {
        let now = self.vault.clock().now();
        let latest = signed.max().filter(|latest| *latest > now.plus_days(1));
        if let Some(signed_at) = latest {
            self.add_finding(DoctorFinding::ClockBehind { now, signed_at });
        }
    }

    /// Reports the latest time that this machine remembers, if its clock is behind that time.
    pub(super) fn check_remembered_time(&mut self) {
        let now = self.vault.clock().now();
        let ahead = remembered_times::times_ahead(self.vault)
            .unwrap_or_default()
            .into_iter();
        if let Some(seen_at) = ahead.map(|time| time.seen_at).max() {
            self.add_finding(DoctorFinding::ClockWasAhead { now, seen_at });
        }
    }

    /// Reports the leftovers of killed writers, or removes them with `clean`.
    pub(super) fn check_leftovers(&mut self) -> Result<(), VaultError> {
        let generation = self.vault.generation()?;
        let dead = scratch::list_abandoned(&self.vault.tmp_folder()).unwrap_or_default();
        // The number is odd if a writer was killed after its first visible change.
        let unfinished = !dead.is_empty() || generation % 2 == 1;
        if unfinished && self.input.clean {
            // Taking the writer lock removes the leftovers of a killed writer.
            let mut change = self.vault.begin_change()?;
            change.mark_changing()?;
            self.report.cleaned.extend(dead.iter().map(Location::path));
        } else if unfinished {
            self.add_finding(DoctorFinding::Unfinished);
        }
        let parked = self.vault.folder().join("set-aside");
        for (name, _) in disk::list(&parked)? {
            let path = parked.join(name);
            // A folder without SKILL.md contains only files that are not part of the skill that was
            // signed from it.
            let is_skill = disk::kind_at(&path.join(SKILL_MD))?.is_some();
            self.add_finding(if is_skill {
                DoctorFinding::SetAside(path.path())
            } else {
                DoctorFinding::ForeignInVault(path.path())
            });
        }
        Ok(())
    }
}
