//! The report of a sync.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    hash::Digest,
    name::{DraftId, SkillName},
    time::Timestamp,
};
use vault_library::{
    admit::variants::RenderedVariant,
    publish::{PublishOutcome, ReleasePlan},
};

use super::{SyncOutcome, take_over::TakenOver};
use crate::{
    output::{BOLD, DIM, HINT, TICK, ViewWithText, change_lines, count, format_size, paint},
    service::connection::Connection,
    tasks::profiles::rendered_lines,
};

/// The output of `vault sync`: the vault's release after the sync.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SyncReport {
    /// Whether this sync published a release.
    changed: bool,
    /// Number of the release that is current, or that was proposed.
    release: u64,
    /// Number of skills in that release.
    skills: u64,
    /// When that release stops being valid, in UTC.
    expires_at: Timestamp,
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    #[serde(flatten)]
    taken: TakenOver,
    #[serde(flatten)]
    signed: Option<SignedRelease>,
    #[serde(flatten)]
    upload: Option<Upload>,
    #[serde(flatten)]
    proposal: Option<ProposedRelease>,
}

/// A release that this sync signed. Its members are absent if nothing changed.
#[derive(Debug, JsonSchema, Serialize)]
struct SignedRelease {
    /// Skills that are not in the release before.
    added: Vec<SkillName>,
    /// Skills whose content differs from the release before.
    updated: Vec<SkillName>,
    /// Skills that only the release before has.
    removed: Vec<SkillName>,
    /// SHA-256 of the signed payload.
    payload_sha256: Digest,
    /// Whether an earlier, interrupted sync had signed the release.
    resumed: bool,
    /// Skills that were rendered for one agent and signed for this release.
    rendered: Vec<RenderedVariant>,
}

impl SignedRelease {
    fn new(plan: &ReleasePlan) -> Self {
        Self {
            added: plan.added.clone(),
            updated: plan.changed.clone(),
            removed: plan.removed.clone(),
            payload_sha256: plan.payload_sha256,
            resumed: plan.resumed,
            rendered: plan.rendered.clone(),
        }
    }
}

/// The upload of a published release.
#[derive(Debug, JsonSchema, Serialize)]
struct Upload {
    /// The number of uploaded objects.
    uploaded: usize,
    /// Total size of the uploaded objects in bytes.
    bytes: u64,
    /// SHA-256 of the catalog file.
    sha256: Digest,
}

/// A release that waits for the signatures of other publishers.
#[derive(Debug, JsonSchema, Serialize)]
struct ProposedRelease {
    /// Id that `vault release sign` takes.
    proposed: DraftId,
    /// Number of publishers that have signed it, its author included.
    signatures: usize,
    /// Number of publishers that must sign before it is published.
    signatures_needed: usize,
}

/// Creates the report of a sync for people and programs.
pub fn sync_report(connection: &Connection, outcome: &SyncOutcome) -> ViewWithText<SyncReport> {
    let (taken, address) = (&outcome.taken, connection.address());
    let (release, skills, expires_at) = match &outcome.published {
        PublishOutcome::Unchanged(current) => (current.release, current.skills, current.expires_at),
        PublishOutcome::Release(plan, _) | PublishOutcome::Proposed(plan, _) => {
            (plan.release, plan.skills as u64, plan.expires_at)
        }
    };
    let (number, shown) = (count(skills, "skill"), paint(HINT, &address));
    let mut view = SyncReport {
        changed: false,
        release,
        skills,
        expires_at,
        address,
        taken: taken.clone(),
        signed: None,
        upload: None,
        proposal: None,
    };
    let lines = match &outcome.published {
        PublishOutcome::Unchanged(_) => {
            let what = if taken.is_empty() {
                "nothing changed"
            } else {
                "this machine is up to date"
            };
            let mut lines = vec![format!(
                "{TICK} {what}: release {release} with {number} is current at {shown}"
            )];
            lines.extend(taken.change_lines());
            lines
        }
        PublishOutcome::Release(plan, (objects, bytes)) => {
            view.changed = true;
            view.signed = Some(SignedRelease::new(plan));
            view.upload = Some(Upload {
                uploaded: *objects,
                bytes: *bytes,
                sha256: plan.file_sha256,
            });
            let release = paint(BOLD, release);
            let heading = format!("published release {release} with {number} at {shown}");
            let mut lines = release_lines(&heading, plan, taken);
            let (number, size) = (count(*objects as u64, "object"), format_size(*bytes));
            let details = format!("  uploaded {number}, {size}; valid until {expires_at}");
            lines.push(paint(DIM, details));
            lines
        }
        PublishOutcome::Proposed(plan, draft) => {
            let signers = draft.proposal.as_ref();
            // A proposal has at least its author's signature, even if the service lists none.
            let signatures = signers.map_or(1, |proposal| proposal.signers.len());
            view.signed = Some(SignedRelease::new(plan));
            view.proposal = Some(ProposedRelease {
                proposed: draft.id,
                signatures,
                signatures_needed: plan.needed,
            });
            let release = paint(BOLD, release);
            let heading = format!("proposed release {release} with {number} at {shown}");
            let mut lines = release_lines(&heading, plan, taken);
            lines.push(format!(
                "  it has {signatures} of {} signatures; on another publisher's machine: {}",
                plan.needed,
                paint(HINT, format!("vault release sign {}", draft.id))
            ));
            // Other publishers compare this payload with the author before they sign.
            lines.push(paint(DIM, format!("  payload {}", plan.payload_sha256)));
            lines
        }
    };
    let text = lines.join("\n");
    ViewWithText { view, text }
}

/// The heading of a new release, and what differs from the one before.
fn release_lines(heading: &str, plan: &ReleasePlan, taken: &TakenOver) -> Vec<String> {
    let mut lines = vec![format!("{TICK} {heading}")];
    lines.extend(change_lines(&plan.added, &plan.changed, &plan.removed));
    lines.extend(rendered_lines(&plan.rendered));
    lines.extend(taken.change_lines());
    lines
}
