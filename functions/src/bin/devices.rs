//! The function `devices`: enrolment and device state. It also answers every path that no other
//! function serves.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program::for_part(vault_functions::Part::DEVICES).run_process()
}
