//! Publishing: plans releases of this library, records the state of each namespace, and rotates the
//! keys that sign releases.

pub mod adopt;
mod build;
mod current;
mod error;
mod plan;
mod release;
mod request;
pub mod rotate;
pub mod state;

pub use self::build::RENEW_DAYS;
pub use self::error::{Difference, PlanError};
pub use self::plan::{Plan, plan, take};
pub use self::release::{PlannedObject, ReleasePlan, published};
pub use self::request::{DEFAULT_DAYS, OnDivergence, PlanRequest};
