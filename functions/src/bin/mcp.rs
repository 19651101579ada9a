//! The function `mcp`: tools for agents.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::of(vault_functions::Part::MCP).main()
}
