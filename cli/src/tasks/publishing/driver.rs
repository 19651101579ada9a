//! The two traits through which the library's driver of a sync works: [`Namespace`], the namespace
//! on the connected service, and [`Owner`], the owner at this machine, who answers questions.

use std::collections::HashMap;

use vault_api::Draft;
use vault_format::{
    catalog::{ProfileEntry, SkillEntry},
    hash::Digest,
    name::SkillName,
};
use vault_library::{
    publish::{
        Namespace, OnDivergence, Owner, ReleasePlan, ReleaseRejection, TakeOver, Uploaded, state,
    },
    trust::RootChanges,
};
use vault_policy::profile::Profile;
use vault_service::error::ErrorCode as ServiceCode;

use super::{Publisher, SyncOptions, take_over::TakenOver};
use crate::{
    errors::{ErrorCode, Failure},
    output::count,
    service::connection::Connection,
    tasks::key_changes,
};

impl Namespace for Publisher<'_> {
    type Error = Failure;
    type Proposal = Draft;

    async fn current_catalog_bytes(&self) -> Result<Option<Vec<u8>>, Failure> {
        self.current_catalog().await
    }

    async fn may_resubmit_signed(&self) -> Result<bool, Failure> {
        let Connection { base, slug } = self.connection;
        let Some(trust) = self.vault.trust()? else {
            return Ok(true);
        };
        let state = state::read_state(self.vault, base.as_str(), slug)?;
        let pending = state.and_then(|state| state.pending);
        // A release that needs one signature can always be resumed. A proposal, which waits for
        // further signatures, may have been withdrawn in the meantime, and must then not come back.
        let (Some(pending), true) = (pending, trust.chain().document().release().threshold() > 1)
        else {
            return Ok(true);
        };
        let waiting = self.list_proposals().await?;
        let mut proposals = waiting.iter().filter_map(|draft| draft.proposal.as_ref());
        Ok(proposals.any(|proposal| proposal.payload_sha256 == pending.payload_sha256))
    }

    async fn pin_is_reset(&self) -> Result<bool, Failure> {
        Ok(self.fetch_head().await?.is_unpinned())
    }

    async fn upload_objects(&self, plan: &ReleasePlan, all: bool) -> Result<Uploaded, Failure> {
        if plan.needed > 1 && !all {
            // Another publisher judges a proposal under the keys that the service shows, so publish
            // new keys first.
            self.push_roots().await?;
        }
        self.upload_missing(plan, all).await
    }

    async fn put_release(
        &self,
        plan: &ReleasePlan,
    ) -> Result<Option<Draft>, ReleaseRejection<Failure>> {
        if plan.needed > 1 {
            return self.post_proposal(&plan.catalog).await.map(Some);
        }
        let answer = self.put_catalog(&plan.catalog, plan.follows.as_ref());
        match self.judge_answer(answer.await?) {
            // Another publisher was faster, and the driver may plan again from that release.
            Err(ReleaseRejection::Other(failure))
                if failure.code == ServiceCode::ReleaseConflict =>
            {
                let conflict = Failure::new(ErrorCode::ReleaseConflict, &failure.message);
                let hint = "someone else is publishing at the same time: sync again";
                Err(ReleaseRejection::Conflict(conflict.hint(hint)))
            }
            judged => judged.map(|_| None),
        }
    }
}

/// The owner at this machine, who answers questions at a terminal or has answered them with
/// options.
pub(super) struct InteractiveOwner<'a> {
    pub(super) publisher: &'a Publisher<'a>,
    pub(super) options: &'a SyncOptions,
    /// The changes that this sync has taken over from other publishers so far.
    pub(super) taken: TakenOver,
    /// Whether a conflict with another publisher's release may still be retried.
    pub(super) may_retry: bool,
}

impl Owner<Failure> for InteractiveOwner<'_> {
    fn show_planning(&self) -> impl Sized {
        self.publisher
            .context
            .ui
            .start_spinner("Planning the release")
    }

    fn keys_changed(&mut self, changes: &RootChanges) {
        let slug = &self.publisher.connection.slug;
        key_changes::warn_of_changes(self.publisher.context, slug.as_str(), changes);
    }

    /// Names the skills whose signer's key was revoked, and asks whether to scan and sign them with
    /// this machine's key. Fails if the owner declines.
    fn sign_again(&mut self, skills: &[SkillName]) -> Result<(), Failure> {
        let ui = &self.publisher.context.ui;
        let names: Vec<_> = skills.iter().map(|name| format!("  {name}")).collect();
        ui.note(format!(
            "The key that signed these skills was revoked, so they are not trusted:\n{}",
            names.join("\n")
        ));
        let skills = count(skills.len() as u64, "skill");
        ui.confirm_or_stop(&format!(
            "Scan {skills} again and sign with this machine's key?"
        ))
    }

    async fn take_over(&mut self, changes: &TakeOver) -> Result<(), Failure> {
        let taken = self.publisher.take_over(changes, self.options).await?;
        self.taken.add_changes(taken);
        Ok(())
    }

    async fn fetch_current_profiles(
        &mut self,
        entries: &[ProfileEntry],
    ) -> Result<Vec<Profile>, Failure> {
        self.publisher.fetch_profiles(entries).await
    }

    async fn fetch_current_variants(
        &mut self,
        entries: &[SkillEntry],
    ) -> Result<HashMap<Digest, Vec<u8>>, Failure> {
        self.publisher.fetch_own(entries).await
    }

    /// Asks the user at a terminal about the skills that `--replace` removes on every machine,
    /// because only the service's release has them.
    fn confirm(&mut self, plan: &ReleasePlan) -> Result<(), Failure> {
        let (ui, options) = (&self.publisher.context.ui, self.options);
        let is_asked = options.on_divergence == OnDivergence::Replace && ui.may_ask();
        // A proposal removes nothing yet, because other publishers review it. With `--last-good`,
        // the user has already named the state to return to.
        let is_proposal = plan.needed > 1;
        if !is_asked || is_proposal || plan.removed.is_empty() || options.last_good.is_some() {
            return Ok(());
        }
        let names = plan.removed.iter().map(|name| format!("  - {name}"));
        ui.note(names.collect::<Vec<_>>().join("\n"));
        let number = count(plan.removed.len() as u64, "skill");
        let text = format!("Publish a release that removes {number} on every machine?");
        if ui.confirm(&text)? {
            return Ok(());
        }
        Err(fail!(NotConfirmed, "nothing was published"))
    }

    fn confirm_retry(&mut self, conflict: Failure) -> Result<(), Failure> {
        // Only one repetition: after a second conflict, another publisher is probably still at
        // work.
        if !std::mem::take(&mut self.may_retry) {
            return Err(conflict);
        }
        let ui = &self.publisher.context.ui;
        ui.note("Another release was published meanwhile; checking again.");
        Ok(())
    }
}
