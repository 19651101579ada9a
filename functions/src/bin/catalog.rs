//! The function `catalog`: catalogs and bundles.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::for_part(vault_functions::Part::CATALOG).run_process()
}
