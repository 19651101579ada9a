//! This service as WebAuthn relying party: the host and the origin of its public URL, to which
//! browsers bind passkeys.

use std::time::Duration;

use axum::http::StatusCode;
use webauthn_rs::prelude::{Url, Webauthn, WebauthnBuilder};

use crate::app::App;
use crate::config::PublicUrl;
use crate::error::{ErrorCode, Refusal};
use crate::model::passkey_challenge::CHALLENGE_SECONDS;
use crate::web::error_page::{ErrorPage, Explanation};

/// Returns the verifier of passkeys; `None` if the host of the public URL is an IP address, to
/// which no browser binds a passkey.
pub fn relying_party(public: &PublicUrl) -> Option<Webauthn> {
    let origin: Url = public.origin().parse().ok()?;
    // `None` for an address. The whole host, and not its parent domain: another service there must
    // not be able to ask for passkeys of this one.
    let host = origin.domain()?;
    let built = WebauthnBuilder::new(host, &origin).ok()?;
    let timeout = Duration::from_secs(CHALLENGE_SECONDS.unsigned_abs());
    built.rp_name("vault").timeout(timeout).build().ok()
}

/// Whether a passkey can take the place of the code of a second factor.
pub fn takes_passkeys(app: &App) -> bool {
    relying_party(&app.config.public_url).is_some()
}

/// Whether a passkey can sign in without any other proof.
pub fn signs_in_with_passkeys(app: &App) -> bool {
    // A service without passwords leaves it to its identity provider who may still sign in. A
    // passkey would bypass the provider.
    app.config.sign_in.takes_passwords() && takes_passkeys(app)
}

/// Returns the error page of a service where passkeys do not work.
pub fn passkeys_off() -> ErrorPage {
    ErrorPage::Explained(Explanation {
        status: StatusCode::NOT_FOUND,
        title: "Passkeys do not work here",
        lines: &[
            "Browsers tie a passkey to a host name, and this service either has an IP address as its public URL or lets its identity provider sign everybody in.",
            "Go back and sign in another way. Nothing was changed.",
        ],
        detail: None,
        sign_out: None,
    })
}

/// Returns the error page of a failure of the WebAuthn library that no request can cause.
pub fn internal_error(error: impl std::error::Error + Send + Sync + 'static) -> ErrorPage {
    ErrorPage::Refused(Refusal::new(ErrorCode::Internal).cause(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passkeys_are_bound_to_the_host_of_the_public_url() {
        for (public, origin) in [
            ("https://vault.example", Some("https://vault.example/")),
            ("https://vault.example/base", Some("https://vault.example/")),
            (
                "https://vault.example:8443",
                Some("https://vault.example:8443/"),
            ),
            ("http://localhost:8080", Some("http://localhost:8080/")),
            ("http://127.0.0.1:8080", None),
            ("http://[::1]:8080", None),
            ("https://192.0.2.1", None),
        ] {
            let public: PublicUrl = public.parse().unwrap();
            let party = relying_party(&public);
            let found = party.map(|party| party.get_allowed_origins()[0].to_string());
            assert_eq!(found.as_deref(), origin, "{}", public.as_str());
        }
    }
}
