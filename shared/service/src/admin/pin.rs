//! `POST …/pin/reset`: forgetting which vault a namespace belongs to, when the keys of that vault
//! are lost.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{ConfirmedPinReset, PinResetDone};

use super::call::{Answer, Call};
use super::principal::Principal;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::namespace::{self, PinReset, Pinned};

/// Forgets the pin: the next catalog counts as the first, whatever its vault, release and previous;
/// `If-Match` still names the current file. Machines that are linked keep their own pin: they
/// refuse the catalog of another vault until their people link anew.
pub(super) async fn reset(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    let asked: ConfirmedPinReset = call.json().await?;
    if asked.slug != namespace.slug.as_str() {
        return Err(ErrorCode::ConfirmationMismatch.into());
    }
    call.require_fresh()?;
    reset_pin(&call.principal()).await?;
    let slug = namespace.slug;
    Ok(json_answer(StatusCode::OK, &PinResetDone { slug, pin: () }))
}

/// Forgets the pin of the vault. The caller has proven a fresh sign-in, and that the person typed
/// the vault's name.
pub(crate) async fn reset_pin(by: &Principal<'_>) -> Result<(), Refusal> {
    by.app
        .change(async |tx| {
            let found = namespace::find(&tx, &by.namespace.slug).await?;
            let (mut namespace, revision) = found.ok_or(ErrorCode::NotFound)?;
            let before = std::mem::take(&mut namespace.pin);
            let change = Change::about(&by.namespace.slug).before(match &before {
                Pinned::Nothing => None,
                Pinned::Vault(pin) => {
                    Some(json!({ "vault_id": pin.vault_id, "root_version": pin.root_version }))
                }
                Pinned::Earlier(pin) => {
                    Some(json!({ "vault_id": pin.vault_id(), "earlier": true }))
                }
            });
            namespace.pin_reset = Some(PinReset {
                at: tx.now(),
                by: by.actor.user.clone(),
                vault_id: before.vault().map(|pin| pin.vault_id),
            });
            tx.write(namespace.update(revision)?);
            Ok(by.audit(&tx, "pin.reset", change)?)
        })
        .await
}
