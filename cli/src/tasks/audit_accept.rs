//! The list of accepted findings that a repository commits for `vault audit-repo --accept`.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::{hash::Digest, manifest::Waiver, text::printable, time::Timestamp};
use vault_gate::report::Audit;

use crate::{
    context::Context,
    errors::Failure,
    output::{Warning, clean},
};

/// The largest list that is read, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A list of accepted findings.
#[derive(Debug, Default)]
pub struct AcceptList {
    /// The entries that are in force.
    pub entries: Vec<Waiver>,
    /// The expired entries, with their last day.
    expired: Vec<(Waiver, String)>,
}

#[derive(Deserialize)]
// A misspelt member must not be ignored: it could be the expiry.
#[serde(deny_unknown_fields)]
struct ListFile {
    #[serde(default)]
    accept: Vec<ListEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListEntry {
    rule: String,
    sha256: Digest,
    reason: String,
    expires: toml::value::Datetime,
}

/// Entries of a list of accepted findings that accept nothing.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Unmatched<'a> {
    /// Entries that match no finding of this audit.
    unused: Vec<AcceptEntry<'a>>,
    /// Entries whose date has passed.
    expired: Vec<AcceptEntry<'a>>,
}

/// An entry of a list of accepted findings.
#[derive(Debug, JsonSchema, Serialize)]
struct AcceptEntry<'a> {
    /// The rule, as the list names it.
    rule: &'a str,
    /// SHA-256 of the file.
    sha256: &'a Digest,
}

impl<'a> From<&'a Waiver> for AcceptEntry<'a> {
    fn from(Waiver { rule, sha256, .. }: &'a Waiver) -> Self {
        Self { rule, sha256 }
    }
}

impl AcceptList {
    /// Reads a list of accepted findings.
    pub fn read_list(path: &Path, now: Timestamp) -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::io("reading", path, &error))?;
        Self::parse_list(&text, now).map_err(|reason| {
            let (file, reason) = (path.display(), clean(&printable(&reason), 600));
            fail!(AcceptInvalid, "{file}: {reason}")
                .hint("each [[accept]] has rule, sha256, reason and expires = 2027-01-31")
        })
    }

    fn parse_list(text: &str, now: Timestamp) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("the list has more than {MAX_BYTES} bytes"));
        }
        let file: ListFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let mut list = Self::default();
        for entry in file.accept {
            let rule = entry.rule;
            // The reason is for the reviewers of the repository, so an empty one is a mistake.
            if entry.reason.trim().is_empty() {
                return Err(format!("the entry for {rule} gives no reason"));
            }
            // A time or a zone would leave open which day is the last one.
            let day = match (entry.expires.date, entry.expires.time) {
                (Some(day), None) => day.to_string(),
                _ => return Err(format!("`expires` of the entry for {rule} is not a date")),
            };
            // The entry is in force until the end of its last day, in UTC.
            let end: Timestamp = format!("{day}T23:59:59Z")
                .parse()
                .map_err(|_| format!("`expires` of the entry for {rule} is not a date"))?;
            let waiver = Waiver {
                rule,
                sha256: entry.sha256,
                reason: entry.reason,
            };
            if end < now {
                list.expired.push((waiver, day));
            } else {
                list.entries.push(waiver);
            }
        }
        Ok(list)
    }

    /// Returns the entries that matched no finding.
    fn unused_entries(&self, audit: &Audit) -> Vec<&Waiver> {
        let used = |entry: &&Waiver| {
            let mut skills = audit.skills.iter().flat_map(|skill| &skill.accepted);
            skills.any(|taken| taken.by == entry.rule && taken.sha256 == entry.sha256)
        };
        self.entries.iter().filter(|entry| !used(entry)).collect()
    }

    /// Warns of entries that have expired or matched nothing, and lists them for `--json`.
    pub fn report_unmatched(&self, context: &Context, path: &Path, audit: &Audit) -> Unmatched<'_> {
        let unused = self.unused_entries(audit);
        let file = path.display().to_string();
        let entry = |entry: &Waiver| {
            let digest = entry.sha256.to_string();
            let digest = digest.get(..12).unwrap_or(&digest);
            format!(
                "the entry for {} on sha256 {digest}…",
                clean(&printable(&entry.rule), 80)
            )
        };
        let warn = |code: &str, message: String, hint: &str| {
            let mut warning = Warning::new(code, message).hint(hint);
            warning.path = Some(clean(&file, 300));
            context.ui.warn(warning);
        };
        for (expired, day) in &self.expired {
            let text = format!("{} expired on {day}", entry(expired));
            warn(
                "accept_expired",
                text,
                "read the file again, then renew or remove the entry",
            );
        }
        for unused in &unused {
            let text = format!("{} matched no finding", entry(unused));
            warn("accept_unused", text, "remove the entry");
        }
        Unmatched {
            unused: unused.into_iter().map(AcceptEntry::from).collect(),
            expired: self.expired.iter().map(|(entry, _)| entry.into()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "[[accept]]\nrule = \"download-pipe-shell\"\nsha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\nreason = \"vendored\"\nexpires = 2027-01-15\n";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn an_entry_counts_until_the_end_of_its_last_day() {
        let list = |now| AcceptList::parse_list(ENTRY, at(now)).unwrap();
        let before = list("2027-01-15T23:59:59Z");
        assert_eq!((before.entries.len(), before.expired.len()), (1, 0));
        assert_eq!(before.entries[0].reason, "vendored");
        let after = list("2027-01-16T00:00:00Z");
        assert_eq!((after.entries.len(), after.expired.len()), (0, 1));
    }

    #[test]
    fn a_list_that_is_not_whole_is_rejected() {
        let now = at("2027-01-01T00:00:00Z");
        for (from, to, reason) in [
            ("reason = \"vendored\"\n", "", "missing field `reason`"),
            ("\"vendored\"", "\" \"", "gives no reason"),
            ("expires = 2027-01-15\n", "", "missing field `expires`"),
            ("2027-01-15", "2027-01-15T10:00:00Z", "is not a date"),
            (
                "expires = 2027-01-15",
                "expires = 2027-01-15\npath = \"x\"",
                "unknown field",
            ),
            ("0000000000", "00", "SHA-256"),
            ("[[accept]]", "[[accepts]]", "unknown field"),
        ] {
            let text = ENTRY.replacen(from, to, 1);
            let refused = AcceptList::parse_list(&text, now).unwrap_err();
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
        assert!(AcceptList::parse_list("", now).unwrap().entries.is_empty());
    }
}
