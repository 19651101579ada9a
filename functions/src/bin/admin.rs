//! The function `admin`: owner and operator routes, health, background work, and notices.

use std::process::ExitCode;

fn main() -> ExitCode {
    vault_functions::Program {
        // The only function that sends notices: the code for it is in no other.
        complete: |app, mail| {
            let senders = vault_service::notices::senders(&app.config.public_url, mail)?;
            Ok(app.with_senders(senders))
        },
        parameters: Some(vault_functions::parameter_source),
        ..vault_functions::Program::of(vault_functions::Part::ADMIN)
    }
    .main()
}
