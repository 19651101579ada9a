//! `vault cloud pull --pending`: goes through the drafts that wait, one after another.

use serde_json::json;

use crate::{
    commands::share::drafts::{is_content, publish_accepted, title},
    context::Context,
    draft_review::{Choices, Reviewer},
    errors::Failure,
    output::{HINT, Report, TICK, count, paint},
    service::{connection::Connection, drafts::DraftClient},
};

const ACCEPT: &str = "accept it";
const DECLINE: &str = "decline it";
const SKIP: &str = "decide later";

/// Shows each draft with its findings and differences and asks; then publishes what was accepted.
pub(super) fn run(context: &Context) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner(context)?;
    let drafts = DraftClient::new(&client, &connection);
    let waiting = context.block_on(drafts.list(false))?;
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
    let titles: Vec<_> = content.iter().map(title).collect();
    if !context.ui.may_ask() || context.ui.is_yes() {
        return Err(fail!(NoTty, "each draft is shown and asked about")
            .hint("run it on a terminal, or read one with vault drafts show <id> and accept it with vault drafts accept <id> --bundle <sha256>")
            .details(titles));
    }
    let vault = context.vault()?;
    let reviewer = Reviewer::new(context, &vault, &connection)?;
    let (mut accepted, mut declined, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for draft in content {
        let bytes = context.block_on(drafts.bytes(&draft))?;
        let review = match reviewer.review(&draft, &bytes, &Choices::default()) {
            Ok(review) => review,
            Err(failure) => {
                // One that the gate refuses, or that is outdated, does not keep back the others.
                context.ui.must_see(title(&draft));
                context.ui.note_failure(&failure);
                later.push(draft.id);
                continue;
            }
        };
        for line in &review.shown.lines {
            context.ui.must_see(line);
        }
        if review.is_taken() {
            accepted.push(review);
            continue;
        }
        let mut options = [ACCEPT, DECLINE, SKIP].map(str::to_owned).to_vec();
        if review.shown.hidden > 0 {
            // Nothing is signed that was not shown.
            options.remove(0);
            let whole = format!("vault drafts accept {} --full", draft.id);
            let whole = paint(HINT, whole);
            context
                .ui
                .must_see(format!("Not all of it is shown: {whole}"));
        }
        match &*context.ui.choose_first("What about this draft?", options)? {
            ACCEPT => {
                reviewer.take(&review)?;
                accepted.push(review);
            }
            DECLINE => {
                let reason = context.ui.ask("Why? Its author reads this:")?;
                context.block_on(drafts.decline(&draft.id, &reason))?;
                context
                    .ui
                    .note(format!("{TICK} declined {}", title(&draft)));
                declined.push(draft.id);
            }
            _ => later.push(draft.id),
        }
    }
    let mut report = if accepted.is_empty() {
        Report::new(json!({ "accepted": [] }), "Nothing was accepted.")
    } else {
        publish_accepted(context, &reviewer, &drafts, &accepted)?
    };
    report.data["declined"] = json!(declined);
    report.data["later"] = json!(later);
    report.text.push_str(&more);
    Ok(report)
}
