//! The function `mcp`: tools for agents.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::for_part(vault_functions::Part::MCP).run_process()
}
