//! `vault cloud rollback`: admits the skills of an earlier release again and publishes them as a
//! new release.

use clap::Args;
use serde_json::json;
use vault_format::catalog::Stored;
use vault_library::{
    Vault,
    adopt::{self, Rollback},
    publish::{OnDivergence, PlanRequest},
};

use crate::{
    commands::share::sync::last_good,
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, Report, TICK, count},
    policy_file,
    publishing::{
        Publisher, SyncOptions, report,
        review::{Question, ReleaseReview},
    },
    service::connection::Connection,
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
    #[arg(long, value_name = "RELEASE:SHA256", value_parser = last_good)]
    last_good: Option<Stored>,
    /// Publish with a release number above this one, because a machine may have seen it
    #[arg(long, value_name = "N")]
    above_release: Option<u64>,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    review: ReleaseReview,
}

/// Compares with the earlier release, asks for confirmation, admits its skills again, and syncs.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let release = arguments.release;
    let connection = Connection::load(context)?;
    let vault = context.vault_or_new()?;
    let publisher = Publisher::new(context, &vault, &connection)?;
    let exceptions = arguments.review.exceptions(context)?;
    let catalog = context.block_on(publisher.earlier_catalog(release))?;
    let (base, slug) = (connection.base.as_str(), &connection.slug);
    let request = PlanRequest {
        last_good: arguments.last_good,
        ..PlanRequest::new(base, slug, Some(&catalog))
    };
    let rollback = adopt::plan_rollback(&vault, &request, release)?;
    let mut lines: Vec<String> = rollback
        .readmit
        .iter()
        .map(|entry| format!("  ~ {}  back to version {}", entry.name, entry.version))
        .collect();
    lines.extend(rollback.remove.iter().map(|name| format!("  - {name}")));
    let mut data = json!({
        "from_release": rollback.release,
        "readmitted": rollback.readmit.iter().map(|entry| &entry.name).collect::<Vec<_>>(),
        "removed": rollback.remove,
    });
    if lines.is_empty() {
        return Ok(Report::new(
            data,
            format!("This library already equals release {release}."),
        ));
    }
    if arguments.dry_run {
        if !rollback.known {
            let ReleaseReview { flags, .. } = &arguments.review;
            context.block_on(publisher.review(&rollback.change, &exceptions, flags))?;
        }
        let changes = lines.join("\n");
        let text = format!("Going back to release {release} would change:\n{changes}");
        return Ok(Report::new(data, text));
    }
    warn_of_missing_policy(context, &vault, &rollback)?;
    context.ui.note(lines.join("\n"));
    let skills = count(lines.len() as u64, "skill");
    let text = format!("Roll {skills} back to release {release} and publish?");
    let question = Question {
        text: &text,
        effects: &[],
        hash: &rollback.payload_sha256,
        flag: "--payload",
    };
    let ReleaseReview { flags, payload, .. } = &arguments.review;
    if rollback.known {
        if !question.is_answered_by(payload.as_ref())? {
            context.ui.confirm_or_stop(&text)?;
        }
    } else {
        // This machine has never published or taken it over.
        context.ui.must_see(format!(
            "{BOLD}release {release}{BOLD:#}\n  payload {}",
            rollback.payload_sha256
        ));
        let review = publisher.review(&rollback.change, &exceptions, flags);
        let review = context.block_on(review)?;
        context
            .ui
            .confirm_review(&review.shown, &question, payload.as_ref(), flags)?;
    }
    let outcome = context.block_on(async {
        let mut wanted = Vec::new();
        for entry in &rollback.readmit {
            if !adopt::is_stored(&vault, &entry.bundle_hash)? {
                wanted.push(entry.clone());
            }
        }
        let fetched = publisher.fetch_own(&wanted).await?;
        adopt::roll_back(&vault, &rollback, &exceptions, &|hash| {
            fetched.get(hash).cloned()
        })?;
        let options = SyncOptions {
            // A release of a thief is replaced by the one that is gone back to.
            on_divergence: match arguments.last_good {
                Some(_) => OnDivergence::Replace,
                None => OnDivergence::Stop,
            },
            last_good: arguments.last_good,
            above_release: arguments.above_release,
            ..SyncOptions::default()
        };
        publisher.sync(&options).await
    })?;
    let synced = report(&connection, &outcome);
    data["sync"] = synced.data;
    let text = format!(
        "{TICK} rolled back to release {release}{DIM}, as a new release{DIM:#}\n{}",
        synced.text
    );
    Ok(Report::new(data, text))
}

/// Warns if the release has a policy and this library has none, as after a recovery on an empty
/// machine: a rollback brings back skills only.
fn warn_of_missing_policy(
    context: &Context,
    vault: &Vault,
    rollback: &Rollback,
) -> Result<(), Failure> {
    if rollback.has_policy && policy_file::own(context, Some(vault))?.is_none() {
        let message = format!(
            "release {} has a policy and this library has none: members see no skills until you publish one",
            rollback.release
        );
        let hint = "put policy.toml back into the vault's folder, then: vault approve policy.toml, and vault sync";
        context.ui.warn_with("policy_missing", message, hint);
    }
    Ok(())
}
