//! The function `mcp`: tools for agents.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::main(vault_functions::Group::Mcp)
}
