//! Quotas: how much a namespace may store, and how many machines, people and drafts it may have.
//! Plans and operators set them.

use serde::{Deserialize, Serialize};

/// Default for the number of bytes that a namespace may store: 2 GiB.
pub const DEFAULT_BYTES: u64 = 2 << 30;
/// Default for the number of objects that a namespace may store.
pub const DEFAULT_OBJECTS: u64 = 200_000;

/// Maximum value of a limit: every store and every JSON parser can represent it exactly.
pub const MAX_LIMIT: u64 = (1 << 53) - 1;

/// The limits of a namespace. In each member 0 means that there is no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quota {
    /// Bytes of all stored objects, of all classes together.
    pub bytes: u64,
    /// Number of stored objects, of all classes together.
    pub objects: u64,
    /// Number of admitted machines.
    pub machines: u64,
    /// Number of members and invited people.
    pub people: u64,
    /// Number of open drafts about skills.
    pub drafts: u64,
}

/// Names one limit of a [`Quota`], in records and notices.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKind {
    /// Stored bytes: [`Quota::bytes`].
    Bytes,
    /// Stored objects: [`Quota::objects`].
    Objects,
    /// Admitted machines: [`Quota::machines`].
    Machines,
    /// Members and invited people: [`Quota::people`].
    People,
    /// Open drafts about skills: [`Quota::drafts`].
    Drafts,
}

/// Percentage of a limit at which owners are warned.
const WARNED_PERCENT: u64 = 80;

/// Whether `used` reaches 80 % of a limit, where 0 is no limit.
pub const fn is_near(used: u64, limit: u64) -> bool {
    limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(WARNED_PERCENT)
}

/// Returns the least number that reaches 80 % of a limit other than 0.
pub const fn near_count(limit: u64) -> u64 {
    limit.saturating_mul(WARNED_PERCENT).div_ceil(100)
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            bytes: DEFAULT_BYTES,
            objects: DEFAULT_OBJECTS,
            ..Self::NONE
        }
    }
}

impl Quota {
    /// A quota without any limit: every member is 0.
    pub const NONE: Self = Self {
        bytes: 0,
        objects: 0,
        machines: 0,
        people: 0,
        drafts: 0,
    };

    /// Returns the limit of this kind; 0 for none.
    pub const fn limit_of(&self, kind: QuotaKind) -> u64 {
        match kind {
            QuotaKind::Bytes => self.bytes,
            QuotaKind::Objects => self.objects,
            QuotaKind::Machines => self.machines,
            QuotaKind::People => self.people,
            QuotaKind::Drafts => self.drafts,
        }
    }

    /// Returns this quota with the limits that `set` contains in place of its own.
    #[must_use]
    pub fn with(self, set: &SetQuota) -> Self {
        Self {
            bytes: set.bytes.unwrap_or(self.bytes),
            objects: set.objects.unwrap_or(self.objects),
            machines: set.machines.unwrap_or(self.machines),
            people: set.people.unwrap_or(self.people),
            drafts: set.drafts.unwrap_or(self.drafts),
        }
    }
}

/// The limits that a plan or an operator sets. `None` keeps the default; 0 removes the limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct SetQuota {
    /// Stored bytes: [`Quota::bytes`].
    pub bytes: Option<u64>,
    /// Stored objects: [`Quota::objects`].
    pub objects: Option<u64>,
    /// Admitted machines: [`Quota::machines`].
    pub machines: Option<u64>,
    /// Members and invited people: [`Quota::people`].
    pub people: Option<u64>,
    /// Open drafts about skills: [`Quota::drafts`].
    pub drafts: Option<u64>,
}

impl SetQuota {
    /// Sets the limit in a word such as `bytes=5GiB` or `machines=50`. Returns false if the limit
    /// is unknown, was set before, or has no valid number.
    pub(super) fn set_word(&mut self, name: &str, number: &str) -> bool {
        let (member, number) = match name {
            "bytes" => (&mut self.bytes, parse_bytes(number)),
            "objects" => (&mut self.objects, parse_number(number)),
            "machines" => (&mut self.machines, parse_number(number)),
            "people" => (&mut self.people, parse_number(number)),
            "drafts" => (&mut self.drafts, parse_number(number)),
            _ => return false,
        };
        if number.is_none() || member.is_some() {
            return false;
        }
        *member = number;
        true
    }
}

/// Parses a number of bytes such as `5000000`, `500MiB` or `5GiB`; `None` for other text or above
/// [`MAX_LIMIT`].
pub fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    for (unit, shift) in units {
        if let Some(number) = text.strip_suffix(unit) {
            let bytes = parse_number(number)?.checked_mul(1 << shift)?;
            return (bytes <= MAX_LIMIT).then_some(bytes);
        }
    }
    parse_number(text)
}

/// Parses a limit that consists of digits only; `None` above [`MAX_LIMIT`].
fn parse_number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = text.parse().ok().filter(|_| is_plain)?;
    (number <= MAX_LIMIT).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_has_the_default_and_0_is_no_limit() {
        let set = SetQuota {
            bytes: Some(0),
            people: Some(3),
            ..SetQuota::default()
        };
        let quota = Quota::default().with(&set);
        let wanted = Quota {
            objects: 200_000,
            people: 3,
            ..Quota::NONE
        };
        assert_eq!(quota, wanted);
    }

    #[test]
    fn limits_are_whole_numbers_with_or_without_a_unit() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("5000", Some(5000)),
            ("1KiB", Some(1024)),
            ("500MiB", Some(500 << 20)),
            ("5GiB", Some(5 << 30)),
            ("2TiB", Some(2 << 40)),
            ("9007199254740991", Some(MAX_LIMIT)),
            ("9007199254740992", None),
            ("99999999TiB", None),
            ("18446744073709551616", None),
            ("", None),
            ("GiB", None),
            ("-1", None),
            ("+1", None),
            ("1.5GiB", None),
            ("5GB", None),
            ("5 GiB", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
