//! The function `devices`: enrolment and device state, and every path that no other function has.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::of(vault_functions::Part::DEVICES).main()
}
