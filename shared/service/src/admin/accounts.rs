//! `/admin/operator/accounts`: recovers accounts and grants operator rights. An operator creates
//! the link with which the holder of an address sets a password; resets, disables, enables, signs
//! out and deletes accounts; and makes other accounts operators.
//!
//! Every change is written to the audit log of the service, and to the logs of the namespaces that
//! the account is a member of. To reset or delete an account, and to grant or revoke operator
//! rights, a permit is needed: the operator first confirms the act on a page of the service.

use axum::http::StatusCode;
use serde_json::{Value, json};
use vault_api::{DeletedAccount, NewAccount, ServiceSignOut, SignedOut};
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, MAX_PAGE, Record, When, Write};

use super::call::{Answer, Items, OperatorCall, trim_page};
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::Versioned;
use crate::model::account::{
    self, Account, AccountId, AddressEntry, DIRECTORY, Email, PreparedAccount, account_key,
    account_partition, directory_key, invite_key,
};
use crate::model::audit::Change;
use crate::model::members;
use crate::model::permit::Act;
use crate::model::session::sign_in_key;
use crate::model::subject;
use crate::model::user::{MEMBERSHIPS, Membership, User, user_key};
use crate::transaction::Transaction;

/// Maximum number of namespaces whose logs get an entry about a change of an account; also the
/// number of memberships that a deletion removes in one batch.
const MAX_ACCOUNT_LOGS: usize = 20;
/// Maximum number of batches of [`MAX_ACCOUNT_LOGS`] memberships that one request removes. The
/// deletion of an account with more continues with the next request.
const MAX_REMOVAL_BATCHES: usize = 10;

fn to_api_account(account: Account) -> vault_api::Account {
    vault_api::Account {
        proven: !account.proofs.is_empty(),
        id: account.id.into(),
        email: account.email,
        operator: account.operator,
        disabled: account.disabled,
        deletion_begun: account.deletion_begun,
        invite_again: account.invite_again,
        created_at: account.created_at,
        second_factor: account.second_factor.is_some(),
        invite_url: None,
    }
}

/// Lists the accounts by address.
pub(super) async fn list_accounts(call: OperatorCall) -> Answer {
    let page = call.page_params()?;
    let records = &call.app.records;
    let page_records = records
        .list_page(DIRECTORY, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (page_records, next) = trim_page(page_records, page.limit);
    let mut items = Vec::new();
    for account in read_accounts(&call, &page_records).await? {
        items.push(to_api_account(account.value));
    }
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Reads the accounts that these entries of the directory of addresses refer to.
async fn read_accounts(
    call: &OperatorCall,
    listed: &[Record],
) -> Result<Vec<Versioned<Account>>, StoreError> {
    let mut accounts = Vec::new();
    for some in listed.chunks(MAX_KEYS) {
        let mut keys = Vec::new();
        for record in some {
            keys.push(account_key(&record.read::<AddressEntry>()?.account));
        }
        for record in call.app.records.get_many(&keys).await? {
            // An entry without an account is skipped: the account may have been deleted since the
            // directory was read.
            accounts.extend(Versioned::<Account>::read(record)?);
        }
    }
    Ok(accounts)
}

/// Creates the link with which the owner of an address sets a password. No link is created for an
/// account that can sign in already. Whoever opens the link gets the account, so for an existing
/// account with vaults or operator rights the operator must confirm it, as for a reset.
pub(super) async fn invite_account(call: OperatorCall) -> Answer {
    let new_account: NewAccount = call.json_body().await?;
    let email: Email = new_account.email.parse_or(ErrorCode::EmailInvalid)?;
    let act = Act::ResetAccount {
        email: email.clone(),
    };
    let invite = async |tx: Transaction<'_>| {
        let issuer = call.app.config.public_url.base();
        let invited = account::prepare_invitation(&tx, &email, issuer, tx.now()).await?;
        refuse_during_deletion(&invited.account)?;
        spend_permit_for_takeover(&tx, &call, &invited, &act).await?;
        tx.write_all(invited.writes);
        let change = Change::about(&invited.account.id)
            .with_after(json!({ "email": email, "link": invited.url.is_some() }));
        write_audits(&tx, &call, &invited.account.id, "account.invite", change).await?;
        Ok::<_, Refusal>(vault_api::Account {
            invite_url: invited.url,
            ..to_api_account(invited.account)
        })
    };
    let outcome = call.app.change(invite).await;
    let invited_account = call.confirm_outcome(&act, outcome).await?;
    Ok(json_answer(StatusCode::CREATED, &invited_account))
}

/// Refuses to make a link for an account whose deletion has begun: the account cannot sign in, and
/// the deletion may end it at any time.
pub(super) fn refuse_during_deletion(account: &Account) -> Result<(), Refusal> {
    if account.deletion_begun {
        Err(ErrorCode::AccountDeletionBegun.into())
    } else {
        Ok(())
    }
}

/// Uses the permit for the reset of an account, if an invitation creates a link to an existing
/// account with memberships or operator rights. Fails with `ConfirmationNeeded` if there is no
/// permit.
pub(super) async fn spend_permit_for_takeover(
    tx: &Transaction<'_>,
    call: &OperatorCall,
    invited: &PreparedAccount,
    act: &Act,
) -> Result<(), Refusal> {
    if !invited.existed || invited.url.is_none() {
        return Ok(());
    }
    let partition = account_partition(&invited.account.id);
    let memberships = tx.records.list_page(&partition, MEMBERSHIPS, None, 1);
    if invited.account.operator || !memberships.await?.is_empty() {
        call.as_requester().spend(tx, act).await?;
    }
    Ok(())
}

/// Removes all credentials of an account and creates a new link, for a user who lost the password
/// or whose password became known. Ends all tokens and sessions of the account. Whoever opens the
/// link gets the account, so the operator confirms the reset.
pub(super) async fn reset_account(call: OperatorCall) -> Answer {
    let email = path_email(&call)?;
    let reset = reset_by_email(&call, &email).await;
    let account = call
        .confirm_outcome(&Act::ResetAccount { email }, reset)
        .await?;
    Ok(json_answer(StatusCode::OK, &account))
}

async fn reset_by_email(call: &OperatorCall, email: &Email) -> Result<vault_api::Account, Refusal> {
    let act = Act::ResetAccount {
        email: email.clone(),
    };
    let reset = async |tx: Transaction<'_>| {
        let issuer = call.app.config.public_url.base();
        let reset_result = account::prepare_reset(&tx, email, issuer, tx.now()).await?;
        let reset_result = reset_result.ok_or(ErrorCode::AccountNotFound)?;
        refuse_during_deletion(&reset_result.account)?;
        call.as_requester().spend(&tx, &act).await?;
        tx.write_all(reset_result.writes);
        let id = &reset_result.account.id;
        let change = Change::about(id).with_after(json!({ "email": email }));
        write_audits(&tx, call, id, "account.reset", change).await?;
        Ok::<_, Refusal>(vault_api::Account {
            invite_url: reset_result.url,
            ..to_api_account(reset_result.account)
        })
    };
    call.app.change(reset).await
}

/// Disables an account, at once: its tokens and sessions stop working, and it cannot sign in. Its
/// memberships stay, and [`enable_account`] undoes it.
pub(super) async fn disable_account(call: OperatorCall) -> Answer {
    let change = AccountChange {
        action: "account.disable",
        act: None,
        set: Account::disable,
        describe: |account: &Account| json!({ "disabled": account.disabled }),
    };
    let account = change_account(&call, &path_email(&call)?, change).await?;
    Ok(json_answer(StatusCode::OK, &account))
}

/// Lets a disabled account sign in again. This also cancels a deletion that has begun.
pub(super) async fn enable_account(call: OperatorCall) -> Answer {
    let change = AccountChange {
        action: "account.enable",
        act: None,
        set: Account::enable,
        describe: |account: &Account| json!({ "disabled": account.disabled }),
    };
    let account = change_account(&call, &path_email(&call)?, change).await?;
    Ok(json_answer(StatusCode::OK, &account))
}

/// Ends all tokens and sessions of an account; its user has to sign in again.
pub(super) async fn sign_out_account(call: OperatorCall) -> Answer {
    let change = AccountChange {
        action: "account.sign-out",
        act: None,
        set: Account::raise_epoch,
        describe: |account: &Account| json!({ "epoch": account.epoch }),
    };
    let account = change_account(&call, &path_email(&call)?, change).await?;
    Ok(json_answer(StatusCode::OK, &account))
}

/// Grants operator rights to an account. Needs a permit, the record that the operator has confirmed
/// exactly this change.
pub(super) async fn grant_operator(call: OperatorCall) -> Answer {
    let email = path_email(&call)?;
    confirm_operator(&call, &email, true).await
}

/// Revokes the operator rights of an account. Needs a permit, as granting them does.
pub(super) async fn revoke_operator(call: OperatorCall) -> Answer {
    let email = path_email(&call)?;
    confirm_operator(&call, &email, false).await
}

async fn confirm_operator(call: &OperatorCall, email: &Email, operates: bool) -> Answer {
    let done = set_operator(call, email, operates).await;
    let act = operator_act(email, operates);
    let account = call.confirm_outcome(&act, done).await?;
    Ok(json_answer(StatusCode::OK, &account))
}

fn operator_act(email: &Email, operates: bool) -> Act {
    let email = email.clone();
    if operates {
        Act::GrantOperator { email }
    } else {
        Act::RevokeOperator { email }
    }
}

async fn set_operator(
    call: &OperatorCall,
    email: &Email,
    operates: bool,
) -> Result<vault_api::Account, Refusal> {
    let act = operator_act(email, operates);
    let change = AccountChange {
        action: act.action(),
        act: Some(&act),
        set: |account: &mut Account| account.operator = operates,
        describe: |account: &Account| json!({ "operator": account.operator }),
    };
    change_account(call, email, change).await
}

struct AccountChange<'a, S, D> {
    /// Action in the audit log, such as `account.disable`.
    action: &'static str,
    /// The act whose permit the change uses; `None` if it needs none.
    act: Option<&'a Act>,
    /// Changes the account in memory, before it is written.
    set: S,
    /// Returns the part of the account that the audit log shows, called before and after the
    /// change.
    describe: D,
}

/// Changes the account with this e-mail address. Fails with 409 if no operator who can sign in
/// would be left.
async fn change_account(
    call: &OperatorCall,
    email: &Email,
    change: AccountChange<'_, impl Fn(&mut Account), impl Fn(&Account) -> Value>,
) -> Result<vault_api::Account, Refusal> {
    let AccountChange {
        action,
        act,
        set,
        describe,
    } = &change;
    let change = async |tx: Transaction<'_>| {
        let stored_account = find_by_email(call, email).await?;
        let mut account = stored_account.value.clone();
        set(&mut account);
        tx.write(account.update_write(stored_account.revision)?);
        // Only a change that ends an operator's rights needs the search for another one: it may
        // read all accounts.
        if is_active_operator(&stored_account.value) && !is_active_operator(&account) {
            tx.write(check_another_operator(call, &account.id).await?);
        }
        // After the checks, so that no person is asked to confirm a change that is then refused.
        if let Some(act) = act {
            call.as_requester().spend(&tx, act).await?;
        }
        let change = Change::about(&account.id)
            .with_before(describe(&stored_account.value))
            .with_after(describe(&account));
        write_audits(&tx, call, &account.id, action, change).await?;
        Ok::<_, Refusal>(account)
    };
    Ok(to_api_account(call.app.change(change).await?))
}

/// Does an act on an account as the act's own route does it; of a deletion, only the first commit,
/// which uses the permit. Fails with `ConfirmationNeeded` without the permit.
pub(super) async fn begin_act(call: &OperatorCall, act: &Act) -> Result<(), Refusal> {
    match act {
        Act::DeleteAccount { email } => begin_deletion(call, email).await.map(|_| ()),
        Act::ResetAccount { email } => reset_by_email(call, email).await.map(|_| ()),
        Act::GrantOperator { email } => set_operator(call, email, true).await.map(|_| ()),
        Act::RevokeOperator { email } => set_operator(call, email, false).await.map(|_| ()),
        Act::DeleteVault {}
        | Act::ResetPin {}
        | Act::InviteOwner { .. }
        | Act::ChangeInvitation { .. }
        | Act::ChangeRole { .. }
        | Act::RemoveUser { .. }
        | Act::CreateCode { .. }
        | Act::AdmitMachine { .. } => Err(ErrorCode::OwnerRequired.into()),
    }
}

/// Deletes an account and its memberships, which the operator confirms. Fails with 503 if the
/// account has more memberships than one request removes. The next request then continues, and
/// needs another confirmation only if the first one has expired. Audit records about the account
/// are kept.
pub(super) async fn delete_account(call: OperatorCall) -> Answer {
    let email = path_email(&call)?;
    let act = Act::DeleteAccount {
        email: email.clone(),
    };
    let begun = begin_deletion(&call, &email).await;
    let id = call.confirm_outcome(&act, begun).await?;
    let mut without_owner = Vec::new();
    // The account is deleted last: a deletion that was interrupted is repeated, and must still find
    // the account.
    let mut steps = 0..MAX_REMOVAL_BATCHES;
    while remove_memberships(&call, &id, &mut without_owner).await? {
        if steps.next().is_none() {
            return Err(Refusal::new(ErrorCode::Unavailable)
                .detail("The account has more memberships than one request removes: repeat it."));
        }
    }
    finish_deletion(&call, &email, &id).await?;
    let deleted = DeletedAccount {
        id: id.into(),
        email,
        without_owner,
    };
    Ok(json_answer(StatusCode::OK, &deleted))
}

/// Disables the account and marks it as being deleted, using the permit for the deletion; returns
/// its id. Does nothing while a deletion that has begun may go on with the permit used for it. A
/// deletion that was interrupted for longer needs a new permit, because the operator may have
/// changed their mind.
async fn begin_deletion(call: &OperatorCall, email: &Email) -> Result<AccountId, Refusal> {
    let act = Act::DeleteAccount {
        email: email.clone(),
    };
    let begin = async |tx: Transaction<'_>| {
        let stored_account = find_by_email(call, email).await?;
        let mut account = stored_account.value;
        if account.deletion_goes_on(tx.now()) {
            return Ok(account.id);
        }
        if account.id == call.caller.account {
            check_one_request_suffices(call, &account.id).await?;
        }
        // A disabled account counts as no operator, so only this commit needs another one.
        if is_active_operator(&account) {
            tx.write(check_another_operator(call, &account.id).await?);
        }
        let permit_ends_at = call.as_requester().spend(&tx, &act).await?;
        let change = Change::about(&account.id)
            .with_before(json!({ "disabled": account.disabled }))
            .with_after(json!({ "disabled": true, "deletion_begun": true }));
        account.begin_deletion(permit_ends_at);
        tx.write(account.update_write(stored_account.revision)?);
        call.write_audits(&tx, "account.disable", &change, &[])?;
        Ok(account.id)
    };
    call.app.change(begin).await
}

/// Checks that one request can delete the operator's own account. The operator's rights end when
/// the deletion begins, so no further request of the same operator could continue it.
async fn check_one_request_suffices(call: &OperatorCall, id: &AccountId) -> Result<(), Refusal> {
    let most = MAX_ACCOUNT_LOGS * MAX_REMOVAL_BATCHES;
    let partition = account_partition(id);
    let records = &call.app.records;
    let memberships = records.list_page(&partition, MEMBERSHIPS, None, most + 1);
    if memberships.await?.len() > most {
        return Err(ErrorCode::OwnAccountLarge.into());
    }
    Ok(())
}

/// Deletes the account after all its memberships were removed. Fails with 503 if the account was
/// enabled meanwhile, which cancels the deletion.
async fn finish_deletion(
    call: &OperatorCall,
    email: &Email,
    id: &AccountId,
) -> Result<(), Refusal> {
    call.app
        .change(async |tx| {
            // Read again: the account may have changed while its memberships were removed.
            let stored_account = find_by_email(call, email).await?;
            let account = stored_account.value;
            // Meanwhile the address may belong to another account, whose memberships were not
            // removed.
            if !account.deletion_begun || account.id != *id {
                return Err(ErrorCode::Unavailable.into());
            }
            tx.write_all([
                Write::delete(account_key(&account.id), When::At(stored_account.revision)),
                Write::delete(directory_key(email), When::Any),
                Write::delete(sign_in_key(&account.id), When::Any),
            ]);
            let link = account.invite.as_ref();
            tx.write_all(link.map(|link| Write::delete(invite_key(link), When::Any)));
            tx.write_all(account.subjects().map(subject::removal_write));
            tx.write_all(account.passkeys.removal_writes());
            let change = Change::about(&account.id)
                .with_before(json!({ "email": email, "operator": account.operator }));
            call.write_audits(&tx, "account.delete", &change, &[])
        })
        .await
}

/// Removes one batch of memberships of an account, and adds the slugs of vaults that are left
/// without an owner to `without_owner`. Returns false if there was none to remove.
async fn remove_memberships(
    call: &OperatorCall,
    id: &AccountId,
    without_owner: &mut Vec<String>,
) -> Result<bool, Refusal> {
    let partition = account::account_partition(id);
    let memberships = call
        .app
        .records
        .list_page(&partition, MEMBERSHIPS, None, MAX_ACCOUNT_LOGS)
        .await?;
    // One commit per membership: one commit for the whole batch would conflict with every change in
    // any of its vaults.
    for record in &memberships {
        let entry: Membership = record.read()?;
        let home = &entry.namespace;
        let remove = async |tx: Transaction<'_>| {
            // Enabling the account cancels its deletion, even while this request runs.
            let stored_account = tx.get::<Account>(&account_key(id)).await?;
            let deleted = stored_account.filter(|stored| stored.value.deletion_begun);
            let deleted = deleted.ok_or(ErrorCode::Unavailable)?;
            tx.write(Write::check(account_key(id), When::At(deleted.revision)));
            let key = user_key(&home.id, &entry.user_id);
            let Some(user) = tx.get::<User>(&key).await? else {
                // The user is gone already, so only the entry is removed.
                tx.write(Write::delete(record.key.clone(), When::Any));
                return Ok(false);
            };
            let other = members::another_owner(&tx, &home.id, &user.value.id).await?;
            tx.write_all(user.value.removal_writes(user.revision));
            let change = Change::about(&user.value.id)
                .with_before(json!({ "email": user.value.email, "role": user.value.role }));
            tx.audit(Some(&home.id), &call.actor, "account.delete", change)?;
            Ok::<_, Refusal>(user.value.can_administer() && other.is_none())
        };
        if call.app.change(remove).await? {
            without_owner.push(home.slug.to_string());
        }
    }
    Ok(!memberships.is_empty())
}

/// Parses the e-mail address in the path; fails with 404 for text that is no address.
fn path_email(call: &OperatorCall) -> Result<Email, Refusal> {
    let email = call.param("email").parse();
    // An address that cannot exist answers like one without an account.
    email.map_err(|_| ErrorCode::AccountNotFound.into())
}

async fn find_by_email(call: &OperatorCall, email: &Email) -> Result<Versioned<Account>, Refusal> {
    let account = account::find_account(&call.app, email).await?;
    account.ok_or_else(|| ErrorCode::AccountNotFound.into())
}

const fn is_active_operator(account: &Account) -> bool {
    account.operator && account.can_sign_in()
}

/// Returns a check for the commit: that an operator other than `id` exists who can sign in. Fails
/// with 409 if there is none. May read all accounts, so it is called only if an operator loses the
/// rights.
async fn check_another_operator(call: &OperatorCall, id: &AccountId) -> Result<Write, Refusal> {
    let mut after: Option<String> = None;
    loop {
        let records = &call.app.records;
        let directory_page = records
            .list_page(DIRECTORY, "", after.as_deref(), MAX_PAGE)
            .await?;
        after = directory_page.last().map(|record| record.key.key.clone());
        let accounts = read_accounts(call, &directory_page).await?;
        let mut accounts = accounts.into_iter();
        if let Some(other) =
            accounts.find(|one| is_active_operator(&one.value) && one.value.id != *id)
        {
            // As part of the commit: two operators who remove each other at the same moment cannot
            // both succeed.
            let key = account_key(&other.value.id);
            return Ok(Write::check(key, When::At(other.revision)));
        }
        if directory_page.len() < MAX_PAGE {
            return Err(ErrorCode::LastOperator.into());
        }
    }
}

/// Adds the audit records of a change of an account to the commit that makes it: to the log of the
/// service and to the logs of the account's namespaces.
async fn write_audits(
    tx: &Transaction<'_>,
    call: &OperatorCall,
    id: &AccountId,
    name: &str,
    change: Change,
) -> Result<(), Refusal> {
    let partition = account::account_partition(id);
    let found = tx
        .records
        .list_page(&partition, MEMBERSHIPS, None, MAX_ACCOUNT_LOGS)
        .await?;
    let home = |record: &Record| Ok(record.read::<Membership>()?.namespace.id);
    let homes = found
        .iter()
        .map(home)
        .collect::<Result<Vec<_>, StoreError>>()?;
    call.write_audits(tx, name, &change, &homes)
}

/// Ends all tokens and sessions of all accounts if the body confirms it with `everybody`.
pub(super) async fn sign_out_everybody(call: OperatorCall) -> Answer {
    if call.json_body::<ServiceSignOut>().await?.confirm != "everybody" {
        return Err(ErrorCode::ConfirmationMismatch.into());
    }
    let raise = async |tx: Transaction<'_>| {
        let key = account::service_epoch_key();
        let stored_epoch = tx.get::<account::ServiceEpoch>(&key).await?;
        let (epoch, when) = stored_epoch.map_or((0, When::Absent), |found| {
            (found.value.epoch, When::At(found.revision))
        });
        let next = account::ServiceEpoch {
            // Only equality with the epoch in a token matters, so wrapping around is harmless and
            // an overflow must not panic.
            epoch: epoch.wrapping_add(1),
        };
        let change = Change::default()
            .with_before(json!({ "epoch": epoch }))
            .with_after(json!({ "epoch": next.epoch }));
        let document = vault_store::records::Document::from_value(&next)?;
        tx.write(Write::put(key, document, when));
        call.write_audits(&tx, "service.sign-out", &change, &[])?;
        Ok::<_, Refusal>(next)
    };
    let next = call.app.change(raise).await?;
    let answer = SignedOut { epoch: next.epoch };
    Ok(json_answer(StatusCode::OK, &answer))
}
