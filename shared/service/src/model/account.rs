//! An account: one person's proven identity, with every way in which that person can prove it.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `accounts` | `<e-mail>` | [`AddressEntry`], which account has the address; the operator's list |
//! | `acct/<account_id>` | `account` | [`Account`] |
//! | `acct/<account_id>` | `ns/<slug>` | [`super::user::Membership`], the index from an account to its users |
//! | `invite/<sha256>` | `invite` | [`Invite`], 72 hours, removed by its use |
//! | `service` | `owner` | [`FirstOwner`], there once the first owner was made |
//! | `service` | `epoch` | [`ServiceEpoch`], there once an operator signed everybody out |
//!
//! Only operators receive links that set a password, because the holder of such a link can sign in
//! as the account everywhere. An owner of a namespace only invites an address; a person who has
//! proven to own it accepts.

use std::fmt;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, RecordKey, When, Write};

use super::namespace::Namespace;
use super::passkey::{Passkey, PasskeyId, Passkeys};
use super::second_factor::SecondFactor;
use super::secret::{Secret, SecretKind};
use super::{Versioned, subject};

use crate::ports::Ports;

pub use super::account_id::AccountId;
pub use vault_api::{BadEmail, Email};

/// Lifetime of the link that sets a password, in seconds: 72 hours.
pub const INVITE_SECONDS: i64 = 72 * 3600;
/// Partition of the directory of addresses, with one entry for each.
pub const DIRECTORY: &str = "accounts";

/// One way in which a person proves that the account is theirs.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Proof {
    /// A password, set through a link that an operator created, or by the operator's settings.
    Password {
        /// Argon2id hash of the password.
        hash: String,
        /// Time at which the password was set, by the service's clock.
        set_at: Timestamp,
    },
    /// A person whom an OpenID Connect provider signs in.
    Provider {
        /// Issuer identifier of the provider.
        issuer: String,
        /// The person: SHA-256 of issuer and subject ([`super::subject`]).
        subject: Digest,
        /// Time at which the provider was connected to the account.
        connected_at: Timestamp,
    },
}

/// The record of an account. It contains the secret of the second factor itself.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of the record"
)]
pub struct Account {
    /// Id of the account, which never changes.
    pub id: AccountId,
    /// E-mail address. The proofs below show that it is the person's own.
    pub email: Email,
    /// Every way to sign in; without any, the address is not proven.
    pub proofs: Vec<Proof>,
    /// Number of times that a way to sign in was replaced or removed. A session is valid only with
    /// the number that it began with; a time would keep sessions of the same second valid.
    pub password_number: u32,
    /// Whether the account may use the operator routes.
    pub operator: bool,
    /// Raised to end all earlier tokens and sessions in one write.
    pub epoch: u32,
    /// Whether an operator has disabled the account: no sign-in, no token.
    pub disabled: bool,
    /// Whether an operator has begun the deletion, which may take several requests. The account is
    /// disabled meanwhile, and enabling it cancels the deletion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_begun: bool,
    /// Time until which the deletion may go on without another confirmation. Absent in records of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_until: Option<Timestamp>,
    /// Time at which the record was created, by the service's clock.
    pub created_at: Timestamp,
    /// Hash of the only link that may set the password; earlier links no longer count.
    pub invite: Option<Digest>,
    /// Whether an earlier version of vault let an inviter set the password. That password no longer
    /// works, and all sign-ins with it have ended: an operator must invite the account again.
    #[serde(default)]
    pub invite_again: bool,
    /// The second factor that a sign-in requires beside a proof.
    #[serde(default)]
    pub second_factor: Option<SecondFactor>,
    /// Passkeys, each of which signs in or replaces the code of the second factor. They do not
    /// prove the address, so an account with passkeys also has a proof above.
    #[serde(default, skip_serializing_if = "Passkeys::is_empty")]
    pub passkeys: Passkeys,
}

impl fmt::Debug for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Debug output ends up in logs: no address, no password hash.
        out.debug_struct("Account")
            .field("id", &self.id)
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// Returns an account that cannot sign in yet.
    pub const fn new(id: AccountId, email: Email, now: Timestamp) -> Self {
        Self {
            id,
            email,
            proofs: Vec::new(),
            password_number: 0,
            operator: false,
            epoch: 0,
            disabled: false,
            deletion_begun: false,
            deletion_until: None,
            created_at: now,
            invite: None,
            invite_again: false,
            second_factor: None,
            passkeys: Passkeys::new(),
        }
    }

    /// Whether the account has a proof and is not disabled.
    pub const fn can_sign_in(&self) -> bool {
        !self.proofs.is_empty() && !self.disabled
    }

    /// Returns the argon2id hash of the password, if the account has one.
    pub fn password_hash(&self) -> Option<&str> {
        self.proofs.iter().find_map(|proof| match proof {
            Proof::Password { hash, .. } => Some(hash.as_str()),
            Proof::Provider { .. } => None,
        })
    }

    /// Returns the identity provider's people who may sign in, as [`super::subject`] hashes.
    pub fn subjects(&self) -> impl Iterator<Item = &Digest> {
        self.proofs.iter().filter_map(|proof| match proof {
            Proof::Provider { subject, .. } => Some(subject),
            Proof::Password { .. } => None,
        })
    }

    /// Lets a person of an identity provider sign in. A link that sets a password becomes invalid,
    /// because the account now has a proof.
    pub fn connect_provider(
        &mut self,
        issuer: &str,
        subject: Digest,
        now: Timestamp,
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        if self.proofs.is_empty() {
            // The address was not proven before: factors, tokens and sessions may be of another
            // person.
            writes.extend(self.clear_factors());
            self.raise_epoch();
        }
        self.proofs.push(Proof::Provider {
            issuer: issuer.to_owned(),
            subject,
            connected_at: now,
        });
        self.invite_again = false;
        let link = self.invite.take();
        // `Any`, because an expired link may have been removed already.
        writes.extend(link.map(|link| Write::delete(invite_key(&link), When::Any)));
        writes
    }

    /// Removes the second factor and the passkeys, when a person proves the account anew. Returns
    /// the writes that remove the passkeys' index entries.
    fn clear_factors(&mut self) -> Vec<Write> {
        self.second_factor = None;
        self.passkeys.clear()
    }

    /// Removes a passkey, and ends every browser's session; `None` if the account does not have it.
    pub fn remove_passkey(&mut self, id: &PasskeyId) -> Option<Passkey> {
        let removed = self.passkeys.remove(id)?;
        // As when a sign-in through a provider ends: sessions that began with it must not go on.
        self.password_number = self.password_number.wrapping_add(1);
        Some(removed)
    }

    /// Removes a person of an identity provider, and ends the sessions of all browsers. Returns
    /// false, and changes nothing, if that person is no proof of the account, or its only one.
    pub fn disconnect_provider(&mut self, subject: &Digest) -> bool {
        // The last proof stays, or the person could never sign in again.
        if !self.subjects().any(|held| held == subject) || self.proofs.len() < 2 {
            return false;
        }
        self.proofs.retain(
            |proof| !matches!(proof, Proof::Provider { subject: held, .. } if held == subject),
        );
        // A session counts only for the number that it began with, so this ends all of them.
        self.password_number = self.password_number.wrapping_add(1);
        true
    }

    /// Sets the hash of the password. Earlier sessions end, and a link that sets a password becomes
    /// invalid.
    pub fn set_password(&mut self, hash: String, now: Timestamp) {
        self.proofs
            .retain(|proof| !matches!(proof, Proof::Password { .. }));
        self.proofs.push(Proof::Password { hash, set_at: now });
        self.password_number = self.password_number.wrapping_add(1);
        // The record of a link may remain: a link is valid only while its hash is here.
        self.invite = None;
        self.invite_again = false;
    }

    /// Ends every token and session of the account.
    pub const fn raise_epoch(&mut self) {
        // Epochs are compared for equality alone, so wrapping does no harm.
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Disables the account: no sign-in is possible, and all tokens and sessions end.
    pub const fn disable(&mut self) {
        self.disabled = true;
        // Without a new epoch the account's tokens would work again as soon as it is enabled.
        self.raise_epoch();
    }

    /// Lets the account sign in again, and cancels a deletion that has begun.
    pub const fn enable(&mut self) {
        self.disabled = false;
        self.deletion_begun = false;
        self.deletion_until = None;
    }

    /// Disables the account and marks it as being deleted. The deletion may go on without another
    /// confirmation before `until`.
    pub const fn begin_deletion(&mut self, until: Timestamp) {
        self.disable();
        self.deletion_begun = true;
        self.deletion_until = Some(until);
    }

    /// Whether a deletion has begun that may go on without another confirmation.
    pub fn deletion_goes_on(&self, now: Timestamp) -> bool {
        self.deletion_begun && self.deletion_until.is_some_and(|until| now < until)
    }

    /// Returns the writes that create the account: its record and its entry in the directory. They
    /// fail if either exists.
    pub fn creation_writes(&self) -> Result<Vec<Write>, StoreError> {
        let listed = AddressEntry {
            account: self.id.clone(),
        };
        Ok(vec![
            Write::put(
                account_key(&self.id),
                Document::from_value(self)?,
                When::Absent,
            ),
            Write::put(
                directory_key(&self.email),
                Document::from_value(&listed)?,
                When::Absent,
            ),
        ])
    }

    /// Returns the write that replaces the record as it was read at `revision`.
    pub fn update_write(&self, revision: u64) -> Result<Write, StoreError> {
        let key = account_key(&self.id);
        Ok(Write::put(
            key,
            Document::from_value(self)?,
            When::At(revision),
        ))
    }
}

/// Index entry of the directory: the account that has an address.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AddressEntry {
    /// The account that has the address; the address itself is the record's key.
    pub account: AccountId,
}

/// A link that sets the password of an account.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Invite {
    /// Address of the account whose password the link sets.
    pub email: Email,
    /// Time from which the link is no longer valid.
    pub expires_at: Timestamp,
}

/// The mark that the first owner was created, which happens once in the life of a store.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FirstOwner {
    /// E-mail address of the first owner's account.
    pub email: Email,
    /// Time at which that account was created, by the service's clock.
    pub created_at: Timestamp,
    /// Version of the form in which accounts are stored; 0 for records of an earlier version of
    /// vault.
    #[serde(default)]
    pub accounts: u32,
}

/// The record by which an operator signs everybody out: with one write, all tokens and sessions
/// end.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ServiceEpoch {
    /// Number of times that an operator signed everybody out. Tokens and sessions with another
    /// number are invalid.
    #[serde(default)]
    pub epoch: u32,
}

/// Epochs under which a token or session was issued. It is valid only while none of these numbers
/// has been raised.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Epochs {
    /// [`Account::epoch`] when the token or session was issued.
    pub account: u32,
    /// [`Namespace::epoch`] when the token or session was issued; 0 if there is no namespace.
    pub namespace: u32,
    /// [`ServiceEpoch::epoch`] when the token or session was issued.
    pub service: u32,
}

impl Epochs {
    /// Returns the epochs that a token issued now gets.
    pub fn now(
        account: &Account,
        namespace: Option<&Namespace>,
        service: Option<ServiceEpoch>,
    ) -> Self {
        Self {
            account: account.epoch,
            namespace: namespace.map_or(0, |namespace| namespace.epoch),
            service: service.unwrap_or_default().epoch,
        }
    }
}

/// Returns the partition with the account's record and its lists of namespaces and apps.
pub fn account_partition(id: &AccountId) -> String {
    format!("acct/{id}")
}

/// Returns the key of the [`Account`] with this id, in the account's own partition.
pub fn account_key(id: &AccountId) -> RecordKey {
    RecordKey::new(account_partition(id), "account")
}

/// Returns the key of the [`AddressEntry`] of an address, which operators list.
pub fn directory_key(email: &Email) -> RecordKey {
    RecordKey::new(DIRECTORY, email.as_str())
}

/// Returns the key of the [`Invite`] whose link contains the secret with this SHA-256.
pub fn invite_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("invite/{hash}"), "invite")
}

/// Returns the key of the [`FirstOwner`], of which a store has at most one.
pub fn first_owner_key() -> RecordKey {
    RecordKey::new("service", "owner")
}

/// Returns the key of the [`ServiceEpoch`]; without a record the epoch is 0.
pub fn service_epoch_key() -> RecordKey {
    RecordKey::new("service", "epoch")
}

/// Finds the account of an address. An unknown address costs the same two reads as a known one, so
/// the response time does not tell which addresses have an account.
pub async fn find_account(
    ports: &Ports,
    email: &Email,
) -> Result<Option<Versioned<Account>>, StoreError> {
    let listed = ports.get::<AddressEntry>(&directory_key(email)).await?;
    // An unknown address gets an id too, so that both cases make two reads.
    let id = listed.map_or_else(
        || AccountId::of_earlier_version(email),
        |listed| listed.value.account,
    );
    ports.get(&account_key(&id)).await
}

/// Result of preparing an account for a new proof of its address.
pub struct PreparedAccount {
    /// The account after the writes.
    pub account: Account,
    /// Conditional writes for the commit; empty when the account can sign in already.
    pub writes: Vec<Write>,
    /// Link that sets the password; only the caller gets it. `None` if the account can sign in
    /// already.
    pub url: Option<String>,
    /// False if the writes create the account.
    pub existed: bool,
}

/// Prepares the account of `email` for its first sign-in: creates it if necessary and, if it has no
/// proof yet, a link under `issuer` (the public URL) that sets its password and replaces an earlier
/// link. Whoever opens the link gets the account, so only operators may cause this.
pub async fn prepare_invitation(
    ports: &Ports,
    email: &Email,
    issuer: &str,
    now: Timestamp,
) -> Result<PreparedAccount, StoreError> {
    let Some(found) = find_account(ports, email).await? else {
        let mut account = Account::new(AccountId::fresh(now, &ports.random), email.clone(), now);
        let (mut writes, url) = fresh_link(&mut account, issuer, now, &ports.random)?;
        writes.extend(account.creation_writes()?);
        let url = Some(url);
        return Ok(PreparedAccount {
            account,
            writes,
            url,
            existed: false,
        });
    };
    let mut account = found.value;
    // Never a link for an account in use: it would hand the account to the holder of the link.
    if !account.proofs.is_empty() {
        let (writes, url) = (Vec::new(), None);
        return Ok(PreparedAccount {
            account,
            writes,
            url,
            existed: true,
        });
    }
    // The address was not proven: factors, tokens and sessions may be of another person.
    let cleared = account.clear_factors();
    account.raise_epoch();
    let (mut writes, url) = fresh_link(&mut account, issuer, now, &ports.random)?;
    writes.extend(cleared);
    writes.push(account.update_write(found.revision)?);
    let url = Some(url);
    Ok(PreparedAccount {
        account,
        writes,
        url,
        existed: true,
    })
}

/// Prepares the reset of the account of `email`: it loses all proofs, the second factor and the
/// passkeys, its tokens and sessions end, and a new link under `issuer` sets a password. `None` if
/// there is no such account. Only operators may cause this, as with [`prepare_invitation`].
pub async fn prepare_reset(
    ports: &Ports,
    email: &Email,
    issuer: &str,
    now: Timestamp,
) -> Result<Option<PreparedAccount>, StoreError> {
    let Some(found) = find_account(ports, email).await? else {
        return Ok(None);
    };
    let mut account = found.value;
    // Removes the index entries that lead from a person of a provider to this account.
    let mut removals: Vec<_> = account.subjects().map(subject::removal_write).collect();
    account.proofs.clear();
    removals.extend(account.clear_factors());
    account.raise_epoch();
    let (mut writes, url) = fresh_link(&mut account, issuer, now, &ports.random)?;
    writes.extend(removals);
    writes.push(account.update_write(found.revision)?);
    Ok(Some(PreparedAccount {
        account,
        writes,
        url: Some(url),
        existed: true,
    }))
}

/// Gives the account a new link, which replaces an earlier one. Returns the writes about links and
/// the address of the new one; the caller writes the account itself.
pub fn fresh_link(
    account: &mut Account,
    issuer: &str,
    now: Timestamp,
    random: &dyn Random,
) -> Result<(Vec<Write>, String), StoreError> {
    let secret = Secret::fresh(SecretKind::Invite, random);
    let expires_at = now.plus_seconds(INVITE_SECONDS);
    let invite = Invite {
        email: account.email.clone(),
        expires_at,
    };
    let document = Document::from_value(&invite)?;
    // Records contain only the hash, so a copy of the store opens no account.
    let key = invite_key(&secret.hash());
    let mut writes = vec![Write::put_until(key, document, When::Absent, expires_at)];
    if let Some(earlier) = account.invite.replace(secret.hash()) {
        writes.push(Write::delete(invite_key(&earlier), When::Any));
    }
    Ok((writes, format!("{issuer}/oauth/invite/{}", secret.text())))
}

#[cfg(test)]
mod tests {
    use vault_testing::TestClock;

    use super::super::second_factor::TotpSecret;
    use super::*;

    fn account() -> Account {
        let email: Email = "ada@example.org".parse().unwrap();
        Account::new(
            AccountId::of_earlier_version(&email),
            email,
            Timestamp::from_unix(0),
        )
    }

    #[test]
    fn a_hash_is_never_printed() {
        let mut account = account();
        account.set_password("$argon2id$secret".into(), Timestamp::from_unix(0));
        assert!(!format!("{account:?}").contains("secret"));
    }

    #[test]
    fn an_address_in_an_earlier_record_is_the_id_of_its_account() {
        let account = account();
        let read: AccountId = serde_json::from_str("\"ada@example.org\"").unwrap();
        assert_eq!(read, account.id);
        let written = serde_json::to_string(&account.id).unwrap();
        assert_eq!(
            serde_json::from_str::<AccountId>(&written).unwrap(),
            account.id
        );
        assert_ne!(
            read,
            AccountId::of_earlier_version(&"bob@example.org".parse().unwrap())
        );
        assert!(account.id.as_str().len() == 30, "{}", account.id);
    }

    /// Sessions and factors from before the person proved the address must not stay valid.
    #[tokio::test]
    async fn a_link_for_an_account_without_a_proof_ends_everything_before_it() {
        // A time and its code of RFC 6238, appendix B.
        let (now, code) = (Timestamp::from_unix(59), "287082");
        let secret: TotpSecret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ".parse().unwrap();
        let ports = Ports::in_memory(std::sync::Arc::new(TestClock::new(now)));
        let begun = SecondFactor::enable_with(secret, code, now, &ports.random);
        let mut held = account();
        held.second_factor = Some(begun.unwrap().0);
        let made = ports
            .try_commit(held.creation_writes().unwrap())
            .await
            .unwrap();
        assert!(made);
        let invited = prepare_invitation(&ports, &held.email, "https://vault.example", now).await;
        let invited = invited.unwrap();
        assert!(ports.try_commit(invited.writes).await.unwrap());
        let after = find_account(&ports, &held.email)
            .await
            .unwrap()
            .unwrap()
            .value;
        assert_eq!(after.second_factor, None);
        assert_eq!(after.epoch, held.epoch + 1);
    }

    #[test]
    fn an_account_signs_in_with_a_proof_while_it_is_not_disabled() {
        let mut account = account();
        assert!(!account.can_sign_in());
        account.set_password("one".into(), Timestamp::from_unix(1));
        account.set_password("two".into(), Timestamp::from_unix(2));
        assert_eq!(
            (account.proofs.len(), account.password_hash()),
            (1, Some("two"))
        );
        assert!(account.can_sign_in());
        account.disabled = true;
        assert!(!account.can_sign_in());
    }
}
