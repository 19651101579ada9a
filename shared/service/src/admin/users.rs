//! `/admin/users`: who has a part in the caller's namespace, and what they may do there.
//!
//! An owner invites an address (`model::membership`); the person who has proven it accepts at
//! `/account`. Every change is one commit of the user, its index entry, the audit record, and a
//! check that the caller may still make it; what would leave the namespace without an owner who can
//! sign in and write is refused there too, so two owners who remove each other leave one.

use axum::http::StatusCode;
use serde_json::{Value, json};
use vault_api::{Given, NewUser, ProfileChange, RoleChange, ScopeChange};
use vault_format::name::{NamespaceId, is_deceptive};
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey, Write};

use super::call::{Answer, Call, Items, Page, cut};
use super::principal::Principal;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::account::{AccountId, Email, Listed, listed_key};
use crate::model::audit::Change;
use crate::model::membership::invitation_key;
use crate::model::namespace::Namespace;
use crate::model::user::{
    Membership, Role, Scope, Scopes, State, User, is_user_id, membership_key, user_key,
    users_partition,
};
use crate::model::{Versioned, members};
use crate::transaction::Transaction;

/// Most characters of a profile's name.
const MAX_PROFILE_CHARS: usize = 64;

/// A user, as owners see it.
fn shown(user: User) -> vault_api::User {
    vault_api::User {
        state: user.state(),
        id: user.id,
        email: user.email,
        role: user.role,
        scopes: user.scopes,
        profile: user.profile,
        created_at: user.created_at,
        last_seen_at: user.last_seen_at,
    }
}

/// Lists the users, oldest first.
pub(super) async fn list(call: Call) -> Answer {
    let page = call.page()?;
    let Items { items, next } = users(&call.app, &call.caller.namespace.id, &page).await?;
    let items: Vec<_> = items.into_iter().map(shown).collect();
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// A page of the users of a vault, oldest first.
pub(crate) async fn users(
    app: &App,
    namespace: &NamespaceId,
    page: &Page,
) -> Result<Items<User>, StoreError> {
    let partition = users_partition(namespace);
    let after = page.after.as_deref();
    let found = app
        .records
        .list(&partition, "", after, page.limit + 1)
        .await?;
    let (found, next) = cut(found, page.limit);
    let items = found.iter().map(Record::read).collect::<Result<_, _>>()?;
    Ok(Items { items, next })
}

/// Whom an owner invites, and to what.
pub(crate) struct Newcomer {
    /// The address.
    pub(crate) email: Email,
    /// The role to have.
    pub(crate) role: Role,
    /// The most that tokens may carry.
    pub(crate) scopes: Scopes,
}

/// Invites an address: it becomes a user when the person who has proven it accepts, within 7 days.
/// Asked again, the seven days begin anew. The answer is the same whether or not there is an
/// account, and makes none: a link that sets a password makes its holder the account in every
/// vault, so operators alone make such links, as operators. Without other words: a member who may
/// read.
pub(super) async fn create(call: Call) -> Answer {
    let wanted: NewUser = call.json().await?;
    let role = wanted.role.as_ref();
    let newcomer = Newcomer {
        email: wanted.email.parse_or(ErrorCode::EmailInvalid)?,
        role: role.map_or(Ok(Role::Member), |role| {
            role.parse_or(ErrorCode::RoleUnknown)
        })?,
        scopes: wanted.scopes.as_deref().map_or(Ok(Scopes::READ), scopes)?,
    };
    if newcomer.role == Role::Owner {
        call.require_fresh()?;
    }
    let invited = invite(&call.principal(), &newcomer).await?;
    Ok(json_answer(StatusCode::CREATED, &shown(invited)))
}

/// Invites an address, or invites it again. A new owner needs a fresh sign-in, which the caller has
/// proven.
pub(crate) async fn invite(by: &Principal<'_>, newcomer: &Newcomer) -> Result<User, Refusal> {
    let invite = async |tx| invite_in(&tx, by, newcomer).await;
    by.app.change(invite).await
}

async fn invite_in(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    newcomer: &Newcomer,
) -> Result<User, Refusal> {
    let now = tx.now();
    let [caller, active, invited] = standings(by, &newcomer.email).await?;
    let caller = still_administers(caller)?;
    if active.is_some() {
        return Err(ErrorCode::UserExists.into());
    }
    let (role, scopes) = (newcomer.role, newcomer.scopes);
    let before = invited.as_ref().map(|there| standing(&there.value));
    let user = if let Some(there) = invited {
        let user = there.value.invited_anew(role, scopes, now).by(by.email);
        tx.write_all(user.renewal(there.revision)?);
        user
    } else {
        let email = newcomer.email.clone();
        let user = User::invited(email, by.home(), role, scopes, now, &tx.random);
        let user = user.by(by.email);
        tx.write_all(user.creation()?);
        user
    };
    let change = Change::about(&user.id)
        .before(before)
        .after(standing(&user));
    tx.write(caller.check());
    by.audit(tx, "user.create", change)?;
    Ok(user)
}

/// The id of the user who has this address in the vault `home`, or is invited there.
pub(crate) async fn find_id_by_email(
    app: &App,
    home: &Namespace,
    email: &Email,
) -> Result<Option<String>, StoreError> {
    let listed = app.get::<Listed>(&listed_key(email)).await?;
    let account = listed.map_or_else(|| AccountId::earlier(email), |listed| listed.value.account);
    let entries = [
        membership_key(&account, &home.slug),
        invitation_key(email, &home.slug),
    ];
    for entry in app.records.get_many(&entries).await?.into_iter().flatten() {
        let entry: Membership = entry.read()?;
        if entry.namespace.id == home.id {
            return Ok(Some(entry.user_id));
        }
    }
    Ok(None)
}

/// The caller, and who has the address here: as an active user, as an invited one. An address with
/// an account costs what one without costs.
async fn standings(
    by: &Principal<'_>,
    email: &Email,
) -> Result<[Option<Versioned<User>>; 3], Refusal> {
    let (home, app) = (by.home(), by.app);
    let listed = app.get::<Listed>(&listed_key(email)).await?;
    let account = listed.map_or_else(|| AccountId::earlier(email), |listed| listed.value.account);
    let keys = [
        user_key(&home.id, by.user_id),
        membership_key(&account, &home.slug),
        invitation_key(email, &home.slug),
    ];
    let [caller, active, invited] = app.get_all(keys).await?;
    // An entry whose user is gone leads nowhere, as the id of the entry itself would.
    let user_of = |entry| -> Result<RecordKey, StoreError> {
        let entry = Versioned::<Membership>::read(entry)?;
        let entry = entry.filter(|entry| entry.value.namespace.id == home.id);
        let id = entry.map_or_else(|| "none".to_owned(), |entry| entry.value.user_id);
        Ok(user_key(&home.id, &id))
    };
    let (active, invited) = (user_of(active)?, user_of(invited)?);
    let found = if active == invited {
        vec![None, None]
    } else {
        app.records.get_many(&[active, invited]).await?
    };
    let mut found = found.into_iter().map(Versioned::read);
    let mut next = || found.next().transpose().map(Option::flatten);
    Ok([Versioned::read(caller)?, next()?, next()?])
}

/// Binds a user to a profile of the policy, or to none.
pub(super) async fn set_profile(call: Call) -> Answer {
    let wanted: ProfileChange = call.json().await?;
    let profile = match wanted.profile {
        Value::Null => None,
        Value::String(name) => Some(name),
        _ => return Err(ErrorCode::ProfileInvalid.into()),
    };
    let user = change_profile(&call.principal(), call.param("id"), profile).await?;
    Ok(json_answer(StatusCode::OK, &shown(user)))
}

/// Binds a user to the profile of this name, or to none.
pub(crate) async fn change_profile(
    by: &Principal<'_>,
    id: &str,
    profile: Option<String>,
) -> Result<User, Refusal> {
    if profile.as_ref().is_some_and(|name| !is_profile(name)) {
        return Err(ErrorCode::ProfileInvalid.into());
    }
    let set = |user: User| User {
        profile: profile.clone(),
        ..user
    };
    let short = |user: &User| json!({ "profile": user.profile });
    change(by, id, "user.profile", (set, short)).await
}

/// Changes the role of a user, for which credentials must have been entered just now.
pub(super) async fn set_role(call: Call) -> Answer {
    let wanted: RoleChange = call.json().await?;
    let role = wanted.role.parse_or(ErrorCode::RoleUnknown)?;
    call.require_fresh()?;
    let user = change_role(&call.principal(), call.param("id"), role).await?;
    Ok(json_answer(StatusCode::OK, &shown(user)))
}

/// Gives a user another role. Scopes stay: an owner without `write` sees everything and changes
/// nothing.
pub(crate) async fn change_role(by: &Principal<'_>, id: &str, role: Role) -> Result<User, Refusal> {
    let set = |user: User| User { role, ..user };
    let short = |user: &User| json!({ "role": user.role });
    change(by, id, "user.role", (set, short)).await
}

/// Grants and revokes scopes.
pub(super) async fn change_scopes(call: Call) -> Answer {
    let wanted: ScopeChange = call.json().await?;
    let (grant, revoke) = (scopes(&wanted.grant)?, scopes(&wanted.revoke)?);
    if !grant.and(revoke).is_empty() {
        return Err(Refusal::new(ErrorCode::ParameterInvalid)
            .detail("A scope cannot be granted and revoked at once."));
    }
    let user = grant_scopes(&call.principal(), call.param("id"), (grant, revoke)).await?;
    Ok(json_answer(StatusCode::OK, &shown(user)))
}

/// Grants the first scopes and revokes the second; what a token carries of them is cut at once,
/// what it was not given it does not get.
pub(crate) async fn grant_scopes(
    by: &Principal<'_>,
    id: &str,
    (grant, revoke): (Scopes, Scopes),
) -> Result<User, Refusal> {
    let set = |user: User| User {
        scopes: user.scopes.or(grant).without(revoke),
        ..user
    };
    let short = |user: &User| json!({ "scopes": user.scopes });
    change(by, id, "user.scopes", (set, short)).await
}

/// Ends a user's membership, for which credentials must have been entered just now, or withdraws an
/// invitation.
pub(super) async fn remove(call: Call) -> Answer {
    let fresh = || call.require_fresh();
    let removed = remove_user(&call.principal(), call.param("id"), &fresh).await?;
    Ok(json_answer(StatusCode::OK, &shown(removed)))
}

/// Removes a user. `fresh` passes where credentials were entered just now; it is asked for an
/// active user alone.
pub(crate) async fn remove_user(
    by: &Principal<'_>,
    id: &str,
    fresh: &(dyn Fn() -> Result<(), Refusal> + Sync),
) -> Result<User, Refusal> {
    by.app
        .change(async |tx| {
            let Found { caller, target } = find(by, id).await?;
            if target.value.state() == State::Active {
                fresh()?;
            }
            tx.write_all(remaining(by, caller, &target, None).await?);
            tx.write_all(target.value.removal(target.revision));
            let change = Change::about(&target.value.id).before(standing(&target.value));
            by.audit(&tx, "user.remove", change)?;
            Ok(target.value)
        })
        .await
}

/// Changes a user, and keeps in the log what `short` says of it before and after, also where
/// nothing changed.
async fn change(
    by: &Principal<'_>,
    id: &str,
    action: &str,
    (set, short): (impl Fn(User) -> User, impl Fn(&User) -> Value),
) -> Result<User, Refusal> {
    by.app
        .change(async |tx| {
            let Found { caller, target } = find(by, id).await?;
            let after = set(target.value.clone());
            tx.write_all(remaining(by, caller, &target, Some(&after)).await?);
            tx.write(after.update(target.revision)?);
            let change = Change::about(&after.id)
                .before(short(&target.value))
                .after(short(&after));
            by.audit(&tx, action, change)?;
            Ok(after)
        })
        .await
}

/// The user of an id, and the caller's own record at the same moment.
struct Found {
    caller: Option<Versioned<User>>,
    target: Versioned<User>,
}

async fn find(by: &Principal<'_>, id: &str) -> Result<Found, Refusal> {
    if !is_user_id(id) {
        return Err(ErrorCode::UserNotFound.into());
    }
    let namespace = &by.namespace.id;
    let keys = [user_key(namespace, by.user_id), user_key(namespace, id)];
    let [caller, target] = by.app.get_all(keys).await?;
    Ok(Found {
        caller: Versioned::read(caller)?,
        target: Versioned::read(target)?.ok_or(ErrorCode::UserNotFound)?,
    })
}

/// The user of this id.
pub(crate) async fn find_user(by: &Principal<'_>, id: &str) -> Result<User, Refusal> {
    Ok(find(by, id).await?.target.value)
}

/// What the commit that makes `target` into `after` has to check: that the caller may still do it,
/// and that an owner stays.
async fn remaining(
    by: &Principal<'_>,
    caller: Option<Versioned<User>>,
    target: &Versioned<User>,
    after: Option<&User>,
) -> Result<Vec<Write>, Refusal> {
    let steps_back = target.value.administers() && !after.is_some_and(User::administers);
    let caller = still_administers(caller);
    match caller {
        // An owner who changes another user stays, and can sign in.
        Ok(caller) if caller.value.id != target.value.id => Ok(vec![caller.check()]),
        // The target's own write is conditional on the record that says so.
        Ok(_) if !steps_back => Ok(Vec::new()),
        // The caller steps back, or was removed since the request began, perhaps by the target.
        _ if steps_back => {
            let namespace = &by.namespace.id;
            let other = members::another_owner(by.app, namespace, &target.value.id).await?;
            let other = other.ok_or(ErrorCode::LastOwner)?;
            caller?;
            Ok(vec![other.check()])
        }
        _ => Err(ErrorCode::OwnerRequired.into()),
    }
}

/// The caller as of now; 403 when it is not an owner with `write` any more.
fn still_administers(caller: Option<Versioned<User>>) -> Result<Versioned<User>, Refusal> {
    caller
        .filter(|caller| caller.value.administers())
        .ok_or_else(|| ErrorCode::OwnerRequired.into())
}

/// What the log says of a user.
fn standing(user: &User) -> Value {
    json!({ "email": user.email, "state": user.state(), "role": user.role, "scopes": user.scopes, "profile": user.profile })
}

fn scopes(words: &[Given<Scope>]) -> Result<Scopes, Refusal> {
    words
        .iter()
        .map(|word| Ok(word.parse_or(ErrorCode::ScopeUnknown)?))
        .collect()
}

fn is_profile(name: &str) -> bool {
    (1..=MAX_PROFILE_CHARS).contains(&name.chars().count()) && !name.chars().any(is_deceptive)
}
