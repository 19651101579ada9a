//! The function `oauth`: discovery, registration, consent and tokens.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The only function that asks anybody but AWS: the code for it is in no other.
    vault_functions::Program {
        complete: |app| {
            app.with_documents(std::sync::Arc::new(vault_service::outbound::Outbound::new()))
        },
        parameters: Some(vault_functions::parameter_source),
        provider: Some(|issuer| {
            std::sync::Arc::new(vault_service::oidc::ProviderClient::new(issuer))
        }),
        ..vault_functions::Program::of(vault_functions::Part::OAUTH)
    }
    .main()
}
