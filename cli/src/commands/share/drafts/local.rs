//! Drafts that agents made on this machine, with `VAULT_MCP_WRITES=draft`. They wait in the trust
//! folder and need no service.

use serde_json::json;
use vault_api::{Draft, DraftAuthor, DraftKind, DraftState};
use vault_format::{draft::Request, hash::Digest};
use vault_library::{
    Vault,
    shelf::drafts::{LocalDraft, list_drafts, remove_draft},
};

use super::{
    accepted_line, confirm_draft, decision_report, draft_title, pick_draft, review_report,
};
use crate::{
    context::Context,
    errors::Failure,
    output::Report,
    tasks::{
        draft_review::{Choices, Reviewer},
        profiles,
        publishing::review::ReviewFlags,
    },
};

/// The waiting drafts of this machine's vault.
pub struct LocalDrafts {
    /// None before there is a vault.
    vault: Option<Vault>,
    drafts: Vec<LocalDraft>,
}

impl LocalDrafts {
    /// Reads the drafts.
    pub fn load(context: &Context) -> Result<Self, Failure> {
        let vault = context.existing_vault()?;
        let drafts = match &vault {
            Some(vault) => list_drafts(vault)?,
            None => Vec::new(),
        };
        Ok(Self { vault, drafts })
    }

    /// Returns the drafts in the form in which a service lists them, oldest first.
    pub fn listed(&self) -> Vec<Draft> {
        self.drafts.iter().map(describe_draft).collect()
    }

    /// Finds a draft by its id or the beginning of it.
    pub fn find(&self, id: &str) -> Result<Option<&LocalDraft>, Failure> {
        let listed_drafts = self.listed();
        // A draft that is not here may be at a service.
        let begins = |draft: &Draft| {
            draft
                .id
                .as_str()
                .to_lowercase()
                .starts_with(&id.to_lowercase())
        };
        if !listed_drafts.iter().any(begins) {
            return Ok(None);
        }
        let picked = pick_draft(&listed_drafts, id)?;
        Ok(self
            .drafts
            .iter()
            .find(|local| local.draft.draft_id == picked.id))
    }

    /// Shows a draft.
    pub fn show(
        &self,
        context: &Context,
        draft: &LocalDraft,
        flags: &ReviewFlags,
    ) -> Result<Report, Failure> {
        // Showing signs nothing, so the base of the draft may have changed.
        let choices = Choices {
            anyway: true,
            review: flags.clone(),
            ..Choices::default()
        };
        let reviewer = Reviewer::local(context, self.vault()?, draft);
        let review = reviewer.review_draft(&describe_draft(draft), &draft.bytes, &choices)?;
        Ok(review_report(&review))
    }

    /// Shows a draft, asks, and carries it out.
    pub fn accept(
        &self,
        context: &Context,
        draft: &LocalDraft,
        choices: &Choices,
    ) -> Result<Report, Failure> {
        let vault = self.vault()?;
        let reviewer = Reviewer::local(context, vault, draft);
        let review = reviewer.review_draft(&describe_draft(draft), &draft.bytes, choices)?;
        // `carry_out` signs the skill, so it comes after the question.
        confirm_draft(context, &reviewer, &review, choices)?;
        // Another command may have decided while the question waited for its answer.
        let waiting = list_drafts(vault)?;
        if !waiting.iter().any(|other| other.bytes == draft.bytes) {
            return Err(decided_already(&review.draft));
        }
        reviewer.carry_out(&review)?;
        // Only now: after a crash before this step, the draft is found to be carried out.
        remove_draft(vault, &draft.draft.draft_id)?;
        let agents = profiles::show_to_agents(context, vault);
        let line = accepted_line(&review.draft, review.left_out_text().as_deref());
        let data = json!({ "accepted": [review.draft.id], "left_out": review.left_out });
        let mut report = Report::new(data, line);
        agents.add_to(&mut report.data);
        for line in agents.links_table(context).into_iter().chain(agents.next) {
            report.text.push_str(&format!("\n{line}"));
        }
        Ok(report)
    }

    /// Removes a draft without carrying it out.
    pub fn discard(
        &self,
        draft: &LocalDraft,
        done: &str,
        reason: Option<&String>,
    ) -> Result<Report, Failure> {
        let mut described = describe_draft(draft);
        if !remove_draft(self.vault()?, &draft.draft.draft_id)? {
            return Err(decided_already(&described));
        }
        described.reason = reason.cloned();
        described.state = match reason {
            Some(_) => DraftState::Declined,
            None => DraftState::Withdrawn,
        };
        Ok(decision_report(done, &described))
    }

    fn vault(&self) -> Result<&Vault, Failure> {
        let vault = self.vault.as_ref();
        vault.ok_or_else(|| fail!(Internal, "a draft without a vault"))
    }
}

fn decided_already(draft: &Draft) -> Failure {
    fail!(DraftNotFound, "{} is decided already", draft_title(draft))
}

fn describe_draft(local: &LocalDraft) -> Draft {
    let draft = &local.draft;
    Draft {
        id: draft.draft_id,
        kind: match draft.request {
            Request::Propose { .. } => DraftKind::Propose,
            Request::Install { .. } => DraftKind::Install,
            Request::Remove => DraftKind::Remove,
        },
        name: Some(draft.name.clone()),
        base_bundle_hash: draft.base_bundle_hash,
        sha256: Digest::of(&local.bytes),
        size: local.bytes.len() as u64,
        submitted_at: draft.submitted_at,
        submitted_by: DraftAuthor {
            user_id: draft.submitted_by.user_id.clone(),
            email: None,
            client_id: draft.submitted_by.client_id.clone(),
        },
        flags: draft.gate.flags.len() as u64,
        state: DraftState::Pending,
        changed_at: draft.submitted_at,
        expires_at: None,
        release: None,
        reason: None,
        proposal: None,
        key: None,
    }
}
