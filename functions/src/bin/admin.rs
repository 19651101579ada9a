//! The function `admin`: owner and operator routes, health, and background work.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program {
        parameters: Some(vault_functions::parameter_source),
        ..vault_functions::Program::of(vault_functions::Part::ADMIN)
    }
    .main()
}
