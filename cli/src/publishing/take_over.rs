//! Takes over what other publishers of the vault, or other machines with its key, have published.

use std::collections::HashMap;

use serde::Serialize;
use vault_format::{catalog::ProfileEntry, hash::Digest, name::SkillName};
use vault_library::{
    AuthoredFile, adopt,
    publish::{PolicyChange, TakeOver},
    trust::NamedKey,
};
use vault_policy::profile::Profile;

use super::Publisher;
use crate::{
    diff::diff_texts,
    errors::{ErrorCode, Failure},
    key_changes,
    output::{BOLD, count, join, paint},
};

/// What a sync has taken over.
#[derive(Debug, Default, Serialize)]
pub struct TakenOver {
    /// Skills that were added or replaced.
    pub adopted: Vec<SkillName>,
    /// Skills that were removed here because they were removed there.
    pub dropped: Vec<SkillName>,
    /// Whether the policy was replaced or removed.
    pub policy: bool,
}

impl TakenOver {
    pub(super) fn add(&mut self, other: Self) {
        self.adopted.extend(other.adopted);
        self.dropped.extend(other.dropped);
        self.policy |= other.policy;
    }

    /// The lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let names = |what: &str, names: &[SkillName]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            (!names.is_empty()).then(|| format!("  {what} {}", names.join(", ")))
        };
        let mut lines = Vec::new();
        lines.extend(names("took over", &self.adopted));
        lines.extend(names("removed as there:", &self.dropped));
        lines.extend(self.policy.then(|| "  took over the policy".to_owned()));
        lines
    }
}

impl Publisher<'_> {
    /// Fetches what others changed, shows it, asks, and takes it over. Nothing is taken over
    /// unseen.
    pub(super) async fn take_over(&self, changes: &TakeOver) -> Result<TakenOver, Failure> {
        let mut fetched = self.fetch_own(&changes.skills).await?;
        if let PolicyChange::Take(entry) = &changes.policy {
            fetched.extend(self.fetch_objects("policies", &[entry.sha256]).await?);
        }
        self.ask_to_take_over(changes, &fetched)?;
        let taken = adopt::take_over(self.vault, changes, &|hash| fetched.get(hash).cloned())?;
        Ok(TakenOver {
            adopted: taken
                .installed
                .into_iter()
                .map(|report| report.name)
                .collect(),
            dropped: changes.removed.clone(),
            policy: changes.policy != PolicyChange::None,
        })
    }

    fn ask_to_take_over(
        &self,
        changes: &TakeOver,
        fetched: &HashMap<Digest, Vec<u8>>,
    ) -> Result<(), Failure> {
        let ui = &self.context.ui;
        let skills = changes.skills.iter();
        let mut lines: Vec<_> = skills
            .map(|entry| format!("{}  version {}", entry.name, entry.version))
            .collect();
        lines.extend(
            changes
                .removed
                .iter()
                .map(|name| format!("{name}  removed")),
        );
        match &changes.policy {
            PolicyChange::None => {}
            PolicyChange::Remove => lines.push("policy.toml  removed".to_owned()),
            PolicyChange::Take(entry) => {
                let text = adopt::policy_text(entry, &|hash| fetched.get(hash).cloned())?;
                let own = AuthoredFile::Policy.read_approved(self.vault)?;
                ui.note(paint(BOLD, "changed policy.toml"));
                for line in diff_texts(&own.unwrap_or_default(), text.as_bytes()) {
                    ui.note(line);
                }
                lines.push("policy.toml  changed".to_owned());
            }
        }
        let trust = self.vault.require_trust()?;
        let who = changes.publishers.iter();
        let who = join(who.map(|key| key_changes::name(&NamedKey::of(trust.chain(), key))));
        let number = count(lines.len() as u64, "change");
        ui.confirm_step(
            &format!(
                "Take over {number} of release {}, signed by {who}?",
                changes.release
            ),
            &lines,
        )
    }

    /// Fetches the profiles of the current release.
    pub(super) async fn fetch_profiles(
        &self,
        entries: &[ProfileEntry],
    ) -> Result<Vec<Profile>, Failure> {
        let hashes: Vec<_> = entries.iter().map(|entry| entry.bundle_hash).collect();
        let fetched = self.fetch_objects("bundles", &hashes).await?;
        let mut profiles = Vec::new();
        for entry in entries {
            let bytes = fetched.get(&entry.bundle_hash);
            let profile = bytes
                .filter(|bytes| Digest::of(bytes) == entry.bundle_hash)
                .and_then(|bytes| Profile::parse(bytes).ok());
            profiles.push(profile.ok_or_else(|| {
                Failure::new(
                    ErrorCode::BundleRefused,
                    format!("the service sent a wrong profile {}", entry.name),
                )
            })?);
        }
        Ok(profiles)
    }
}
