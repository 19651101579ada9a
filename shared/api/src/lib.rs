//! The JSON of the service's routes: every request and answer as one public type, which the service,
//! the command line and the tests share, and from which `docs/api.md` and `docs/openapi.json` are
//! written. Comments on types and members become their descriptions there.
//!
//! Types of requests with `deny_unknown_fields` reject members that they do not name. Later versions
//! may add members to answers: clients ignore those that they do not know.

mod account;
mod audit;
mod client;
mod confirmation;
mod device;
mod draft;
mod email;
mod enrolment;
mod given;
mod health;
mod list;
mod mcp;
mod namespace;
mod notice;
mod oauth;
mod object;
mod payment;
mod problem;
mod release;
mod user;
mod vault;

pub use account::*;
pub use audit::*;
pub use client::*;
pub use confirmation::*;
pub use device::*;
pub use draft::*;
pub use email::*;
pub use enrolment::*;
pub use given::*;
pub use health::*;
pub use list::*;
pub use mcp::*;
pub use namespace::*;
pub use notice::*;
pub use oauth::*;
pub use object::*;
pub use payment::*;
pub use problem::*;
pub use release::*;
pub use user::*;
pub use vault::*;
