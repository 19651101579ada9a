//! The places of a namespace. Each admitted machine, each member or invited person, and each open
//! draft about a skill takes one, and the quota limits the number of places of each kind.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `ns/<slug>` | `machines` | `{admitted}`: how many machines are admitted; absent until the first decision of a version that counts |
//! | `ns/<slug>` | `people` | `{}`, written with each invitation under a limit, so that two at once cannot both take the last place |
//! | `ns/<slug>` | `machines-limit`, `people-limit` | `{limit}`: the limit by which these places were judged last |
//! | `draft-count/<namespace_id>` | `places` | `{}`, the same for drafts about skills |
//! | `draft-count/<namespace_id>` | `limit` | `{limit}`, the same for drafts |

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_format::name::Slug;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_COUNT, MAX_PAGE, RecordKey, When, Write};

use super::device::{Device, DeviceStatus, devices_partition};
use super::draft::{self, DraftRecord, State};
use super::namespace::NamespaceRef;
use super::notice::Event;
use super::user::{User, users_partition};
use crate::config::quota::{QuotaKind, is_near};
use crate::error::{ErrorCode, Refusal};
use crate::ports::{Ports, Versioned};

/// A kind of thing whose number the quota limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlaceKind {
    /// Machines that owners have admitted.
    Machines,
    /// Members, and people whose invitation waits.
    People,
    /// Drafts about skills that wait for a decision.
    Drafts,
}

impl PlaceKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Machines, Self::People, Self::Drafts];

    /// Returns the limit of the quota for this kind.
    pub const fn quota(self) -> QuotaKind {
        match self {
            Self::Machines => QuotaKind::Machines,
            Self::People => QuotaKind::People,
            Self::Drafts => QuotaKind::Drafts,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::People => "people",
            Self::Drafts => "drafts",
        }
    }

    /// Returns the key of the kind's [`JudgedLimit`]. It is in a partition to which the cloud
    /// function that takes such places may write.
    fn judged_key(self, namespace: &NamespaceRef) -> RecordKey {
        match self {
            Self::Machines | Self::People => {
                let name = format!("{}-limit", self.name());
                RecordKey::new(format!("ns/{}", namespace.slug), name)
            }
            Self::Drafts => RecordKey::new(draft::counters_partition(&namespace.id), "limit"),
        }
    }
}

/// Error: all places that the quota allows are taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub struct FullPlaces {
    /// Kind of place.
    pub kind: PlaceKind,
    /// Number of places that are taken.
    pub used: u64,
    /// Number of places that the quota allows.
    pub limit: u64,
}

impl fmt::Display for FullPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, step) = match self.kind {
            PlaceKind::Machines => ("machines", "revoke some"),
            PlaceKind::People => ("people", "remove some"),
            PlaceKind::Drafts => ("waiting drafts", "an owner has to decide on some"),
        };
        write!(
            f,
            "This vault has {} {what} of at most {}; {step}, or the operator of this service has to \
             allow more.",
            self.used, self.limit
        )
    }
}

impl FullPlaces {
    /// Returns the numbers for the member `quota` of an answer.
    pub fn to_json(self) -> Value {
        json!({ "name": self.kind.name(), "used": self.used, "asked": 1, "limit": self.limit })
    }
}

/// A place that a commit is about to take.
#[derive(Debug, Default)]
pub struct TakenPlace {
    /// Writes for the commit that takes it.
    pub writes: Vec<Write>,
    /// Warning to owners, if the number of taken places reaches 80 % of the limit with this one.
    pub events: Vec<Event>,
}

impl TakenPlace {
    /// Takes a place when `used` are taken already. Fails if that reaches `limit`; 0 is no limit.
    fn beside(
        namespace: &NamespaceRef,
        kind: PlaceKind,
        used: u64,
        limit: u64,
    ) -> Result<Self, PlaceError> {
        if limit > 0 && used >= limit {
            return Err(FullPlaces { kind, used, limit }.into());
        }
        let mut taken = Self::default();
        if is_near(used + 1, limit) && !is_near(used, limit) {
            taken.events.push(Event::QuotaNear {
                quota: kind.quota(),
                used: used + 1,
                limit,
            });
            // Recorded as judged, so that the next visit of the garbage collection does not warn
            // again.
            taken
                .writes
                .push(judged_write(namespace, kind, limit, When::Any)?);
        }
        Ok(taken)
    }
}

/// The limit with which the places of a kind were last compared for a warning. A changed limit is
/// noticed by it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct JudgedLimit {
    /// The limit; 0 for none.
    limit: u64,
}

/// Returns the limit with which the places of a kind were last compared (0 for none), and the
/// condition for its next write.
pub async fn judged_limit(
    ports: &Ports,
    namespace: &NamespaceRef,
    kind: PlaceKind,
) -> Result<(u64, When), StoreError> {
    let found = ports
        .get::<JudgedLimit>(&kind.judged_key(namespace))
        .await?;
    Ok(found.map_or((0, When::Absent), |found| {
        (found.value.limit, When::At(found.revision))
    }))
}

/// Returns the write that records the limit with which the places of a kind were compared.
pub fn judged_write(
    namespace: &NamespaceRef,
    kind: PlaceKind,
    limit: u64,
    when: When,
) -> Result<Write, StoreError> {
    let document = Document::from_value(&JudgedLimit { limit })?;
    Ok(Write::put(kind.judged_key(namespace), document, when))
}

/// Counts the taken places of a kind.
pub async fn count_places(
    ports: &Ports,
    namespace: &NamespaceRef,
    kind: PlaceKind,
) -> Result<u64, StoreError> {
    match kind {
        PlaceKind::Machines => Ok(read_machines(ports, namespace).await?.0),
        // An expired invitation reads as absent, so every record counts.
        PlaceKind::People => {
            count_records(ports, &users_partition(&namespace.id), |_: &User| true).await
        }
        PlaceKind::Drafts => {
            let partition = draft::drafts_partition(&namespace.id);
            let is_waiting =
                |draft: &DraftRecord| draft.content().is_some() && draft.state == State::Pending;
            count_records(ports, &partition, is_waiting).await
        }
    }
}

/// Reason why a place could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// All places that the quota allows are taken.
    #[error(transparent)]
    Full(#[from] FullPlaces),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PlaceError> for Refusal {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Full(full) => full.into(),
            PlaceError::Store(error) => error.into(),
        }
    }
}

impl From<FullPlaces> for Refusal {
    fn from(full: FullPlaces) -> Self {
        Self::new(ErrorCode::QuotaFull)
            .detail(full.to_string())
            .member("quota", full.to_json())
    }
}

#[derive(Deserialize)]
struct Machines {
    admitted: u64,
}

/// Returns how many machines are admitted; `None` if no decision has counted them yet.
pub async fn admitted_machines(ports: &Ports, slug: &Slug) -> Result<Option<u64>, StoreError> {
    let found = ports.get::<Machines>(&machines_key(slug)).await?;
    Ok(found.map(|found| found.value.admitted))
}

/// Takes a place for a machine that is to be admitted. Fails if `limit` machines are admitted; 0 is
/// no limit.
pub async fn take_machine_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    let key = machines_key(&namespace.slug);
    let (mut used, when) = read_machines(ports, namespace).await?;
    let mut is_moved = matches!(when, When::At(_));
    if is_moved && limit > 0 && used >= limit {
        // A process of an earlier version may have changed machines without counting, so they are
        // counted again before one is refused.
        used = count_machines(ports, namespace).await?;
        is_moved = false;
    }
    let mut taken = TakenPlace::beside(namespace, PlaceKind::Machines, used, limit)?;
    taken.writes.push(if is_moved {
        // With the limit as a bound, so that of two admissions at once only one takes the last
        // place. The other one is tried again and finds no place.
        let most = match limit {
            0 => MAX_COUNT,
            limit => i64::try_from(limit).unwrap_or(MAX_COUNT),
        };
        Write::count(key, "admitted", 1, most)
    } else {
        count_write(key, used + 1, when)?
    });
    Ok(taken)
}

/// Returns the write that frees the places of this many admitted machines.
pub async fn revocation_write(
    ports: &Ports,
    namespace: &NamespaceRef,
    machines: u64,
) -> Result<Write, StoreError> {
    let key = machines_key(&namespace.slug);
    let (used, when) = read_machines(ports, namespace).await?;
    if matches!(when, When::Absent) {
        return count_write(key, used.saturating_sub(machines), when);
    }
    let by = i64::try_from(machines.min(used)).unwrap_or(MAX_COUNT);
    Ok(Write::count(key, "admitted", -by, MAX_COUNT))
}

/// Returns the number of admitted machines, with the condition for the next write of its record.
/// Without a record the machines are counted one by one; this happens once, for machines that an
/// earlier version admitted.
async fn read_machines(ports: &Ports, namespace: &NamespaceRef) -> Result<(u64, When), StoreError> {
    match ports
        .get::<Machines>(&machines_key(&namespace.slug))
        .await?
    {
        Some(found) => Ok((found.value.admitted, When::At(found.revision))),
        None => Ok((count_machines(ports, namespace).await?, When::Absent)),
    }
}

/// Counts the admitted machines one by one.
async fn count_machines(ports: &Ports, namespace: &NamespaceRef) -> Result<u64, StoreError> {
    let partition = devices_partition(&namespace.slug);
    count_records(ports, &partition, |device: &Device| {
        device.namespace_id == namespace.id && device.status == DeviceStatus::Active
    })
    .await
}

fn count_write(key: RecordKey, admitted: u64, when: When) -> Result<Write, StoreError> {
    let document = Document::from_value(&json!({ "admitted": admitted }))?;
    Ok(Write::put(key, document, when))
}

/// Takes a place for another invitation. Fails if members and invited people together are `limit`;
/// 0 is no limit.
pub async fn take_invitation_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    let guard = people_key(&namespace.slug);
    take_counted_place(ports, namespace, (PlaceKind::People, guard), limit).await
}

/// Takes a place for another draft about a skill. Fails if `limit` such drafts are open; 0 is no
/// limit.
pub async fn take_draft_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    let guard = RecordKey::new(draft::counters_partition(&namespace.id), "places");
    take_counted_place(ports, namespace, (PlaceKind::Drafts, guard), limit).await
}

/// Takes a place of a kind that has no counter: the places are counted one by one, and only if
/// there is a limit. Each taking writes the record `guard`, so that two at once cannot take the
/// last place.
async fn take_counted_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    (kind, guard): (PlaceKind, RecordKey),
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    if limit == 0 {
        return Ok(TakenPlace::default());
    }
    // Read before the places are counted: another request that takes one meanwhile changes it, and
    // makes this commit fail.
    let when = match ports.get::<Value>(&guard).await? {
        Some(Versioned { revision, .. }) => When::At(revision),
        None => When::Absent,
    };
    let used = count_places(ports, namespace, kind).await?;
    let mut taken = TakenPlace::beside(namespace, kind, used, limit)?;
    let document = Document::from_value(&json!({})).map_err(PlaceError::from)?;
    taken.writes.push(Write::put(guard, document, when));
    Ok(taken)
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
fn machines_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("ns/{slug}"), "machines")
}

/// Returns the key of the record that each invitation under a limit writes.
fn people_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("ns/{slug}"), "people")
}

/// Returns the keys of the records about places that are in the partition of the namespace's own
/// record.
pub fn own_keys(namespace: &NamespaceRef) -> [RecordKey; 4] {
    [
        machines_key(&namespace.slug),
        people_key(&namespace.slug),
        PlaceKind::Machines.judged_key(namespace),
        PlaceKind::People.judged_key(namespace),
    ]
}
