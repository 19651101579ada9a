//! The function `devices`: enrolment and device state, and every path that no other function has.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::for_part(vault_functions::Part::DEVICES).run_process()
}
