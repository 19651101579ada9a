//! Migrates the accounts and memberships of an earlier version of vault, once.
//!
//! That version identified an account by its address (`acct/<e-mail>`), and an owner of a namespace
//! got the link that set its password. Memberships stay active. A password that was set through an
//! owner's link becomes invalid, and all tokens and sessions of the account end, since the owner
//! could have set the password. The account is then marked as to be invited again by an operator.
//! If all owners of the inviting namespace operate the service, the password stays valid, since
//! operators may set passwords.
//!
//! Every step is one commit and is skipped if it was done, so an interrupted migration is simply
//! started again.

use serde::Deserialize;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_PAGE, Record, RecordKey, When, Write};

use super::account::{
    self, Account, AccountId, Email, FirstOwner, Proof, account_key, first_owner_key, invite_key,
};
use super::namespace::{self, NamespaceRef};
use super::user::{Role, State, User, user_key, users_partition};
use crate::ports::Ports;
use crate::transaction::Transaction;

/// Version of the form of accounts that this version of vault writes.
pub const ACCOUNTS: u32 = 1;

/// An account as the earlier version wrote it.
#[derive(Clone, Debug, Deserialize)]
struct EarlierAccount {
    email: Email,
    password: Option<String>,
    password_set_at: Option<Timestamp>,
    #[serde(default)]
    password_number: u32,
    operator: bool,
    created_at: Timestamp,
    invite: Option<Digest>,
    #[serde(default)]
    invited_by: Option<NamespaceRef>,
}

impl EarlierAccount {
    /// Returns the account in the present form; `None` if the address was never proven and no
    /// operator invited it.
    fn into_present_form(self, inviter_operates: bool) -> Option<Account> {
        let by_operator = self.invited_by.is_none() || inviter_operates;
        let mut account = Account {
            password_number: self.password_number,
            operator: self.operator,
            ..Account::new(
                AccountId::of_earlier_version(&self.email),
                self.email,
                self.created_at,
            )
        };
        match self.password {
            Some(hash) if by_operator => account.proofs.push(Proof::Password {
                hash,
                set_at: self.password_set_at.unwrap_or(self.created_at),
            }),
            Some(_) => {
                account.invite_again = true;
                // The person who set the password may hold tokens and sessions too.
                account.raise_epoch();
            }
            None if by_operator => account.invite = self.invite,
            // The address was never proven, and the owner who invited it may hold the link.
            // `migrate_user` turns the membership into an invitation again.
            None => return None,
        }
        Some(account)
    }
}

fn earlier_key(email: &Email) -> RecordKey {
    RecordKey::new(format!("acct/{email}"), "account")
}

/// Migrates all accounts and memberships, unless that was done. Fails if the store fails; the next
/// call continues from there.
pub async fn migrate_accounts(ports: &Ports, now: Timestamp) -> Result<(), StoreError> {
    let mark = ports.get::<FirstOwner>(&first_owner_key()).await?;
    let Some(mark) = mark.filter(|mark| mark.value.accounts < ACCOUNTS) else {
        return Ok(());
    };
    tracing::info!("carrying over the accounts of an earlier version");
    // The loop below finds accounts by their memberships, and the first owner may have none left.
    migrate_account(ports, &mark.value.email).await?;
    let mut after: Option<String> = None;
    loop {
        let page = list_page(ports, namespace::DIRECTORY, after.as_deref()).await?;
        for record in &page {
            let listed: namespace::NamespaceEntry = record.read()?;
            migrate_users(ports, &users_partition(&listed.namespace_id), now).await?;
        }
        after = page.last().map(|record| record.key.key.clone());
        if page.len() < MAX_PAGE {
            break;
        }
    }
    let done = FirstOwner {
        accounts: ACCOUNTS,
        ..mark.value
    };
    let write = Write::put(
        first_owner_key(),
        Document::from_value(&done)?,
        When::At(mark.revision),
    );
    // If several processes migrate at once, each has done every step, so losing the race is fine.
    ports.records.commit_writes(vec![write]).await.map(|_| ())
}

async fn list_page(
    ports: &Ports,
    partition: &str,
    after: Option<&str>,
) -> Result<Vec<Record>, StoreError> {
    ports
        .records
        .list_page(partition, "", after, MAX_PAGE)
        .await
}

async fn migrate_users(ports: &Ports, partition: &str, now: Timestamp) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = list_page(ports, partition, after.as_deref()).await?;
        for record in &page {
            let user: User = record.read()?;
            // Only records of the earlier form are active without an account, so a second run skips
            // the records that the first has migrated.
            if user.account.is_none() && user.state() == State::Active {
                migrate_account(ports, &user.email).await?;
                ports
                    .change(async |tx| migrate_user(&tx, &user, now).await)
                    .await?;
            }
        }
        after = page.last().map(|record| record.key.key.clone());
        if page.len() < MAX_PAGE {
            return Ok(());
        }
    }
}

async fn migrate_user(tx: &Transaction<'_>, user: &User, now: Timestamp) -> Result<(), StoreError> {
    let key = user_key(&user.namespace.id, &user.id);
    // Read again inside the transaction, because the page may be outdated by now.
    let Some(found) = tx.get::<User>(&key).await? else {
        return Ok(());
    };
    let user = found.value;
    let id = AccountId::of_earlier_version(&user.email);
    let user = match tx.records.get_one(&account_key(&id)).await? {
        Some(_) => User {
            account: Some(id),
            ..user
        },
        None => {
            let (role, scopes) = (user.role, user.scopes);
            user.invited_anew(role, scopes, now)
        }
    };
    let former = RecordKey::new(
        format!("acct/{}", user.email),
        format!("ns/{}", user.namespace.slug),
    );
    tx.write_all(user.renewal_writes(found.revision)?);
    tx.write(Write::delete(former, When::Any));
    Ok(())
}

async fn migrate_account(ports: &Ports, email: &Email) -> Result<(), StoreError> {
    let carry = async |tx: Transaction<'_>| {
        let Some(found) = tx.get::<EarlierAccount>(&earlier_key(email)).await? else {
            return Ok(());
        };
        let inviter_operates = match &found.value.invited_by {
            Some(inviter) => owners_operate(&tx, inviter).await?,
            None => false,
        };
        tx.write(Write::delete(earlier_key(email), When::At(found.revision)));
        let link = found.value.invite;
        let carried = found.value.into_present_form(inviter_operates);
        let is_kept = carried.as_ref().is_some_and(|it| it.invite.is_some());
        // A link that belongs to no account must not stay valid.
        let dead = link.filter(|_| !is_kept);
        tx.write_all(dead.map(|link| Write::delete(invite_key(&link), When::Any)));
        if let Some(account) = carried {
            tx.write_all(account.creation_writes()?);
        }
        Ok(())
    };
    ports.change(carry).await
}

/// Whether every owner of a namespace operates the service.
async fn owners_operate(ports: &Ports, inviter: &NamespaceRef) -> Result<bool, StoreError> {
    let (mut after, mut owners): (Option<String>, usize) = (None, 0);
    loop {
        let page = list_page(ports, &users_partition(&inviter.id), after.as_deref()).await?;
        for record in &page {
            let user: User = record.read()?;
            if user.role != Role::Owner {
                continue;
            }
            owners += 1;
            if !operates_service(ports, &user.email).await? {
                return Ok(false);
            }
        }
        after = page.last().map(|record| record.key.key.clone());
        if page.len() < MAX_PAGE {
            // A namespace without owners proves nothing about its inviter.
            return Ok(owners > 0);
        }
    }
}

async fn operates_service(ports: &Ports, email: &Email) -> Result<bool, StoreError> {
    let earlier = ports.get::<EarlierAccount>(&earlier_key(email)).await?;
    if let Some(earlier) = earlier {
        return Ok(earlier.value.operator);
    }
    // The owner's account may have been migrated already.
    let carried = account::find_account(ports, email).await?;
    Ok(carried.is_some_and(|carried| carried.value.operator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_operator_or_the_person_has_set_stays() {
        let inviter = r#"{"slug":"acme","id":"01KAQD8000000000000000000A"}"#;
        for (password, invited_by, inviter_operates, wanted) in [
            // (has a password, may be invited again), or no account at all
            (r#""hash""#, "null", false, Some((true, false))),
            (r#""hash""#, inviter, false, Some((false, true))),
            (r#""hash""#, inviter, true, Some((true, false))),
            ("null", "null", false, Some((false, false))),
            ("null", inviter, false, None),
            ("null", inviter, true, Some((false, false))),
        ] {
            let earlier = format!(
                r#"{{"email":"ada@example.org","password":{password},"password_set_at":null,"operator":false,
                "created_at":"2026-11-19T09:00:00Z","invite":null,"invited_by":{invited_by}}}"#
            );
            let earlier: EarlierAccount = serde_json::from_str(&earlier).unwrap();
            let carried = earlier.into_present_form(inviter_operates);
            let told = carried.map(|account| {
                let again = account.invite_again;
                assert_eq!(account.epoch, u32::from(again), "what was signed in ends");
                (account.password_hash().is_some(), again)
            });
            assert_eq!(told, wanted, "{password} {invited_by} {inviter_operates}");
        }
    }
}
