//! `vault cloud pull --pending`: shows the pending drafts of the connected vault one after another,
//! and asks about each.

use serde_json::json;
use vault_api::Draft;
use vault_format::name::DraftId;

use crate::{
    commands::share::drafts::{draft_title, is_content, publish_accepted},
    context::Context,
    errors::Failure,
    output::{HINT, Report, TICK, count, paint},
    service::{connection::Connection, drafts::DraftClient},
    tasks::draft_review::{Choices, Review, Reviewer},
};

const ACCEPT: &str = "accept it";
const DECLINE: &str = "decline it";
const SKIP: &str = "decide later";

/// Shows each draft with its findings and differences, and asks whether to accept or decline it.
/// Then publishes the accepted ones together.
pub(super) fn run(context: &Context) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, &connection);
    let waiting = context.block_on(drafts.list(false))?;
    // Proposed releases and key requests have commands of their own, with checks that a skill does
    // not need.
    let (content, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_content);
    let more = if others.is_empty() {
        String::new()
    } else {
        let number = count(others.len() as u64, "release or publisher");
        format!(
            "\n{number} waits, too: {}",
            paint(HINT, "vault drafts list")
        )
    };
    if content.is_empty() {
        return Ok(Report::new(
            json!({ "accepted": [], "declined": [], "later": [] }),
            format!("No draft of a skill waits.{more}"),
        ));
    }
    let titles: Vec<_> = content.iter().map(draft_title).collect();
    // `--yes` does not answer here: each draft is signed only after a person has read it.
    if !context.ui.may_ask() || context.ui.is_yes() {
        return Err(fail!(NoTty, "each draft is shown and asked about")
            .hint("run it on a terminal, or read one with vault drafts show <id> and accept it with vault drafts accept <id> --bundle <sha256>")
            .details(titles));
    }
    let vault = context.open_vault()?;
    let reviewer = Reviewer::new(context, &vault, &connection)?;
    let mut decisions = Decisions::default();
    for draft in &content {
        decide_draft(context, &reviewer, &drafts, draft, &mut decisions)?;
    }
    // Publish once, after the last question, so that one release has all accepted drafts.
    let mut report = if decisions.accepted.is_empty() {
        Report::new(json!({ "accepted": [] }), "Nothing was accepted.")
    } else {
        publish_accepted(
            context,
            &reviewer,
            (&connection, &drafts),
            &decisions.accepted,
        )?
    };
    report.data["declined"] = json!(decisions.declined);
    report.data["later"] = json!(decisions.later);
    report.text.push_str(&more);
    Ok(report)
}

/// The user's decisions about the drafts that were shown so far.
#[derive(Default)]
struct Decisions {
    accepted: Vec<Review>,
    declined: Vec<DraftId>,
    later: Vec<DraftId>,
}

/// Shows a draft, asks about it, and carries it out in this vault or declines it.
fn decide_draft(
    context: &Context,
    reviewer: &Reviewer<'_>,
    drafts: &DraftClient<'_>,
    draft: &Draft,
    decisions: &mut Decisions,
) -> Result<(), Failure> {
    let ui = &context.ui;
    let bytes = context.block_on(drafts.fetch_bytes(draft))?;
    let review = match reviewer.review_draft(draft, &bytes, &Choices::default()) {
        Ok(review) => review,
        Err(failure) => {
            // A draft that the gate refuses or that is outdated must not stop the others.
            ui.must_see(draft_title(draft));
            ui.note_failure(&failure);
            decisions.later.push(draft.id);
            return Ok(());
        }
    };
    for line in &review.shown.lines {
        ui.must_see(line);
    }
    if review.is_taken() {
        decisions.accepted.push(review);
        return Ok(());
    }
    let mut options = [ACCEPT, DECLINE, SKIP].map(str::to_owned).to_vec();
    if review.shown.hidden > 0 {
        // What was not shown must not be signed, so do not offer to accept it.
        options.remove(0);
        let whole = format!("vault drafts accept {} --full", draft.id);
        ui.must_see(format!("Not all of it is shown: {}", paint(HINT, whole)));
    }
    match &*ui.choose_first("What about this draft?", options)? {
        ACCEPT => {
            // Carry it out at once: if a later question is aborted, the next run finds the result
            // in the vault and publishes it.
            reviewer.carry_out(&review)?;
            decisions.accepted.push(review);
        }
        DECLINE => {
            let reason = ui.ask_text("Why? Its author reads this:")?;
            context.block_on(drafts.decline(&draft.id, &reason))?;
            ui.note(format!("{TICK} declined {}", draft_title(draft)));
            decisions.declined.push(draft.id);
        }
        _ => decisions.later.push(draft.id),
    }
    Ok(())
}
