//! The function `oauth`: discovery, registration, consent and tokens.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Apart from `admin`, this is the only function that sends requests to hosts other than AWS.
    vault_functions::Program {
        complete: |app, _| {
            let outbound = vault_service::outbound::Outbound::new();
            Ok(app.with_documents(std::sync::Arc::new(outbound)))
        },
        parameters: Some(vault_functions::PARAMETERS),
        provider: Some(|issuer| {
            std::sync::Arc::new(vault_service::oidc::ProviderClient::new(issuer))
        }),
        ..vault_functions::Program::for_part(vault_functions::Part::OAUTH)
    }
    .run_process()
}
