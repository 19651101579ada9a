//! The allocation of the namespace of a sign-up: one commit makes the namespace, its owner and the
//! link between them.

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::{Commit, When, Write};

use crate::app::App;
use crate::model::account::{Account, account_key};
use crate::model::audit::{Actor, Change};
use crate::model::namespace::{self, Kind, Namespace, NamespaceRef, Subscription};
use crate::model::payment::{PaidSubscription, subscription_key};
use crate::model::provisioning::{Happened, Link, Provisioning, link_key, reservation_key};
use crate::model::user::{Role, Scopes, User};
use crate::model::{Versioned, read_all};

/// What became of an attempt.
pub(super) enum Allocation {
    /// The namespace is there.
    Done,
    /// The name belongs to another vault, or there is no account to give it to.
    NameTaken,
    /// Something changed meanwhile.
    Lost,
}

/// Allocates the namespace of a sign-up that may have one. The account becomes its owner.
pub(super) async fn allocate(
    app: &App,
    seen: &Versioned<Provisioning>,
) -> Result<Allocation, StoreError> {
    let sign_up = &seen.value;
    let keys = [
        account_key(&sign_up.account),
        namespace::key(&sign_up.slug),
        reservation_key(&sign_up.slug),
    ];
    let [account, taken, reservation] = read_all(&*app.records, keys).await?;
    let held = Versioned::<Link>::read(reservation)?;
    let is_its = |link: &Versioned<Link>| link.value.reference == sign_up.reference;
    if taken.is_some() || held.as_ref().is_some_and(|link| !is_its(link)) {
        return Ok(Allocation::NameTaken);
    }
    let Some(account) = Versioned::<Account>::read(account)? else {
        tracing::error!("a sign-up was paid for whose account is deleted");
        return Ok(Allocation::NameTaken);
    };
    let (subscription, paid) = subscription(app, sign_up).await?;
    let slug = sign_up.slug.clone();
    let email = account.value.email.to_string();
    let mut namespace = Namespace::new(slug, Kind::Hosted, email, &*app.clock, &*app.random);
    namespace.subscription = subscription;
    let reference = NamespaceRef {
        slug: namespace.slug.clone(),
        id: namespace.id,
    };
    let after = sign_up.after(Happened::Allocated(reference.clone()));
    let Ok(Some(after)) = after else {
        return Ok(Allocation::Lost);
    };
    let now = app.clock.now();
    let owner = User::active(
        &account.value,
        reference,
        Role::Owner,
        Scopes::ALL,
        now,
        &*app.random,
    );
    let reservation = reservation_key(&sign_up.slug);
    let mut writes = namespace.allocation()?;
    writes.extend(owner.creation()?);
    writes.push(after.write(When::At(seen.revision))?);
    writes.push(Write::put(
        link_key(&namespace.slug),
        after.link()?,
        When::Absent,
    ));
    writes.push(match &held {
        Some(held) => Write::delete(reservation, When::At(held.revision)),
        None => Write::check(reservation, When::Absent),
    });
    writes.extend(paid);
    writes.extend(entries(app, &namespace, &owner, &after)?);
    match app.records.commit(writes).await {
        Ok(Commit::Done(_)) => Ok(Allocation::Done),
        Ok(Commit::Failed { .. }) | Err(StoreError::Conflict) => Ok(Allocation::Lost),
        Err(error) => Err(error),
    }
}

/// What the new namespace has, and the check that the subscription is still as it was read.
async fn subscription(
    app: &App,
    sign_up: &Provisioning,
) -> Result<(Subscription, Option<Write>), StoreError> {
    let Some(id) = &sign_up.subscription else {
        return Ok((Subscription::None, None));
    };
    let key = subscription_key(id);
    let Some(paid) = Versioned::<PaidSubscription>::read(app.records.get(&key).await?)? else {
        return Ok((Subscription::Lapsed, None));
    };
    let access = paid.value.access(app.config.hosting.grace_days);
    Ok((access, Some(Write::check(key, When::At(paid.revision)))))
}

/// The audit entries, in the log of the service and as the first one in that of the vault.
fn entries(
    app: &App,
    namespace: &Namespace,
    owner: &User,
    sign_up: &Provisioning,
) -> Result<Vec<Write>, StoreError> {
    let change = Change {
        target: Some(namespace.slug.to_string()),
        before: None,
        after: Some(json!({
            "namespace_id": namespace.id, "owner": owner.email, "plan": sign_up.plan,
        })),
    };
    let by = |user: String| Actor {
        user,
        ..Actor::default()
    };
    let (account, user) = (by(sign_up.account.to_string()), by(owner.id.clone()));
    [(None, account), (Some(&namespace.id), user)]
        .into_iter()
        .map(|(log, actor)| app.audit(log, &actor, "namespace.create", change.clone(), "done"))
        .collect()
}
