//! The differences between two releases. A publisher reads them before signing; web pages and
//! commands show them too.

use super::change_line::{ChangeKind, ChangeLine};
use super::root_changes::NamedKey;
use super::{Catalog, ObjectEntry, PolicyEntry, ProfileEntry, SkillEntry, Withdrawn};
use crate::hash::Digest;
use crate::keys::PublicKey;
use crate::root::{KeyFingerprint, RootChain};
use crate::text::quoted_whole as quoted;
use crate::time::Timestamp;

/// The differences of a catalog from an earlier one of the same vault: every member but the release
/// number, the time of signing and the hash of the previous release, which always differ. For
/// display only: no check depends on it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CatalogChanges {
    /// The number of the earlier release; `None` where there is none.
    pub from: Option<u64>,
    /// Skills that only the new catalog has.
    pub added: Vec<SkillEntry>,
    /// Changed skills: the earlier entry and the new one.
    pub changed: Vec<(SkillEntry, SkillEntry)>,
    /// Skills that only the earlier catalog has.
    pub removed: Vec<SkillEntry>,
    /// The earlier and the new objects with the search texts, if they differ.
    pub index: Option<(Vec<ObjectEntry>, Vec<ObjectEntry>)>,
    /// The earlier and the new policy, if they differ.
    pub policy: Option<(Option<PolicyEntry>, Option<PolicyEntry>)>,
    /// Profiles (sets of skills for one agent) that are new or differ.
    pub profiles: Vec<ProfileEntry>,
    /// Names of profiles that are no longer there.
    pub lost_profiles: Vec<String>,
    /// Bundles that the earlier catalog does not withdraw, or withdraws for another reason.
    pub withdrawn: Vec<Withdrawn>,
    /// Bundles that the earlier catalog withdraws and the new one no longer does.
    pub lifted: Vec<Withdrawn>,
    /// Addresses that may serve the new catalog and could not serve the earlier one.
    pub audience: Vec<String>,
    /// Addresses that could serve the earlier catalog and may not serve the new one.
    pub lost_audience: Vec<String>,
    /// When the earlier release expires (`None` without one), and when the new one does.
    pub expires_at: (Option<Timestamp>, Timestamp),
    /// The publisher's key that each catalog names (earlier, new), if they differ.
    pub public_key: Option<(PublicKey, PublicKey)>,
    /// The root version that each catalog names (earlier, new), if they differ.
    pub root: Option<(RootRef, RootRef)>,
    /// Names of the lists that have the same entries in another order.
    pub reordered: Vec<&'static str>,
}

/// A root version by its number and the SHA-256 of its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RootRef {
    /// Number of the root version, from 1.
    pub version: u64,
    /// SHA-256 of the version's signed payload.
    pub sha256: Digest,
}

impl CatalogChanges {
    /// The differences of `after` from `before`. Skills are looked up by name; the entries of the
    /// other lists are compared pair by pair.
    pub fn between(before: Option<&Catalog>, after: &Catalog) -> Self {
        // The pattern names every member, so that a new one has to be compared here or left out on
        // purpose.
        let Catalog {
            schema: _,
            vault_id: _,
            slug: _,
            audience,
            release: _,
            issued_at: _,
            expires_at,
            public_key,
            root_version,
            root_sha256,
            previous: _,
            skills,
            index,
            policy,
            profiles,
            withdrawn,
        } = after;
        let mut changes = Self {
            from: before.map(|before| before.release),
            expires_at: (before.map(|before| before.expires_at), *expires_at),
            ..Self::default()
        };
        let old_policy = before.and_then(|before| before.policy);
        changes.policy = (old_policy != *policy).then_some((old_policy, *policy));
        for entry in skills {
            match before.and_then(|before| before.skill(&entry.name)) {
                None => changes.added.push(entry.clone()),
                Some(old) if old != entry => changes.changed.push((old.clone(), entry.clone())),
                Some(_) => {}
            }
        }
        let Some(before) = before else {
            changes.audience.clone_from(audience);
            changes.profiles.clone_from(profiles);
            changes.withdrawn.clone_from(withdrawn);
            return changes;
        };
        // Skills and profiles are matched by name, so a renamed skill is a removed and an added
        // one.
        let removed = before.skills.iter();
        let removed = removed.filter(|entry| after.skill(&entry.name).is_none());
        changes.removed = removed.cloned().collect();
        changes.index = (before.index != *index).then(|| (before.index.clone(), index.clone()));
        changes.audience = find_new_entries(&before.audience, audience);
        changes.lost_audience = find_new_entries(audience, &before.audience);
        changes.profiles = find_new_entries(&before.profiles, profiles);
        let is_lost = |old: &&ProfileEntry| !profiles.iter().any(|new| new.name == old.name);
        let lost = before.profiles.iter().filter(is_lost);
        changes.lost_profiles = lost.map(|profile| profile.name.clone()).collect();
        changes.withdrawn = find_new_entries(&before.withdrawn, withdrawn);
        // Compare the hashes alone: a withdrawal with a new reason is in `withdrawn` above and
        // lifts nothing.
        let is_lifted = |old: &&Withdrawn| {
            !withdrawn
                .iter()
                .any(|new| new.bundle_hash == old.bundle_hash)
        };
        changes.lifted = before.withdrawn.iter().filter(is_lifted).cloned().collect();
        let key = before.public_key;
        changes.public_key = (key != *public_key).then_some((key, *public_key));
        let old_root = RootRef {
            version: before.root_version,
            sha256: before.root_sha256,
        };
        let root = RootRef {
            version: *root_version,
            sha256: *root_sha256,
        };
        changes.root = (old_root != root).then_some((old_root, root));
        changes.reordered = reordered_lists(before, after);
        changes
    }

    /// Tells whether the two releases are the same apart from their numbers and their expiry.
    pub fn is_empty(&self) -> bool {
        // Compare all members with their defaults, so that a member added later counts as a
        // difference without a change here.
        let same = Self {
            from: self.from,
            expires_at: self.expires_at,
            ..Self::default()
        };
        *self == same
    }

    /// Returns a line for everything that differs. Without the bytes of skills, profiles, policy
    /// and root versions it only says that they changed; a caller that has the bytes compares their
    /// content. `chain` gives the names of keys; without it, a key is shown by its fingerprint.
    pub fn describe_lines(&self, chain: Option<&RootChain>) -> Vec<ChangeLine> {
        use ChangeKind::{Changed, Removed};
        // The pattern names every member, so that a new one gets a line here or is left out on
        // purpose.
        let Self {
            from: _,
            added,
            changed,
            removed,
            index,
            policy,
            profiles,
            lost_profiles,
            withdrawn,
            lifted,
            audience,
            lost_audience,
            expires_at,
            public_key,
            root,
            reordered,
        } = self;
        let mut lines = signing_lines(*expires_at, root.as_ref(), public_key.as_ref(), chain);
        lines.extend(audience_lines(audience, lost_audience));
        lines.extend(skill_lines(added, changed, removed));
        lines.extend(withdrawal_lines(withdrawn, lifted));
        lines.extend(policy.as_ref().map(policy_line));
        let mut line = |kind, text| lines.push(ChangeLine::new(kind, text));
        for profile in profiles {
            let (name, agent) = (quoted(&profile.name), &profile.agent);
            line(Changed, format!("profile {name} for {agent}"));
        }
        for name in lost_profiles {
            line(Removed, format!("profile {}", quoted(name)));
        }
        if index.is_some() {
            line(Changed, "search texts".to_owned());
        }
        for list in reordered {
            line(Changed, format!("order of {list}"));
        }
        lines
    }
}

/// Returns the lines about the expiry and the keys of a release.
fn signing_lines(
    expires_at: (Option<Timestamp>, Timestamp),
    root: Option<&(RootRef, RootRef)>,
    public_key: Option<&(PublicKey, PublicKey)>,
    chain: Option<&RootChain>,
) -> Vec<ChangeLine> {
    use ChangeKind::{Added, Changed};
    let expiry = match expires_at {
        (Some(old), new) if old == new => None,
        (Some(old), new) => Some((Changed, format!("valid until: {old} → {new}"))),
        (None, new) => Some((Added, format!("valid until: {new}"))),
    };
    let root = root.map(|(old, new)| {
        let (old, new) = (old.version, new.version);
        (Changed, format!("keys of the vault: version {old} → {new}"))
    });
    let signer = public_key.map(|(old, new)| {
        let (old, new) = (format_key(chain, old), format_key(chain, new));
        (Changed, format!("signer: {old} → {new}"))
    });
    let lines = [expiry, root, signer].into_iter().flatten();
    lines
        .map(|(kind, text)| ChangeLine::new(kind, text))
        .collect()
}

/// Returns the lines about the addresses that may serve the vault.
fn audience_lines(added: &[String], removed: &[String]) -> Vec<ChangeLine> {
    // Both directions are warnings: an added address lets another host serve the vault, and a
    // removed one stops the devices that are linked to it.
    let warning = |text| ChangeLine::new(ChangeKind::Warning, text);
    let added = added
        .iter()
        .map(|address| format!("may be served from {}", quoted(address)));
    let removed = removed.iter();
    let removed =
        removed.map(|address| format!("may no longer be served from {}", quoted(address)));
    added.chain(removed).map(warning).collect()
}

/// Returns the lines about the versions of skills.
fn skill_lines(
    added: &[SkillEntry],
    changed: &[(SkillEntry, SkillEntry)],
    removed: &[SkillEntry],
) -> Vec<ChangeLine> {
    let one = |kind, entry: &SkillEntry| {
        ChangeLine::new(kind, format!("{}  version {}", entry.name, entry.version))
    };
    let mut lines: Vec<_> = added
        .iter()
        .map(|entry| one(ChangeKind::Added, entry))
        .collect();
    lines.extend(changed.iter().map(|(old, new)| {
        let (name, from, to) = (&new.name, old.version, new.version);
        ChangeLine::new(
            ChangeKind::Changed,
            format!("{name}  version {from} → {to}"),
        )
    }));
    lines.extend(removed.iter().map(|entry| one(ChangeKind::Removed, entry)));
    lines
}

/// Returns the lines about the bundles that are withdrawn, or no longer.
fn withdrawal_lines(withdrawn: &[Withdrawn], lifted: &[Withdrawn]) -> Vec<ChangeLine> {
    let withdrawn = withdrawn.iter().map(|entry| {
        let (name, hash) = (&entry.name, entry.bundle_hash);
        let (reason, since) = (quoted(&entry.reason), entry.since_release);
        format!("withdrawn: {name} {hash}, since release {since}: {reason}")
    });
    let lifted = lifted.iter().map(|entry| {
        let (name, hash) = (&entry.name, entry.bundle_hash);
        format!(
            "no longer withdrawn: {name} {hash}: {}",
            quoted(&entry.reason)
        )
    });
    let texts = withdrawn.chain(lifted);
    texts
        .map(|text| ChangeLine::new(ChangeKind::Warning, text))
        .collect()
}

fn policy_line((old, new): &(Option<PolicyEntry>, Option<PolicyEntry>)) -> ChangeLine {
    // Without a policy members are granted nothing at all, so its removal is a warning.
    let kind = match (old, new) {
        (None, Some(_)) => ChangeKind::Added,
        (Some(_), None) => ChangeKind::Warning,
        _ => ChangeKind::Changed,
    };
    let what = if new.is_some() { "changed" } else { "removed" };
    ChangeLine::new(kind, format!("policy {what}"))
}

/// Returns the entries of `new` that are not in `old`.
fn find_new_entries<T: Clone + PartialEq>(old: &[T], new: &[T]) -> Vec<T> {
    let unknown = new.iter().filter(|entry| !old.contains(entry));
    unknown.cloned().collect()
}

/// Returns the names of the lists that have the same entries in another order.
fn reordered_lists(before: &Catalog, after: &Catalog) -> Vec<&'static str> {
    // Skills are left out: a catalog with unsorted skills is rejected. The order of these lists
    // changes the signed bytes, so a signer sees that too.
    let lists = [
        ("audience", is_reordered(&before.audience, &after.audience)),
        ("profiles", is_reordered(&before.profiles, &after.profiles)),
        (
            "withdrawn",
            is_reordered(&before.withdrawn, &after.withdrawn),
        ),
    ];
    let reordered = lists.into_iter().filter(|(_, is_reordered)| *is_reordered);
    reordered.map(|(list, _)| list).collect()
}

/// Tells whether two lists differ only in the order of their entries, or in how often an entry
/// occurs.
fn is_reordered<T: PartialEq>(old: &[T], new: &[T]) -> bool {
    let has_all = |one: &[T], other: &[T]| other.iter().all(|entry| one.contains(entry));
    old != new && has_all(old, new) && has_all(new, old)
}

/// Formats a key by name and fingerprint, or by its fingerprint alone if no chain gives its name.
fn format_key(chain: Option<&RootChain>, key: &PublicKey) -> String {
    match chain {
        Some(chain) => NamedKey::from_chain(chain, key).name_and_fingerprint(),
        None => KeyFingerprint::publisher(key).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Schema;
    use crate::hash::Digest;
    use crate::keys::SecretKey;
    use crate::root::VaultId;

    fn catalog() -> Catalog {
        Catalog {
            schema: Schema,
            vault_id: VaultId::derive(&Digest::of(b"vault")),
            slug: "acme".parse().unwrap(),
            audience: Vec::new(),
            release: 7,
            issued_at: Timestamp::from_unix(0),
            expires_at: Timestamp::from_unix(86_400),
            public_key: SecretKey::from_seed([7; 32]).public(),
            root_version: 1,
            root_sha256: Digest::of(b"root"),
            previous: None,
            skills: Vec::new(),
            index: Vec::new(),
            policy: None,
            profiles: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    fn skill(name: &str, version: u64) -> SkillEntry {
        SkillEntry {
            name: name.parse().unwrap(),
            version,
            bundle_hash: Digest::of(format!("{name} {version}").as_bytes()),
            size: 1,
        }
    }

    fn names(entries: &[SkillEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn skills_are_added_changed_and_removed() {
        let before = Catalog {
            skills: vec![skill("csv", 1), skill("kept", 3), skill("pdf", 1)],
            ..catalog()
        };
        let after = Catalog {
            release: before.release + 1,
            skills: vec![skill("kept", 3), skill("new", 1), skill("pdf", 2)],
            ..before.clone()
        };
        let changes = CatalogChanges::between(Some(&before), &after);
        assert_eq!(changes.from, Some(before.release));
        assert_eq!(names(&changes.added), ["new"]);
        assert_eq!(names(&changes.removed), ["csv"]);
        let versions = |(old, new): &(SkillEntry, SkillEntry)| (old.version, new.version);
        let changed: Vec<_> = changes.changed.iter().map(versions).collect();
        assert_eq!(changed, [(1, 2)]);
        assert_eq!(changes.policy, None);
        let same = CatalogChanges::between(Some(&after), &after);
        assert!(same.added.is_empty() && same.changed.is_empty() && same.removed.is_empty());
        let first = CatalogChanges::between(None, &after);
        assert_eq!(names(&first.added), ["kept", "new", "pdf"]);
        assert_eq!(first.expires_at.0, None);
    }

    #[test]
    fn withdrawn_bundles_and_addresses_count_once() {
        let withdrawn = |name: &str| Withdrawn {
            name: name.parse().unwrap(),
            bundle_hash: Digest::of(name.as_bytes()),
            reason: "leaked".to_owned(),
            since_release: 1,
        };
        let before = Catalog {
            withdrawn: vec![withdrawn("csv")],
            audience: vec!["https://a.example/v/acme/".to_owned()],
            ..catalog()
        };
        let mut after = before.clone();
        after.withdrawn.push(withdrawn("pdf"));
        after.audience.push("https://b.example/v/acme/".to_owned());
        let changes = CatalogChanges::between(Some(&before), &after);
        assert_eq!(changes.withdrawn, [withdrawn("pdf")]);
        assert_eq!(changes.audience, ["https://b.example/v/acme/"]);
    }

    /// Every member of a catalog, changed alone, has a line or is one of the three that differ in
    /// every release.
    #[test]
    fn every_member_that_differs_has_a_line() {
        let before = Catalog {
            audience: vec![
                "https://a.example/v/acme/".into(),
                "https://b.example/v/acme/".into(),
            ],
            skills: vec![skill("csv", 1), skill("pdf", 1)],
            index: vec![ObjectEntry {
                bundle_hash: Digest::of(b"index"),
                size: 1,
            }],
            policy: Some(PolicyEntry {
                sha256: Digest::of(b"policy"),
                size: 1,
            }),
            profiles: ["a", "b"]
                .map(|name| ProfileEntry {
                    name: name.to_owned(),
                    agent: "codex".parse().unwrap(),
                    bundle_hash: Digest::of(name.as_bytes()),
                    size: 1,
                })
                .into(),
            withdrawn: ["old", "older"]
                .map(|name| Withdrawn {
                    name: name.parse().unwrap(),
                    bundle_hash: Digest::of(name.as_bytes()),
                    reason: "leaked".to_owned(),
                    since_release: 1,
                })
                .into(),
            ..catalog()
        };
        assert!(CatalogChanges::between(Some(&before), &before).is_empty());
        let json = serde_json::to_value(&before).unwrap();
        let always = ["release", "issued_at", "previous"];
        // Other readers refuse a catalog of another vault or namespace before they compare it.
        let refused = ["schema", "vault_id", "slug"];
        for (member, value) in json.as_object().unwrap() {
            if always.contains(&member.as_str()) || refused.contains(&member.as_str()) {
                continue;
            }
            let mut variants = Vec::new();
            match value {
                serde_json::Value::Array(entries) => {
                    variants.push(serde_json::json!(entries[1..]));
                    let mut reversed = entries.clone();
                    reversed.reverse();
                    // A catalog with unsorted skills is not valid, so do not reverse them.
                    if entries.len() > 1 && member != "skills" {
                        variants.push(serde_json::json!(reversed));
                    }
                    for (inner, old) in entries[0].as_object().into_iter().flatten() {
                        // The path follows from the hash, and another name makes another entry, so
                        // neither changes alone.
                        if inner == "path" || inner == "name" {
                            continue;
                        }
                        let mut changed = entries.clone();
                        changed[0][inner] = other(old);
                        if inner == "bundle_hash"
                            && old != &changed[0]["path"]
                            && let Some(path) = changed[0].get_mut("path")
                        {
                            let hash = other(old);
                            *path = format!("bundles/{}.json", hash.as_str().unwrap()).into();
                        }
                        variants.push(serde_json::json!(changed));
                    }
                }
                serde_json::Value::Object(members) => {
                    variants.push(serde_json::Value::Null);
                    for (inner, old) in members {
                        let mut changed = value.clone();
                        changed[inner] = other(old);
                        variants.push(changed);
                    }
                }
                value => variants.push(other(value)),
            }
            for variant in variants {
                let mut changed = json.clone();
                changed[member] = variant.clone();
                let after: Catalog = serde_json::from_value(changed)
                    .unwrap_or_else(|error| panic!("{member} {variant}: {error}"));
                for (old, new) in [(&before, &after), (&after, &before)] {
                    let changes = CatalogChanges::between(Some(old), new);
                    let same = CatalogChanges::between(Some(old), old).describe_lines(None);
                    assert_ne!(changes.describe_lines(None), same, "{member}: {variant}");
                    assert_eq!(changes.is_empty(), member == "expires_at", "{member}");
                }
            }
        }
    }

    /// Returns another value of the same JSON type.
    fn other(value: &serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Number(number) => (number.as_u64().unwrap() + 1).into(),
            serde_json::Value::String(text) => match text.len() {
                64 => Digest::of(text.as_bytes()).to_string().into(),
                43 => SecretKey::from_seed([8; 32]).public().to_string().into(),
                20 if text.ends_with('Z') => "1970-01-03T00:00:00Z".into(),
                _ if text == "codex" => "cursor".into(),
                _ => format!("{text} b").into(),
            },
            other => panic!("{other}"),
        }
    }
}
