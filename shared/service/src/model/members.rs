//! The rule about all users of a namespace together: one of them must stay an owner who can sign in
//! and write.

use serde::de::DeserializeOwned;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, MAX_PAGE, Record, When, Write};

use super::Versioned;
use super::account::{Account, account_key};
use super::user::{User, users_partition};

use crate::ports::Ports;

/// Maximum number of pages of users that are searched for another owner.
const MAX_SEARCH_PAGES: usize = 10;

/// Returns an owner besides `id` who can sign in and write, if there is one among the first 10,000
/// users.
pub async fn another_owner(
    ports: &Ports,
    namespace: &NamespaceId,
    id: &str,
) -> Result<Option<Versioned<User>>, StoreError> {
    let partition = users_partition(namespace);
    let mut after: Option<String> = None;
    // Bounded, because a namespace may have any number of users and this runs within a request.
    for _ in 0..MAX_SEARCH_PAGES {
        let found = ports
            .records
            .list_page(&partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        after = found.last().map(|record| record.key.key.clone());
        let full = found.len() == MAX_PAGE;
        let mut owners = Vec::new();
        for record in &found {
            let owner = read_versioned::<User>(record)?;
            if owner.value.can_administer() && owner.value.id != id {
                owners.push(owner);
            }
        }
        for some in owners.chunks(MAX_KEYS) {
            // Such an owner is active and so has an account: owners and keys match in the `zip`
            // below.
            let keys: Vec<_> = some
                .iter()
                .filter_map(|owner| owner.value.account())
                .map(|account| account_key(&account))
                .collect();
            for (owner, account) in some.iter().zip(ports.records.get_many(&keys).await?) {
                let account = Versioned::<Account>::read(account)?;
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

fn read_versioned<T: DeserializeOwned>(record: &Record) -> Result<Versioned<T>, StoreError> {
    Ok(Versioned {
        revision: record.revision,
        expires_at: record.expires_at,
        value: record.read()?,
    })
}

impl Versioned<User> {
    /// Returns a write that fails the commit if the user has changed since it was read.
    pub fn check_unchanged(&self) -> Write {
        Write::check(self.value.key(), When::At(self.revision))
    }
}
