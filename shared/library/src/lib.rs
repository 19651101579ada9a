//! The vault on a local disk: the only place where skills are admitted and signed.
//!
//! | module | holds |
//! |---|---|
//! | [`vault`] | opening and making a vault, its writer lock, its generation number |
//! | [`keys`] | secret keys and tokens, outside the vault's folder |
//! | [`admit`] | the only way in: checking, signing, installing; taking out, going back, variants for one agent |
//! | [`shelf`] | listing and searching |
//! | [`capabilities`] | what a caller may use, by the policy |
//! | [`run`] | finding a skill, running its actions from verified bytes |
//! | [`doctor`] | everything that can be wrong with a vault, as typed findings; repairs |
//! | [`upstream`] | where skills were fetched from |
//! | [`integrity`] | verifying everything from its bytes |
//! | [`publish`] | planning and signing a release, what is remembered of each namespace |
//! | [`audit`] | looking at skills where they lie, without admitting them |
//! | [`adopt`] | taking in what the same key signed elsewhere; rolling back |
//! | [`rotate`] | replacing the release key and the recovery key |
//! | [`agents`] | the agents of a machine, the links through which each sees its skills, taking in skills of their own folders |
//! | [`export`] | skills as archives and as a well-known site, and verifying those anywhere |
//! | [`subscribe`] | linked vaults: pins, catalogs, their skills |
//!
//! What other programs call, each with one input, one report and an example: [`add_skill`], [`propose_skill`],
//! [`update_skill`], [`resolve_capabilities`], [`sync_profiles`]; `examples/integrate.rs` uses all five. Fetching from elsewhere is the
//! crate `vault-sources`.
//!
//! There is no network here, no environment, no clock and no randomness but what a [`vault::Vault`] was opened with.
//! Every effect on disk goes through one private module, so that another system needs that one only.

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
    POLICY_FILE, ResolveError, ResolveInput, read_policy, read_policy_at, resolve_capabilities,
};
pub use disk::FileError;
pub use disk::lock::LockError;
pub use disk::source::SourceError;
pub use index::Texts;
pub use installed::place::Origin;
pub use installed::upstream;
pub use installed::verify as integrity;
pub use publish::{adopt, rotate};
pub use store::{Damage, Examined};
pub use vault::keys;
pub use vault::{Vault, VaultError, VaultPaths};
pub use vault_skill::policy::{Capabilities, GrantedSkill};
