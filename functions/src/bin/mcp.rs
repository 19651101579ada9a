//! The function `mcp`: tools for agents; so far it answers that there are none.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::main(vault_functions::Group::Mcp)
}
