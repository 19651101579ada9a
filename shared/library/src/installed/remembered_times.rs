//! Finds remembered times that are ahead of this machine's clock, and resets them.
//!
//! For each vault, this machine remembers the latest time at which it accepted a catalog, so that
//! setting the clock back does not make an expired catalog valid again. If the clock was ahead by
//! mistake at that moment, the remembered time lies in the future. Until then, catalogs that expire
//! before that time are rejected.

use std::collections::BTreeSet;

use vault_format::catalog::MAX_AHEAD_SECONDS;
use vault_format::root::VaultId;
use vault_format::time::Timestamp;

use super::linked_pins;
use crate::vault::{Vault, VaultError};

/// A vault for which this machine remembers a time that its clock has not reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimeAhead {
    /// Id of the vault, own or linked.
    pub vault: VaultId,
    /// Latest time at which this machine accepted a catalog of the vault.
    pub seen_at: Timestamp,
}

/// Returns the vaults for which this machine remembers a time that is more than 300 seconds ahead
/// of its clock.
pub fn times_ahead(vault: &Vault) -> Result<Vec<TimeAhead>, VaultError> {
    // Clocks of machines differ a little, so a small lead is no fault.
    let bound = vault.clock().now().plus_seconds(MAX_AHEAD_SECONDS);
    let linked = linked_pins::list_links(vault)?;
    let linked = linked.iter().filter_map(|link| link.pin().vault_id);
    let vaults: BTreeSet<_> = linked.chain([*vault.id()]).collect();
    let mut ahead = Vec::new();
    for id in vaults {
        let trust = vault.trust_of(&id)?;
        let seen_at = trust.and_then(|trust| trust.latest_seen_at);
        if let Some(seen_at) = seen_at.filter(|seen_at| *seen_at > bound) {
            ahead.push(TimeAhead { vault: id, seen_at });
        }
    }
    Ok(ahead)
}

/// Lowers these remembered times to the current time of this machine's clock. Keys, releases and
/// pins (what this machine trusts about linked vaults) do not change.
pub fn reset_times(vault: &Vault, ahead: &[TimeAhead]) -> Result<(), VaultError> {
    let now = vault.clock().now();
    for TimeAhead { vault: id, .. } in ahead {
        vault.change_trust(id, |before| {
            let mut trust = before.ok_or(VaultError::Untrusted(*id))?;
            // Take the lower time under the lock: an accepted catalog may have changed it since the
            // caller listed it.
            trust.latest_seen_at = trust.latest_seen_at.map(|seen_at| seen_at.min(now));
            Ok::<_, VaultError>(trust)
        })?;
    }
    Ok(())
}
