//! Display names of a vault's people, machines and apps. Records refer to these by their ids.

use std::collections::{BTreeSet, HashMap};

use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record, RecordKey};

use super::difference::printable_line;
use super::guard::ConsolePage;
use crate::app::App;
use crate::model::audit::SERVER;
use crate::model::client::{ClientId, Connection, connection_key};
use crate::model::device::{self, Device, DeviceIdEntry, is_device_id};
use crate::model::namespace::Namespace;
use crate::model::user::{User, is_user_id, user_key};

/// Display names of the users, machines and apps of a vault, by id.
#[derive(Default)]
pub(super) struct Names {
    users: HashMap<String, String>,
    /// Machines, with the names that they gave themselves.
    machines: HashMap<String, NamedMachine>,
    /// Names that apps gave themselves; `None` for an app without one.
    apps: HashMap<ClientId, Option<String>>,
}

struct NamedMachine {
    name: String,
    /// Whether an owner removed the machine from the list.
    is_forgotten: bool,
}

impl Names {
    /// Reads the e-mail addresses of the users with these ids. Ids of another kind are skipped
    /// without a read.
    pub(super) async fn read_users<'i>(
        app: &App,
        namespace: &Namespace,
        ids: impl IntoIterator<Item = &'i str>,
    ) -> Result<Self, StoreError> {
        let ids: BTreeSet<&str> = ids.into_iter().filter(|id| is_user_id(id)).collect();
        let key = |id: &&str| user_key(&namespace.id, id);
        let mut users = HashMap::new();
        for record in read_all(app, ids.iter().map(key).collect()).await? {
            let user: User = record.read()?;
            users.insert(user.id, user.email.to_string());
        }
        Ok(Self {
            users,
            ..Self::default()
        })
    }

    /// Adds the names of the machines with these ids. Ids of another kind are skipped without a
    /// read.
    pub(super) async fn add_machines<'i>(
        &mut self,
        app: &App,
        namespace: &Namespace,
        ids: impl IntoIterator<Item = &'i str>,
    ) -> Result<(), StoreError> {
        let slug = &namespace.slug;
        let ids: BTreeSet<&str> = ids.into_iter().filter(|id| is_device_id(id)).collect();
        let key = |id: &&str| device::id_key(slug, id);
        let (mut keys, mut forgotten) = (Vec::new(), Vec::new());
        for record in read_all(app, ids.iter().map(key).collect()).await? {
            let named: DeviceIdEntry = record.read()?;
            keys.push(device::device_key(slug, &named.public_key.to_string()));
            forgotten.extend(named.forgotten);
        }
        let known = read_all(app, keys).await?;
        let known = known.iter().map(Record::read::<Device>);
        let known: Vec<Device> = known.collect::<Result<_, _>>()?;
        // A machine that was removed from the list may have enrolled again under the same id. The
        // present record comes last and replaces the former one.
        let forgotten = forgotten.into_iter().map(|device| (device, true));
        for (device, is_forgotten) in forgotten.chain(known.into_iter().map(|it| (it, false))) {
            if device.namespace_id == namespace.id {
                let name = device.name();
                let machine = NamedMachine { name, is_forgotten };
                self.machines.insert(device.device_id, machine);
            }
        }
        Ok(())
    }

    /// Adds the names of the apps among these ids. Ids of another kind are skipped without a read.
    pub(super) async fn add_apps_among<'i>(
        &mut self,
        app: &App,
        namespace: &Namespace,
        ids: impl IntoIterator<Item = &'i str>,
    ) -> Result<(), StoreError> {
        let ids: Vec<ClientId> = ids.into_iter().filter_map(|id| id.parse().ok()).collect();
        self.add_apps(app, namespace, &ids).await
    }

    pub(super) async fn add_apps<'i>(
        &mut self,
        app: &App,
        namespace: &Namespace,
        ids: impl IntoIterator<Item = &'i ClientId>,
    ) -> Result<(), StoreError> {
        let ids: BTreeSet<&ClientId> = ids.into_iter().collect();
        let key = |id: &&ClientId| connection_key(&namespace.id, id);
        for record in read_all(app, ids.iter().map(key).collect()).await? {
            let connection: Connection = record.read()?;
            let name = connection.name.as_deref().map(printable_line);
            self.apps.insert(connection.client, name);
        }
        Ok(())
    }

    /// Returns the display name of an app. It contains the id, because an app chooses its own name.
    pub(super) fn app_name(&self, id: &ClientId) -> String {
        match self.apps.get(id) {
            Some(Some(name)) => format!("the app “{name}” ({id})"),
            _ => format!("the app {id}"),
        }
    }

    /// Returns the display name for an id, or a description of what it names.
    pub(super) fn display_name(&self, id: &str) -> String {
        if let Ok(client) = id.parse() {
            return self.app_name(&client);
        }
        match (self.users.get(id), self.machines.get(id)) {
            (Some(email), _) => email.clone(),
            (None, Some(machine)) => machine.name.clone(),
            (None, None) if id == SERVER => "the service".to_owned(),
            (None, None) if id.starts_with("enc_") => format!("the enrolment code {id}"),
            // A vault's owners must not learn who operates the service.
            (None, None) if id.starts_with("acc_") => "an operator".to_owned(),
            // The record of a former member is deleted, but the log still has the id.
            (None, None) if is_user_id(id) => "a person who has left".to_owned(),
            (None, None) => id.to_owned(),
        }
    }

    /// Returns the address of the console page about an id, if there is one.
    pub(super) fn page_href(&self, page: &ConsolePage, id: &str) -> Option<String> {
        let is_listed = |machine: &NamedMachine| !machine.is_forgotten;
        if self.users.contains_key(id) {
            Some(page.address(&format!("/people/{id}")))
        } else if self.machines.get(id).is_some_and(is_listed) {
            Some(page.address(&format!("/machines/{id}")))
        } else {
            None
        }
    }
}

/// Reads the records of these keys, and skips missing ones.
async fn read_all(app: &App, keys: Vec<RecordKey>) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    for chunk in keys.chunks(MAX_KEYS) {
        records.extend(app.records.get_many(chunk).await?.into_iter().flatten());
    }
    Ok(records)
}
