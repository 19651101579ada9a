//! Additional scopes for a sign-in: if a command fails because its sign-in lacks a scope, this
//! module asks the user for the scope in the browser, and the command runs again.
//!
//! The browser may be signed in as another person. The command must not continue with that person's
//! rights, so the user of the new tokens is compared with the user of the old ones.

use vault_api::VaultSummary;

use super::{
    Base, Http, OwnerClient,
    sign_in::{SignIn, Wider, sign_in},
    tokens::{TokenFile, Tokens},
};
use crate::{
    context::Context,
    errors::{Failure, MissingScope},
    output::{clean, join},
};

/// Asks the user in the browser for the scopes that a command lacked, and stores the new tokens.
/// Returns whether the command can be run again: false if there is no terminal, or if the user did
/// not grant the scopes.
pub async fn ask_for_scope(context: &Context, missing: &MissingScope) -> Result<bool, Failure> {
    if !context.ui.may_ask() {
        return Ok(false);
    }
    let Ok(base) = missing.base.parse::<Base>() else {
        return Ok(false);
    };
    let file = TokenFile::for_service(context, &base, &missing.sign_in)?;
    let Some(present) = file.read()? else {
        return Ok(false);
    };
    // An operator enters credentials for each sign-in, so the browser cannot silently use another
    // person's session.
    let operator = file.name().starts_with('@');
    let before = if operator {
        None
    } else {
        let user = find_token_user(context, &base, &file, present.clone()).await?;
        // Older services do not name the user, so the comparison is impossible. The command then
        // fails with the hint to sign in again.
        if user.id.is_none() {
            return Ok(false);
        }
        Some(user)
    };
    context.ui.must_see(format!(
        "This command needs more scopes than your sign-in has: allow {} in your browser.",
        join(missing.scopes.split(' '))
    ));
    let wanted = SignIn {
        base: &base,
        namespace: (!operator).then_some(file.name()),
        purpose: None,
        operator,
        wider: Some(Wider {
            client_id: &present.client_id,
            scopes: &missing.scopes,
        }),
        no_browser: false,
    };
    let tokens = sign_in(context, wanted).await?;
    if let Some(before) = before {
        let after = find_token_user(context, &base, &file, tokens.clone()).await?;
        if !before.is_same(&after) {
            revoke(context, &base, &tokens).await;
            return Err(other_person(&before, &after));
        }
    }
    let lock = file.lock()?;
    // Read the file again, because another process may have refreshed the old tokens meanwhile.
    let old = file.read()?.unwrap_or(present);
    file.write(&tokens, &lock)?;
    drop(lock);
    // Revoke the old tokens: nothing uses them any more, but they would stay valid for months.
    revoke(context, &base, &old).await;
    // The user may have left the box of a scope unticked.
    let given: Vec<&str> = tokens.scope.split(' ').collect();
    Ok(missing
        .scopes
        .split(' ')
        .all(|scope| given.contains(&scope)))
}

/// The user of a sign-in, as the service names them. An older service names neither id nor address.
struct SignedInUser {
    id: Option<String>,
    email: Option<String>,
}

impl SignedInUser {
    /// Returns whether both are the same user. A user without an id is never the same as another.
    fn is_same(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    fn name(&self) -> String {
        let name = self.email.as_deref().or(self.id.as_deref());
        clean(name.unwrap_or("an unknown person"), 254)
    }
}

/// Asks the service which user these tokens belong to.
async fn find_token_user(
    context: &Context,
    base: &Base,
    file: &TokenFile,
    tokens: Tokens,
) -> Result<SignedInUser, Failure> {
    let client = OwnerClient::with_tokens(context, base, file.clone(), tokens)?;
    let memberships = client.list::<VaultSummary>("/admin/vaults").await?;
    let mut memberships = memberships.into_iter();
    let own = memberships.find(|membership| membership.slug.as_str() == file.name());
    Ok(own.map_or(
        SignedInUser {
            id: None,
            email: None,
        },
        |own| SignedInUser {
            id: own.user_id,
            email: own.email.map(|email| email.to_string()),
        },
    ))
}

fn other_person(before: &SignedInUser, after: &SignedInUser) -> Failure {
    let (before, after) = (before.name(), after.name());
    fail!(
        AccessDenied,
        "this sign-in is of {before}, and {after} allowed the command in the browser: nothing was changed"
    )
    .hint("run the command again and choose \"Use another account\" on the page")
}

/// Revokes the refresh token, and with it every token of its sign-in. A failure is ignored: these
/// tokens are stored nowhere any more, so the user cannot use them and loses nothing.
async fn revoke(context: &Context, base: &Base, tokens: &Tokens) {
    let Some(endpoint) = &tokens.revocation_endpoint else {
        return;
    };
    // Never send a token to another origin, even if the token file was changed.
    if tokens.refresh_token.is_empty() || !base.is_origin_of(endpoint) {
        return;
    }
    let fields = [
        ("token", tokens.refresh_token.as_str()),
        ("token_type_hint", "refresh_token"),
        ("client_id", &tokens.client_id),
    ];
    if let Ok(http) = Http::new(context, base) {
        let _ = http.post_form(endpoint, &fields).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_who_is_known_to_be_the_same_is() {
        let user = |id: Option<&str>| SignedInUser {
            id: id.map(str::to_owned),
            email: Some("ann@example.org".to_owned()),
        };
        for (before, after, same) in [
            (Some("usr_a"), Some("usr_a"), true),
            (Some("usr_a"), Some("usr_b"), false),
            (Some("usr_a"), None, false),
            (None, None, false),
        ] {
            let found = user(before).is_same(&user(after));
            assert_eq!(found, same, "{before:?} {after:?}");
        }
    }
}
