//! `vault drafts`: lists, shows, accepts and declines drafts. A draft is a change of a skill that a
//! member of the vault or an agent proposes and that waits for a decision.

mod local;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use vault_api::{Draft, DraftKind};
use vault_format::hash::Digest;
use vault_library::Vault;

use self::local::{LocalDrafts, check_only_local, list_all};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{EntryWords, pick_entry},
    output::{BOLD, Column, DIM, HINT, Report, TICK, Table, clean, count, format_day, paint},
    service::{
        connection::Connection,
        drafts::{DraftClient, kind_words},
    },
    tasks::{
        admission::require_reason,
        draft_review::{Choices, Review, Reviewer},
        profiles,
        publishing::{
            Publisher, SyncOptions,
            review::{Question, ReviewFlags},
            sync_report,
        },
    },
};

/// The arguments of `vault drafts`.
#[derive(Args, Debug)]
#[command(after_help = "\
Members of a vault, and their agents, cannot publish: what they add, change or remove waits as a \
draft. With VAULT_MCP_WRITES=draft, so do the changes of the agents on this machine; the command \
shows these first, and they need no service. `accept` shows the findings of the gate and the differences, asks, signs the skill with \
this vault's key and publishes it, if the draft is for a service.

Examples:
  vault drafts list
  vault drafts show 01kd5w3e
  vault drafts accept 01kd5w3e
  vault drafts decline 01kd5w3e --reason \"We have this skill already.\"
  vault cloud pull --pending")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the drafts that wait
    List {
        /// Also list those that were accepted, declined or withdrawn
        #[arg(long)]
        all: bool,
    },
    /// Show the findings and differences of a draft
    Show(Show),
    /// Show a draft, ask, and publish what it asks for
    Accept(Accept),
    /// Decline a draft; a member who made it at the service sees the reason
    Decline {
        #[command(flatten)]
        which: Which,
        /// The reason, which the author sees
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Withdraw a draft of your own
    Withdraw(Which),
}

#[derive(Args, Debug)]
struct Which {
    /// The draft's id, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    review: ReviewFlags,
}

#[derive(Args, Debug)]
struct Accept {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    review: ReviewFlags,
    /// Accept without a question, but only what has this digest, which you have read
    #[arg(long, value_name = "SHA256")]
    bundle: Option<Digest>,
    /// Accept it although the skill has changed since its author saw it
    #[arg(long)]
    anyway: bool,
    /// Accept flags of this rule for exactly these files; repeatable
    #[arg(long = "allow", value_name = "RULE")]
    allow: Vec<String>,
    /// The reason, signed with the exception
    #[arg(long, value_name = "TEXT", requires = "allow")]
    reason: Option<String>,
    /// Take this file although it looks like a secret; repeatable
    #[arg(long, value_name = "FILE")]
    include: Vec<String>,
}

/// Lists drafts, shows one, or decides about one. Looks for it among the drafts of this machine
/// first, then at the service.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let local = LocalDrafts::load(context)?;
    if let Some(report) = decide_locally(context, &local, &arguments.action)? {
        return Ok(report);
    }
    let connection = Connection::load(context)?;
    if let Action::List { all } = arguments.action {
        return list_all(context, &local, &connection, all);
    }
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, &connection);
    let find = |id: &str| find_pending_draft(context, &drafts, id);
    match &arguments.action {
        Action::List { all } => list_all(context, &local, &connection, *all),
        Action::Show(wanted) => {
            let draft = find(&wanted.which.id)?;
            show_draft(context, &connection, &drafts, &draft, &wanted.review)
        }
        Action::Accept(accept) => {
            let draft = find(&accept.which.id)?;
            let choices = accept.choices(context)?;
            accept_draft(context, &connection, &drafts, &draft, &choices)
        }
        Action::Decline { which, reason } => {
            let draft = find(&which.id)?;
            let decided = context.block_on(drafts.decline(&draft.id, reason))?;
            Ok(decision_report("declined", &decided))
        }
        Action::Withdraw(which) => {
            let draft = find(&which.id)?;
            let decided = context.block_on(drafts.withdraw(&draft.id))?;
            Ok(decision_report("withdrew", &decided))
        }
    }
}

/// Runs the action if it is about a draft of this machine. Returns `None` if it is about drafts of
/// a service.
fn decide_locally(
    context: &Context,
    local: &LocalDrafts,
    action: &Action,
) -> Result<Option<Report>, Failure> {
    let id = match action {
        // Without a connected service, list only the drafts of this machine.
        Action::List { all } => {
            let listed_drafts = local.listed();
            let is_alone = Connection::find(context)?.is_none();
            return Ok(is_alone.then(|| drafts_report(context, &listed_drafts, *all)));
        }
        Action::Show(wanted) => &wanted.which.id,
        Action::Accept(accept) => &accept.which.id,
        Action::Decline { which, .. } | Action::Withdraw(which) => &which.id,
    };
    if let Action::Decline { .. } | Action::Withdraw(_) = action
        && let Some(report) = local.remove_damaged(id)?
    {
        return Ok(Some(report));
    }
    let Some(draft) = local.find(id)? else {
        return Ok(None);
    };
    check_only_local(context, draft.draft.draft_id, id)?;
    let report = match action {
        Action::List { .. } => return Ok(None),
        Action::Show(wanted) => local.show(context, draft, &wanted.review),
        Action::Accept(accept) => local.accept(context, draft, &accept.choices(context)?),
        Action::Decline { reason, .. } => local.discard(draft, "declined", Some(reason)),
        Action::Withdraw(_) => local.discard(draft, "withdrew", None),
    };
    report.map(Some)
}

impl Accept {
    fn choices(&self, context: &Context) -> Result<Choices, Failure> {
        Ok(Choices {
            allow: self.allow.clone(),
            reason: require_reason(context, &self.allow, self.reason.as_deref())?,
            include: self.include.clone(),
            anyway: self.anyway,
            bundle: self.bundle,
            review: self.review.clone(),
        })
    }
}

fn decision_report(done: &str, draft: &Draft) -> Report {
    let text = format!("{TICK} {done} {}", draft_title(draft));
    Report::new(json!(draft), text)
}

/// Formats the subject and the id of a draft for one line. The subject is a skill, a release or a
/// key.
pub fn draft_title(draft: &Draft) -> String {
    let about = match (&draft.name, &draft.proposal, &draft.key) {
        (Some(name), ..) => name.to_string(),
        (_, Some(proposal), _) => format!("release {}", proposal.release),
        (_, _, Some(key)) => clean(key.name.as_str(), 64),
        _ => String::new(),
    };
    format!("{BOLD}{about}{BOLD:#}  {DIM}draft {}{DIM:#}", draft.id)
}

/// Finds a pending draft of the service by its id or the beginning of it.
pub fn find_pending_draft(
    context: &Context,
    drafts: &DraftClient<'_>,
    id: &str,
) -> Result<Draft, Failure> {
    pick_draft(&context.block_on(drafts.list(false))?, id)
}

/// Finds one of these drafts by its id or by the beginning of it, of at least four characters.
fn pick_draft(drafts: &[Draft], id: &str) -> Result<Draft, Failure> {
    const KIND: EntryWords = EntryWords {
        noun: "draft",
        missing: ErrorCode::DraftNotFound,
        // There is not an error code of its own for an ambiguous beginning.
        ambiguous: ErrorCode::DraftNotFound,
        list: "vault drafts list",
    };
    let id = id.to_lowercase();
    let ids: Vec<_> = drafts
        .iter()
        .map(|draft| (draft.id.to_string().to_lowercase(), draft))
        .collect();
    let short = |full: &String| full.starts_with(&id) && id.len() >= 4;
    let matching_draft = pick_entry(
        &KIND,
        &ids,
        &id,
        |(full, _)| (full.as_str(), short(full).then_some(id.as_str())),
        |(_, draft)| draft_title(draft),
    )?;
    Ok(matching_draft.1.clone())
}

/// Returns whether a draft is about the content of a skill, and not a release to sign or a request
/// to become a publisher, which have commands of their own.
pub const fn is_content(draft: &Draft) -> bool {
    matches!(
        draft.kind,
        DraftKind::Propose | DraftKind::Install | DraftKind::Remove
    )
}

/// Returns a failure that names the right command, if the draft is not about the content of a
/// skill.
fn not_content_failure(draft: &Draft) -> Option<Failure> {
    let (what, command) = match draft.kind {
        DraftKind::Release => ("a release", format!("vault release sign {}", draft.id)),
        DraftKind::KeyRequest => {
            let key = draft.key.as_ref()?;
            (
                "a publisher",
                format!("vault publishers add {} --root-key <file>", key.fingerprint),
            )
        }
        DraftKind::Propose | DraftKind::Install | DraftKind::Remove => return None,
    };
    Some(fail!(Usage, "the draft {} is {what}, not a skill", draft.id).hint(command))
}

fn drafts_report(context: &Context, drafts: &[Draft], all: bool) -> Report {
    if drafts.is_empty() {
        let text = if all {
            "There are no drafts."
        } else {
            "No draft waits."
        };
        return Report::new(json!([]), text);
    }
    let mut table = Table::new([
        Column::new("id"),
        Column::new("kind").leaves(4),
        Column::new("about").shrinks_to(12),
        Column::new("by").shrinks_to(10).leaves(3),
        Column::new("since").leaves(2),
        Column::new("flags").leaves(1),
        Column::new("state").shrinks_to(8),
    ]);
    for draft in drafts {
        let author = &draft.submitted_by;
        let about = match (&draft.name, &draft.proposal, &draft.key) {
            (Some(name), ..) => name.to_string(),
            (_, Some(proposal), _) => format!("release {}", proposal.release),
            (_, _, Some(key)) => clean(key.name.as_str(), 64),
            _ => String::new(),
        };
        table.push_row([
            draft.id.to_string(),
            kind_words(draft.kind).to_owned(),
            about,
            clean(author.display_name(), 64),
            format_day(&draft.submitted_at.to_string()),
            draft.flags.to_string(),
            state_text(draft),
        ]);
    }
    Report::new(json!(drafts), context.ui.format_table(&table))
}

/// Describes the state of a draft, with the service's note if there is one: the reason why it was
/// declined, or the files that were left out.
fn state_text(draft: &Draft) -> String {
    let state = format!("{:?}", draft.state).to_lowercase();
    match &draft.reason {
        Some(reason) => format!("{state}: {}", clean(reason, 500)),
        None => state,
    }
}

fn show_draft(
    context: &Context,
    connection: &Connection,
    drafts: &DraftClient<'_>,
    draft: &Draft,
    flags: &ReviewFlags,
) -> Result<Report, Failure> {
    // Releases and key requests need checks that only their own commands make.
    if let Some(elsewhere) = not_content_failure(draft) {
        return Err(elsewhere);
    }
    let vault = context.open_vault()?;
    let bytes = context.block_on(drafts.fetch_bytes(draft))?;
    // Showing signs nothing, so show it even if the skill has changed since the draft was made.
    let choices = Choices {
        anyway: true,
        review: flags.clone(),
        ..Choices::default()
    };
    let review =
        Reviewer::new(context, &vault, connection)?.review_draft(draft, &bytes, &choices)?;
    Ok(review_report(&review))
}

/// Creates the report of what a draft would change.
fn review_report(review: &Review) -> Report {
    let data = json!({
        "draft": review.draft, "taken": review.is_taken(), "bundle": review.bundle,
        "left_out": review.left_out, "files": review.files, "review": review.shown.plain_lines(),
    });
    Report::new(data, review.shown.lines.join("\n"))
}

fn accept_draft(
    context: &Context,
    connection: &Connection,
    drafts: &DraftClient<'_>,
    draft: &Draft,
    choices: &Choices,
) -> Result<Report, Failure> {
    if let Some(elsewhere) = not_content_failure(draft) {
        return Err(elsewhere);
    }
    let bytes = context.block_on(drafts.fetch_bytes(draft))?;
    let vault = context.open_vault()?;
    let reviewer = Reviewer::new(context, &vault, connection)?;
    let review = reviewer.review_draft(draft, &bytes, choices)?;
    // Ask before `carry_out`, which signs the skill.
    confirm_draft(context, &reviewer, &review, choices)?;
    reviewer.carry_out(&review)?;
    publish_accepted(context, &reviewer, (connection, drafts), &[review])
}

/// Shows a draft and asks whether to accept it. Fails if the answer is no. Does not ask if an
/// earlier run has carried the draft out.
fn confirm_draft(
    context: &Context,
    reviewer: &Reviewer<'_>,
    review: &Review,
    choices: &Choices,
) -> Result<(), Failure> {
    let ui = &context.ui;
    // An earlier run has signed this already. A no could not undo that.
    if review.is_taken() {
        for line in &review.shown.lines {
            ui.must_see(line);
        }
        return Ok(());
    }
    let signer = if reviewer.is_server() {
        "the server signs it with its key"
    } else {
        "this machine signs it with its key"
    };
    let question = Question {
        text: if reviewer.is_local() {
            "Accept this draft?"
        } else {
            "Accept this draft and publish it?"
        },
        effects: &[signer.to_owned()],
        hash: &review.bundle,
        flag: "--bundle",
    };
    ui.confirm_review(
        &review.shown,
        &question,
        choices.bundle.as_ref(),
        &choices.review,
    )
}

/// Publishes the drafts that were carried out in this vault, and reports to the service which
/// release contains them. Every step can be repeated: an interrupted run continues where it
/// stopped.
pub fn publish_accepted(
    context: &Context,
    reviewer: &Reviewer<'_>,
    (connection, drafts): (&Connection, &DraftClient<'_>),
    accepted: &[Review],
) -> Result<Report, Failure> {
    // The server signs this vault with its own key, so this machine has nothing to publish.
    if reviewer.is_server() {
        return admit_on_server(context, drafts, accepted);
    }
    let vault = context.open_vault()?;
    // The skills are installed by now, even if the release fails.
    let agents = profiles::show_to_agents(context, &vault);
    let publisher = Publisher::new(context, &vault, connection)?;
    let outcome = context.block_on(publisher.sync_release(&SyncOptions::default()))?;
    let mut done = Report::from(sync_report(connection, &outcome));
    agents.add_to(&mut done.data);
    let links = agents.links_table(context).into_iter().chain(agents.next);
    let links: Vec<_> = links.collect();
    let ids: Vec<_> = accepted.iter().map(|review| review.draft.id).collect();
    done.data["accepted"] = json!(ids);
    done.data["left_out"] = left_out_by_draft(accepted);
    if outcome.is_proposed() {
        // Drafts count as accepted only once a published release contains them.
        done.data["waiting_for_signatures"] = Value::Bool(true);
        let (verb, them) = match accepted.len() {
            1 => ("waits", "it"),
            _ => ("wait", "them"),
        };
        done.text.push_str(&format!(
            "\n{} {verb} until that release is published; the next {} closes {them}",
            count(accepted.len() as u64, "draft"),
            paint(HINT, "vault sync")
        ));
        done.text
            .extend(links.iter().map(|line| format!("\n{line}")));
        return Ok(done);
    }
    // Close the drafts only now that their content is published.
    for review in accepted {
        let (draft, left_out) = (&review.draft, review.left_out_text());
        context.block_on(drafts.accept(&draft.id, outcome.release(), left_out.as_deref()))?;
        let line = accepted_line(draft, left_out.as_deref());
        done.text.push_str(&format!("\n{line}"));
    }
    done.text
        .extend(links.iter().map(|line| format!("\n{line}")));
    Ok(done)
}

/// Closes drafts that a release contains although they are still open at the service, because they
/// were accepted before the release had all signatures. A draft counts as contained if this vault
/// has exactly the content that it asks for. Returns the closed drafts.
///
/// A draft that installs from a source stays open, because its content is known only after a fetch.
pub fn close_published(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    release: u64,
) -> Result<Vec<Draft>, Failure> {
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, connection);
    let mut waiting = context.block_on(drafts.list(false))?;
    waiting.retain(|draft| matches!(draft.kind, DraftKind::Propose | DraftKind::Remove));
    // Creating a `Reviewer` sends a request, so avoid it.
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let reviewer = Reviewer::new(context, vault, connection)?;
    // A server closes each draft when it admits it.
    if reviewer.is_server() {
        return Ok(Vec::new());
    }
    let mut closed = Vec::new();
    for draft in waiting {
        // A vault that still has the base of the draft has not accepted it.
        if !reviewer.differs_from_base(&draft)? {
            continue;
        }
        let choices = Choices {
            // An accepted draft has changed the skill, so its base necessarily differs now.
            anyway: true,
            // Files that look like secrets were included if the installed skill has them.
            include: reviewer.present_secrets(&draft)?,
            ..Choices::default()
        };
        let bytes = context.block_on(drafts.fetch_bytes(&draft))?;
        // A draft that the gate refuses or cannot read was never accepted, so ignore the failure.
        let review = reviewer.review_draft(&draft, &bytes, &choices);
        if let Ok(review) = review
            && review.is_taken()
        {
            let left_out = review.left_out_text();
            let accepted = drafts.accept(&draft.id, release, left_out.as_deref());
            closed.push(context.block_on(accepted)?);
        }
    }
    Ok(closed)
}

/// Formats the line about an accepted draft. `left_out` describes the files that are not part of
/// the skill.
pub fn accepted_line(draft: &Draft, left_out: Option<&str>) -> String {
    let accepted = format!("{TICK} accepted {}", draft_title(draft));
    match left_out {
        Some(text) => format!("{accepted}, {}", clean(text, 500)),
        None => accepted,
    }
}

/// Returns, as JSON, the left-out files of each accepted draft by the draft's id.
fn left_out_by_draft(accepted: &[Review]) -> Value {
    let lists = accepted.iter();
    let lists = lists.map(|review| (review.draft.id.to_string(), json!(review.left_out)));
    Value::Object(lists.collect())
}

/// Accepts drafts of a vault that its server signs: the server signs and publishes them.
fn admit_on_server(
    context: &Context,
    drafts: &DraftClient<'_>,
    accepted: &[Review],
) -> Result<Report, Failure> {
    let mut ids = Vec::new();
    let mut lines = Vec::new();
    let mut release = None;
    for review in accepted {
        // The server gets the reviewed digest, so that it cannot sign other files.
        let done = context.block_on(drafts.admit(
            &review.draft.id,
            &review.bundle,
            review.replaced_bundle(),
        ))?;
        release = done.release.or(release);
        let number = done
            .release
            .map_or_else(String::new, |release| format!("  release {release}"));
        let line = accepted_line(&review.draft, review.left_out_text().as_deref());
        lines.push(format!("{line}{number}"));
        ids.push(review.draft.id);
    }
    let left_out = left_out_by_draft(accepted);
    let data = json!({ "accepted": ids, "release": release, "left_out": left_out });
    Ok(Report::new(data, lines.join("\n")))
}
