//! The MCP server of vault: tools, resources and the Skills extension over a
//! [`Shelf`](vault_shelf::Shelf), which is a store of skills.
//!
//! One handler serves standard input and output and Streamable HTTP. Between requests it keeps only
//! caches. Every answer about skills goes through [`visible::Visible`]: to a caller, a skill that
//! they may not see does not exist. The program around this crate determines the caller and the
//! shelf, and passes both in as a [`Session`].

mod code;
mod content;
mod cursor;
mod fault;
mod handler;
mod params;
mod resources;
mod session;
mod skills;
mod tools;
mod uri;
pub mod visible;

pub use code::{ToolError, codes_page};
pub use content::{MAX_ANSWER_BYTES, MAX_INLINE_BYTES, answer_bytes, escaped_bytes};
pub use fault::Fault;
pub use handler::Server;
pub use params::refuse_dropped_params;
pub use session::{Denied, Names, Person, Right, Session};
pub use tools::{DraftRequestKind, hand_in, names as tool_names};
