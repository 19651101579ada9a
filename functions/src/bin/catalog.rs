//! The function `catalog`: catalogs and bundles.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::of(vault_functions::Part::CATALOG).main()
}
