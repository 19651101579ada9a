//! Decides when owners are warned that a limit of places is nearly reached: once for each crossing of
//! 80 %, by places that are taken or by a limit that changes.

use serde::{Deserialize, Serialize};
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use super::PlaceKind;
use crate::config::quota::is_near;
use crate::model::namespace::NamespaceRef;
use crate::model::notice::Event;
use crate::ports::Ports;

/// The limit by which the places of a kind were judged last, as it is stored.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct StoredLimit {
    /// The limit; 0: none.
    limit: u64,
    /// Whether the outbox had no room for the warning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    owed: bool,
}

impl StoredLimit {
    fn to_write(
        self,
        namespace: &NamespaceRef,
        kind: PlaceKind,
        when: When,
    ) -> Result<Write, StoreError> {
        let document = Document::from_value(&self)?;
        Ok(Write::put(kind.judged_key(namespace), document, when))
    }
}

/// The limit by which the places of a kind were judged last, so that a limit that changes is noticed.
#[derive(Clone, Copy, Debug)]
pub struct JudgedLimit {
    /// The limit; 0 if there was none.
    pub limit: u64,
    /// Whether the warning about this limit was not queued, so that it has to be repeated.
    pub is_owed: bool,
    /// The condition for its next write.
    pub(super) when: When,
}

impl JudgedLimit {
    /// The state of a kind of places that has no limit.
    pub(super) const NONE: Self = Self {
        limit: 0,
        is_owed: false,
        when: When::Any,
    };

    /// Reads the limit by which the places of a kind were judged last.
    pub async fn read(
        ports: &Ports,
        namespace: &NamespaceRef,
        kind: PlaceKind,
    ) -> Result<Self, StoreError> {
        let found = ports
            .get::<StoredLimit>(&kind.judged_key(namespace))
            .await?;
        Ok(found.map_or(
            Self {
                when: When::Absent,
                ..Self::NONE
            },
            |found| Self {
                limit: found.value.limit,
                is_owed: found.value.owed,
                when: When::At(found.revision),
            },
        ))
    }

    /// Returns the warning if `used` places are 80 % of `limit`, and `before` were less than 80 % of
    /// the limit that was judged last or owners do not know it yet.
    pub fn warning(
        self,
        kind: PlaceKind,
        (before, used): (u64, u64),
        limit: u64,
    ) -> Option<LimitWarning> {
        let is_new = self.is_owed || !is_near(before, self.limit);
        (is_new && is_near(used, limit)).then_some(LimitWarning {
            kind,
            used,
            limit,
            when: self.when,
        })
    }

    /// Returns the write that stores the limit with which the places were compared, for a comparison
    /// without a warning.
    pub fn quiet_write(
        self,
        namespace: &NamespaceRef,
        kind: PlaceKind,
        limit: u64,
    ) -> Result<Write, StoreError> {
        StoredLimit { limit, owed: false }.to_write(namespace, kind, self.when)
    }
}

/// A warning that 80 % of a limit of places is used.
#[derive(Clone, Copy, Debug)]
pub struct LimitWarning {
    kind: PlaceKind,
    used: u64,
    limit: u64,
    when: When,
}

impl LimitWarning {
    /// Returns the event of its notice.
    pub const fn event(&self) -> Event {
        Event::QuotaNear {
            quota: self.kind.quota(),
            used: self.used,
            limit: self.limit,
        }
    }

    /// Returns the write that stores the limit as judged, so that nobody warns of it again, or that
    /// the warning `is_owed` because it was not queued.
    pub fn to_write(self, namespace: &NamespaceRef, is_owed: bool) -> Result<Write, StoreError> {
        let stored = StoredLimit {
            limit: self.limit,
            owed: is_owed,
        };
        stored.to_write(namespace, self.kind, self.when)
    }
}
