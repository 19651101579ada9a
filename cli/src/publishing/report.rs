//! The report of a sync.

use serde_json::json;
use vault_api::Draft;
use vault_library::publish::{Published, ReleasePlan};

use super::{SyncOutcome, take_over::TakenOver};
use crate::{
    output::{BOLD, DIM, GOOD, HINT, Report, changes, count, paint, size},
    profiles::rendered_lines,
    service::connection::Connection,
};

/// Creates the report of a sync for people and programs.
pub fn report(connection: &Connection, outcome: &SyncOutcome) -> Report {
    let (done, address) = (paint(GOOD, "✓"), connection.address());
    let shown = paint(HINT, &address);
    let taken = &outcome.taken;
    match &outcome.published {
        Published::Unchanged(current) => {
            let (release, skills) = (current.release, current.skills);
            let number = count(skills, "skill");
            let what = if taken.is_empty() {
                "nothing changed: "
            } else {
                "this machine is up to date: "
            };
            let mut lines = vec![format!(
                "{done} {what}release {release} with {number} is current at {shown}"
            )];
            lines.extend(taken.lines());
            Report::new(
                json!({
                    "changed": false, "release": release, "skills": skills,
                    "expires_at": current.expires_at, "adopted": taken.adopted, "dropped": taken.dropped,
                    "policy_taken": taken.policy, "address": address,
                }),
                lines.join("\n"),
            )
        }
        Published::Release(plan, (objects, bytes)) => {
            let (release, number) = (
                paint(BOLD, plan.release),
                count(plan.skills as u64, "skill"),
            );
            let mut lines = vec![format!(
                "{done} published release {release} with {number} at {shown}"
            )];
            lines.extend(changes(&plan.added, &plan.changed, &plan.removed));
            lines.extend(rendered_lines(&plan.rendered));
            lines.extend(taken.lines());
            let (number, size) = (count(*objects as u64, "object"), size(*bytes));
            let details = format!(
                "  uploaded {number}, {size}; valid until {}",
                plan.expires_at
            );
            lines.push(paint(DIM, details));
            Report::new(
                json!({
                    "changed": true, "release": plan.release, "skills": plan.skills,
                    "added": plan.added, "updated": plan.changed, "removed": plan.removed,
                    "uploaded": objects, "bytes": bytes, "expires_at": plan.expires_at,
                    "payload_sha256": plan.payload_sha256, "sha256": plan.file_sha256,
                    "resumed": plan.resumed, "rendered": plan.rendered, "adopted": taken.adopted,
                    "dropped": taken.dropped, "policy_taken": taken.policy, "address": address,
                }),
                lines.join("\n"),
            )
        }
        Published::Proposed(plan, draft) => proposed(&address, plan, draft, taken),
    }
}

fn proposed(address: &str, plan: &ReleasePlan, draft: &Draft, taken: &TakenOver) -> Report {
    let (done, release) = (paint(GOOD, "✓"), paint(BOLD, plan.release));
    let number = count(plan.skills as u64, "skill");
    let shown = paint(HINT, address);
    let mut lines = vec![format!(
        "{done} proposed release {release} with {number} at {shown}"
    )];
    lines.extend(changes(&plan.added, &plan.changed, &plan.removed));
    lines.extend(rendered_lines(&plan.rendered));
    lines.extend(taken.lines());
    // A proposal has at least its author's signature, even if the service does not list it.
    let has = draft
        .proposal
        .as_ref()
        .map_or(1, |proposal| proposal.signers.len());
    lines.push(format!(
        "  it has {has} of {} signatures; on another publisher's machine: {}",
        plan.needed,
        paint(HINT, format!("vault release sign {}", draft.id))
    ));
    // Other publishers compare this payload with the author before they sign.
    lines.push(paint(DIM, format!("  payload {}", plan.payload_sha256)));
    Report::new(
        json!({
            "changed": false, "proposed": draft.id, "release": plan.release, "skills": plan.skills,
            "added": plan.added, "updated": plan.changed, "removed": plan.removed,
            "signatures": has, "signatures_needed": plan.needed, "resumed": plan.resumed,
            "expires_at": plan.expires_at, "payload_sha256": plan.payload_sha256,
            "rendered": plan.rendered, "adopted": taken.adopted, "dropped": taken.dropped,
            "policy_taken": taken.policy, "address": address,
        }),
        lines.join("\n"),
    )
}
