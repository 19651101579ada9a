//! Publishing: plans and signs releases of this vault, reviews those of other publishers, and
//! changes the keys that sign them.

pub mod adopt;
mod build;
mod change;
mod current;
mod driver;
mod equal_variants;
mod error;
mod fetched;
pub mod join;
mod merge;
mod plan;
mod proposal;
pub mod recovery;
mod recovery_file;
mod release;
mod request;
mod review;
pub mod roots;
mod variants;

pub use self::build::{RENEW_DAYS, ends_soon};
pub use self::change::{CheckedSkill, NeededObjects, ReleaseChange, Reviewed};
pub use self::current::unseen_release;
pub use self::driver::{
    Namespace, Owner, PublishOutcome, ReleaseRejection, Uploaded, publish_library,
};
pub use self::error::{Conflicts, Difference, PlanError};
pub use self::merge::{PolicyChange, TakeOver};
pub use self::plan::{append_missing_roots, plan_release, take_roots};
pub use self::proposal::{Proposal, ProposalError, SignedProposal};
pub use self::release::{Plan, PlannedObject, ReleasePlan, record_published};
pub use self::request::{DEFAULT_DAYS, OnDivergence, PlanRequest};
pub use self::review::{Review, ShownRelease, SuspectSkill, review_catalogs};
pub use crate::vault::releases as state;
