//! Looks up whether the target of a refused action exists: the log names all targets that exist,
//! but only a few of those that an actor may have made up.

use vault_store::StoreError;
use vault_store::records::RecordKey;

use crate::model::client::{ClientId, connection_key};
use crate::model::device::{id_key, is_device_id};
use crate::model::draft::{draft_key, ended_key};
use crate::model::enrolment::{codes_partition, hash_prefix};
use crate::model::namespace::NamespaceRef;
use crate::model::notice::Destinations;
use crate::model::permit::permit_exists;
use crate::model::user::{User, is_user_id, user_key};
use crate::ports::Ports;

use super::RefusedRequest;

/// Whether this vault has the target of a refused action of `/admin` or of the console: a user, a
/// machine, an app, a draft, an enrolment code, a webhook, or a confirmation that the actor was
/// asked for.
pub(super) async fn target_exists(
    ports: &Ports,
    vault: &NamespaceRef,
    refused: &RefusedRequest,
    target: &str,
) -> Result<bool, StoreError> {
    let namespace = &vault.id;
    let kind = refused.action.split('.').next().unwrap_or_default();
    let keys: Vec<RecordKey> = match kind {
        "user" if is_user_id(target) => vec![user_key(namespace, target)],
        "device" if is_device_id(target) => vec![id_key(&vault.slug, target)],
        "client" => {
            let client = target.parse::<ClientId>().ok();
            let key = client.map(|client| connection_key(namespace, &client));
            key.into_iter().collect()
        }
        "draft" => match target.parse() {
            Ok(draft) => vec![draft_key(namespace, &draft), ended_key(namespace, &draft)],
            Err(_) => Vec::new(),
        },
        "enrolment" => {
            let codes = codes_partition(namespace);
            // The id of a code is the beginning of its hash.
            let Some(prefix) = hash_prefix(target) else {
                return Ok(false);
            };
            let found = ports.records.list_page(&codes, prefix, None, 1).await?;
            return Ok(!found.is_empty());
        }
        "notice" => {
            let (destinations, _) = Destinations::find(ports, namespace).await?;
            return Ok(destinations.find_webhook(target).is_some());
        }
        "confirmation" => {
            let key = user_key(namespace, &refused.actor.user);
            let user = ports.get::<User>(&key).await?;
            let Some(account) = user.and_then(|user| user.value.account) else {
                return Ok(false);
            };
            return permit_exists(ports, &account, target).await;
        }
        _ => Vec::new(),
    };
    if keys.is_empty() {
        return Ok(false);
    }
    let found = ports.records.get_many(&keys).await?;
    Ok(found.iter().any(Option::is_some))
}
