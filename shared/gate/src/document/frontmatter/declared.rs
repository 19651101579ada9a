//! What a skill declares about itself: its actions, the secrets that they read, and the resources
//! that it uses. Nothing here is verified.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::text::Position;

/// One declared action, as written; the gate checks later whether its command exists.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "DeclaredAction")]
pub struct Action {
    /// A file of the skill or a bare program name.
    pub command: String,
    /// Arguments that always come first; at most 64.
    pub args: Vec<String>,
    /// Directory of the skill in which the command runs; `.` when not given.
    pub cwd: String,
    /// Description of the action.
    pub description: Option<String>,
    /// Whether the command wants a terminal.
    pub requires_tty: bool,
    /// Place of the action's name.
    #[serde(skip)]
    pub at: Position,
}

/// A secret that an action expects in its environment; the value is never stored.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "EnvironmentVariable")]
pub struct Secret {
    /// Name of the environment variable, `[A-Za-z_][A-Za-z0-9_]*`.
    pub name: String,
    /// Purpose of the secret.
    pub description: Option<String>,
    /// Whether the action fails without it; true when not given.
    pub required: bool,
}

/// Tells whether an environment variable is a setting of vault, some of which are secrets. No skill
/// may declare such a variable, and no action gets it.
pub fn is_reserved_variable(name: &str) -> bool {
    const PREFIX: &str = "VAULT_";
    // Windows ignores the letter case of variables.
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// Resources that a skill claims to use; a claim, not a measurement.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "DeclaredCapabilities")]
pub struct Capabilities {
    /// Whether it uses the network; `None` if not stated.
    pub network: Option<bool>,
    /// Kind of access to files, for example `readonly`; `None` if not stated.
    pub filesystem: Option<String>,
    /// Tools that it uses.
    pub tools: Vec<String>,
}
