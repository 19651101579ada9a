//! The function `oauth`: discovery, registration, consent and tokens.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::main(vault_functions::Group::OAuth)
}
