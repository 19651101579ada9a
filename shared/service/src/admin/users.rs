//! `/admin/users`: who has a part in the caller's namespace, and what they may do there.
//!
//! Every change is one commit of the user, its index entry, the audit record, and a check that the caller may still make it; what would leave
//! the namespace without an owner who can sign in and write is refused there too, so two owners who remove each other leave one.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_format::name::is_deceptive;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, MAX_PAGE, Record, When, Write};

use super::call::{Answer, Call, Items, cut};
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::account::{self, Account, Email, account_key};
use crate::model::audit::Change;
use crate::model::user::{
    Membership, NamespaceRef, Role, Scope, Scopes, User, is_user_id, membership_key, user_key,
    users_partition,
};
use crate::model::{Seen, read_all};
use crate::retry::retry;

/// Most characters of a profile's name.
const MAX_PROFILE_CHARS: usize = 64;
/// Most pages of users that are read in search of another owner, when an owner steps back.
const MAX_SEARCH_PAGES: usize = 10;

#[derive(Serialize)]
struct Shown {
    id: String,
    email: Email,
    role: Role,
    scopes: Scopes,
    profile: Option<String>,
    created_at: Timestamp,
    last_seen_at: Option<Timestamp>,
}

impl From<User> for Shown {
    fn from(user: User) -> Self {
        Self {
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

#[derive(Serialize)]
struct Created {
    #[serde(flatten)]
    user: Shown,
    /// Shown once, and only where the account cannot sign in yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    invite_url: Option<String>,
}

/// Gives an account a part; one that cannot sign in yet gets an invitation, and a new one in place of the old if it is asked for again.
/// Without other words: a member who may read.
pub(super) async fn create(call: Call) -> Answer {
    let wanted: Wanted = call.json().await?;
    let newcomer = Newcomer {
        email: wanted.email.parse().map_err(|_| Code::EmailInvalid)?,
        role: wanted.role.as_deref().map_or(Ok(Role::Member), role)?,
        scopes: wanted.scopes.as_deref().map_or(Ok(Scopes::READ), scopes)?,
    };
    let created = retry(&*call.app.random, || try_create(&call, &newcomer)).await?;
    Ok(json_answer(StatusCode::CREATED, &created))
}

/// One try; `None` when something changed meanwhile.
async fn try_create(call: &Call, newcomer: &Newcomer) -> Result<Option<Created>, Refusal> {
    let (app, home) = (&call.app, home(call));
    let (records, email) = (&*app.records, &newcomer.email);
    let (now, issuer) = (app.clock.now(), app.config.public_url.base());
    let [caller, membership] = read_all(
        records,
        [
            user_key(&home.id, &call.caller.user_id),
            membership_key(email, &home.slug),
        ],
    )
    .await?;
    let caller = still_administers(Seen::read(caller)?)?;
    let there = match Seen::<Membership>::read(membership)? {
        Some(member) => Seen::<User>::read(
            records
                .get(&user_key(&home.id, &member.value.user_id))
                .await?,
        )?,
        None => None,
    };
    let invited = account::invite_into(records, email, &home, issuer, now, &*app.random)
        .await?
        .ok_or(Code::InvitationPending)?;
    let before = there.as_ref().map(|there| standing(&there.value));
    let (user, mut writes) = if let Some(there) = there {
        if invited.url.is_none() {
            return Err(Code::UserExists.into());
        }
        let user = User {
            role: newcomer.role,
            scopes: newcomer.scopes,
            ..there.value
        };
        let writes = vec![user.update(there.revision)?];
        (user, writes)
    } else {
        let (role, scopes) = (newcomer.role, newcomer.scopes);
        let user = User::new(email.clone(), home, role, scopes, now, &*app.random);
        let writes = user.creation()?;
        (user, writes)
    };
    let change = Change {
        target: Some(user.id.clone()),
        before,
        after: Some(standing(&user)),
    };
    writes.push(caller.check());
    writes.extend(invited.writes);
    writes.push(call.audit("user.create", change)?);
    let done = call.app.try_commit(writes).await?;
    Ok(done.then(|| Created {
        user: user.into(),
        invite_url: invited.url,
    }))
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

/// Takes a user's part away. An account that nobody accepted yet goes with the invitation of this namespace.
pub(super) async fn remove(call: Call) -> Answer {
    let removed = retry(&*call.app.random, || try_remove(&call)).await?;
    Ok(json_answer(StatusCode::OK, &Shown::from(removed)))
}

/// One try; `None` when something changed meanwhile.
async fn try_remove(call: &Call) -> Result<Option<User>, Refusal> {
    let Found { caller, target } = find(call).await?;
    let key = account_key(&target.value.email);
    let account = Seen::<Account>::read(call.app.records.get(&key).await?)?;
    let mut writes = remaining(call, caller, &target, None).await?;
    writes.extend(target.value.removal(target.revision));
    if let Some(account) = account.filter(|account| account.value.waits_for(&home(call))) {
        writes.extend(account::withdrawal(&account));
    }
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
            let other = another_owner(call, &target.value.id).await?;
            let other = other.ok_or(Code::LastOwner)?;
            caller?;
            Ok(vec![other.check()])
        }
        _ => Err(Code::OwnerRequired.into()),
    }
}

/// An owner besides `id` who can sign in and write, if there is one among the first 10,000 users.
async fn another_owner(call: &Call, id: &str) -> Result<Option<Seen<User>>, StoreError> {
    let records = &call.app.records;
    let partition = users_partition(&call.caller.namespace.id);
    let mut after: Option<String> = None;
    for _ in 0..MAX_SEARCH_PAGES {
        let found = records
            .list(&partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        after = found.last().map(|record| record.key.key.clone());
        let full = found.len() == MAX_PAGE;
        let mut owners = Vec::new();
        for record in &found {
            let owner = seen::<User>(record)?;
            if owner.value.administers() && owner.value.id != id {
                owners.push(owner);
            }
        }
        for some in owners.chunks(MAX_KEYS) {
            let keys: Vec<_> = some
                .iter()
                .map(|owner| account_key(&owner.value.email))
                .collect();
            for (owner, account) in some.iter().zip(records.get_many(&keys).await?) {
                let account = Seen::<Account>::read(account)?;
                if account.is_some_and(|account| account.value.can_sign_in()) {
                    return Ok(Some(owner.clone()));
                }
            }
        }
        if !full {
            break;
        }
    }
    Ok(None)
}

fn seen<T: serde::de::DeserializeOwned>(record: &Record) -> Result<Seen<T>, StoreError> {
    Ok(Seen {
        revision: record.revision,
        expires_at: record.expires_at,
        value: record.read()?,
    })
}

impl Seen<User> {
    /// Fails the commit when the user is not as it was read.
    fn check(&self) -> Write {
        Write::check(self.value.key(), When::At(self.revision))
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
    json!({ "email": user.email, "role": user.role, "scopes": user.scopes, "profile": user.profile })
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
