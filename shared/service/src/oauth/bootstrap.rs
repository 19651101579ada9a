//! The first owner: made once in the life of a store, from what the service is told at its first
//! start.

use secrecy::{ExposeSecret as _, SecretString};
use vault_format::name::Slug;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::random::Random;
use vault_store::records::{Document, Records, When, Write};
use zeroize::Zeroizing;

use super::password::{self, BadPassword, HashingFailed, LEAST_FOR_THE_OWNER};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{
    self, Account, AccountId, BadEmail, Email, FirstOwner, first_owner_key,
};
use crate::model::audit::{self, Actor, Change};
use crate::model::earlier::{self, ACCOUNTS};
use crate::model::namespace::{self, Kind, Namespace};
use crate::model::user::{NamespaceRef, Role, Scopes, User};
use crate::retry::retry;

/// The name of the namespace that the first owner owns.
pub const FIRST_NAMESPACE: &str = "default";

/// What became of the first owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FirstStart {
    /// It was made now.
    Created(Email),
    /// It was there; nothing was changed, whatever the service was told.
    AlreadyThere(Email),
}

/// Why there is no first owner.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// There is none, and the service was not told who it is to be.
    #[error("no owner exists yet: the first start needs the owner's e-mail address and password")]
    Missing,
    /// The address cannot name an account.
    #[error("the owner's address: {0}")]
    Email(#[from] BadEmail),
    /// The password is too short or too long.
    #[error("the owner's password: {0}")]
    Password(#[from] BadPassword),
    /// The password could not be hashed.
    #[error(transparent)]
    Hashing(#[from] HashingFailed),
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes the first owner, its user in `default`, and that namespace (of `kind`) unless it exists,
/// in one commit; or finds that there is one. Everything is checked before anything is written. Of
/// several processes that start at once, one makes it.
pub async fn first_owner(
    app: &App,
    kind: Kind,
    email: Option<&str>,
    password: Option<&SecretString>,
) -> Result<FirstStart, BootstrapError> {
    if let Some(owner) = owner(app).await? {
        return Ok(FirstStart::AlreadyThere(owner));
    }
    let (Some(email), Some(password)) = (email, password) else {
        return Err(BootstrapError::Missing);
    };
    let email: Email = email.parse()?;
    password::check_length(password.expose_secret(), LEAST_FOR_THE_OWNER)?;
    let hash = password::hash(
        Zeroizing::new(password.expose_secret().to_owned()),
        &*app.random,
    )
    .await?;
    let attempt = async || {
        let writes = creation(app, kind, &email, &hash).await?;
        if app.try_commit(writes).await? {
            return Ok(Some(FirstStart::Created(email.clone())));
        }
        Ok::<_, BootstrapError>(owner(app).await?.map(FirstStart::AlreadyThere))
    };
    retry(&*app.random, attempt).await
}

/// The first owner, once there is one. Accounts of an earlier version of vault are carried over
/// before anybody uses them.
pub async fn owner(app: &App) -> Result<Option<Email>, StoreError> {
    earlier::carry_over(&*app.records, app.clock.now(), &*app.random).await?;
    let mark = Versioned::<FirstOwner>::read(app.records.get(&first_owner_key()).await?)?;
    Ok(mark.map(|mark| mark.value.email))
}

/// Resets an account past all routes: for who runs the server and can sign in as no operator. The
/// link that sets a new password, to be shown once; `None` when there is no such account.
pub async fn reset_account(
    records: &dyn Records,
    email: &Email,
    issuer: &str,
    clock: &dyn Clock,
    random: &dyn Random,
) -> Result<Option<String>, StoreError> {
    earlier::carry_over(records, clock.now(), random).await?;
    let attempt = async || {
        let Some(reset) = account::reset(records, email, issuer, clock.now(), random).await? else {
            return Ok(Some(None));
        };
        let change = Change {
            target: Some(reset.account.id.to_string()),
            ..Change::default()
        };
        let actor = Actor::server();
        let action = "account.reset";
        let mut writes = reset.writes;
        writes.push(audit::entry(
            None, &actor, action, change, "done", clock, random,
        )?);
        let done = records.commit(writes).await?.is_done();
        Ok::<_, StoreError>(done.then_some(reset.url))
    };
    retry(random, attempt).await
}

async fn creation(
    app: &App,
    kind: Kind,
    email: &Email,
    hash: &str,
) -> Result<Vec<Write>, StoreError> {
    let now = app.clock.now();
    let mark = FirstOwner {
        email: email.clone(),
        created_at: now,
        accounts: ACCOUNTS,
    };
    let mut account = Account::new(AccountId::fresh(now, &*app.random), email.clone(), now);
    account.operator = true;
    account.set_password(hash.to_owned(), now);
    let document = Document::of(&mark)?;
    let mut writes = vec![Write::put(first_owner_key(), document, When::Absent)];
    writes.extend(account.creation()?);
    let slug: Slug = FIRST_NAMESPACE
        .parse()
        .map_err(|_| StoreError::Invalid("the first namespace's name".into()))?;
    let found = Versioned::<Namespace>::read(app.records.get(&namespace::key(&slug)).await?)?;
    let home = if let Some(home) = found {
        writes.push(Write::check(namespace::key(&slug), When::At(home.revision)));
        home.value
    } else {
        let home = Namespace::new(slug, kind, email.to_string(), &*app.clock, &*app.random);
        writes.extend(home.allocation()?);
        home
    };
    let home = NamespaceRef {
        slug: home.slug,
        id: home.id,
    };
    let user = User::active(&account, home, Role::Owner, Scopes::ALL, now, &*app.random);
    writes.extend(user.creation()?);
    Ok(writes)
}
