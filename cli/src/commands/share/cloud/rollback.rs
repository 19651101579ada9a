//! `vault cloud rollback`: goes back to an earlier release. Its skills are scanned and signed again
//! with higher versions, and published as a new release.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{catalog::ReleaseRef, hash::Digest, name::SkillName};
use vault_library::{
    Vault,
    adopt::{self, Exceptions, Rollback},
    publish::{OnDivergence, PlanRequest},
};

use crate::{
    commands::share::sync::parse_last_good,
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, Report, TICK, count},
    service::connection::Connection,
    tasks::{
        policy_file,
        publishing::{
            Publisher, SyncOptions, SyncOutcome, SyncReport,
            review::{Question, ReleaseReview},
            sync_report,
        },
    },
};

/// The arguments of `vault cloud rollback`.
#[derive(Args, Debug)]
#[command(after_help = "\
History is kept: the earlier files pass the gate again, get the next version and become a new \
release.

Examples:
  vault cloud rollback 41
  vault cloud rollback 41 --dry-run
  vault cloud rollback 41 --last-good 41:9f86d0…")]
pub struct Arguments {
    /// The release to go back to
    release: u64,
    /// After a recovery: the release and its payload hash, as `vault status --cloud` shows them on
    /// a linked machine
    #[arg(long, value_name = "RELEASE:SHA256", value_parser = parse_last_good)]
    last_good: Option<ReleaseRef>,
    /// Publish with a release number above this one, because a machine may have seen it
    #[arg(long, value_name = "N")]
    above_release: Option<u64>,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    review: ReleaseReview,
}

/// A return to an earlier release.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ReleaseRollback {
    /// The release that is gone back to.
    from_release: u64,
    /// Skills that are admitted again as they were in it.
    readmitted: Vec<SkillName>,
    /// Skills that are removed because it does not have them.
    removed: Vec<SkillName>,
    /// The new release; absent if nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<SyncReport>,
}

/// Compares this library with the earlier release, asks, admits (scans and signs) its skills again,
/// and syncs.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let release = arguments.release;
    let connection = Connection::load(context)?;
    let vault = context.vault_or_new()?;
    let publisher = Publisher::new(context, &vault, &connection)?;
    let exceptions = arguments.review.exceptions(context)?;
    // These bytes are unverified. `plan_rollback` verifies them and accepts only the release that
    // was named.
    let catalog = context.block_on(publisher.earlier_catalog(release))?;
    let (base, slug) = (connection.base.as_str(), &connection.slug);
    let request = PlanRequest {
        last_good: arguments.last_good,
        ..PlanRequest::new(base, slug, Some(&catalog))
    };
    let rollback = adopt::plan_rollback(&vault, &request, release)?;
    let readmitted = rollback.readmit.iter();
    let mut view = ReleaseRollback {
        from_release: rollback.release,
        readmitted: readmitted.map(|entry| entry.name.clone()).collect(),
        removed: rollback.remove.clone(),
        sync: None,
    };
    let changes = change_lines(&rollback);
    if changes.is_empty() {
        let text = format!("This library already equals release {release}.");
        return Ok(Report::view(view, text));
    }
    let lines = changes.join("\n");
    if arguments.dry_run {
        // A dry run must fail like the real one, so the gate scans a release that is new to this
        // machine.
        if !rollback.known {
            let flags = &arguments.review.flags;
            context.block_on(publisher.review_release(&rollback.change, &exceptions, flags))?;
        }
        let text = format!("Going back to release {release} would change:\n{lines}");
        return Ok(Report::view(view, text));
    }
    warn_of_missing_policy(context, &vault, &rollback)?;
    context.ui.note(lines);
    let skills = count(changes.len() as u64, "skill");
    let question = format!("Roll {skills} back to release {release} and publish?");
    confirm_rollback(context, &publisher, &rollback, &arguments.review, &question)?;
    let outcome = context.block_on(roll_back(&publisher, &rollback, &exceptions, arguments))?;
    let synced = sync_report(&connection, &outcome);
    view.sync = Some(synced.view);
    let text = format!(
        "{TICK} rolled back to release {release}{DIM}, as a new release{DIM:#}\n{}",
        synced.text
    );
    Ok(Report::view(view, text))
}

fn change_lines(rollback: &Rollback) -> Vec<String> {
    let readmitted = rollback.readmit.iter();
    let readmitted =
        readmitted.map(|entry| format!("  ~ {}  back to version {}", entry.name, entry.version));
    let removed = rollback.remove.iter().map(|name| format!("  - {name}"));
    readmitted.chain(removed).collect()
}

/// Asks for confirmation. Shows the review of a release that this machine has neither published nor
/// taken over.
fn confirm_rollback(
    context: &Context,
    publisher: &Publisher<'_>,
    rollback: &Rollback,
    review: &ReleaseReview,
    text: &str,
) -> Result<(), Failure> {
    let question = Question {
        text,
        effects: &[],
        hash: &rollback.payload_sha256,
        flag: "--payload",
    };
    let payload = review.payload.as_ref();
    // This machine has published the release or taken it over, so its content was reviewed then.
    if rollback.known {
        if !question.is_answered_by(payload)? {
            context.ui.confirm_or_stop(text)?;
        }
        return Ok(());
    }
    // The release is new to this machine, so review it now.
    context.ui.must_see(format!(
        "{BOLD}release {}{BOLD:#}\n  payload {}",
        rollback.release, rollback.payload_sha256
    ));
    let exceptions = review.exceptions(context)?;
    let review_request = publisher.review_release(&rollback.change, &exceptions, &review.flags);
    let shown = context.block_on(review_request)?.shown;
    let ui = &context.ui;
    ui.confirm_review(&shown, &question, payload, &review.flags)
}

/// Fetches the bundles that are missing in the library, admits their skills again, and publishes.
async fn roll_back(
    publisher: &Publisher<'_>,
    rollback: &Rollback,
    exceptions: &Exceptions,
    arguments: &Arguments,
) -> Result<SyncOutcome, Failure> {
    let vault = publisher.vault();
    // Do not fetch stored bundles: their bytes are verified when they are used.
    let mut missing_entries = Vec::new();
    for entry in &rollback.readmit {
        if !adopt::is_stored(vault, &entry.bundle_hash)? {
            missing_entries.push(entry.clone());
        }
    }
    let fetched = publisher.fetch_own(&missing_entries).await?;
    let objects = |hash: &Digest| fetched.get(hash).cloned();
    // If the gate rejects one skill, this fails before anything changes.
    adopt::roll_back(vault, rollback, exceptions, &objects)?;
    let options = SyncOptions {
        // After a theft of the key, replace the thief's releases.
        on_divergence: match arguments.last_good {
            Some(_) => OnDivergence::Replace,
            None => OnDivergence::Stop,
        },
        last_good: arguments.last_good,
        above_release: arguments.above_release,
        ..SyncOptions::default()
    };
    publisher.sync_release(&options).await
}

/// Warns if the release has a policy and this library has none, as after a recovery on an empty
/// machine. A rollback restores only skills.
fn warn_of_missing_policy(
    context: &Context,
    vault: &Vault,
    rollback: &Rollback,
) -> Result<(), Failure> {
    if rollback.has_policy && policy_file::own_policy(context, Some(vault))?.is_none() {
        let message = format!(
            "release {} has a policy and this library has none: members see no skills until you publish one",
            rollback.release
        );
        let hint = "put policy.toml back into the vault's folder, then: vault approve policy.toml, and vault sync";
        context.ui.warn_with("policy_missing", message, hint);
    }
    Ok(())
}
