//! Takes over releases: installs into this library what another publisher, or another machine with
//! this vault's key, has released since the last sync.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    catalog::{ProfileEntry, SkillEntry},
    hash::Digest,
    name::SkillName,
};
use vault_library::{
    adopt,
    publish::{
        PolicyChange, TakeOver,
        state::{self, WaitingReview},
    },
    trust::NamedKey,
};
use vault_policy::profile::Profile;

use super::{
    Publisher, SyncOptions,
    review::{Question, ReleaseReview},
};
use crate::{
    errors::{ErrorCode, Failure},
    output::{BOLD, diff::RenderedDiff, format_key, join},
};

/// The changes that a sync has taken over.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct TakenOver {
    /// Skills that were added or replaced.
    pub adopted: Vec<SkillName>,
    /// Skills that were removed here because they were removed there.
    pub dropped: Vec<SkillName>,
    /// Whether the policy was replaced or removed as there.
    #[serde(rename = "policy_taken")]
    pub policy: bool,
}

impl TakenOver {
    pub(super) fn add_changes(&mut self, other: Self) {
        self.adopted.extend(other.adopted);
        self.dropped.extend(other.dropped);
        self.policy |= other.policy;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.adopted.is_empty() && self.dropped.is_empty() && !self.policy
    }

    /// Formats the changes as lines for people; none without changes.
    pub(super) fn change_lines(&self) -> Vec<String> {
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
    /// Fetches the changes of a release, shows them, asks the owner, and takes them over.
    pub(super) async fn take_over(
        &self,
        changes: &TakeOver,
        options: &SyncOptions,
    ) -> Result<TakenOver, Failure> {
        let how = &options.review;
        let exceptions = how.exceptions(self.context)?;
        let review = self
            .review_release(&changes.change, &exceptions, &how.flags)
            .await?;
        let mut fetched = review.fetched;
        // The review has fetched only the bundles that it compared. Installing needs all, so fetch
        // the others.
        let is_missing = |entry: &&SkillEntry| !fetched.contains_key(&entry.bundle_hash);
        let missing = changes.skills.iter().filter(is_missing).cloned();
        let missing: Vec<_> = missing.collect();
        fetched.extend(self.fetch_own(&missing).await?);
        if let PolicyChange::Take(entry) = &changes.policy {
            fetched.extend(self.fetch_objects("policies", &[entry.sha256]).await?);
        }
        // If this machine has already signed exactly this payload, its owner has reviewed it
        // before.
        if !changes.signed_here {
            self.ask_to_take_over(changes, &review.shown, options)?;
        }
        let objects = |hash: &Digest| fetched.get(hash).cloned();
        let taken = adopt::take_over(self.vault, changes, &exceptions, &objects)?;
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
        shown: &RenderedDiff,
        options: &SyncOptions,
    ) -> Result<(), Failure> {
        let how = &options.review;
        let names = changes.skills.iter().map(|entry| entry.name.to_string());
        let mut effects: Vec<_> = names
            .map(|name| format!("{name} comes into this library"))
            .collect();
        let removed = changes.removed.iter();
        effects.extend(removed.map(|name| format!("{name} is removed here")));
        match &changes.policy {
            PolicyChange::None => {}
            PolicyChange::Remove => effects.push("policy.toml is removed here".to_owned()),
            PolicyChange::Take(_) => effects.push("policy.toml is replaced here".to_owned()),
        }
        let trust = self.vault.require_trust()?;
        let who = changes.publishers.iter();
        let who = join(who.map(|key| format_key(&NamedKey::from_chain(trust.chain(), key))));
        let text = format!("Take over release {}, signed by {who}?", changes.release);
        let question = Question {
            text: &text,
            effects: &effects,
            hash: &changes.payload_sha256,
            flag: &options.answered_by(),
        };
        let ui = &self.context.ui;
        // A scheduled sync would otherwise print the whole review each time.
        if let Some(waiting) = self.find_or_record_review(changes, how)? {
            ui.must_see(format!(
                "release {}, signed by {who}, waits for a review since {}: --full shows it again",
                changes.release, waiting.at
            ));
            return ui.confirm_review(&RenderedDiff::default(), &question, None, &how.flags);
        }
        ui.must_see(format!(
            "{BOLD}release {}{BOLD:#}  signed by {who}\n  payload {}",
            changes.release, changes.payload_sha256
        ));
        ui.confirm_review(shown, &question, how.payload.as_ref(), &how.flags)
    }

    /// Returns the record of the review if a sync without a terminal has printed it for exactly
    /// this release within the last day, so that one line is enough now. Otherwise records that it
    /// is printed now, and returns `None`.
    fn find_or_record_review(
        &self,
        changes: &TakeOver,
        how: &ReleaseReview,
    ) -> Result<Option<WaitingReview>, Failure> {
        let is_asked = how.payload.is_some() || how.flags.full || how.flags.out.is_some();
        // At a terminal, or if details are requested, the review is shown in full.
        if self.context.ui.may_ask() || is_asked {
            return Ok(None);
        }
        let namespace = (self.connection.base.as_str(), &self.connection.slug);
        let payload = changes.payload_sha256;
        let waiting = state::shown_today(self.vault, namespace, &payload)?;
        if waiting.is_none() {
            state::note_shown(self.vault, namespace, payload)?;
        }
        Ok(waiting)
    }

    /// Fetches these profiles (what each agent gets in a release) and checks their hashes.
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
                // Fetched objects are unverified, so compare the hash before parsing.
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
