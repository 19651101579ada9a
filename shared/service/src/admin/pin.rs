//! `POST …/pin/reset`: removes the pin of a namespace, for an owner whose vault keys are lost. The
//! pin names the vault keys (root version) whose catalogs the service accepts.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{ConfirmedPinReset, PinResetDone};

use super::call::{Answer, Call};
use super::principal::Principal;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::namespace::{self, PinReset, Pinned};
use crate::model::permit::Act;

/// Removes the pin. The next catalog is then accepted as the first one, whatever its vault, release
/// number and `previous`; `If-Match` must still name the current catalog file. Linked machines keep
/// their own pin: they reject the catalog of another vault until their users link them again.
pub(super) async fn handle_reset(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let confirmation: ConfirmedPinReset = call.json_body().await?;
    // The name in the body must repeat the one in the path: a request that was sent to the wrong
    // vault by mistake must not reset a pin.
    if confirmation.slug != namespace.slug.as_str() {
        return Err(ErrorCode::ConfirmationMismatch.into());
    }
    let reset = reset_pin(&call.to_principal()).await;
    call.confirm_outcome(&Act::ResetPin {}, reset).await?;
    let slug = namespace.slug;
    Ok(json_answer(StatusCode::OK, &PinResetDone { slug, pin: () }))
}

/// Removes the pin and uses the permit for it. The caller has checked that the user typed the
/// vault's name.
pub(crate) async fn reset_pin(by: &Principal<'_>) -> Result<(), Refusal> {
    by.app
        .change(async |tx| {
            let namespace_and_revision = namespace::find_namespace(&tx, &by.namespace.slug).await?;
            let (mut namespace, revision) = namespace_and_revision.ok_or(ErrorCode::NotFound)?;
            by.spend_permit(&tx, &Act::ResetPin {}).await?;
            // Read inside the transaction, so that the audit record shows the pin that was really
            // replaced, even if a publisher pinned a new root a moment before.
            let before = std::mem::take(&mut namespace.pin);
            let change = Change::about(&by.namespace.slug).with_before(match &before {
                Pinned::Nothing => None,
                Pinned::Vault(pin) => {
                    Some(json!({ "vault_id": pin.vault_id, "root_version": pin.root_version }))
                }
                Pinned::Earlier(pin) => {
                    Some(json!({ "vault_id": pin.vault_id(), "earlier": true }))
                }
            });
            // Stays in the record after the next release, so that owners see who reset the pin, and
            // of which vault.
            namespace.pin_reset = Some(PinReset {
                at: tx.now(),
                by: by.actor.user.clone(),
                vault_id: before.vault_pin().map(|pin| pin.vault_id),
            });
            tx.write(namespace.update_write(revision)?);
            Ok(by.write_audit(&tx, "pin.reset", change)?)
        })
        .await
}
