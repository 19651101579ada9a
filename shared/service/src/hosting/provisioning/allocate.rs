//! Allocation of the namespace of a sign-up: one commit creates the namespace, its first owner, and
//! the record that leads from the namespace to the sign-up.

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::{When, Write};

use super::super::subscriptions::judge_subscriptions;
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{Account, account_key};
use crate::model::audit::{Actor, Change};
use crate::model::namespace::{self, Kind, Namespace};
use crate::model::provisioning::{
    Link, Provisioning, ProvisioningEvent, link_key, reservation_key,
};
use crate::model::user::{Role, Scopes, User};
use crate::transaction::Transaction;

/// Allocates the namespace of a sign-up and makes its account the owner. Returns false if the name
/// belongs to another vault or sign-up, or if the account no longer exists.
pub(super) async fn allocate_namespace(
    tx: &Transaction<'_>,
    app: &App,
    seen: &Versioned<Provisioning>,
) -> Result<bool, StoreError> {
    let sign_up = &seen.value;
    let keys = [
        account_key(&sign_up.account),
        namespace::namespace_key(&sign_up.slug),
        reservation_key(&sign_up.slug),
    ];
    let [account, taken, reservation] = tx.get_all(keys).await?;
    let reserved = Versioned::<Link>::read(reservation)?;
    let is_its = |link: &Versioned<Link>| link.value.reference == sign_up.reference;
    // A deleted vault keeps its name, so a record in any state means that the name is taken.
    if taken.is_some() || reserved.as_ref().is_some_and(|link| !is_its(link)) {
        return Ok(false);
    }
    let Some(account) = Versioned::<Account>::read(account)? else {
        tracing::error!("a sign-up was paid for whose account is deleted");
        return Ok(false);
    };
    let judged = judge_subscriptions(tx, &app.config.hosting, sign_up, None).await?;
    let slug = sign_up.slug.clone();
    let email = account.value.email.to_string();
    let mut namespace = Namespace::new(slug, Kind::Hosted, email, tx);
    namespace.subscription = judged.access;
    namespace.plan.clone_from(&sign_up.plan);
    let reference = namespace.to_ref();
    let after = sign_up.after_event(ProvisioningEvent::Allocated(reference.clone()));
    let Ok(Some(after)) = after else {
        return Err(tx.conflict());
    };
    let owner = User::new_active(&account.value, reference, Role::Owner, Scopes::ALL, tx);
    let reservation = reservation_key(&sign_up.slug);
    tx.write_all(namespace.allocation_writes()?);
    tx.write_all(owner.creation_writes()?);
    tx.write(after.to_write(When::At(seen.revision))?);
    let link = link_key(&namespace.slug);
    tx.write(Write::put(link, after.link_document()?, When::Absent));
    // If the reservation has expired, no other sign-up may have reserved the name by the time of
    // the commit.
    tx.write(match &reserved {
        Some(held) => Write::delete(reservation, When::At(held.revision)),
        None => Write::check(reservation, When::Absent),
    });
    tx.write_all(judged.checks);
    write_audits(tx, &namespace, &owner, &after)?;
    tx.commit_with_limits(0).await?;
    Ok(true)
}

/// Adds the audit entries: one to the log of the service, and the first one of the vault's own log.
fn write_audits(
    tx: &Transaction<'_>,
    namespace: &Namespace,
    owner: &User,
    sign_up: &Provisioning,
) -> Result<(), StoreError> {
    let change = Change::about(&namespace.slug).with_after(json!({
        "namespace_id": namespace.id, "owner": owner.email, "plan": sign_up.plan,
    }));
    let by = |user: String| Actor {
        user,
        ..Actor::default()
    };
    // The log of the service identifies the person by the account, that of the vault by its user.
    let (account, user) = (by(sign_up.account.to_string()), by(owner.id.clone()));
    tx.audit(None, &account, "namespace.create", change.clone())?;
    tx.audit(Some(&namespace.id), &user, "namespace.create", change)
}
