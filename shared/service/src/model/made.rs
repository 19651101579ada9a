//! What an app made in a vault: enrolment codes, machines that it admitted, people that it invited,
//! and webhooks.
//!
//! Each record names its app, and there is no index: the lists of the vault are read, so nothing
//! can be missing from what an owner sees when the app is ended.

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

/// Maximum number of records of each kind that are read.
const MAX_READ: usize = 10 * MAX_PAGE;

/// A code that works.
#[derive(Clone, Debug)]
pub struct LivingCode {
    /// Its hash, under which it is stored.
    pub hash: Digest,
    /// The code as it was read.
    pub code: Versioned<EnrolmentCode>,
}

impl LivingCode {
    /// Returns the id by which owners name the code.
    pub fn id(&self) -> String {
        id_of(&self.hash)
    }

    /// Whether the code works only while the consent to this app stands.
    pub fn depends_on(&self, client: &ClientId) -> bool {
        let consent = self.code.value.consent.as_ref();
        consent.is_some_and(|consent| consent.client == *client)
    }
}

/// What an app made in a vault, as far as it still works.
#[derive(Debug, Default)]
pub struct Made {
    /// Codes that still admit machines.
    pub codes: Vec<LivingCode>,
    /// Admitted machines.
    pub machines: Vec<Versioned<Device>>,
    /// Invitations that nobody has accepted.
    pub invitations: Vec<Versioned<User>>,
    /// Members who accepted an invitation.
    pub members: Vec<Versioned<User>>,
    /// Webhooks.
    pub webhooks: Vec<Webhook>,
    /// Whether the vault has more records than were read.
    pub more: bool,
    /// Whether the vault has more codes than were read.
    pub more_codes: bool,
}

impl Made {
    /// Reads what an app made in a vault.
    pub async fn read(
        ports: &Ports,
        namespace: &NamespaceRef,
        client: &ClientId,
    ) -> Result<Self, StoreError> {
        let now = ports.now();
        let codes = read_made(ports, &codes_partition(&namespace.id), client).await?;
        let machines = read_made(ports, &devices_partition(&namespace.slug), client).await?;
        let people = read_made(ports, &users_partition(&namespace.id), client).await?;
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
            codes: living_codes(ports, codes.records, now).await?,
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

    /// Whether nothing of it works any more.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
            && self.machines.is_empty()
            && self.invitations.is_empty()
            && self.members.is_empty()
            && self.webhooks.is_empty()
            && !self.more
    }
}

/// Returns those of these codes that still work: the consent of each that depends on one stands.
pub async fn living_codes(
    ports: &Ports,
    records: Vec<Record>,
    now: Timestamp,
) -> Result<Vec<LivingCode>, StoreError> {
    let mut codes = Vec::new();
    for record in records {
        let hash = record.key.key.parse();
        let hash =
            hash.map_err(|_| StoreError::Corrupt("a code is stored under no hash".into()))?;
        if let Some(code) = Versioned::<EnrolmentCode>::read(Some(record))? {
            codes.push(LivingCode { hash, code });
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

/// Records that an app made.
struct MadeRecords {
    records: Vec<Record>,
    /// Whether the partition has more records than were read.
    more: bool,
}

/// The member of a record that names its app.
#[derive(Deserialize)]
struct ByApp {
    client: Option<ClientId>,
}

/// Reads the records of a partition that name this app.
async fn read_made(
    ports: &Ports,
    partition: &str,
    client: &ClientId,
) -> Result<MadeRecords, StoreError> {
    let (mut records, mut after) = (Vec::new(), None::<String>);
    for _ in 0..MAX_READ / MAX_PAGE {
        let page = ports
            .records
            .list_page(partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        let is_last = page.len() < MAX_PAGE;
        after = page.last().map(|record| record.key.key.clone());
        for record in page {
            // Most records are of no app or of another one, and need no parsing.
            let names_app = record.document.as_str().contains(client.as_str());
            if names_app && record.read::<ByApp>()?.client.as_ref() == Some(client) {
                records.push(record);
            }
        }
        if is_last {
            return Ok(MadeRecords {
                records,
                more: false,
            });
        }
    }
    Ok(MadeRecords {
        records,
        more: true,
    })
}

fn read_all<T: DeserializeOwned>(records: Vec<Record>) -> Result<Vec<Versioned<T>>, StoreError> {
    let read = records
        .into_iter()
        .map(|record| Versioned::read(Some(record)));
    // A record that is there is always read.
    read.filter_map(Result::transpose).collect()
}
