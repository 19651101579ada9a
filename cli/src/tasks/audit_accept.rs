//! The TOML list of accepted findings and excluded paths that a repository commits for `vault
//! audit-repo --accept`. Each entry has a reason and a last day; an expired entry has no effect.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::{hash::Digest, manifest::Waiver, text::printable, time::Timestamp};
use vault_gate::report::Audit;
use vault_library::audit::{AcceptedError, Exclusion};

use crate::{
    context::Context,
    errors::Failure,
    output::{Warning, clean},
};

/// Maximum size of a list, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A parsed list, together with the paths that the command line excludes.
#[derive(Debug, Default)]
pub struct AcceptList {
    /// Accepted findings, each bound to the SHA-256 of a file. Without the expired ones.
    pub entries: Vec<Waiver>,
    /// Accepted format errors, each bound to a path. Without the expired ones.
    pub errors: Vec<AcceptedError>,
    /// Excluded paths: those of the list that have not expired, and those of `--exclude`.
    pub excluded: Vec<Exclusion>,
    /// Expired entries, each with its last day as `YYYY-MM-DD`.
    expired: Vec<(ListedKey, String)>,
}

#[derive(Deserialize)]
// A misspelt member must not be ignored: it could be the expiry.
#[serde(deny_unknown_fields)]
struct ListFile {
    #[serde(default)]
    accept: Vec<ListEntry>,
    #[serde(default)]
    exclude: Vec<ExcludeEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListEntry {
    rule: String,
    sha256: Option<Digest>,
    path: Option<String>,
    reason: String,
    expires: toml::value::Datetime,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExcludeEntry {
    path: String,
    reason: String,
    expires: toml::value::Datetime,
}

/// Entries of a list that accept or exclude nothing.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Unmatched {
    /// Entries that match no finding and no skill of this audit.
    unused: Vec<ListedKey>,
    /// Entries whose date has passed.
    expired: Vec<ListedKey>,
}

/// The members that identify an entry of a list.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "AcceptEntry")]
struct ListedKey {
    /// The rule, as the list names it; null for an excluded path.
    rule: Option<String>,
    /// SHA-256 of the file; null for an entry with a path.
    sha256: Option<Digest>,
    /// The path; null for an entry with a digest.
    path: Option<String>,
}

impl ListedKey {
    /// Formats the entry for a message.
    fn describe(&self) -> String {
        let path = self.path.as_deref().unwrap_or_default();
        let path = clean(&printable(path), 200);
        let Some(rule) = &self.rule else {
            return format!("the exclusion of {path}");
        };
        let rule = clean(&printable(rule), 80);
        match &self.sha256 {
            Some(sha256) => {
                let digest = sha256.to_string();
                let digest = digest.get(..12).unwrap_or(&digest);
                format!("the entry for {rule} on sha256 {digest}…")
            }
            None => format!("the entry for {rule} in {path}"),
        }
    }
}

impl From<&Waiver> for ListedKey {
    fn from(entry: &Waiver) -> Self {
        Self {
            rule: Some(entry.rule.clone()),
            sha256: Some(entry.sha256),
            path: None,
        }
    }
}

impl From<&AcceptedError> for ListedKey {
    fn from(entry: &AcceptedError) -> Self {
        Self {
            rule: Some(entry.rule.clone()),
            sha256: None,
            path: Some(entry.path.clone()),
        }
    }
}

impl From<&Exclusion> for ListedKey {
    fn from(entry: &Exclusion) -> Self {
        Self {
            rule: None,
            sha256: None,
            path: Some(entry.path.clone()),
        }
    }
}

/// Returns the last day of an entry, and whether it has passed. `what` names the entry.
fn parse_expiry(
    what: &str,
    expires: &toml::value::Datetime,
    now: Timestamp,
) -> Result<(String, bool), String> {
    let bad = || format!("`expires` of {what} is not a date");
    // A time or a zone would leave open which day is the last one.
    let day = match (expires.date, expires.time) {
        (Some(day), None) => day.to_string(),
        _ => return Err(bad()),
    };
    // The entry is in force until the end of its last day, in UTC.
    let end: Timestamp = format!("{day}T23:59:59Z").parse().map_err(|_| bad())?;
    Ok((day, end < now))
}

/// Checks a path below the audited folder, and returns it without a leading `./` and trailing
/// slashes.
fn parse_path(path: &str) -> Result<String, String> {
    let inside = path.strip_prefix("./").unwrap_or(path);
    let inside = inside.trim_end_matches('/');
    let mut parts = inside.split('/');
    // An entry for the audited folder itself would exclude or accept everything, so it is rejected
    // too.
    if parts.any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!(
            "the path {path} is not one below the audited folder"
        ));
    }
    Ok(inside.to_owned())
}

impl AcceptList {
    /// Reads and parses the list in the file `path`. Entries whose last day is before `now` count
    /// as expired.
    pub fn read_list(path: &Path, now: Timestamp) -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::io("reading", path, &error))?;
        Self::parse_list(&text, now).map_err(|reason| {
            let (file, reason) = (path.display(), clean(&printable(&reason), 600));
            fail!(AcceptInvalid, "{file}: {reason}").hint(
                "each [[accept]] has rule, sha256 or path, reason and expires = 2027-01-31; each [[exclude]] has path, reason and expires",
            )
        })
    }

    fn parse_list(text: &str, now: Timestamp) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("the list has more than {MAX_BYTES} bytes"));
        }
        let file: ListFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let mut list = Self::default();
        for entry in file.accept {
            list.add_accepted(entry, now)?;
        }
        for ExcludeEntry {
            path,
            reason,
            expires,
        } in file.exclude
        {
            let what = format!("the exclusion of {path}");
            require_reason(&what, &reason)?;
            let path = parse_path(&path)?;
            let entry = Exclusion { path, reason };
            match parse_expiry(&what, &expires, now)? {
                (day, true) => list.expired.push(((&entry).into(), day)),
                (_, false) => list.excluded.push(entry),
            }
        }
        Ok(list)
    }

    fn add_accepted(&mut self, entry: ListEntry, now: Timestamp) -> Result<(), String> {
        let (rule, reason) = (entry.rule, entry.reason);
        let what = format!("the entry for {rule}");
        require_reason(&what, &reason)?;
        let (day, is_expired) = parse_expiry(&what, &entry.expires, now)?;
        match (entry.sha256, entry.path) {
            (Some(sha256), None) => {
                let entry = Waiver {
                    rule,
                    sha256,
                    reason,
                };
                if is_expired {
                    self.expired.push(((&entry).into(), day));
                } else {
                    self.entries.push(entry);
                }
            }
            (None, Some(path)) => {
                let path = parse_path(&path)?;
                let entry = AcceptedError { rule, path, reason };
                if is_expired {
                    self.expired.push(((&entry).into(), day));
                } else {
                    self.errors.push(entry);
                }
            }
            // A path accepts a file whatever its bytes are, and a digest accepts bytes wherever
            // they are.
            _ => return Err(format!("{what} needs either sha256 or path, not both")),
        }
        Ok(())
    }

    /// Adds the paths that `--exclude` names. They have no last day.
    pub fn exclude_paths(&mut self, paths: &[String]) -> Result<(), Failure> {
        for path in paths {
            let path = parse_path(path).map_err(|reason| {
                fail!(Usage, "{}", clean(&printable(&reason), 300))
                    .hint("name a folder below it, as in --exclude tests/fixtures")
            })?;
            let reason = "named by --exclude".to_owned();
            self.excluded.push(Exclusion { path, reason });
        }
        Ok(())
    }

    /// Returns the entries in force that matched no finding and no skill of `audit`.
    fn unused_entries(&self, audit: &Audit) -> Vec<ListedKey> {
        let taken = || audit.skills.iter().flat_map(|skill| &skill.accepted);
        let entries = self.entries.iter().filter(|entry| {
            let sha256 = Some(entry.sha256);
            !taken().any(|taken| taken.by == entry.rule && taken.sha256 == sha256)
        });
        let errors = self.errors.iter().filter(|entry| {
            let path = Some(&entry.path);
            !taken().any(|taken| taken.by == entry.rule && taken.within.as_ref() == path)
        });
        let excluded = self.excluded.iter().filter(|entry| {
            let mut excluded = audit.excluded.iter();
            !excluded.any(|excluded| excluded.by == entry.path)
        });
        let entries = entries.map(ListedKey::from);
        let errors = errors.map(ListedKey::from);
        entries
            .chain(errors)
            .chain(excluded.map(ListedKey::from))
            .collect()
    }

    /// Warns of entries that have expired or matched nothing, and lists them for `--json`. `path` is
    /// that of the list, if there is one.
    pub fn report_unmatched(
        &self,
        context: &Context,
        path: Option<&Path>,
        audit: &Audit,
    ) -> Unmatched {
        let unused = self.unused_entries(audit);
        let warn = |code: &str, message: String, hint: &str| {
            let mut warning = Warning::new(code, message).hint(hint);
            warning.path = path.map(|path| clean(&path.display().to_string(), 300));
            context.ui.warn(warning);
        };
        for (expired, day) in &self.expired {
            warn(
                "accept_expired",
                format!("{} expired on {day}", expired.describe()),
                "read the file again, then renew or remove the entry",
            );
        }
        for unused in &unused {
            let (nothing, hint) = match unused.rule {
                Some(_) => ("matched no finding", "remove the entry"),
                None => ("matched no skill", "check the path, or remove it"),
            };
            warn(
                "accept_unused",
                format!("{} {nothing}", unused.describe()),
                hint,
            );
        }
        Unmatched {
            unused,
            expired: self.expired.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}

/// Fails if the reason of an entry is blank. `what` names the entry. Reviewers of the repository
/// rely on the reason.
fn require_reason(what: &str, reason: &str) -> Result<(), String> {
    if reason.trim().is_empty() {
        return Err(format!("{what} gives no reason"));
    }
    Ok(())
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
                "expires = 2027-01-15\nfile = \"x\"",
                "unknown field",
            ),
            (
                "expires = 2027-01-15",
                "expires = 2027-01-15\npath = \"x\"",
                "needs either sha256 or path, not both",
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

    #[test]
    fn a_path_is_one_below_the_audited_folder() {
        let now = at("2027-01-01T00:00:00Z");
        let list = |path: &str| {
            let rest = format!("path = {path:?}\nreason = \"fixtures\"\nexpires = 2027-01-15\n");
            let text = format!("[[accept]]\nrule = \"file-kind\"\n{rest}[[exclude]]\n{rest}");
            AcceptList::parse_list(&text, now)
        };
        for path in ["tests", "./tests/", "tests/a b"] {
            let list = list(path).unwrap();
            assert_eq!(list.errors[0].path, list.excluded[0].path);
            assert_eq!(list.excluded[0].path, path.trim_matches(['.', '/']));
        }
        for path in ["", ".", "./", "/", "/etc", "..", "a/../..", "a//b"] {
            assert!(list(path).is_err(), "{path}");
        }
        let exclude =
            "[[exclude]]\npath = \"tests\"\nreason = \"fixtures\"\nexpires = 2027-01-15\n";
        let late = AcceptList::parse_list(exclude, at("2027-01-16T00:00:00Z")).unwrap();
        assert_eq!((late.excluded.len(), late.expired.len()), (0, 1));
        let bare = exclude.replace("\"fixtures\"", "\"\"");
        assert!(AcceptList::parse_list(&bare, now).is_err());
    }
}
