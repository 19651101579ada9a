//! How one release differs from another: what people compare before they sign, and what pages show.

use super::{Catalog, PolicyEntry, ProfileEntry, SkillEntry, Withdrawn};
use crate::time::Timestamp;

/// The differences of a catalog from an earlier one of the same vault. It decides nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CatalogChanges {
    /// The number of the earlier release; `None` where there is none.
    pub from: Option<u64>,
    /// New skills.
    pub added: Vec<SkillEntry>,
    /// Changed skills: the earlier entry and the new one.
    pub changed: Vec<(SkillEntry, SkillEntry)>,
    /// Removed skills.
    pub removed: Vec<SkillEntry>,
    /// The earlier and the new policy, if they differ.
    pub policy: Option<(Option<PolicyEntry>, Option<PolicyEntry>)>,
    /// Profiles that are new or differ.
    pub profiles: Vec<ProfileEntry>,
    /// Names of profiles that are no longer there.
    pub lost_profiles: Vec<String>,
    /// Bundles that the earlier catalog does not withdraw.
    pub withdrawn: Vec<Withdrawn>,
    /// Addresses that may serve this catalog and may not serve the earlier one.
    pub audience: Vec<String>,
    /// When the earlier release expires and when this one does.
    pub expires_at: (Option<Timestamp>, Timestamp),
}

impl CatalogChanges {
    /// The differences of `after` from `before`. Takes time linear in the sizes of both, since
    /// skills are sorted by name.
    pub fn between(before: Option<&Catalog>, after: &Catalog) -> Self {
        let mut changes = Self {
            from: before.map(|before| before.release),
            expires_at: (before.map(|before| before.expires_at), after.expires_at),
            audience: after.audience.clone(),
            profiles: after.profiles.clone(),
            withdrawn: after.withdrawn.clone(),
            ..Self::default()
        };
        let policy = before.and_then(|before| before.policy);
        changes.policy = (policy != after.policy).then_some((policy, after.policy));
        for entry in &after.skills {
            match before.and_then(|before| before.skill(&entry.name)) {
                None => changes.added.push(entry.clone()),
                Some(old) if old.bundle_hash != entry.bundle_hash => {
                    changes.changed.push((old.clone(), entry.clone()));
                }
                Some(_) => {}
            }
        }
        let Some(before) = before else {
            return changes;
        };
        let removed = before.skills.iter();
        let removed = removed.filter(|entry| after.skill(&entry.name).is_none());
        changes.removed = removed.cloned().collect();
        let is_new = |address: &String| !before.audience.contains(address);
        changes.audience.retain(is_new);
        let is_new = |profile: &ProfileEntry| !before.profiles.contains(profile);
        changes.profiles.retain(is_new);
        let lost = before.profiles.iter().filter(|old| {
            let mut same = after.profiles.iter();
            !same.any(|profile| profile.name == old.name)
        });
        changes.lost_profiles = lost.map(|profile| profile.name.clone()).collect();
        let is_new = |entry: &Withdrawn| {
            let mut known = before.withdrawn.iter();
            !known.any(|known| known.bundle_hash == entry.bundle_hash)
        };
        changes.withdrawn.retain(is_new);
        changes
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
}
