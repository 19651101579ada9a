//! The MCP server of vault: tools, resources and the Skills extension over a
//! [`Shelf`](vault_shelf::Shelf).
//!
//! One handler serves standard input and output and Streamable HTTP. Between requests it keeps only
//! caches. Every answer about skills goes through [`visible::Visible`]: a skill that a caller may
//! not see does not exist for them. The caller and their shelf are determined outside and passed in
//! as a [`Session`].

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
