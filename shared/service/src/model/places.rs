//! The places of a namespace that its quota limits: admitted machines, and people.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `ns/<slug>` | `machines` | `{admitted}`: how many machines are admitted; absent until the first decision of a version that counts |
//! | `ns/<slug>` | `people` | `{}`, written with each invitation under a limit, so that two at once cannot both take the last place |

use serde::Deserialize;
use serde_json::{Value, json};
use vault_format::name::{NamespaceId, Slug};
use vault_store::StoreError;
use vault_store::records::{Document, MAX_COUNT, MAX_PAGE, RecordKey, When, Write};

use super::device::{Device, DeviceStatus, devices_partition};
use super::namespace::NamespaceRef;
use super::user::{User, users_partition};
use crate::error::{ErrorCode, Refusal};
use crate::ports::{Ports, Versioned};

/// Error: all places that the quota allows are taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "This vault has {used} {what} of at most {limit}; remove some, or ask the operator of this service for more."
)]
pub struct FullPlaces {
    /// Plural of what takes the places: `machines` or `people`.
    pub what: &'static str,
    /// Places that are taken.
    pub used: u64,
    /// Places that there are.
    pub limit: u64,
}

impl FullPlaces {
    /// Returns the numbers as the member `quota` of an answer.
    pub fn to_json(self) -> Value {
        json!({ "name": self.what, "used": self.used, "asked": 1, "limit": self.limit })
    }
}

/// Error of a count.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// No place is left.
    #[error(transparent)]
    Full(#[from] FullPlaces),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PlaceError> for Refusal {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Full(full) => Self::new(ErrorCode::QuotaFull)
                .detail(full.to_string())
                .member("quota", full.to_json()),
            PlaceError::Store(error) => error.into(),
        }
    }
}

#[derive(Deserialize)]
struct Machines {
    admitted: u64,
}

/// Returns how many machines are admitted; `None` if nobody has counted them yet.
pub async fn admitted_machines(ports: &Ports, slug: &Slug) -> Result<Option<u64>, StoreError> {
    let found = ports.get::<Machines>(&machines_key(slug)).await?;
    Ok(found.map(|found| found.value.admitted))
}

/// Returns the write that counts a machine which is admitted. Fails if `limit` machines are; 0 is no
/// limit.
pub async fn admission_write(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<Write, PlaceError> {
    let (key, held) = (
        machines_key(&namespace.slug),
        read_machines(ports, namespace).await?,
    );
    let (used, is_counted) = held;
    if limit > 0 && used >= limit {
        return Err(FullPlaces {
            what: "machines",
            used,
            limit,
        }
        .into());
    }
    if !is_counted {
        return Ok(first_count(key, used + 1)?);
    }
    // With the limit, so that of two admissions at once only one takes the last place. The other
    // one reads again, and finds no place.
    let most = match limit {
        0 => MAX_COUNT,
        limit => i64::try_from(limit).unwrap_or(MAX_COUNT),
    };
    Ok(Write::count(key, "admitted", 1, most))
}

/// Returns the write that takes `machines`, which are admitted, out of the count.
pub async fn revocation_write(
    ports: &Ports,
    namespace: &NamespaceRef,
    machines: u64,
) -> Result<Write, StoreError> {
    let key = machines_key(&namespace.slug);
    let (used, is_counted) = read_machines(ports, namespace).await?;
    if !is_counted {
        return first_count(key, used.saturating_sub(machines));
    }
    let by = i64::try_from(machines.min(used)).unwrap_or(MAX_COUNT);
    Ok(Write::count(key, "admitted", -by, MAX_COUNT))
}

/// Returns the number of admitted machines, and whether a record has it. Machines that were admitted
/// by an earlier version are counted one by one, once.
async fn read_machines(ports: &Ports, namespace: &NamespaceRef) -> Result<(u64, bool), StoreError> {
    if let Some(admitted) = admitted_machines(ports, &namespace.slug).await? {
        return Ok((admitted, true));
    }
    let partition = devices_partition(&namespace.slug);
    let admitted = count_records(ports, &partition, |device: &Device| {
        device.namespace_id == namespace.id && device.status == DeviceStatus::Active
    });
    Ok((admitted.await?, false))
}

fn first_count(key: RecordKey, admitted: u64) -> Result<Write, StoreError> {
    let document = Document::from_value(&json!({ "admitted": admitted }))?;
    Ok(Write::put(key, document, When::Absent))
}

/// Returns the write that goes with a further invitation, if there is a limit. Fails if members and
/// people whose invitation waits are `limit`; 0 is no limit.
pub async fn invitation_write(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<Option<Write>, PlaceError> {
    if limit == 0 {
        return Ok(None);
    }
    let key = people_key(&namespace.slug);
    // Read before the people: an invitation in between changes it, and makes the commit fail.
    let when = match ports.get::<Value>(&key).await? {
        Some(Versioned { revision, .. }) => When::At(revision),
        None => When::Absent,
    };
    let used = count_people(ports, &namespace.id).await?;
    if used >= limit {
        return Err(FullPlaces {
            what: "people",
            used,
            limit,
        }
        .into());
    }
    let document = Document::from_value(&json!({})).map_err(PlaceError::from)?;
    Ok(Some(Write::put(key, document, when)))
}

/// Counts members, and people whose invitation waits.
async fn count_people(ports: &Ports, namespace: &NamespaceId) -> Result<u64, StoreError> {
    // An invitation that has ended reads as absent.
    count_records(ports, &users_partition(namespace), |_: &User| true).await
}

async fn count_records<T: serde::de::DeserializeOwned>(
    ports: &Ports,
    partition: &str,
    is_counted: impl Fn(&T) -> bool,
) -> Result<u64, StoreError> {
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let records = &ports.records;
        let page = records
            .list_page(partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        for record in &page {
            count += u64::from(is_counted(&record.read::<T>()?));
        }
        if page.len() < MAX_PAGE {
            return Ok(count);
        }
        after = page.into_iter().last().map(|record| record.key.key);
    }
}

/// Returns the key of the counter of admitted machines.
pub fn machines_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("ns/{slug}"), "machines")
}

/// Returns the key of the record that invitations under a limit write.
pub fn people_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("ns/{slug}"), "people")
}
