//! The function `admin`: owner and operator routes, health, and background work.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::main(vault_functions::Group::Admin)
}
