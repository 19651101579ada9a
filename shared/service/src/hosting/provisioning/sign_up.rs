//! Sign-up for a vault: reserves the chosen name for 24 hours.

use serde_json::json;
use vault_format::name::{SkillName, Slug};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::{find_sign_up, load_sign_ups, read_slots};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::Account;
use crate::model::audit::{Actor, Change};
use crate::model::namespace;
use crate::model::payment::{PaidSubscription, subscription_key};
use crate::model::provisioning::{
    Link, MAX_UNPAID, Provisioning, ProvisioningEvent, RESERVATION_SECONDS, Reference,
    SignUpPayment, UNPAID_DAYS, open_key, reservation_key, sign_up_key,
};
use crate::ports::Ports;
use crate::transaction::Transaction;

#[derive(Clone, Debug)]
pub(crate) struct SignUpChoice {
    /// Name of the vault; never a reserved one.
    pub(crate) slug: Slug,
    /// Name of the plan; `None` if vaults are free.
    pub(crate) plan: Option<String>,
    /// Starter skills that the service saves as drafts of the new vault.
    pub(crate) starter_skills: Vec<SkillName>,
}

/// Error: a name was not reserved or changed. Its text is shown to the person.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ReservationError {
    /// A vault has or had the name, or another sign-up has reserved it.
    #[error("The name is taken. Choose another one.")]
    Taken,
    /// The account has the maximum number of unpaid sign-ups and free vaults.
    #[error(
        "You have {MAX_UNPAID} vaults that are not paid for. Pay for one of them first, or wait until its reservation ends."
    )]
    TooMany,
    /// The account has an unpaid sign-up with this name and a plan, and vaults have no plans any
    /// more.
    #[error(
        "You signed up for this name with a plan that is no longer for sale. Choose another name: this one can be chosen again {UNPAID_DAYS} days after that sign-up."
    )]
    HeldBefore,
    /// A payment has arrived for the sign-up whose plan is to change.
    #[error(
        "A payment has arrived for your vault with this name, so its plan stays as it is. Ask the operator of this service to change it."
    )]
    PaymentArrived,
    /// The sign-up whose name is to change has not been paid for.
    #[error(
        "Nothing has been paid for this vault yet, so its name stays as it is. Its section below says how to go on."
    )]
    Unpaid,
    /// The account has no such sign-up, or its vault has been created.
    #[error("The vault has been created already, or the sign-up has ended.")]
    Gone,
}

/// Reserves a name for an account. If the account has reserved it already, returns that sign-up,
/// with the newly chosen plan if nothing was paid yet.
pub(crate) async fn sign_up(
    app: &App,
    account: &Account,
    choice: &SignUpChoice,
    actor: &Actor,
) -> Result<Result<Reference, ReservationError>, StoreError> {
    app.change(async |tx| reserve_name(&tx, account, choice, actor).await)
        .await
}

async fn reserve_name(
    tx: &Transaction<'_>,
    account: &Account,
    choice: &SignUpChoice,
    actor: &Actor,
) -> Result<Result<Reference, ReservationError>, StoreError> {
    match find_holder(tx, &choice.slug).await? {
        NameHolder::Nobody => {}
        NameHolder::Vault => return Ok(Err(ReservationError::Taken)),
        NameHolder::SignUp(reference) => {
            // A form that is sent twice finds the reservation of its own account. A reservation of
            // another account gets the same answer as a vault.
            let existing = find_sign_up(tx, &reference).await?;
            let own_reservation =
                existing.filter(|reservation| reservation.value.account == account.id);
            let Some(reservation) = own_reservation else {
                return Ok(Err(ReservationError::Taken));
            };
            return change_plan(tx, &reservation, choice).await;
        }
    }
    if let Some(reservation) = find_unreserved_sign_up(tx, account, &choice.slug).await? {
        return change_plan(tx, &reservation, choice).await;
    }
    // The few slots of each account bound how many names a person can hold without paying.
    let slots = read_slots(tx, &account.id).await?;
    let Some((slot, _)) = slots.into_iter().find(|(_, occupant)| occupant.is_none()) else {
        return Ok(Err(ReservationError::TooMany));
    };
    let is_free = choice.plan.is_none();
    let now = tx.now();
    let sign_up = Provisioning {
        reference: Reference::fresh(&tx.random),
        account: account.id.clone(),
        slug: choice.slug.clone(),
        plan: choice.plan.clone(),
        starter_skills: choice.starter_skills.clone(),
        payment: if is_free {
            SignUpPayment::Free
        } else {
            SignUpPayment::Awaited
        },
        subscription: None,
        standby: Vec::new(),
        namespace: None,
        imported: false,
        created_at: now,
        refused_at: None,
    };
    let link = sign_up.link_document()?;
    let listed = sign_up_key(&account.id, &sign_up.reference);
    tx.write(sign_up.to_write(When::Absent)?);
    // An operator may create a vault with this name before the commit.
    tx.write(Write::check(
        namespace::namespace_key(&sign_up.slug),
        When::Absent,
    ));
    tx.write(reservation_write(&sign_up, now, link.clone()));
    if is_free {
        // A free vault occupies its slot until it is deleted, because no payment frees it.
        tx.write(Write::put(slot, link.clone(), When::Absent));
        tx.write(Write::put(listed, link.clone(), When::Absent));
        tx.write(Write::put(open_key(&sign_up.reference), link, When::Absent));
    } else {
        // The sign-up outlives the reservation, because a payment may arrive after the name has
        // become free again.
        let reserved_until = sign_up.reserved_until();
        let kept_until = now.plus_days(UNPAID_DAYS);
        let slot = Write::put_until(slot, link.clone(), When::Absent, reserved_until);
        tx.write(slot);
        tx.write(Write::put_until(listed, link, When::Absent, kept_until));
    }
    let change = Change::about(&sign_up.slug)
        .with_after(json!({ "plan": sign_up.plan, "reference": sign_up.reference }));
    tx.audit(None, actor, "vault.sign-up", change)?;
    Ok(Ok(sign_up.reference))
}

/// Returns the unpaid sign-up of an account with this name, whose reservation has ended. The name
/// is not reserved for it again, so that nobody can hold a name forever without paying; but it can
/// still be paid for.
async fn find_unreserved_sign_up(
    ports: &Ports,
    account: &Account,
    slug: &Slug,
) -> Result<Option<Versioned<Provisioning>>, StoreError> {
    let earlier = load_sign_ups(ports, &account.id).await?;
    let is_held =
        |sign_up: &Provisioning| sign_up.payment == SignUpPayment::Awaited && sign_up.slug == *slug;
    match earlier.into_iter().find(is_held) {
        Some(sign_up) => find_sign_up(ports, &sign_up.reference).await,
        None => Ok(None),
    }
}

/// Changes plan and starter skills of a sign-up (read as `seen`) to those of a later choice of the
/// same name, unless something was paid for it.
async fn change_plan(
    tx: &Transaction<'_>,
    seen: &Versioned<Provisioning>,
    choice: &SignUpChoice,
) -> Result<Result<Reference, ReservationError>, StoreError> {
    let present = &seen.value;
    if present.payment != SignUpPayment::Awaited || present.plan == choice.plan {
        return Ok(Ok(present.reference.clone()));
    }
    if present.refused_at.is_some() || has_open_subscription(tx, present).await? {
        return Ok(Err(ReservationError::PaymentArrived));
    }
    if choice.plan.is_none() {
        return Ok(Err(ReservationError::HeldBefore));
    }
    let after = Provisioning {
        plan: choice.plan.clone(),
        starter_skills: choice.starter_skills.clone(),
        ..present.clone()
    };
    // Nothing is audited, because the person may change an unpaid choice any number of times. The
    // entry about the new vault names the plan.
    tx.write(after.to_write(When::At(seen.revision))?);
    Ok(Ok(after.reference))
}

/// Whether a subscription of a sign-up may still be paid.
async fn has_open_subscription(ports: &Ports, sign_up: &Provisioning) -> Result<bool, StoreError> {
    let ids = sign_up.subscription.iter().chain(&sign_up.standby);
    let keys: Vec<_> = ids.map(subscription_key).collect();
    if keys.is_empty() {
        return Ok(false);
    }
    for record in ports.records.get_many(&keys).await? {
        let stored = Versioned::<PaidSubscription>::read(record)?;
        // A subscription that is over stays over, so the commit need not check it.
        if !stored.is_some_and(|stored| stored.value.is_over()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Changes the name of a sign-up that is paid for or free and whose name another vault took.
pub(crate) async fn rename_sign_up(
    app: &App,
    account: &Account,
    reference: &Reference,
    slug: &Slug,
    actor: &Actor,
) -> Result<Result<(), ReservationError>, StoreError> {
    app.change(async |tx| rename_in(&tx, account, reference, slug, actor).await)
        .await
}

async fn rename_in(
    tx: &Transaction<'_>,
    account: &Account,
    reference: &Reference,
    slug: &Slug,
    actor: &Actor,
) -> Result<Result<(), ReservationError>, StoreError> {
    let stored = find_sign_up(tx, reference).await?;
    let Some(seen) = stored.filter(|stored| stored.value.account == account.id) else {
        return Ok(Err(ReservationError::Gone));
    };
    // Without this check, a person who pays nothing could reserve one name after another and fill
    // the audit log.
    if seen.value.payment == SignUpPayment::Awaited {
        return Ok(Err(ReservationError::Unpaid));
    }
    let after = match seen
        .value
        .after_event(ProvisioningEvent::Renamed(slug.clone()))
    {
        Err(_) => return Ok(Err(ReservationError::Gone)),
        // The name is the same, but its reservation may have expired, so it is made again below.
        Ok(None) => seen.value.clone(),
        Ok(Some(after)) => after,
    };
    match find_holder(tx, slug).await? {
        NameHolder::Nobody => {}
        NameHolder::SignUp(holder) if holder == *reference => return Ok(Ok(())),
        _ => return Ok(Err(ReservationError::Taken)),
    }
    tx.write(after.to_write(When::At(seen.revision))?);
    tx.write(Write::check(namespace::namespace_key(slug), When::Absent));
    tx.write(reservation_write(&after, tx.now(), after.link_document()?));
    // The old name becomes free at once. A reservation that another sign-up has made meanwhile
    // stays.
    let before = reservation_key(&seen.value.slug);
    if seen.value.slug != *slug
        && let Some(old_reservation) = tx.get::<Link>(&before).await?
        && old_reservation.value.reference == *reference
    {
        tx.write(Write::delete(before, When::At(old_reservation.revision)));
    }
    let change = Change::about(&slug)
        .with_before(json!({ "slug": seen.value.slug }))
        .with_after(json!({ "slug": slug }));
    tx.audit(None, actor, "vault.sign-up", change)?;
    Ok(Ok(()))
}

/// Who has a name at present. Names of deleted vaults stay taken.
enum NameHolder {
    /// Neither a vault nor a sign-up has the name.
    Nobody,
    /// A vault has the name, or a deleted vault had it.
    Vault,
    /// The sign-up with this reference has reserved the name.
    SignUp(Reference),
}

/// Looks for a vault first, then for a sign-up that has reserved the name.
async fn find_holder(ports: &Ports, slug: &Slug) -> Result<NameHolder, StoreError> {
    let keys = [namespace::namespace_key(slug), reservation_key(slug)];
    let [vault, reservation] = ports.get_all(keys).await?;
    Ok(match (vault, Versioned::<Link>::read(reservation)?) {
        (Some(_), _) => NameHolder::Vault,
        (None, Some(sign_up)) => NameHolder::SignUp(sign_up.value.reference),
        (None, None) => NameHolder::Nobody,
    })
}

/// Returns the write that reserves the name of a sign-up. It fails the commit if another sign-up
/// has reserved the name.
fn reservation_write(sign_up: &Provisioning, now: Timestamp, link: Document) -> Write {
    let key: RecordKey = reservation_key(&sign_up.slug);
    let until = match sign_up.payment {
        SignUpPayment::Awaited => sign_up.reserved_until(),
        // A day is long enough, because the vault is created next.
        SignUpPayment::Free | SignUpPayment::Confirmed => now.plus_seconds(RESERVATION_SECONDS),
    };
    Write::put_until(key, link, When::Absent, until)
}
