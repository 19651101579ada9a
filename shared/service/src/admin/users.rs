//! `/admin/users`: who has a part in the caller's namespace, and what they may do there.
//!
//! An owner invites an address (`model::membership`); the person who has proven it accepts at `/account`. Every change is one commit of the user, its index entry, the audit record, and a check that the caller may still make it; what would leave
//! the namespace without an owner who can sign in and write is refused there too, so two owners who remove each other leave one.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_format::name::is_deceptive;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{RecordKey, Write};

use super::call::{Answer, Call, Items, cut};
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::account::{AccountId, Email, Listed, listed_key};
use crate::model::audit::Change;
use crate::model::membership::invitation_key;
use crate::model::user::{
    Membership, NamespaceRef, Role, Scope, Scopes, State, User, is_user_id, membership_key,
    user_key, users_partition,
};
use crate::model::{Seen, members, read_all};
use crate::retry::retry;

/// Most characters of a profile's name.
const MAX_PROFILE_CHARS: usize = 64;

#[derive(Serialize)]
struct Shown {
    id: String,
    email: Email,
    state: State,
    role: Role,
    scopes: Scopes,
    profile: Option<String>,
    created_at: Timestamp,
    last_seen_at: Option<Timestamp>,
}

impl From<User> for Shown {
    fn from(user: User) -> Self {
        Self {
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
}

/// Lists the users, oldest first.
pub(super) async fn list(call: Call) -> Answer {
    let page = call.page()?;
    let partition = users_partition(&call.caller.namespace.id);
    let records = &call.app.records;
    let found = records
        .list(&partition, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (found, next) = cut(found, page.limit);
    let items = found
        .iter()
        .map(|record| record.read::<User>().map(Shown::from))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    email: String,
    role: Option<String>,
    scopes: Option<Vec<String>>,
}

/// Somebody to be given a part.
struct Newcomer {
    email: Email,
    role: Role,
    scopes: Scopes,
}

/// Invites an address: it becomes a user when the person who has proven it accepts, within 7 days. Asked again, the seven days begin anew.
/// The answer is the same whether or not there is an account, and makes none: a link that sets a password makes its holder the account
/// in every vault, so operators alone make such links, as operators. Without other words: a member who may read.
pub(super) async fn create(call: Call) -> Answer {
    let wanted: Wanted = call.json().await?;
    let newcomer = Newcomer {
        email: wanted.email.parse().map_err(|_| Code::EmailInvalid)?,
        role: wanted.role.as_deref().map_or(Ok(Role::Member), role)?,
        scopes: wanted.scopes.as_deref().map_or(Ok(Scopes::READ), scopes)?,
    };
    if newcomer.role == Role::Owner {
        call.require_fresh()?;
    }
    let created = retry(&*call.app.random, || try_create(&call, &newcomer)).await?;
    Ok(json_answer(StatusCode::CREATED, &created))
}

/// One try; `None` when something changed meanwhile.
async fn try_create(call: &Call, newcomer: &Newcomer) -> Result<Option<Shown>, Refusal> {
    let (app, home, now) = (&call.app, home(call), call.app.clock.now());
    let [caller, active, invited] = standings(call, &newcomer.email).await?;
    let caller = still_administers(caller)?;
    if active.is_some() {
        return Err(Code::UserExists.into());
    }
    let (role, scopes) = (newcomer.role, newcomer.scopes);
    let before = invited.as_ref().map(|there| standing(&there.value));
    let (user, mut writes) = if let Some(there) = invited {
        let user = there
            .value
            .invited_anew(role, scopes, now)
            .by(&call.caller.email);
        let writes = user.renewal(there.revision)?;
        (user, writes)
    } else {
        let email = newcomer.email.clone();
        let user = User::invited(email, home, role, scopes, now, &*app.random);
        let user = user.by(&call.caller.email);
        let writes = user.creation()?;
        (user, writes)
    };
    let change = Change {
        target: Some(user.id.clone()),
        before,
        after: Some(standing(&user)),
    };
    writes.push(caller.check());
    writes.push(call.audit("user.create", change)?);
    let done = call.app.try_commit(writes).await?;
    Ok(done.then(|| user.into()))
}

/// The caller, and who has the address here: as an active user, as an invited one. An address with an account costs what one without
/// costs.
async fn standings(call: &Call, email: &Email) -> Result<[Option<Seen<User>>; 3], Refusal> {
    let (home, records) = (home(call), &*call.app.records);
    let listed = Seen::<Listed>::read(records.get(&listed_key(email)).await?)?;
    let account = listed.map_or_else(|| AccountId::earlier(email), |listed| listed.value.account);
    let keys = [
        user_key(&home.id, &call.caller.user_id),
        membership_key(&account, &home.slug),
        invitation_key(email, &home.slug),
    ];
    let [caller, active, invited] = read_all(records, keys).await?;
    // An entry whose user is gone leads nowhere, as the id of the entry itself would.
    let user_of = |entry| -> Result<RecordKey, StoreError> {
        let entry = Seen::<Membership>::read(entry)?;
        let entry = entry.filter(|entry| entry.value.namespace.id == home.id);
        let id = entry.map_or_else(|| "none".to_owned(), |entry| entry.value.user_id);
        Ok(user_key(&home.id, &id))
    };
    let (active, invited) = (user_of(active)?, user_of(invited)?);
    let found = if active == invited {
        vec![None, None]
    } else {
        records.get_many(&[active, invited]).await?
    };
    let mut found = found.into_iter().map(Seen::read);
    let mut next = || found.next().transpose().map(Option::flatten);
    Ok([Seen::read(caller)?, next()?, next()?])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedProfile {
    // Not an `Option`: a member that was left out must not lift a restriction.
    profile: Value,
}

/// Binds a user to a profile of the policy, or to none.
pub(super) async fn set_profile(call: Call) -> Answer {
    let wanted: WantedProfile = call.json().await?;
    let profile = match wanted.profile {
        Value::Null => None,
        Value::String(name) if is_profile(&name) => Some(name),
        _ => return Err(Code::ProfileInvalid.into()),
    };
    let set = |user: User| User {
        profile: profile.clone(),
        ..user
    };
    change(
        &call,
        "user.profile",
        set,
        |user| json!({ "profile": user.profile }),
    )
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedRole {
    role: String,
}

/// Makes a user an owner or a member. Scopes stay: an owner without `write` sees everything and changes nothing.
pub(super) async fn set_role(call: Call) -> Answer {
    let wanted: WantedRole = call.json().await?;
    let role = role(&wanted.role)?;
    call.require_fresh()?;
    let set = |user: User| User { role, ..user };
    change(&call, "user.role", set, |user| json!({ "role": user.role })).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedScopes {
    #[serde(default)]
    grant: Vec<String>,
    #[serde(default)]
    revoke: Vec<String>,
}

/// Grants and revokes scopes; what a token carries of them is cut at once, what it was not given it does not get.
pub(super) async fn change_scopes(call: Call) -> Answer {
    let wanted: WantedScopes = call.json().await?;
    let (grant, revoke) = (scopes(&wanted.grant)?, scopes(&wanted.revoke)?);
    if !grant.and(revoke).is_empty() {
        return Err(Refusal::new(Code::ParameterInvalid)
            .detail("A scope cannot be granted and revoked at once."));
    }
    let set = |user: User| User {
        scopes: user.scopes.or(grant).without(revoke),
        ..user
    };
    change(
        &call,
        "user.scopes",
        set,
        |user| json!({ "scopes": user.scopes }),
    )
    .await
}

/// Takes a user's part away, for which credentials must have been entered just now, or withdraws an invitation.
pub(super) async fn remove(call: Call) -> Answer {
    let removed = retry(&*call.app.random, || try_remove(&call)).await?;
    Ok(json_answer(StatusCode::OK, &Shown::from(removed)))
}

/// One try; `None` when something changed meanwhile.
async fn try_remove(call: &Call) -> Result<Option<User>, Refusal> {
    let Found { caller, target } = find(call).await?;
    if target.value.state() == State::Active {
        call.require_fresh()?;
    }
    let mut writes = remaining(call, caller, &target, None).await?;
    writes.extend(target.value.removal(target.revision));
    let change = Change {
        target: Some(target.value.id.clone()),
        before: Some(standing(&target.value)),
        after: None,
    };
    writes.push(call.audit("user.remove", change)?);
    Ok(call.app.try_commit(writes).await?.then_some(target.value))
}

/// Changes the user that the path names, and keeps in the log what `short` says of it before and after, also where nothing changed.
async fn change(
    call: &Call,
    name: &str,
    set: impl Fn(User) -> User,
    short: impl Fn(&User) -> Value,
) -> Answer {
    let attempt = async || {
        let Found { caller, target } = find(call).await?;
        let after = set(target.value.clone());
        let mut writes = remaining(call, caller, &target, Some(&after)).await?;
        writes.push(after.update(target.revision)?);
        let change = Change {
            target: Some(after.id.clone()),
            before: Some(short(&target.value)),
            after: Some(short(&after)),
        };
        writes.push(call.audit(name, change)?);
        Ok::<_, Refusal>(call.app.try_commit(writes).await?.then_some(after))
    };
    let after = retry(&*call.app.random, attempt).await?;
    Ok(json_answer(StatusCode::OK, &Shown::from(after)))
}

/// The user that a path names, and the caller's own record at the same moment.
struct Found {
    caller: Option<Seen<User>>,
    target: Seen<User>,
}

async fn find(call: &Call) -> Result<Found, Refusal> {
    let id = call.param("id");
    if !is_user_id(id) {
        return Err(Code::UserNotFound.into());
    }
    let namespace = &call.caller.namespace.id;
    let [caller, target] = read_all(
        &*call.app.records,
        [
            user_key(namespace, &call.caller.user_id),
            user_key(namespace, id),
        ],
    )
    .await?;
    Ok(Found {
        caller: Seen::read(caller)?,
        target: Seen::read(target)?.ok_or(Code::UserNotFound)?,
    })
}

/// What the commit that makes `target` into `after` has to check: that the caller may still do it, and that an owner stays.
async fn remaining(
    call: &Call,
    caller: Option<Seen<User>>,
    target: &Seen<User>,
    after: Option<&User>,
) -> Result<Vec<Write>, Refusal> {
    let steps_back = target.value.administers() && !after.is_some_and(User::administers);
    let caller = still_administers(caller);
    match caller {
        // An owner who changes somebody else stays, and can sign in.
        Ok(caller) if caller.value.id != target.value.id => Ok(vec![caller.check()]),
        // The target's own write is conditional on the record that says so.
        Ok(_) if !steps_back => Ok(Vec::new()),
        // The caller steps back, or was removed since the request began, perhaps by the target.
        _ if steps_back => {
            let (records, namespace) = (&*call.app.records, &call.caller.namespace.id);
            let other = members::another_owner(records, namespace, &target.value.id).await?;
            let other = other.ok_or(Code::LastOwner)?;
            caller?;
            Ok(vec![other.check()])
        }
        _ => Err(Code::OwnerRequired.into()),
    }
}

/// The caller as of now; 403 when it is no owner with `write` any more.
fn still_administers(caller: Option<Seen<User>>) -> Result<Seen<User>, Refusal> {
    caller
        .filter(|caller| caller.value.administers())
        .ok_or_else(|| Code::OwnerRequired.into())
}

/// The caller's namespace, as records about people name it.
fn home(call: &Call) -> NamespaceRef {
    NamespaceRef {
        slug: call.caller.namespace.slug.clone(),
        id: call.caller.namespace.id,
    }
}

/// What the log says of a user.
fn standing(user: &User) -> Value {
    json!({ "email": user.email, "state": user.state(), "role": user.role, "scopes": user.scopes, "profile": user.profile })
}

fn role(text: &str) -> Result<Role, Refusal> {
    text.parse().map_err(|_| Code::RoleUnknown.into())
}

fn scopes(words: &[String]) -> Result<Scopes, Refusal> {
    words
        .iter()
        .map(|word| {
            let known = Scope::ALL.into_iter().find(|scope| scope.as_str() == word);
            known.ok_or_else(|| Code::ScopeUnknown.into())
        })
        .collect()
}

fn is_profile(name: &str) -> bool {
    (1..=MAX_PROFILE_CHARS).contains(&name.chars().count()) && !name.chars().any(is_deceptive)
}
