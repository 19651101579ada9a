//! The function `admin`: owner and operator routes, health, background work, and notices.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program {
        // Only this function sends notices, so the code for it is linked into no other.
        complete: |app, mail| {
            let senders = vault_service::notices::create_senders(&app.config.public_url, mail)?;
            Ok(app.with_senders(senders))
        },
        parameters: Some(vault_functions::PARAMETERS),
        ..vault_functions::Program::for_part(vault_functions::Part::ADMIN)
    }
    .run_process()
}
