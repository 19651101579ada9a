//! More rights for a sign-in: a command that lacks a scope asks the user for it in the browser.

use super::{
    Base,
    sign_in::{SignIn, Wider, sign_in},
    tokens::TokenFile,
};
use crate::{
    context::Context,
    errors::{Failure, MissingScope},
    output::join,
};

/// Asks the user for the scope that a command lacked, in the browser, and stores the new tokens.
/// Returns whether the command can be run again: false where there is nobody to ask, or the consent
/// page did not give the scope.
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
    let operator = file.name().starts_with('@');
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
    file.write(&tokens, &file.lock()?)?;
    // The person may have left the box unticked.
    let given: Vec<&str> = tokens.scope.split(' ').collect();
    Ok(missing
        .scopes
        .split(' ')
        .all(|scope| given.contains(&scope)))
}
