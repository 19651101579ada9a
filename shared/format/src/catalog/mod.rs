//! The signed catalog: the content of one release of a namespace, and the one function that decides
//! whether a reader accepts it.
//!
//! [`judge_catalog`] serves the device that pulls and the service to which is pushed. It changes
//! nothing and returns what the caller has to store. The order of checks: size, outer file, root
//! versions (the signed lists of the vault's keys), signatures, payload, the root version that it
//! names, then its other members against the stored state.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::hash::Digest;
use crate::json;
use crate::keys::PublicKey;
use crate::name::{SkillName, Slug};
use crate::root::VaultId;
use crate::text::constant;
use crate::time::Timestamp;

mod change_line;
mod changes;
mod entries;
mod error;
mod file;
mod former;
mod judge;
mod proposal;
mod root_changes;

pub use self::change_line::{ChangeKind, ChangeLine};
pub use self::changes::{CatalogChanges, RootRef};
pub use self::entries::{
    ObjectEntry, PolicyEntry, ProfileEntry, ReleaseRef, SkillEntry, Withdrawn, object_path,
};
pub use self::error::{CatalogError, CatalogWarning, OutdatedProposal};
pub use self::file::{LastCatalog, SignedCatalog};
pub use self::former::{FormerSkill, FormerSkills, MAX_FORMER_SKILLS};
pub use self::judge::{
    CatalogJudgement, CatalogOutcome, CatalogReader, CountedCatalog, JudgedRelease, NewRoots,
    ReaderKind, judge_catalog,
};
pub use self::proposal::judge_proposal;
pub use self::root_changes::{NamedKey, RoleChange, RootChanges};
pub use crate::bundle::MAX_OBJECT_BYTES;

/// The payload type that is signed with every catalog.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.catalog.v2+json";
/// Maximum number of entries in `withdrawn`.
pub const MAX_WITHDRAWN: usize = 1_000;
/// Maximum number of releases that one catalog may skip.
pub const MAX_RELEASE_JUMP: u64 = 1_000_000;
/// The largest distance of `issued_at` ahead of a clock, in seconds.
pub const MAX_AHEAD_SECONDS: i64 = 300;
/// The fewest and most days from `issued_at` to `expires_at`.
pub const LIFETIME_DAYS: (i64, i64) = (1, 400);

constant!(
    /// The member `schema` of a catalog.
    Schema,
    "vault.catalog/2"
);

/// One release of a namespace. Only the catalog in a [`CountedCatalog`] is verified; any other may
/// come from a hostile host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Catalog {
    /// Name and number of the format.
    pub schema: Schema,
    /// The vault whose keys sign the catalog.
    pub vault_id: VaultId,
    /// The namespace in which the catalog is published.
    pub slug: Slug,
    /// The addresses that may serve the catalog: base address + `/v/<slug>/`. A reader rejects a
    /// catalog that does not list the address from which it came.
    pub audience: Vec<String>,
    /// Release number, from 1, higher with every catalog.
    pub release: u64,
    /// The time of signing, by the signer's clock.
    pub issued_at: Timestamp,
    /// The last second at which readers accept the catalog.
    pub expires_at: Timestamp,
    /// One of the publisher keys that sign the catalog. A machine that holds the key of the
    /// previous catalog names that key again, as long as it may still sign.
    pub public_key: PublicKey,
    /// The number of the root version (signed list of keys) that was the newest at the time of
    /// signing.
    pub root_version: u64,
    /// SHA-256 of the payload of the root version with the number `root_version`.
    pub root_sha256: Digest,
    /// The release before; `None` in the first.
    #[serde(deserialize_with = "json::nullable")]
    pub previous: Option<ReleaseRef>,
    /// The released skills, sorted by name.
    pub skills: Vec<SkillEntry>,
    /// The objects with the search texts, in the order of the skills.
    pub index: Vec<ObjectEntry>,
    /// The policy object. `None` means that the vault has no policy, so that members are granted
    /// nothing.
    #[serde(deserialize_with = "json::nullable")]
    pub policy: Option<PolicyEntry>,
    /// The profiles (sets of skills for one agent) as objects.
    pub profiles: Vec<ProfileEntry>,
    /// Bundles that clients must uninstall and the service no longer serves.
    pub withdrawn: Vec<Withdrawn>,
}

impl Catalog {
    /// Checks every rule that needs no knowledge beyond the catalog itself.
    pub fn check_own_rules(&self) -> Result<(), CatalogError> {
        self.check_shape()?;
        self.check_lifetime()
    }

    /// Checks the rules of the shape. The rule of the lifetime is separate because readers check it
    /// later and report it with another code.
    pub(crate) fn check_shape(&self) -> Result<(), CatalogError> {
        if self.release == 0 {
            return Err(CatalogError::Shape("releases begin at 1"));
        }
        // A strict order rules out duplicates too, and `skill` below uses binary search.
        if !self.skills.is_sorted_by(|a, b| a.name < b.name) {
            return Err(CatalogError::Shape(
                "the skills are not sorted by name, or one comes twice",
            ));
        }
        // Two entries of one name would let two readers choose different profiles.
        let mut profiles = HashSet::new();
        if !self
            .profiles
            .iter()
            .all(|profile| profiles.insert(&profile.name))
        {
            return Err(CatalogError::Shape("two profiles have one name"));
        }
        if self
            .policy
            .is_some_and(|policy| policy.size > MAX_OBJECT_BYTES as u64)
        {
            return Err(CatalogError::Shape("an object is larger than 4 MiB"));
        }
        self.check_withdrawn()
    }

    pub(crate) fn check_lifetime(&self) -> Result<(), CatalogError> {
        let (shortest, longest) = LIFETIME_DAYS;
        if self.expires_at < self.issued_at.plus_days(shortest)
            || self.expires_at > self.issued_at.plus_days(longest)
        {
            return Err(CatalogError::Clock(
                "a catalog expires 1 to 400 days after it was issued",
            ));
        }
        Ok(())
    }

    fn check_withdrawn(&self) -> Result<(), CatalogError> {
        if self.withdrawn.len() > MAX_WITHDRAWN {
            return Err(CatalogError::Withdrawn);
        }
        if self
            .withdrawn
            .iter()
            // Databases such as PostgreSQL do not store U+0000 in text.
            .any(|entry| entry.reason.contains('\0'))
        {
            return Err(CatalogError::Shape(
                "the reason of a withdrawal holds U+0000",
            ));
        }
        if self.withdrawn.is_empty() {
            return Ok(());
        }
        let hashes: HashSet<_> = self
            .withdrawn
            .iter()
            .map(|entry| entry.bundle_hash)
            .collect();
        if hashes.len() != self.withdrawn.len() {
            return Err(CatalogError::Shape("a bundle is withdrawn twice"));
        }
        if self
            .skills
            .iter()
            // The service serves no withdrawn bundle, so a device could never install such a skill.
            .any(|skill| hashes.contains(&skill.bundle_hash))
        {
            return Err(CatalogError::Shape(
                "a bundle is both offered and withdrawn",
            ));
        }
        Ok(())
    }

    /// Returns the entry of a skill, or `None` if the release does not have it.
    pub fn skill(&self, name: &SkillName) -> Option<&SkillEntry> {
        let index = self
            .skills
            .binary_search_by(|entry| entry.name.cmp(name))
            .ok()?;
        self.skills.get(index)
    }
}
