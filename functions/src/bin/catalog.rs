//! The function `catalog`: catalogs and bundles.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::main(vault_functions::Group::Catalog)
}
