//! The places of a namespace under its quota: each admitted machine, each member or invited person,
//! and each open draft about a skill takes one, and the quota limits the number of each kind.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `ns/<slug>` | `machines` | `{admitted, counted_at}`: how many machines are admitted, and when they were last counted one by one; absent until the first decision of a version that counts |
//! | `ns/<slug>` | `people` | `{}`, written with each invitation under a limit, so that two at once cannot both take the last place |
//! | `ns/<slug>` | `machines-limit`, `people-limit` | `{limit, owed}`: the limit by which these places were judged last, and whether the warning about it found no room |
//! | `draft-count/<namespace_id>` | `places` | `{}`, the same for drafts about skills |
//! | `draft-count/<namespace_id>` | `limit` | `{limit, owed}`, the same for drafts |

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use vault_api::{FullQuota, QuotaName};
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_COUNT, MAX_PAGE, RecordKey, When, Write};

use super::device::{Device, DeviceStatus, devices_partition};
use super::draft::{self, DraftRecord, State};
use super::namespace::NamespaceRef;
use super::user::{User, users_partition};
use crate::config::quota::{QuotaKind, near_count};
use crate::error::{ErrorCode, Refusal};
use crate::ports::Ports;

mod judged;

pub use judged::{JudgedLimit, LimitWarning};

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
    /// All kinds of place that a quota limits.
    pub const ALL: [Self; 3] = [Self::Machines, Self::People, Self::Drafts];

    /// Returns the name under which the quota limits this kind.
    pub const fn quota(self) -> QuotaKind {
        match self {
            Self::Machines => QuotaKind::Machines,
            Self::People => QuotaKind::People,
            Self::Drafts => QuotaKind::Drafts,
        }
    }

    const fn name(self) -> QuotaName {
        match self {
            Self::Machines => QuotaName::Machines,
            Self::People => QuotaName::People,
            Self::Drafts => QuotaName::Drafts,
        }
    }

    /// Returns the key of the record that every commit writes which takes such a place under a limit.
    fn guard_key(self, namespace: &NamespaceRef) -> RecordKey {
        match self {
            Self::Machines => machines_key(&namespace.slug),
            Self::People => RecordKey::new(format!("ns/{}", namespace.slug), "people"),
            Self::Drafts => RecordKey::new(draft::counters_partition(&namespace.id), "places"),
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
    /// Kind of place of which none is free.
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
    pub const fn to_quota(self) -> FullQuota {
        FullQuota {
            name: self.kind.name(),
            used: self.used,
            asked: 1,
            limit: self.limit,
        }
    }
}

/// Least time between two counts of all machines of a namespace because of refused machines, in
/// seconds: an hour. The garbage collection counts them every six hours.
const RECOUNT_SECONDS: i64 = 3600;

/// A place that a commit is about to take.
#[derive(Debug, Default)]
pub struct TakenPlace {
    /// Writes for the commit that takes it.
    pub writes: Vec<Write>,
    /// Warning to owners, if the number of taken places reaches 80 % of the limit with this one, or
    /// if an earlier warning was not queued.
    pub warning: Option<LimitWarning>,
}

impl TakenPlace {
    /// Takes a place when `used` are taken already. Fails if that reaches `limit`; 0 is no limit.
    /// The caller must add a write that fails the commit if the number of taken places has changed
    /// by then.
    fn take_next(
        namespace: &NamespaceRef,
        kind: PlaceKind,
        (used, limit): (u64, u64),
        judged: JudgedLimit,
    ) -> Result<Self, PlaceError> {
        if limit == 0 {
            return Ok(Self::default());
        }
        if used >= limit {
            return Err(FullPlaces { kind, used, limit }.into());
        }
        let mut taken = Self {
            warning: judged.warning(kind, (used, used + 1), limit),
            ..Self::default()
        };
        if taken.warning.is_none() {
            // If another commit records a new limit meanwhile, this one fails and is decided again.
            let key = kind.judged_key(namespace);
            taken.writes.push(Write::check(key, judged.when));
        }
        Ok(taken)
    }
}

/// Counts the taken places of a kind.
pub async fn count_places(
    ports: &Ports,
    namespace: &NamespaceRef,
    kind: PlaceKind,
) -> Result<u64, StoreError> {
    match kind {
        PlaceKind::Machines => Ok(MachineCount::read(ports, namespace).await?.admitted),
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
            .with(|problem| problem.quota = Some(full.to_quota()))
    }
}

/// The admitted machines, as they are stored.
#[derive(Deserialize, Serialize)]
struct Machines {
    admitted: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counted_at: Option<Timestamp>,
}

/// Returns how many machines are admitted; `None` if no decision has counted them yet.
pub async fn admitted_machines(ports: &Ports, slug: &Slug) -> Result<Option<u64>, StoreError> {
    let found = ports.get::<Machines>(&machines_key(slug)).await?;
    Ok(found.map(|found| found.value.admitted))
}

/// The number of admitted machines of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct MachineCount {
    /// Number of admitted machines, from the counter or, without one, counted one by one.
    pub admitted: u64,
    /// Time at which they were last counted one by one; `None` for a count of an earlier version.
    counted_at: Option<Timestamp>,
    /// The condition for the next write of the record that has it.
    when: When,
}

impl MachineCount {
    /// Reads the number, or counts the machines one by one if no number is stored.
    pub async fn read(ports: &Ports, namespace: &NamespaceRef) -> Result<Self, StoreError> {
        match Self::find(ports, namespace).await? {
            Some(found) => Ok(found),
            None => Self::count_first(ports, namespace).await,
        }
    }

    /// Reads the number for a change. If none is stored, as after an upgrade from a version that
    /// counted no machines, it is stored before the change: a refused request stores nothing else,
    /// and a change that is tried again would count all machines again.
    pub async fn read_stored(ports: &Ports, namespace: &NamespaceRef) -> Result<Self, StoreError> {
        if let Some(found) = Self::find(ports, namespace).await? {
            return Ok(found);
        }
        let first = Self::count_first(ports, namespace).await?;
        // If another process was faster, its count decides.
        ports.try_commit(vec![first.to_write(namespace)?]).await?;
        let stored = Self::find(ports, namespace).await?;
        // The rehearsal of a change stores nothing.
        Ok(stored.unwrap_or(first))
    }

    async fn find(ports: &Ports, namespace: &NamespaceRef) -> Result<Option<Self>, StoreError> {
        let key = machines_key(&namespace.slug);
        let found = ports.get::<Machines>(&key).await?;
        Ok(found.map(|found| Self {
            admitted: found.value.admitted,
            counted_at: found.value.counted_at,
            when: When::At(found.revision),
        }))
    }

    async fn count_first(ports: &Ports, namespace: &NamespaceRef) -> Result<Self, StoreError> {
        Ok(Self {
            admitted: count_machines(ports, namespace).await?,
            counted_at: Some(ports.now()),
            when: When::Absent,
        })
    }

    /// Counts the machines one by one. Processes of earlier versions admit and revoke machines
    /// without counting, so the stored number, which is returned too, may be absent or wrong.
    /// Returns `None` if `until` is reached before all are counted; at least 1,000 are.
    pub async fn count_until(
        ports: &Ports,
        namespace: &NamespaceRef,
        until: Instant,
    ) -> Result<Option<(Option<u64>, Self)>, StoreError> {
        // Read before the machines: a change of the number meanwhile makes the commit fail.
        let stored = Self::find(ports, namespace).await?;
        let partition = devices_partition(&namespace.slug);
        let is_admitted = |device: &Device| is_admitted(device, namespace);
        let (mut admitted, mut after) = (0, None);
        loop {
            let page = count_page(ports, &partition, after, is_admitted).await?;
            admitted += page.counted;
            if page.last.is_none() {
                break;
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            after = page.last;
        }
        let count = Self {
            admitted,
            counted_at: Some(ports.now()),
            when: stored.map_or(When::Absent, |stored| stored.when),
        };
        Ok(Some((stored.map(|stored| stored.admitted), count)))
    }

    /// Returns the write that stores the count. It fails if the count has changed since it was
    /// read.
    pub fn to_write(self, namespace: &NamespaceRef) -> Result<Write, StoreError> {
        let document = Document::from_value(&Machines {
            admitted: self.admitted,
            counted_at: self.counted_at,
        })?;
        let key = machines_key(&namespace.slug);
        Ok(Write::put(key, document, self.when))
    }

    /// Returns the count that decides whether a machine is refused: one that is at most an hour old.
    /// A new count is stored at once. A refused request stores nothing else, and without this each
    /// further request would make the service read all machines.
    async fn before_refusal(
        self,
        ports: &Ports,
        namespace: &NamespaceRef,
    ) -> Result<Self, StoreError> {
        let is_fresh = |at: Timestamp| ports.now() < at.plus_seconds(RECOUNT_SECONDS);
        if self.counted_at.is_some_and(is_fresh) {
            return Ok(self);
        }
        let count = Self {
            admitted: count_machines(ports, namespace).await?,
            counted_at: Some(ports.now()),
            when: self.when,
        };
        // If another process was faster, its count decides.
        ports.try_commit(vec![count.to_write(namespace)?]).await?;
        Self::read(ports, namespace).await
    }

    /// Returns the write that counts one more machine. It fails if the number has changed so that
    /// the limit, or whether 80 % of it are reached by this machine, would be decided otherwise.
    fn adding_write(self, namespace: &NamespaceRef, limit: u64, judged: JudgedLimit) -> Write {
        let next = self.admitted + 1;
        let near = near_count(limit);
        let (min, max) = match limit {
            0 => (0, u64::MAX),
            // Decided by two limits.
            _ if judged.limit != limit => (next, next),
            _ if next < near => (0, near - 1),
            _ if next == near => (near, near),
            _ => (near + 1, limit),
        };
        let bound = |number: u64| i64::try_from(number).unwrap_or(MAX_COUNT);
        Write::Count {
            key: machines_key(&namespace.slug),
            field: "admitted".to_owned(),
            by: 1,
            min: bound(min),
            max: bound(max).min(MAX_COUNT),
            expires_at: None,
        }
    }
}

/// Takes a place for a machine that is to be admitted. Fails if `limit` machines are admitted; 0 is
/// no limit.
pub async fn take_machine_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    let kind = PlaceKind::Machines;
    let mut count = MachineCount::read_stored(ports, namespace).await?;
    let mut judged = JudgedLimit::NONE;
    if limit > 0 {
        if count.admitted >= limit {
            count = count.before_refusal(ports, namespace).await?;
        }
        judged = JudgedLimit::read(ports, namespace, kind).await?;
    }
    let mut taken = TakenPlace::take_next(namespace, kind, (count.admitted, limit), judged)?;
    let this = count.adding_write(namespace, limit, judged);
    taken.writes.push(this);
    Ok(taken)
}

/// Returns the write that frees the places of this many admitted machines.
pub async fn revocation_write(
    ports: &Ports,
    namespace: &NamespaceRef,
    machines: u64,
) -> Result<Write, StoreError> {
    let count = MachineCount::read_stored(ports, namespace).await?;
    let by = i64::try_from(machines.min(count.admitted)).unwrap_or(MAX_COUNT);
    let key = machines_key(&namespace.slug);
    Ok(Write::count(key, "admitted", -by, MAX_COUNT))
}

/// Counts the admitted machines one by one.
async fn count_machines(ports: &Ports, namespace: &NamespaceRef) -> Result<u64, StoreError> {
    let partition = devices_partition(&namespace.slug);
    let is_admitted = |device: &Device| is_admitted(device, namespace);
    count_records(ports, &partition, is_admitted).await
}

fn is_admitted(device: &Device, namespace: &NamespaceRef) -> bool {
    device.namespace_id == namespace.id && device.status == DeviceStatus::Active
}

/// Takes a place for another invitation. Fails if members and invited people together are `limit`;
/// 0 is no limit.
pub async fn take_invitation_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    take_counted_place(ports, namespace, PlaceKind::People, limit).await
}

/// Takes a place for another draft about a skill. Fails if `limit` such drafts are open; 0 is no
/// limit.
pub async fn take_draft_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    take_counted_place(ports, namespace, PlaceKind::Drafts, limit).await
}

/// Takes a place of a kind that has no counter: the places are counted one by one, and only if
/// there is a limit. Each taking writes the record `guard`, so that two at once cannot take the
/// last place.
async fn take_counted_place(
    ports: &Ports,
    namespace: &NamespaceRef,
    kind: PlaceKind,
    limit: u64,
) -> Result<TakenPlace, PlaceError> {
    if limit == 0 {
        return Ok(TakenPlace::default());
    }
    let (used, when) = count_guarded(ports, namespace, kind).await?;
    let judged = JudgedLimit::read(ports, namespace, kind).await?;
    let mut taken = TakenPlace::take_next(namespace, kind, (used, limit), judged)?;
    let document = Document::from_value(&json!({})).map_err(PlaceError::from)?;
    let guard = kind.guard_key(namespace);
    taken.writes.push(Write::put(guard, document, when));
    Ok(taken)
}

/// Counts the taken places of a kind. Returns also the condition on [`PlaceKind::guard_key`] that
/// holds as long as no other commit takes one.
async fn count_guarded(
    ports: &Ports,
    namespace: &NamespaceRef,
    kind: PlaceKind,
) -> Result<(u64, When), StoreError> {
    if kind == PlaceKind::Machines {
        let count = MachineCount::read_stored(ports, namespace).await?;
        return Ok((count.admitted, count.when));
    }
    // Read before the places are counted: another request that takes one meanwhile changes it, and
    // makes this commit fail.
    let guard = ports.get::<Value>(&kind.guard_key(namespace)).await?;
    let when = guard.map_or(When::Absent, |guard| When::At(guard.revision));
    Ok((count_places(ports, namespace, kind).await?, when))
}

/// Counts the taken places of a kind. The returned write makes a commit fail if another place is
/// taken before it.
pub async fn count_still(
    ports: &Ports,
    namespace: &NamespaceRef,
    kind: PlaceKind,
) -> Result<(u64, Write), StoreError> {
    let (used, when) = count_guarded(ports, namespace, kind).await?;
    Ok((used, Write::check(kind.guard_key(namespace), when)))
}

/// Counts the records of a partition for which `is_counted` is true.
async fn count_records<T: DeserializeOwned>(
    ports: &Ports,
    partition: &str,
    is_counted: impl Fn(&T) -> bool,
) -> Result<u64, StoreError> {
    let (mut count, mut after) = (0, None);
    loop {
        let page = count_page(ports, partition, after, &is_counted).await?;
        count += page.counted;
        if page.last.is_none() {
            return Ok(count);
        }
        after = page.last;
    }
}

/// A page of records of which some are counted.
struct CountedPage {
    counted: u64,
    /// Key of the last record, after which the next page begins; `None` for the last page.
    last: Option<String>,
}

async fn count_page<T: DeserializeOwned>(
    ports: &Ports,
    partition: &str,
    after: Option<String>,
    is_counted: impl Fn(&T) -> bool,
) -> Result<CountedPage, StoreError> {
    let page = ports
        .records
        .list_page(partition, "", after.as_deref(), MAX_PAGE)
        .await?;
    let mut counted = 0;
    for record in &page {
        counted += u64::from(is_counted(&record.read::<T>()?));
    }
    let is_full = page.len() == MAX_PAGE;
    let last = page.into_iter().last().filter(|_| is_full);
    Ok(CountedPage {
        counted,
        last: last.map(|record| record.key.key),
    })
}

/// Returns the key of the counter of admitted machines.
fn machines_key(slug: &Slug) -> RecordKey {
    RecordKey::new(format!("ns/{slug}"), "machines")
}

/// Returns the keys of those records about places under a quota that are in the partition of the
/// namespace's own record.
pub fn quota_place_keys(namespace: &NamespaceRef) -> [RecordKey; 4] {
    [
        PlaceKind::Machines.guard_key(namespace),
        PlaceKind::People.guard_key(namespace),
        PlaceKind::Machines.judged_key(namespace),
        PlaceKind::People.judged_key(namespace),
    ]
}
