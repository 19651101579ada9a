//! Memberships of an account, for the pages on which a person chooses among vaults: consent,
//! sign-in and the account page.

use vault_format::name::Slug;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record, RecordKey};

use crate::app::App;
use crate::model::account::{Account, account_partition};
use crate::model::namespace::{self, Namespace, Status};
use crate::model::user::{MEMBERSHIPS, Membership, Role, User, membership_key, user_key};

/// Maximum number of memberships of an account that are read for a choice among them.
const MAX_READ: usize = 1000;
/// Maximum number of namespaces that a page offers: the ones that were used last.
pub const MAX_CHOICES: usize = 50;

/// A membership of an account in a namespace that is in service.
#[derive(Clone, Debug)]
pub struct Member {
    /// The account's user in the namespace, with role and scopes.
    pub user: User,
    /// The namespace as it is now.
    pub home: Namespace,
}

/// Loads the 50 memberships of the account that were used last, or only the one in the namespace
/// with the slug `fixed`. A suspended namespace is left out unless it is the fixed one.
pub async fn load_members(
    app: &App,
    account: &Account,
    fixed: Option<&str>,
) -> Result<Vec<Member>, StoreError> {
    let mut members = load_all_members(app, account, fixed).await?;
    members.truncate(MAX_CHOICES);
    Ok(members)
}

/// Loads memberships of the account, last used first: the first 1,000 by name, or only the one in
/// the namespace with the slug `fixed`. A suspended namespace is left out unless it is the fixed
/// one, because choosing it would lead nowhere.
pub async fn load_all_members(
    app: &App,
    account: &Account,
    fixed: Option<&str>,
) -> Result<Vec<Member>, StoreError> {
    let memberships = match fixed.map(str::parse::<Slug>) {
        None => {
            app.records
                .list_page(&account_partition(&account.id), MEMBERSHIPS, None, MAX_READ)
                .await?
        }
        Some(Ok(slug)) => app
            .records
            .get_one(&membership_key(&account.id, &slug))
            .await?
            .into_iter()
            .collect(),
        Some(Err(_)) => Vec::new(),
    };
    let memberships: Vec<Membership> = memberships
        .iter()
        .map(Record::read)
        .collect::<Result<_, _>>()?;
    let keys: Vec<RecordKey> = memberships
        .iter()
        .flat_map(|membership| {
            let home = &membership.namespace;
            [
                user_key(&home.id, &membership.user_id),
                namespace::namespace_key(&home.slug),
            ]
        })
        .collect();
    // The users and the namespaces alternate, as in `keys`.
    let mut loaded_records = Vec::with_capacity(keys.len());
    for chunk in keys.chunks(MAX_KEYS) {
        loaded_records.extend(app.records.get_many(chunk).await?);
    }
    let mut members = Vec::new();
    for pair in loaded_records.chunks_exact(2) {
        let (Some(user), Some(home)) = (&pair[0], &pair[1]) else {
            continue;
        };
        let (user, home): (User, Namespace) = (user.read()?, home.read()?);
        let serves =
            home.status == Status::Active || (home.status == Status::Suspended && fixed.is_some());
        // The slug may belong to another namespace by now, so the ids are compared.
        if home.id == user.namespace.id && serves {
            members.push(Member { user, home });
        }
    }
    members.sort_by_key(|member| std::cmp::Reverse(member.user.last_seen_at));
    Ok(members)
}

/// Whether the account owns a namespace, including one that is suspended or otherwise out of
/// service.
pub async fn owns_any_namespace(app: &App, account: &Account) -> Result<bool, StoreError> {
    let partition = account_partition(&account.id);
    let mut after: Option<String> = None;
    // All pages are read: with a bound, an owner of many memberships could turn off a second factor
    // that the service requires of owners.
    loop {
        let page = app
            .records
            .list_page(&partition, MEMBERSHIPS, after.as_deref(), MAX_KEYS)
            .await?;
        let Some(last) = page.last() else {
            return Ok(false);
        };
        after = Some(last.key.key.clone());
        let key = |record: &Record| {
            let membership: Membership = record.read()?;
            Ok(user_key(&membership.namespace.id, &membership.user_id))
        };
        let keys = page
            .iter()
            .map(key)
            .collect::<Result<Vec<_>, StoreError>>()?;
        for user in app.records.get_many(&keys).await?.into_iter().flatten() {
            if user.read::<User>()?.role == Role::Owner {
                return Ok(true);
            }
        }
        if page.len() < MAX_KEYS {
            return Ok(false);
        }
    }
}
