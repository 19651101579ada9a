//! The things that an app has made in a vault: enrolment codes, admitted machines, invitations and
//! webhooks.
//!
//! Each record contains the id of its app, and there is no index. All records of the vault are
//! read, so nothing is missing from the list that an owner sees before ending the app.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_PAGE, Record};

use super::Versioned;
use super::client::ClientId;
use super::device::{Device, DeviceStatus, devices_partition};
use super::enrolment::{EnrolmentCode, codes_partition, id_of};
use super::namespace::NamespaceRef;
use super::notice::{Destinations, Webhook};
use super::standing;
use super::user::{State, User, users_partition};

use crate::ports::Ports;

/// Maximum number of records of each kind in the vault that are read.
const MAX_READ: usize = 10 * MAX_PAGE;

/// An enrolment code that has not expired, and whose consent, if it depends on one, still lasts.
#[derive(Clone, Debug)]
pub struct ValidCode {
    /// SHA-256 of the code, which is its key.
    pub hash: Digest,
    /// Record of the code, with its revision for a conditional write.
    pub code: Versioned<EnrolmentCode>,
}

impl ValidCode {
    /// Returns the id that owners use for the code.
    pub fn id(&self) -> String {
        id_of(&self.hash)
    }

    /// Whether the code is valid only while the consent to this app lasts.
    pub fn depends_on(&self, client: &ClientId) -> bool {
        let consent = self.code.value.consent.as_ref();
        consent.is_some_and(|consent| consent.client == *client)
    }
}

/// The things that an app has made in a vault and that still have an effect.
#[derive(Debug, Default)]
pub struct AppResources {
    /// Codes that are still valid.
    pub codes: Vec<ValidCode>,
    /// Machines that the app or its codes have admitted.
    pub machines: Vec<Versioned<Device>>,
    /// Invitations that are not accepted yet.
    pub invitations: Vec<Versioned<User>>,
    /// Users who accepted an invitation of the app.
    pub members: Vec<Versioned<User>>,
    /// Webhooks that the app added.
    pub webhooks: Vec<Webhook>,
    /// Whether the vault has more records than were read, so that the lists may be incomplete.
    pub more: bool,
    /// Whether the vault has more codes than were read, so that `codes` may be incomplete.
    pub more_codes: bool,
}

impl AppResources {
    /// Reads what the app has made, from at most 10,000 records of each kind in the vault.
    pub async fn read(
        ports: &Ports,
        namespace: &NamespaceRef,
        client: &ClientId,
    ) -> Result<Self, StoreError> {
        let now = ports.now();
        let codes = read_app_records(ports, &codes_partition(&namespace.id), client).await?;
        let machines = read_app_records(ports, &devices_partition(&namespace.slug), client).await?;
        let people = read_app_records(ports, &users_partition(&namespace.id), client).await?;
        let (destinations, _) = Destinations::find(ports, &namespace.id).await?;
        let more_codes = codes.more;
        let more = more_codes || machines.more || people.more;
        let machines = read_all::<Device>(machines.records)?.into_iter();
        let machines = machines.filter(|device| {
            // Records are keyed by slug, which may have belonged to another vault.
            device.value.namespace_id == namespace.id && device.value.status == DeviceStatus::Active
        });
        let people = read_all::<User>(people.records)?.into_iter();
        let (invitations, members) = people.partition(|user| user.value.state() == State::Invited);
        let webhooks = destinations.webhooks.into_iter();
        Ok(Self {
            codes: find_valid_codes(ports, codes.records, now).await?,
            machines: machines.collect(),
            invitations,
            members,
            webhooks: webhooks
                .filter(|webhook| webhook.client.as_ref() == Some(client))
                .collect(),
            more,
            more_codes,
        })
    }

    /// Whether the lists are complete and empty.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
            && self.machines.is_empty()
            && self.invitations.is_empty()
            && self.members.is_empty()
            && self.webhooks.is_empty()
            && !self.more
    }
}

/// Returns the valid ones of these codes: if a code depends on a consent, the consent must still
/// last.
pub async fn find_valid_codes(
    ports: &Ports,
    records: Vec<Record>,
    now: Timestamp,
) -> Result<Vec<ValidCode>, StoreError> {
    let mut codes = Vec::new();
    for record in records {
        let hash = record.key.key.parse();
        let hash =
            hash.map_err(|_| StoreError::Corrupt("a code is stored under no hash".into()))?;
        if let Some(code) = Versioned::<EnrolmentCode>::read(Some(record))? {
            codes.push(ValidCode { hash, code });
        }
    }
    let consents: Vec<_> = codes
        .iter()
        .filter_map(|code| code.code.value.consent.clone())
        .collect();
    if consents.is_empty() {
        return Ok(codes);
    }
    let mut standings = standing::load_many(ports, &consents).await?.into_iter();
    codes.retain(|code| {
        let consent = code.code.value.consent.as_ref();
        // One standing was read for each code that has a consent, in the same order.
        consent.is_none_or(|consent| {
            let standing = standings.next();
            standing.is_some_and(|standing| standing.administers(consent, now))
        })
    });
    Ok(codes)
}

/// Records of one partition that an app made.
struct AppRecords {
    records: Vec<Record>,
    /// Whether the partition has more records than were read.
    more: bool,
}

/// The part of a record that contains the id of its app.
#[derive(Deserialize)]
struct ByApp {
    client: Option<ClientId>,
}

/// Reads the records of a partition that contain the id of this app.
async fn read_app_records(
    ports: &Ports,
    partition: &str,
    client: &ClientId,
) -> Result<AppRecords, StoreError> {
    let (mut records, mut after) = (Vec::new(), None::<String>);
    for _ in 0..MAX_READ / MAX_PAGE {
        let page = ports
            .records
            .list_page(partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        let is_last = page.len() < MAX_PAGE;
        after = page.last().map(|record| record.key.key.clone());
        for record in page {
            // Most records belong to no app or to another one, and need no parsing.
            let names_app = record.document.as_str().contains(client.as_str());
            if names_app && record.read::<ByApp>()?.client.as_ref() == Some(client) {
                records.push(record);
            }
        }
        if is_last {
            return Ok(AppRecords {
                records,
                more: false,
            });
        }
    }
    Ok(AppRecords {
        records,
        more: true,
    })
}

fn read_all<T: DeserializeOwned>(records: Vec<Record>) -> Result<Vec<Versioned<T>>, StoreError> {
    let read = records
        .into_iter()
        .map(|record| Versioned::read(Some(record)));
    // `Versioned::read` returns `None` only for an absent record.
    read.filter_map(Result::transpose).collect()
}
