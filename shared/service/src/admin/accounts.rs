//! `/admin/operator/accounts`: the ways back. An operator invites an address to prove itself,
//! resets, disables, enables, deletes and signs out an account, and says who else operates the
//! service.
//!
//! Every change is written to the log of the service and of each namespace that the account has a
//! part in.

use axum::http::StatusCode;
use serde_json::{Value, json};
use vault_api::{DeletedAccount, NewAccount, ServiceSignOut, SignedOut};
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, MAX_PAGE, Record, When, Write};

use super::call::{Answer, Items, OperatorCall, cut};
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::Versioned;
use crate::model::account::{
    self, Account, AccountId, DIRECTORY, Email, Listed, account_key, invite_key, listed_key,
};
use crate::model::audit::Change;
use crate::model::members;
use crate::model::session::sign_in_key;
use crate::model::subject;
use crate::model::user::{MEMBERSHIPS, Membership, User, user_key};
use crate::transaction::Transaction;

/// In at most this many namespaces' logs one change of an account is written.
const MOST_LOGS: usize = 20;
/// Most times that one request removes memberships, [`MOST_LOGS`] each; a deletion of more goes on
/// with the next request.
const MOST_STEPS: usize = 10;

/// An account, as operators see it.
fn shown(account: Account) -> vault_api::Account {
    vault_api::Account {
        proven: !account.proofs.is_empty(),
        id: account.id.into(),
        email: account.email,
        operator: account.operator,
        disabled: account.disabled,
        invite_again: account.invite_again,
        created_at: account.created_at,
        second_factor: account.second_factor.is_some(),
        invite_url: None,
    }
}

/// Lists the accounts by address.
pub(super) async fn list(call: OperatorCall) -> Answer {
    let page = call.page()?;
    let records = &call.app.records;
    let found = records
        .list(DIRECTORY, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (found, next) = cut(found, page.limit);
    let mut items = Vec::new();
    for account in accounts(&call, &found).await? {
        items.push(shown(account.value));
    }
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// The accounts that some entries of the directory name.
async fn accounts(
    call: &OperatorCall,
    listed: &[Record],
) -> Result<Vec<Versioned<Account>>, StoreError> {
    let mut accounts = Vec::new();
    for some in listed.chunks(MAX_KEYS) {
        let mut keys = Vec::new();
        for record in some {
            keys.push(account_key(&record.read::<Listed>()?.account));
        }
        for record in call.app.records.get_many(&keys).await? {
            accounts.extend(Versioned::<Account>::read(record)?);
        }
    }
    Ok(accounts)
}

/// Makes the link by which an address is proven with a password. An account that can sign in gets
/// none.
pub(super) async fn invite(call: OperatorCall) -> Answer {
    let wanted: NewAccount = call.json().await?;
    let email: Email = wanted.email.parse_or(ErrorCode::EmailInvalid)?;
    call.require_fresh()?;
    let invite = async |tx: Transaction<'_>| {
        let issuer = call.app.config.public_url.base();
        let invited = account::invite(&tx, &email, issuer, tx.now()).await?;
        tx.write_all(invited.writes);
        let after = json!({ "email": email, "link": invited.url.is_some() });
        log(&tx, &call, &invited.account, "account.invite", None, after).await?;
        Ok::<_, Refusal>(vault_api::Account {
            invite_url: invited.url,
            ..shown(invited.account)
        })
    };
    let shown = call.app.change(invite).await?;
    Ok(json_answer(StatusCode::CREATED, &shown))
}

/// Takes every proof away and makes a new link: for a person who lost the password or whose
/// password is known to others. Everything that was signed in ends.
pub(super) async fn reset(call: OperatorCall) -> Answer {
    call.require_fresh()?;
    let email = address(&call)?;
    let reset = async |tx: Transaction<'_>| {
        let issuer = call.app.config.public_url.base();
        let done = account::reset(&tx, &email, issuer, tx.now()).await?;
        let done = done.ok_or(ErrorCode::AccountNotFound)?;
        tx.write_all(done.writes);
        let after = json!({ "email": email });
        log(&tx, &call, &done.account, "account.reset", None, after).await?;
        Ok::<_, Refusal>(vault_api::Account {
            invite_url: done.url,
            ..shown(done.account)
        })
    };
    let shown = call.app.change(reset).await?;
    Ok(json_answer(StatusCode::OK, &shown))
}

/// Stops an account: nothing that it signed in works, and it cannot sign in.
pub(super) async fn disable(call: OperatorCall) -> Answer {
    let stop = |account: &mut Account| {
        account.disabled = true;
        account.raise_epoch();
    };
    change(
        &call,
        "account.disable",
        stop,
        |account| json!({ "disabled": account.disabled }),
    )
    .await
}

/// Lets a disabled account sign in again.
pub(super) async fn enable(call: OperatorCall) -> Answer {
    let start = |account: &mut Account| account.disabled = false;
    change(
        &call,
        "account.enable",
        start,
        |account| json!({ "disabled": account.disabled }),
    )
    .await
}

/// Ends every app and session of an account; the person signs in again.
pub(super) async fn sign_out(call: OperatorCall) -> Answer {
    change(
        &call,
        "account.sign-out",
        Account::raise_epoch,
        |account| json!({ "epoch": account.epoch }),
    )
    .await
}

/// Makes an account an operator.
pub(super) async fn grant(call: OperatorCall) -> Answer {
    call.require_fresh()?;
    let grant = |account: &mut Account| account.operator = true;
    change(
        &call,
        "account.grant",
        grant,
        |account| json!({ "operator": account.operator }),
    )
    .await
}

/// Makes an operator an account like any other.
pub(super) async fn revoke(call: OperatorCall) -> Answer {
    call.require_fresh()?;
    let revoke = |account: &mut Account| account.operator = false;
    change(
        &call,
        "account.revoke",
        revoke,
        |account| json!({ "operator": account.operator }),
    )
    .await
}

/// Changes the account that the path names; `told` says for the log what changed. One operator who
/// can sign in stays.
async fn change(
    call: &OperatorCall,
    name: &str,
    set: impl Fn(&mut Account),
    told: impl Fn(&Account) -> Value,
) -> Answer {
    let email = address(call)?;
    let change = async |tx: Transaction<'_>| {
        let found = find(call, &email).await?;
        let mut account = found.value.clone();
        set(&mut account);
        tx.write(account.update(found.revision)?);
        if operates(&found.value) && !operates(&account) {
            tx.write(another_operator(call, &account.id).await?);
        }
        let before = Some(told(&found.value));
        log(&tx, call, &account, name, before, told(&account)).await?;
        Ok::<_, Refusal>(account)
    };
    let account = call.app.change(change).await?;
    Ok(json_answer(StatusCode::OK, &shown(account)))
}

/// Deletes an account with its memberships; 503 while more of them are left than one request
/// removes. Its entries in the logs stay.
pub(super) async fn delete(call: OperatorCall) -> Answer {
    call.require_fresh()?;
    let email = address(&call)?;
    let found = find(&call, &email).await?;
    let id = found.value.id.clone();
    if operates(&found.value) {
        another_operator(&call, &id).await?;
    }
    let mut without_owner = Vec::new();
    // The account goes last: a deletion that was broken off is asked for again, and finds it.
    let mut steps = 0..MOST_STEPS;
    while remove_memberships(&call, &id, &mut without_owner).await? {
        if steps.next().is_none() {
            return Err(ErrorCode::Unavailable.into());
        }
    }
    let delete = async |tx: Transaction<'_>| {
        let found = find(&call, &email).await?;
        let account = found.value;
        tx.write_all([
            Write::delete(account_key(&account.id), When::At(found.revision)),
            Write::delete(listed_key(&email), When::Any),
            Write::delete(sign_in_key(&account.id), When::Any),
        ]);
        let link = account.invite.as_ref();
        tx.write_all(link.map(|link| Write::delete(invite_key(link), When::Any)));
        tx.write_all(account.subjects().map(subject::removal));
        if operates(&account) {
            tx.write(another_operator(&call, &account.id).await?);
        }
        let change = Change::about(&account.id)
            .before(json!({ "email": email, "operator": account.operator }));
        call.audit(&tx, "account.delete", &change, &[])
    };
    call.app.change(delete).await?;
    let deleted = DeletedAccount {
        id: id.into(),
        email,
        without_owner,
    };
    Ok(json_answer(StatusCode::OK, &deleted))
}

/// Removes some memberships of an account; false when none was left.
async fn remove_memberships(
    call: &OperatorCall,
    id: &AccountId,
    without_owner: &mut Vec<String>,
) -> Result<bool, Refusal> {
    let partition = account::partition(id);
    let found = call
        .app
        .records
        .list(&partition, MEMBERSHIPS, None, MOST_LOGS)
        .await?;
    for record in &found {
        let entry: Membership = record.read()?;
        let home = &entry.namespace;
        let remove = async |tx: Transaction<'_>| {
            let key = user_key(&home.id, &entry.user_id);
            let Some(user) = tx.get::<User>(&key).await? else {
                // The entry leads nowhere.
                tx.write(Write::delete(record.key.clone(), When::Any));
                return Ok(false);
            };
            let other = members::another_owner(&tx, &home.id, &user.value.id).await?;
            tx.write_all(user.value.removal(user.revision));
            let change = Change::about(&user.value.id)
                .before(json!({ "email": user.value.email, "role": user.value.role }));
            tx.audit(Some(&home.id), &call.actor, "account.delete", change)?;
            Ok::<_, StoreError>(user.value.administers() && other.is_none())
        };
        if call.app.change(remove).await? {
            without_owner.push(home.slug.to_string());
        }
    }
    Ok(!found.is_empty())
}

/// The address in the path.
fn address(call: &OperatorCall) -> Result<Email, Refusal> {
    let email = call.param("email").parse();
    email.map_err(|_| ErrorCode::AccountNotFound.into())
}

async fn find(call: &OperatorCall, email: &Email) -> Result<Versioned<Account>, Refusal> {
    let found = account::find(&call.app, email).await?;
    found.ok_or_else(|| ErrorCode::AccountNotFound.into())
}

const fn operates(account: &Account) -> bool {
    account.operator && account.can_sign_in()
}

/// The check that another operator than `id` stays, who can sign in; 409 when there is none. It may
/// read every account, and so it is asked only when an operator goes.
async fn another_operator(call: &OperatorCall, id: &AccountId) -> Result<Write, Refusal> {
    let mut after: Option<String> = None;
    loop {
        let records = &call.app.records;
        let found = records
            .list(DIRECTORY, "", after.as_deref(), MAX_PAGE)
            .await?;
        after = found.last().map(|record| record.key.key.clone());
        let accounts = accounts(call, &found).await?;
        let mut accounts = accounts.into_iter();
        if let Some(other) = accounts.find(|one| operates(&one.value) && one.value.id != *id) {
            let key = account_key(&other.value.id);
            return Ok(Write::check(key, When::At(other.revision)));
        }
        if found.len() < MAX_PAGE {
            return Err(ErrorCode::LastOperator.into());
        }
    }
}

/// Adds the audit records of a change to the commit that makes it: in the log of the service, and in
/// those of the account's namespaces.
async fn log(
    tx: &Transaction<'_>,
    call: &OperatorCall,
    account: &Account,
    name: &str,
    before: Option<Value>,
    after: Value,
) -> Result<(), Refusal> {
    let partition = account::partition(&account.id);
    let found = tx
        .records
        .list(&partition, MEMBERSHIPS, None, MOST_LOGS)
        .await?;
    let home = |record: &Record| Ok(record.read::<Membership>()?.namespace.id);
    let homes = found
        .iter()
        .map(home)
        .collect::<Result<Vec<_>, StoreError>>()?;
    let change = Change::about(&account.id).before(before).after(after);
    call.audit(tx, name, &change, &homes)
}

/// Ends every token and session of the service, when the body says `everybody`.
pub(super) async fn sign_out_everybody(call: OperatorCall) -> Answer {
    if call.json::<ServiceSignOut>().await?.confirm != "everybody" {
        return Err(ErrorCode::ConfirmationMismatch.into());
    }
    let raise = async |tx: Transaction<'_>| {
        let key = account::service_epoch_key();
        let found = tx.get::<account::ServiceEpoch>(&key).await?;
        let (epoch, when) = found.map_or((0, When::Absent), |found| {
            (found.value.epoch, When::At(found.revision))
        });
        let next = account::ServiceEpoch {
            epoch: epoch.wrapping_add(1),
        };
        let change = Change::default()
            .before(json!({ "epoch": epoch }))
            .after(json!({ "epoch": next.epoch }));
        let document = vault_store::records::Document::of(&next)?;
        tx.write(Write::put(key, document, when));
        call.audit(&tx, "service.sign-out", &change, &[])?;
        Ok::<_, Refusal>(next)
    };
    let next = call.app.change(raise).await?;
    let answer = SignedOut { epoch: next.epoch };
    Ok(json_answer(StatusCode::OK, &answer))
}
