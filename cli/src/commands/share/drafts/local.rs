//! `vault drafts` for drafts that agents made on this machine (with `VAULT_MCP_WRITES=draft`). They
//! wait in the trust folder, the user's configuration folder outside the vault, and need no
//! service.

use serde_json::json;
use vault_api::{Draft, DraftAuthor, DraftKind, DraftState};
use vault_format::{draft::Request, hash::Digest, name::DraftId};
use vault_library::{
    Vault,
    shelf::drafts::{LocalDraft, WaitingDrafts, read_drafts, remove_draft},
};

use super::{
    accepted_line, confirm_draft, decision_report, draft_title, drafts_report, pick_draft,
    review_report,
};
use crate::{
    context::Context,
    errors::{Failure, message_chain},
    output::{Report, TICK, Warning, clean},
    service::{connection::Connection, drafts::DraftClient},
    tasks::{
        draft_review::{Choices, Reviewer},
        profiles,
        publishing::review::ReviewFlags,
    },
};

/// The drafts that wait on this machine: changes by its agents that the user has not accepted yet.
pub struct LocalDrafts {
    /// `None` if there is no vault yet.
    vault: Option<Vault>,
    drafts: Vec<LocalDraft>,
    /// The ids of drafts whose files cannot be read.
    damaged: Vec<DraftId>,
}

impl LocalDrafts {
    /// Reads the drafts, and warns of those that cannot be read.
    pub fn load(context: &Context) -> Result<Self, Failure> {
        let vault = context.existing_vault()?;
        let waiting = vault.as_ref().map(read_drafts).transpose()?;
        let WaitingDrafts { drafts, damaged } = waiting.unwrap_or_default();
        for (id, error) in &damaged {
            let text = format!("the draft {id} cannot be read: {}", message_chain(error));
            let hint = format!("vault drafts withdraw {id} removes it");
            context.ui.warn_with("draft_damaged", text, hint);
        }
        let damaged = damaged.into_iter().map(|(id, _)| id).collect();
        Ok(Self {
            vault,
            drafts,
            damaged,
        })
    }

    /// Removes a draft that cannot be read. `id` must be its whole id. Returns `None` if there is
    /// no such damaged draft.
    pub fn remove_damaged(&self, id: &str) -> Result<Option<Report>, Failure> {
        let mut damaged = self.damaged.iter();
        let Some(found) = damaged.find(|found| found.as_str().eq_ignore_ascii_case(id)) else {
            return Ok(None);
        };
        remove_draft(self.vault()?, found)?;
        let text = format!("{TICK} removed the draft {found}");
        Ok(Some(Report::new(json!({ "id": found }), text)))
    }

    /// Returns the drafts in the form in which a service lists them, oldest first.
    pub fn listed(&self) -> Vec<Draft> {
        self.drafts.iter().map(describe_draft).collect()
    }

    /// Finds a draft by its id or the beginning of it. Returns `None` if none matches; the draft
    /// may then be one of the service.
    pub fn find(&self, id: &str) -> Result<Option<&LocalDraft>, Failure> {
        let listed_drafts = self.listed();
        // `pick_draft` fails if nothing matches, but the draft may be at the service.
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

    /// Creates the report of what a draft would change.
    pub fn show(
        &self,
        context: &Context,
        draft: &LocalDraft,
        flags: &ReviewFlags,
    ) -> Result<Report, Failure> {
        // Showing signs nothing, so show it even if the skill has changed since the draft was made.
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
        // Ask before `carry_out`, which signs the skill.
        confirm_draft(context, &reviewer, &review, choices)?;
        // This fails if another command has decided about the draft while the question waited.
        reviewer.carry_out(&review)?;
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

    /// Removes a draft without carrying it out: declined, with a reason, or withdrawn, without one.
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

/// Lists the drafts of this machine and of the service. If the service does not answer, lists only
/// those of this machine and warns.
pub fn list_all(
    context: &Context,
    local: &LocalDrafts,
    connection: &Connection,
    all: bool,
) -> Result<Report, Failure> {
    let mut listed_drafts = local.listed();
    let listed = connection.owner_client(context).and_then(|client| {
        let drafts = DraftClient::new(&client, connection);
        context.block_on(drafts.list(all))
    });
    match listed {
        Ok(listed) => listed_drafts.extend(listed),
        Err(failure) if listed_drafts.is_empty() => return Err(failure),
        Err(failure) => {
            let text = format!("the drafts of the service are missing: {}", failure.message);
            context
                .ui
                .warn(Warning::new("service_drafts_missing", text));
        }
    }
    Ok(drafts_report(context, &listed_drafts, all))
}

/// Fails if `id` is only the beginning of an id and also matches a draft of the service. Ids begin
/// with the time, so an agent could create a local draft whose id begins like one of the service.
pub fn check_only_local(context: &Context, local: DraftId, id: &str) -> Result<(), Failure> {
    if local.as_str().eq_ignore_ascii_case(id) {
        return Ok(());
    }
    let Some(connection) = Connection::find(context)? else {
        return Ok(());
    };
    let whole = || format!("write the whole id of the one on this machine: {local}");
    let client = connection.owner_client(context);
    let client = client.map_err(|failure| failure.hint(whole()))?;
    let drafts = DraftClient::new(&client, &connection);
    let listed = context.block_on(drafts.list(false));
    let listed = listed.map_err(|failure| failure.hint(whole()))?;
    let id = id.to_lowercase();
    match listed
        .iter()
        .find(|draft| draft.id.to_string().to_lowercase().starts_with(&id))
    {
        Some(other) => Err(fail!(
            DraftNotFound,
            "{} means a draft of this machine, {local}, and one of the service, {}",
            clean(&id, 40),
            other.id
        )
        .hint("write the whole id")),
        None => Ok(()),
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
