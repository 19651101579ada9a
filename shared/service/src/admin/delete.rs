//! `DELETE /admin/vaults/{slug}`: deletes a vault with everything in it.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{ConfirmedVault, DeletedVault};

use super::call::{Answer, Call};
use super::principal::Principal;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::namespace::{self, Kind, Status};
use crate::model::permit::Act;

/// Deletes the vault in the path. The body must repeat the vault's name, and the person must have
/// confirmed the deletion.
pub(super) async fn handle_delete(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    if call.json_body::<ConfirmedVault>().await?.slug != namespace.slug.as_str() {
        return Err(ErrorCode::ConfirmationMismatch.into());
    }
    let deletion = delete_vault(&call.to_principal()).await;
    call.confirm_outcome(&Act::DeleteVault {}, deletion).await?;
    let deleted = DeletedVault {
        slug: namespace.slug,
        status: Status::Deleted,
    };
    Ok(json_answer(StatusCode::OK, &deleted))
}

/// Deletes the vault, with the permit for it. The caller has checked that the owner typed the
/// vault's name. The vault then no longer exists for people, apps and machines; background work
/// removes its content. A vault that its own server signs cannot be deleted: the server holds its
/// key and its skills, and would publish again.
pub(crate) async fn delete_vault(by: &Principal<'_>) -> Result<(), Refusal> {
    by.require_owner()?;
    if by.namespace.kind == Kind::SelfSigned {
        return Err(ErrorCode::NamespaceSelfSigned.into());
    }
    by.app
        .change(async |tx| {
            let namespace_and_revision = namespace::find_namespace(&tx, &by.namespace.slug).await?;
            // The owner confirmed the deletion of this allocation of the slug, so it must still be
            // the same one.
            let namespace_and_revision =
                namespace_and_revision.filter(|(found, _)| found.id == by.namespace.id);
            let (namespace, revision) = namespace_and_revision.ok_or(ErrorCode::NotFound)?;
            by.spend_permit(&tx, &Act::DeleteVault {}).await?;
            let change = Change::about(&namespace.slug)
                .with_before(json!({ "status": namespace.status, "namespace_id": namespace.id }))
                .with_after(json!({ "status": Status::Deleted }));
            tx.write_all(namespace.deletion_writes(revision, tx.now())?);
            // The log of the vault is deleted with it, so the service's own log records who deleted
            // the vault.
            for log in [None, Some(&namespace.id)] {
                tx.audit(log, by.actor, "vault.delete", change.clone())?;
            }
            Ok(())
        })
        .await
}
