//! `/admin/users`: the users of the caller's namespace, and their rights there.
//!
//! An owner invites an e-mail address (`model::membership`); a person who has proven to own the
//! address accepts at `/account`. Every change is one commit of the user, its index entry, the
//! audit record, and a check that the caller is still an owner. That commit fails if the namespace
//! would be left without an owner who can sign in and write: if two owners remove each other, one
//! stays.
//!
//! Some changes need a permit: the person confirms the act on a page of the service first.

use axum::http::StatusCode;
use serde_json::{Value, json};
use vault_api::{Given, NewUser, ProfileChange, RoleChange, ScopeChange};
use vault_format::name::{NamespaceId, is_deceptive};
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey, Write};

use super::call::{Answer, Call, Items, Page, trim_page};
use super::principal::{Principal, require_consent};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::account::{AccountId, AddressEntry, Email, directory_key};
use crate::model::audit::Change;
use crate::model::membership::invitation_key;
use crate::model::namespace::Namespace;
use crate::model::permit::Act;
use crate::model::user::{
    Membership, Role, Scope, Scopes, State, User, is_user_id, membership_key, user_key,
    users_partition,
};
use crate::model::{Versioned, members, places};
use crate::notices::queue_warnings;
use crate::transaction::Transaction;

/// Maximum number of characters of a profile name.
const MAX_PROFILE_CHARS: usize = 64;

fn to_api_user(user: User) -> vault_api::User {
    vault_api::User {
        state: user.state(),
        id: user.id,
        email: user.email,
        role: user.role,
        scopes: user.scopes,
        profile: user.profile,
        client_id: user.client.map(Into::into),
        created_at: user.created_at,
        last_seen_at: user.last_seen_at,
    }
}

pub(super) async fn list_users(call: Call) -> Answer {
    let page = call.page_params()?;
    let Items { items, next } =
        read_users_page(&call.app, &call.caller.namespace.id, &page).await?;
    let items: Vec<_> = items.into_iter().map(to_api_user).collect();
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Reads one page of the users of a vault, oldest first.
pub(crate) async fn read_users_page(
    app: &App,
    namespace: &NamespaceId,
    page: &Page,
) -> Result<Items<User>, StoreError> {
    let partition = users_partition(namespace);
    let after = page.after.as_deref();
    let page_records = app
        .records
        .list_page(&partition, "", after, page.limit + 1)
        .await?;
    let (page_records, next) = trim_page(page_records, page.limit);
    let items = page_records
        .iter()
        .map(Record::read)
        .collect::<Result<_, _>>()?;
    Ok(Items { items, next })
}

pub(crate) struct NewMember {
    pub(crate) email: Email,
    pub(crate) role: Role,
    /// Upper bound for the scopes of the tokens that the user's apps get.
    pub(crate) scopes: Scopes,
}

impl NewMember {
    /// Returns the act for which the invitation may need a permit. An invitation as an owner always
    /// needs one, because an owner can take over the vault; any other needs one only if it changes
    /// the role of an earlier invitation.
    pub(crate) fn act(&self) -> Act {
        let (email, role, scopes) = (self.email.clone(), self.role, self.scopes);
        match role {
            Role::Owner => Act::InviteOwner { email, scopes },
            Role::Publisher | Role::Member => Act::ChangeInvitation {
                email,
                role,
                scopes,
            },
        }
    }
}

/// Invites an e-mail address, by default as a member with the scope `read`. Its holder becomes a
/// user by accepting within 7 days, after proving to own the address. A repeated invitation starts
/// the 7 days anew. The answer does not depend on whether the address has an account, and no
/// account is created: a link that sets a password gives access to all vaults of the account, so
/// only operators can create one.
pub(super) async fn create_user(call: Call) -> Answer {
    let new_user: NewUser = call.json_body().await?;
    let role = new_user.role.as_ref();
    let newcomer = NewMember {
        email: new_user.email.parse_or(ErrorCode::EmailInvalid)?,
        role: role.map_or(Ok(Role::Member), |role| {
            role.parse_or(ErrorCode::RoleUnknown)
        })?,
        scopes: scopes_or_default(new_user.scopes.as_deref())?,
    };
    let invitation = invite_user(&call.to_principal(), &newcomer).await;
    let invited = call.confirm_outcome(&newcomer.act(), invitation).await?;
    Ok(json_answer(StatusCode::CREATED, &to_api_user(invited)))
}

/// Invites an address, or renews its invitation. Uses the permit for it if the role is owner, or if
/// the role differs from that of the earlier invitation.
pub(crate) async fn invite_user(by: &Principal<'_>, newcomer: &NewMember) -> Result<User, Refusal> {
    let invite = async |tx| invite_in(&tx, by, newcomer).await;
    by.app.change(invite).await
}

async fn invite_in(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    newcomer: &NewMember,
) -> Result<User, Refusal> {
    let now = tx.now();
    let [caller, active, invited] = read_candidates(by, &newcomer.email).await?;
    let caller = require_still_administers(caller)?;
    require_consent(tx, by.consent).await?;
    if active.is_some() {
        return Err(ErrorCode::UserExists.into());
    }
    let changes_role = |invited: &Versioned<User>| invited.value.role != newcomer.role;
    // An owner can take over the vault, so no app invites one without the person. An invitation
    // with another role is a change of role, which must not need less here than on its own route.
    if newcomer.role == Role::Owner || invited.as_ref().is_some_and(changes_role) {
        by.spend_permit(tx, &newcomer.act()).await?;
    }
    let (role, scopes) = (newcomer.role, newcomer.scopes);
    let before = invited.as_ref().map(|there| user_snapshot(&there.value));
    let user = if let Some(there) = invited {
        let user = there
            .value
            .invited_anew(role, scopes, now)
            .with_inviter(by.email, by.client());
        tx.write_all(user.renewal_writes(there.revision)?);
        user
    } else {
        let (home, limit) = (by.namespace.to_ref(), by.app.quota_of(by.namespace).people);
        let taken = places::take_invitation_place(tx, &home, limit).await?;
        tx.write_all(queue_warnings(tx, by.namespace, taken.warning).await?);
        tx.write_all(taken.writes);
        let email = newcomer.email.clone();
        let user = User::new_invited(email, by.namespace.to_ref(), role, scopes, tx);
        let user = user.with_inviter(by.email, by.client());
        tx.write_all(user.creation_writes()?);
        user
    };
    let change = Change::about(&user.id)
        .with_before(before)
        .with_after(user_snapshot(&user));
    // Fails the commit if the caller lost the role after it was read.
    tx.write(caller.check_unchanged());
    by.write_audit(tx, "user.create", change)?;
    Ok(user)
}

/// Returns the id of the user, active or invited, who has this address in the vault `home`.
pub(crate) async fn find_id_by_email(
    app: &App,
    home: &Namespace,
    email: &Email,
) -> Result<Option<String>, StoreError> {
    let directory_entry = app.get::<AddressEntry>(&directory_key(email)).await?;
    // An address without an entry may be of an account of an earlier version of vault, whose id
    // follows from the address. So the same records are read whether or not there is an account.
    let account = directory_entry.map_or_else(
        || AccountId::of_earlier_version(email),
        |listed| listed.value.account,
    );
    let entries = [
        membership_key(&account, &home.slug),
        invitation_key(email, &home.slug),
    ];
    for entry in app.records.get_many(&entries).await?.into_iter().flatten() {
        let entry: Membership = entry.read()?;
        // The entry is found by the slug, but belongs to one allocation of it, which the id tells.
        if entry.namespace.id == home.id {
            return Ok(Some(entry.user_id));
        }
    }
    Ok(None)
}

/// Reads the caller, and the active and the invited user with this address. Costs the same number
/// of reads whether or not the address has an account.
async fn read_candidates(
    by: &Principal<'_>,
    email: &Email,
) -> Result<[Option<Versioned<User>>; 3], Refusal> {
    let (home, app) = (by.namespace.to_ref(), by.app);
    let directory_entry = app.get::<AddressEntry>(&directory_key(email)).await?;
    let account = directory_entry.map_or_else(
        || AccountId::of_earlier_version(email),
        |listed| listed.value.account,
    );
    let keys = [
        user_key(&home.id, by.user_id),
        membership_key(&account, &home.slug),
        invitation_key(email, &home.slug),
    ];
    let [caller, active, invited] = app.get_all(keys).await?;
    // Without an entry, uses a key that no user has: it is read like any other and not found.
    let user_of = |entry| -> Result<RecordKey, StoreError> {
        let entry = Versioned::<Membership>::read(entry)?;
        let entry = entry.filter(|entry| entry.value.namespace.id == home.id);
        let id = entry.map_or_else(|| "none".to_owned(), |entry| entry.value.user_id);
        Ok(user_key(&home.id, &id))
    };
    let (active, invited) = (user_of(active)?, user_of(invited)?);
    // Different users have different keys, so equal keys mean that neither user exists.
    let user_records = if active == invited {
        vec![None, None]
    } else {
        app.records.get_many(&[active, invited]).await?
    };
    let mut user_records = user_records.into_iter().map(Versioned::read);
    let mut next = || user_records.next().transpose().map(Option::flatten);
    Ok([Versioned::read(caller)?, next()?, next()?])
}

/// Assigns a profile to a user; `null` in the body removes it.
pub(super) async fn set_profile(call: Call) -> Answer {
    let profile_change: ProfileChange = call.json_body().await?;
    let profile = match profile_change.profile {
        // Only an explicit null removes the profile. A member that was left out must not lift a
        // restriction, and is rejected when the body is parsed.
        Value::Null => None,
        Value::String(name) => Some(name),
        _ => return Err(ErrorCode::ProfileInvalid.into()),
    };
    let user = change_profile(&call.to_principal(), call.param("id"), profile).await?;
    Ok(json_answer(StatusCode::OK, &to_api_user(user)))
}

/// Assigns the profile of this name to a user, or removes it.
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
    let change = UserChange {
        action: "user.profile",
        right: NeededRight::RoleAndWrite,
        act: None,
        set,
        describe: short,
    };
    change_user(by, id, change).await
}

/// Changes the role of a user. Needs a permit: the person confirms the new role on a page of the
/// service.
pub(super) async fn set_role(call: Call) -> Answer {
    let role_change: RoleChange = call.json_body().await?;
    let role = role_change.role.parse_or(ErrorCode::RoleUnknown)?;
    let id = call.param("id");
    let change = change_role(&call.to_principal(), id, role).await;
    let user = call.confirm_outcome(&role_act(id, role), change).await?;
    Ok(json_answer(StatusCode::OK, &to_api_user(user)))
}

pub(crate) fn role_act(id: &str, role: Role) -> Act {
    let user = id.to_owned();
    Act::ChangeRole { user, role }
}

/// Changes the role of a user, with the permit for it. The scopes stay: a new owner without `write`
/// sees everything, but can change only scopes and apps.
pub(crate) async fn change_role(by: &Principal<'_>, id: &str, role: Role) -> Result<User, Refusal> {
    let set = |user: User| User { role, ..user };
    let short = |user: &User| json!({ "role": user.role });
    let change = UserChange {
        action: "user.role",
        right: NeededRight::RoleAndWrite,
        act: Some(role_act(id, role)),
        set,
        describe: short,
    };
    change_user(by, id, change).await
}

pub(super) async fn change_scopes(call: Call) -> Answer {
    let scope_change: ScopeChange = call.json_body().await?;
    let (grant, revoke) = (
        parse_scopes(&scope_change.grant)?,
        parse_scopes(&scope_change.revoke)?,
    );
    if !grant.and(revoke).is_empty() {
        return Err(Refusal::new(ErrorCode::ParameterInvalid)
            .detail("A scope cannot be granted and revoked at once."));
    }
    let user = grant_scopes(&call.to_principal(), call.param("id"), (grant, revoke)).await?;
    Ok(json_answer(StatusCode::OK, &to_api_user(user)))
}

/// Grants the scopes `grant` to a user and then revokes the scopes `revoke`. Existing tokens lose a
/// revoked scope at once; they do not gain a granted one.
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
    let change = UserChange {
        action: "user.scopes",
        // The documented contract of the route requires only the role.
        right: NeededRight::Role,
        act: None,
        set,
        describe: short,
    };
    change_user(by, id, change).await
}

/// Ends a membership, which needs a permit, or withdraws an invitation, which needs none.
pub(super) async fn handle_remove(call: Call) -> Answer {
    let id = call.param("id");
    let removal = remove_user(&call.to_principal(), id).await;
    let removed = call.confirm_outcome(&removal_act(id), removal).await?;
    Ok(json_answer(StatusCode::OK, &to_api_user(removed)))
}

pub(crate) fn removal_act(id: &str) -> Act {
    let user = id.to_owned();
    Act::RemoveUser { user }
}

/// Removes a user, with the permit for it if the user is active.
pub(crate) async fn remove_user(by: &Principal<'_>, id: &str) -> Result<User, Refusal> {
    by.app
        .change(async |tx| {
            let CallerAndTarget { caller, target } = find_with_caller(by, id).await?;
            let caller = require_still_administers(caller);
            tx.write_all(owner_checks(by, caller, &target, None).await?);
            // Withdrawing an invitation takes no right from anybody, so it needs no confirmation.
            if target.value.state() == State::Active {
                by.spend_permit(&tx, &removal_act(id)).await?;
            }
            tx.write_all(target.value.removal_writes(target.revision));
            let change = Change::about(&target.value.id).with_before(user_snapshot(&target.value));
            by.write_audit(&tx, "user.remove", change)?;
            Ok(target.value)
        })
        .await
}

/// Withdraws these invitations in the commit of the transaction. Fails with 403 if the caller is no
/// longer an owner who may write.
pub(super) async fn withdraw_invitations(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    invitations: &[Versioned<User>],
) -> Result<(), Refusal> {
    if invitations.is_empty() {
        return Ok(());
    }
    let caller = tx
        .get::<User>(&user_key(&by.namespace.id, by.user_id))
        .await?;
    tx.write(require_still_administers(caller)?.check_unchanged());
    for invited in invitations {
        // The condition on the revision fails if the person has accepted meanwhile.
        tx.write_all(invited.value.removal_writes(invited.revision));
        let change = Change::about(&invited.value.id).with_before(user_snapshot(&invited.value));
        by.write_audit(tx, "user.remove", change)?;
    }
    Ok(())
}

/// The right that the caller needs for a change, checked again at its commit.
#[derive(Clone, Copy, Debug)]
enum NeededRight {
    /// The role of an owner.
    Role,
    /// The role of an owner and the scope `write`.
    RoleAndWrite,
}

/// One change of a user, as [`change_user`] makes it.
struct UserChange<S, D> {
    /// Action in the audit log, such as `user.scopes`.
    action: &'static str,
    /// Right that the caller needs, checked again at the commit.
    right: NeededRight,
    /// The act whose permit the change uses; `None` if it needs none.
    act: Option<Act>,
    /// Receives the user as read and returns the user to write.
    set: S,
    /// Returns the part of the user that the audit log shows, called before and after the change.
    describe: D,
}

/// Changes a user and logs the change, also if nothing changed.
async fn change_user(
    by: &Principal<'_>,
    id: &str,
    change: UserChange<impl Fn(User) -> User, impl Fn(&User) -> Value>,
) -> Result<User, Refusal> {
    let UserChange {
        action,
        right,
        act,
        set,
        describe,
    } = &change;
    by.app
        .change(async |tx| {
            let CallerAndTarget { caller, target } = find_with_caller(by, id).await?;
            let after = set(target.value.clone());
            let caller = match right {
                NeededRight::Role => require_still_owns(caller),
                NeededRight::RoleAndWrite => require_still_administers(caller),
            };
            tx.write_all(owner_checks(by, caller, &target, Some(&after)).await?);
            // After the checks, so that no person is asked to confirm a change that is then
            // refused.
            if let Some(act) = act {
                by.spend_permit(&tx, act).await?;
            }
            tx.write(after.update_write(target.revision)?);
            let change = Change::about(&after.id)
                .with_before(describe(&target.value))
                .with_after(describe(&after));
            by.write_audit(&tx, action, change)?;
            Ok(after)
        })
        .await
}

/// The target of a change and the record of the caller, read at the same moment.
struct CallerAndTarget {
    caller: Option<Versioned<User>>,
    target: Versioned<User>,
}

async fn find_with_caller(by: &Principal<'_>, id: &str) -> Result<CallerAndTarget, Refusal> {
    // The id becomes part of a record key; text of another form must not reach the store.
    if !is_user_id(id) {
        return Err(ErrorCode::UserNotFound.into());
    }
    let namespace = &by.namespace.id;
    let keys = [user_key(namespace, by.user_id), user_key(namespace, id)];
    let [caller, target] = by.app.get_all(keys).await?;
    Ok(CallerAndTarget {
        caller: Versioned::read(caller)?,
        target: Versioned::read(target)?.ok_or(ErrorCode::UserNotFound)?,
    })
}

/// Finds the user of this id; fails with `UserNotFound` if there is none.
pub(crate) async fn find_user(by: &Principal<'_>, id: &str) -> Result<User, Refusal> {
    Ok(find_with_caller(by, id).await?.target.value)
}

/// Returns the checks that the commit must contain if `target` becomes `after` (`None`: is
/// removed): that the caller still has the right to change it, and that the vault keeps an owner.
async fn owner_checks(
    by: &Principal<'_>,
    caller: Result<Versioned<User>, Refusal>,
    target: &Versioned<User>,
    after: Option<&User>,
) -> Result<Vec<Write>, Refusal> {
    let steps_back = target.value.can_administer() && !after.is_some_and(User::can_administer);
    match caller {
        // The caller is not the target, and stays an owner with `write` if that is needed.
        Ok(caller)
            if caller.value.id != target.value.id
                && (!steps_back || caller.value.can_administer()) =>
        {
            Ok(vec![caller.check_unchanged()])
        }
        // The caller changes their own record. The write of it has its revision as a condition, so
        // no further check is needed.
        Ok(_) if !steps_back => Ok(Vec::new()),
        // The caller gives up the ownership, has no `write`, or was removed since the request
        // began, perhaps by the target.
        _ if steps_back => {
            let namespace = &by.namespace.id;
            let other = members::another_owner(by.app, namespace, &target.value.id).await?;
            let other = other.ok_or(ErrorCode::LastOwner)?;
            let caller = caller?;
            let of_caller = (caller.value.id != target.value.id).then(|| caller.check_unchanged());
            Ok([other.check_unchanged()]
                .into_iter()
                .chain(of_caller)
                .collect())
        }
        // The caller lost a right that it had when the request began.
        Ok(_) => Err(ErrorCode::OwnerRequired.into()),
        Err(refusal) => Err(refusal),
    }
}

/// Returns the caller if it is still an owner with `write`; fails with 403 otherwise. The guard of
/// the route has checked the scope of the token, but the user may have lost it since.
fn require_still_administers(caller: Option<Versioned<User>>) -> Result<Versioned<User>, Refusal> {
    let caller = require_still_owns(caller)?;
    if caller.value.can_administer() {
        Ok(caller)
    } else {
        Err(ErrorCode::InsufficientScope.into())
    }
}

/// Returns the caller if it is still an owner, with whatever scopes; fails with 403 otherwise.
fn require_still_owns(caller: Option<Versioned<User>>) -> Result<Versioned<User>, Refusal> {
    caller
        .filter(|caller| caller.value.role == Role::Owner && caller.value.state() == State::Active)
        .ok_or_else(|| ErrorCode::OwnerRequired.into())
}

fn user_snapshot(user: &User) -> Value {
    json!({ "email": user.email, "state": user.state(), "role": user.role, "scopes": user.scopes, "profile": user.profile })
}

/// Parses the scopes of an invitation: `read` if the request names none.
pub(super) fn scopes_or_default(words: Option<&[Given<Scope>]>) -> Result<Scopes, Refusal> {
    words.map_or(Ok(Scopes::READ), parse_scopes)
}

fn parse_scopes(words: &[Given<Scope>]) -> Result<Scopes, Refusal> {
    words
        .iter()
        .map(|word| Ok(word.parse_or(ErrorCode::ScopeUnknown)?))
        .collect()
}

fn is_profile(name: &str) -> bool {
    (1..=MAX_PROFILE_CHARS).contains(&name.chars().count()) && !name.chars().any(is_deceptive)
}
