//! The vault on a local disk: the only place where skills are admitted and signed.
//!
//! | module | holds |
//! |---|---|
//! | [`vault`] | opening and creating a vault, its writer lock, its generation number |
//! | [`keys`] | secret keys; they lie in the trust folder, outside the vault's folder |
//! | [`admit`] | the only way in: check, sign, install; remove, roll back, variants for one agent |
//! | [`shelf`] | the library as a port for tools: listing, searching, submitting changes |
//! | [`capabilities`] | which skills and actions the policy grants to a caller |
//! | [`run`] | finding a skill and running its actions from verified bytes |
//! | [`doctor`] | everything that can be wrong with a vault, as typed findings; repairs |
//! | [`upstream`] | the sources that skills were fetched from |
//! | [`integrity`] | verifying every installed skill from its bytes |
//! | [`publish`] | planning and signing a release, the record of each namespace |
//! | [`audit`] | scanning skills in place, without admitting them |
//! | [`adopt`] | adopting skills that other publishers signed; rolling back |
//! | [`roots`] | changing the vault's keys: rotating, adding, retiring, revoking, healing |
//! | [`recovery`] | making and using the recovery key |
//! | [`agents`] | the agents on a machine, their links to skills, skills in their own folders |
//! | [`export`] | skills as archives and as a well-known site, and verifying those anywhere |
//! | [`subscribe`] | linked vaults: pins, catalogs and their skills |
//!
//! Other programs call [`add_skill`], [`propose_skill`], [`update_skill`], [`resolve_capabilities`]
//! and [`sync_profiles`]. Each of the five has one input type, one report type and an example;
//! `examples/integrate.rs` uses all of them. The crate `vault-sources` fetches skills from
//! elsewhere.
//!
//! Words that this crate uses throughout: the *gate* is the scan that accepts or blocks a skill. A
//! *bundle* contains the files of one version of a skill with its signed manifest, and is named by
//! its SHA-256. This vault admitted its *own* skills; *linked* skills come from vaults that it
//! subscribes to. The *trust folder* holds keys and records that writing to the vault's folder must
//! not change. A *root version* is a signed list of the keys of a vault.
//!
//! This crate uses no network and no environment variables, and no clock or randomness except those
//! that a [`vault::Vault`] was opened with. Files are read and written through one private module,
//! so supporting another operating system changes that module only. The one exception is the index,
//! which SQLite opens itself.

pub mod admit;
pub mod agents;
pub mod audit;
pub mod capabilities;
mod disk;
pub mod doctor;
pub mod export;
mod index;
pub mod installed;
pub mod publish;
pub mod run;
pub mod shelf;
mod store;
pub mod subscribe;
pub mod vault;

pub use admit::add::{AddError, AddSkill, add_folder, add_skill};
pub use admit::propose::{ProposeReport, ProposeSkill, Proposed, propose_skill};
pub use admit::update::{UpdateReport, UpdateSkill, Updated, update_skill};
pub use admit::{AdmitError, AdmitReport};
pub use agents::{ProfileSyncReport, SyncProfilesInput, sync_profiles};
pub use capabilities::{
    POLICY_FILE, ResolveError, ResolveInput, parse_policy, read_policy, read_policy_at,
    read_source_policy, resolve_capabilities,
};
pub use disk::FileError;
pub use disk::beneath::BeneathError;
pub use disk::lock::LockError;
pub use disk::source::SourceError;
pub use index::Texts;
pub use installed::installations::Origin;
pub use installed::{
    compared_source as drift, project_skills as project, remembered_times as clock,
    source_folders as folders, source_records as upstream, verified_contents as integrity,
};
pub use publish::{adopt, join, recovery, roots};
pub use store::{Damage, Examined};
pub use vault::authored::{AuthoredFile, PROFILES_FILE, PendingFile, pending_files};
pub use vault::{HeldVault, Vault, VaultError, VaultPaths};
pub use vault::{keys, occupant, trust};
pub use vault_policy::{Capabilities, GrantedSkill};
