//! The first owner of a service: the first start creates it from the settings, once in the life of
//! a store.

use secrecy::{ExposeSecret as _, SecretString};
use vault_format::name::Slug;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};
use zeroize::Zeroizing;

use super::password::{self, BadPassword, HashingFailed, MIN_OWNER_CHARS};
use crate::app::App;
use crate::model::account::{
    self, Account, AccountId, BadEmail, Email, FirstOwner, first_owner_key,
};
use crate::model::audit::{Actor, Change};
use crate::model::earlier::{self, ACCOUNTS};
use crate::model::limits::Networks;
use crate::model::namespace::{self, Kind, Namespace};
use crate::model::user::{Role, Scopes, User};
use crate::ports::Ports;
use crate::transaction::Transaction;

/// Slug of the namespace that the first owner gets, in a service that starts with a namespace of
/// its own.
pub const FIRST_NAMESPACE: &str = "default";

/// What a start did about the first owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FirstStart {
    /// This start created the owner, with this e-mail address.
    Created(Email),
    /// The owner existed, so the settings were ignored and nothing was changed.
    AlreadyThere(Email),
}

/// Error: no first owner could be found or created.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The store has no owner, and the settings do not name one.
    #[error("no owner exists yet: the first start needs the owner's e-mail address and password")]
    Missing,
    /// The address in the settings is not an e-mail address in plain ASCII.
    #[error("the owner's address: {0}")]
    Email(#[from] BadEmail),
    /// The password has fewer than 24 characters, or more than 1,024 bytes.
    #[error("the owner's password: {0}")]
    Password(#[from] BadPassword),
    /// The password was long enough and not too long, but hashing it failed; the start may be
    /// repeated.
    #[error(transparent)]
    Hashing(#[from] HashingFailed),
    /// The store failed while the owner was looked up or written; the start may be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates the first owner in one commit, or finds that there is one.
///
/// With a `kind`, the owner gets the namespace `default`, which is created with that kind unless it
/// exists. Without one, the owner only operates the service. All settings are checked before
/// anything is written. If several processes start at once, one of them creates the owner.
pub async fn ensure_first_owner(
    app: &App,
    kind: Option<Kind>,
    email: Option<&str>,
    password: Option<&SecretString>,
) -> Result<FirstStart, BootstrapError> {
    // Checked before the settings, because a later start needs neither address nor password.
    if let Some(owner) = load_owner(app).await? {
        return Ok(FirstStart::AlreadyThere(owner));
    }
    let (Some(email), Some(password)) = (email, password) else {
        return Err(BootstrapError::Missing);
    };
    let email: Email = email.parse()?;
    password::check_length(password.expose_secret(), MIN_OWNER_CHARS)?;
    // Hashed outside the transaction, whose work is repeated after a conflict.
    let hash = password::hash_password(
        Zeroizing::new(password.expose_secret().to_owned()),
        &app.random,
        &Networks::of(None),
    )
    .await?;
    let create = async |tx: Transaction<'_>| {
        // Another process may have created the owner since the check above.
        if let Some(owner) = find_owner(&tx).await? {
            return Ok(FirstStart::AlreadyThere(owner));
        }
        create_owner(&tx, kind, &email, &hash).await?;
        Ok(FirstStart::Created(email.clone()))
    };
    app.change(create).await
}

/// Returns the first owner's address, if there is one. Accounts of an earlier version of vault are
/// migrated first, before anything uses them.
pub async fn load_owner(ports: &Ports) -> Result<Option<Email>, StoreError> {
    earlier::migrate_accounts(ports, ports.now()).await?;
    find_owner(ports).await
}

async fn find_owner(ports: &Ports) -> Result<Option<Email>, StoreError> {
    let mark = ports.get::<FirstOwner>(&first_owner_key()).await?;
    Ok(mark.map(|mark| mark.value.email))
}

/// Outcome of [`reset_account`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccountReset {
    /// The link that sets a new password. It must be shown now, since it is stored nowhere.
    Link(String),
    /// No account has the address.
    NotFound,
    /// The deletion of the account has begun: nothing was changed.
    DeletionBegun,
}

/// Resets an account: for a command on the server, run by people who cannot sign in as operator.
/// `issuer` is the public URL of the service, with which the link begins.
pub async fn reset_account(
    ports: &Ports,
    email: &Email,
    issuer: &str,
) -> Result<AccountReset, StoreError> {
    earlier::migrate_accounts(ports, ports.now()).await?;
    let reset = async |tx: Transaction<'_>| {
        let Some(reset) = account::prepare_reset(&tx, email, issuer, tx.now()).await? else {
            return Ok(AccountReset::NotFound);
        };
        if reset.account.deletion_begun {
            return Ok(AccountReset::DeletionBegun);
        }
        let change = Change::about(&reset.account.id);
        tx.write_all(reset.writes);
        tx.audit(None, &Actor::server(), "account.reset", change)?;
        Ok(reset.url.map_or(AccountReset::NotFound, AccountReset::Link))
    };
    ports.change(reset).await
}

/// Adds the writes that create the first owner and, with a `kind`, its ownership of `default`.
async fn create_owner(
    tx: &Transaction<'_>,
    kind: Option<Kind>,
    email: &Email,
    hash: &str,
) -> Result<(), StoreError> {
    let now = tx.now();
    let mark = FirstOwner {
        email: email.clone(),
        created_at: now,
        accounts: ACCOUNTS,
    };
    let mut account = Account::new(AccountId::fresh(now, &tx.random), email.clone(), now);
    account.operator = true;
    account.set_password(hash.to_owned(), now);
    let document = Document::from_value(&mark)?;
    // The condition `Absent` fails the whole commit if there is an owner: the mark is written once
    // in the life of the store.
    tx.write(Write::put(first_owner_key(), document, When::Absent));
    tx.write_all(account.creation_writes()?);
    match kind {
        Some(kind) => give_first_namespace(tx, kind, &account).await,
        None => Ok(()),
    }
}

/// Adds the writes that make the account the owner of `default`, and create that namespace if
/// needed.
async fn give_first_namespace(
    tx: &Transaction<'_>,
    kind: Kind,
    account: &Account,
) -> Result<(), StoreError> {
    let slug: Slug = FIRST_NAMESPACE
        .parse()
        .map_err(|_| StoreError::Invalid("the first namespace's name".into()))?;
    let stored_namespace = tx
        .get::<Namespace>(&namespace::namespace_key(&slug))
        .await?;
    let home = if let Some(home) = stored_namespace {
        // A namespace that existed must still be there at the commit, or the user would belong to
        // nothing.
        tx.write(Write::check(
            namespace::namespace_key(&slug),
            When::At(home.revision),
        ));
        home.value
    } else {
        let home = Namespace::new(slug, kind, account.email.to_string(), tx);
        tx.write_all(home.allocation_writes()?);
        home
    };
    let user = User::new_active(account, home.to_ref(), Role::Owner, Scopes::ALL, tx);
    tx.write_all(user.creation_writes()?);
    Ok(())
}
