//! Accounts and memberships of an earlier version of vault, carried over once.
//!
//! That version knew an account by its address (`acct/<e-mail>`), and the owner of a namespace got
//! the link that set its password. Memberships stay, as active ones. A password that was set
//! through an owner's link ends, since the owner could have set it, with everything that was signed
//! in; the operator's list names the account to invite again. It stays where every owner of the
//! inviting namespace operates the service, since an operator may set passwords.
//!
//! Every step is one commit and is skipped once done, so an interrupted walk is started again.

use serde::Deserialize;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, MAX_PAGE, Record, RecordKey, Records, When, Write};

use super::Versioned;
use super::account::{
    self, Account, AccountId, Email, FirstOwner, Proof, account_key, first_owner_key, invite_key,
};
use super::namespace::{self, NamespaceRef};
use super::user::{Role, State, User, user_key, users_partition};
use crate::retry::retry;

/// The form of accounts that this version writes.
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
    /// The account of today; `None` where nothing was proven and no operator invited the address.
    fn carried(self, inviter_operates: bool) -> Option<Account> {
        let by_operator = self.invited_by.is_none() || inviter_operates;
        let mut account = Account {
            password_number: self.password_number,
            operator: self.operator,
            ..Account::new(AccountId::earlier(&self.email), self.email, self.created_at)
        };
        match self.password {
            Some(hash) if by_operator => account.proofs.push(Proof::Password {
                hash,
                set_at: self.password_set_at.unwrap_or(self.created_at),
            }),
            Some(_) => {
                account.invite_again = true;
                // Whoever set the password holds tokens and a signed-in browser too.
                account.raise_epoch();
            }
            None if by_operator => account.invite = self.invite,
            None => return None,
        }
        Some(account)
    }
}

fn earlier_key(email: &Email) -> RecordKey {
    RecordKey::new(format!("acct/{email}"), "account")
}

/// Carries everything over, unless that was done. Fails when the store does; the next call goes on
/// from there.
pub async fn carry_over(
    records: &dyn Records,
    now: Timestamp,
    random: &dyn Random,
) -> Result<(), StoreError> {
    let mark = Versioned::<FirstOwner>::read(records.get(&first_owner_key()).await?)?;
    let Some(mark) = mark.filter(|mark| mark.value.accounts < ACCOUNTS) else {
        return Ok(());
    };
    tracing::info!("carrying over the accounts of an earlier version");
    carry_account(records, &mark.value.email, random).await?;
    let mut after: Option<String> = None;
    loop {
        let page = list(records, namespace::DIRECTORY, after.as_deref()).await?;
        for record in &page {
            let listed: namespace::Listed = record.read()?;
            carry_users(records, &users_partition(&listed.namespace_id), now, random).await?;
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
        Document::of(&done)?,
        When::At(mark.revision),
    );
    // Of several processes that carry over at once, each has done all of it.
    records.commit(vec![write]).await.map(|_| ())
}

async fn list(
    records: &dyn Records,
    partition: &str,
    after: Option<&str>,
) -> Result<Vec<Record>, StoreError> {
    records.list(partition, "", after, MAX_PAGE).await
}

async fn carry_users(
    records: &dyn Records,
    partition: &str,
    now: Timestamp,
    random: &dyn Random,
) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = list(records, partition, after.as_deref()).await?;
        for record in &page {
            let user: User = record.read()?;
            if user.account.is_none() && user.state() == State::Active {
                carry_account(records, &user.email, random).await?;
                retry(random, || carry_user(records, &user, now)).await?;
            }
        }
        after = page.last().map(|record| record.key.key.clone());
        if page.len() < MAX_PAGE {
            return Ok(());
        }
    }
}

/// One try; `None` when the user changed meanwhile.
async fn carry_user(
    records: &dyn Records,
    user: &User,
    now: Timestamp,
) -> Result<Option<()>, StoreError> {
    let key = user_key(&user.namespace.id, &user.id);
    let Some(found) = Versioned::<User>::read(records.get(&key).await?)? else {
        return Ok(Some(()));
    };
    let user = found.value;
    let id = AccountId::earlier(&user.email);
    let user = match records.get(&account_key(&id)).await? {
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
    let mut writes = user.renewal(found.revision)?;
    writes.push(Write::delete(former, When::Any));
    Ok(records.commit(writes).await?.is_done().then_some(()))
}

async fn carry_account(
    records: &dyn Records,
    email: &Email,
    random: &dyn Random,
) -> Result<(), StoreError> {
    retry(random, || try_carry_account(records, email)).await
}

/// One try; `None` when the account changed meanwhile.
async fn try_carry_account(records: &dyn Records, email: &Email) -> Result<Option<()>, StoreError> {
    let found = records.get(&earlier_key(email)).await?;
    let Some(found) = Versioned::<EarlierAccount>::read(found)? else {
        return Ok(Some(()));
    };
    let inviter_operates = match &found.value.invited_by {
        Some(inviter) => owners_operate(records, inviter).await?,
        None => false,
    };
    let mut writes = vec![Write::delete(earlier_key(email), When::At(found.revision))];
    let link = found.value.invite;
    match found.value.carried(inviter_operates) {
        Some(account) => {
            let dead = link.filter(|_| account.invite.is_none());
            writes.extend(dead.map(|link| Write::delete(invite_key(&link), When::Any)));
            writes.extend(account.creation()?);
        }
        None => writes.extend(link.map(|link| Write::delete(invite_key(&link), When::Any))),
    }
    Ok(records.commit(writes).await?.is_done().then_some(()))
}

/// Whether every owner of a namespace operates the service.
async fn owners_operate(records: &dyn Records, inviter: &NamespaceRef) -> Result<bool, StoreError> {
    let (mut after, mut owners): (Option<String>, usize) = (None, 0);
    loop {
        let page = list(records, &users_partition(&inviter.id), after.as_deref()).await?;
        for record in &page {
            let user: User = record.read()?;
            if user.role != Role::Owner {
                continue;
            }
            owners += 1;
            if !operates(records, &user.email).await? {
                return Ok(false);
            }
        }
        after = page.last().map(|record| record.key.key.clone());
        if page.len() < MAX_PAGE {
            return Ok(owners > 0);
        }
    }
}

async fn operates(records: &dyn Records, email: &Email) -> Result<bool, StoreError> {
    let earlier = Versioned::<EarlierAccount>::read(records.get(&earlier_key(email)).await?)?;
    if let Some(earlier) = earlier {
        return Ok(earlier.value.operator);
    }
    let carried = account::find(records, email).await?;
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
            let carried = earlier.carried(inviter_operates);
            let told = carried.map(|account| {
                let again = account.invite_again;
                assert_eq!(account.epoch, u32::from(again), "what was signed in ends");
                (account.password().is_some(), again)
            });
            assert_eq!(told, wanted, "{password} {invited_by} {inviter_operates}");
        }
    }
}
