//! `vault cloud rollback`: an earlier release's skills, admitted again and published as a new release.

use clap::Args;
use reqwest::Method;
use serde_json::json;
use vault_library::{
    add::AddError,
    adopt::{self, AdoptError},
};
use vault_skill::finding::Level;

use crate::{
    commands::share::sync,
    context::Context,
    errors::{Exit, Failure, chain},
    output::{
        report::Report,
        style::{DIM, GOOD, paint},
        text::count,
    },
    service::{Body, ceiling, connection::Connection},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Nothing is taken back: the earlier bytes pass the gate again, get the next version, and become a new release.

Examples:
  vault cloud rollback 41
  vault cloud rollback 41 --dry-run

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// The release to go back to
    release: u64,
    /// Say what would change and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Compares, asks, admits again, syncs.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let vault = context.vault_or_new()?;
    let client = connection.owner(context)?;
    let root = format!("/admin/vaults/{}", connection.slug);
    let strict = context
        .settings()?
        .boolean("VAULT_SECURITY_STRICT")
        .unwrap_or(true);
    let catalog = context.block_on(async {
        let path = format!("{root}/releases/{}/catalog", arguments.release);
        let answer = client
            .call(Method::GET, &path, &[], Body::Empty, ceiling::OBJECT)
            .await?;
        if answer.status == 404 && answer.code() == "not_found" {
            return Err(Failure::failed(
                "release_not_found",
                format!("there is no release {} to go back to", arguments.release),
            )
            .hint(
                "vault status --cloud shows the current one; old releases are not kept for ever",
            ));
        }
        answer.good()
    })?;
    let rollback = adopt::plan_rollback(
        &vault,
        connection.base.as_str(),
        &connection.slug,
        arguments.release,
        &catalog.body,
    )?;
    let mut lines: Vec<String> = rollback
        .readmit
        .iter()
        .map(|entry| format!("  ~ {}  back to version {}", entry.name, entry.version))
        .collect();
    lines.extend(rollback.remove.iter().map(|name| format!("  - {name}")));
    let nothing = lines.is_empty();
    let mut data = json!({
        "from_release": rollback.release,
        "readmitted": rollback.readmit.iter().map(|entry| &entry.name).collect::<Vec<_>>(),
        "removed": rollback.remove,
    });
    if arguments.dry_run || nothing {
        let text = if nothing {
            format!("This library is what release {} was.", arguments.release)
        } else {
            format!(
                "Going back to release {} would change:\n{}",
                arguments.release,
                lines.join("\n")
            )
        };
        return Ok(Report::new(data, text));
    }
    context.ui.note(lines.join("\n"));
    let question = format!(
        "Change {} back to release {} and publish?",
        count(lines.len() as u64, "skill"),
        arguments.release
    );
    if !context.ui.confirm(&question)? {
        return Err(Failure::failed("not_confirmed", "nothing was changed"));
    }
    let synced = context.block_on(async {
        let mut wanted = Vec::new();
        for entry in &rollback.readmit {
            if !adopt::is_stored(&vault, &entry.bundle_hash)? {
                wanted.push(entry.clone());
            }
        }
        let fetched = sync::fetch_own(context, &client, &root, &wanted).await?;
        adopt::roll_back(&vault, &rollback, strict, &|hash| {
            fetched.get(hash).cloned()
        })?;
        sync::sync(context, &vault, &connection, &client, &sync::How::default()).await
    })?;
    let done = sync::report(&connection, &synced);
    data["sync"] = done.data;
    Ok(Report::new(
        data,
        format!(
            "{} went back to release {}{}\n{}",
            paint(GOOD, "✓"),
            arguments.release,
            paint(DIM, ", as a new release"),
            done.text
        ),
    ))
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        let message = chain(&error);
        match error {
            AdoptError::Vault(error) => error.into(),
            AdoptError::Catalog(error) => error.into(),
            AdoptError::NotOurs(_) => Self::new(Exit::Integrity, "catalog_not_ours", message),
            AdoptError::OtherRelease { .. } => {
                Self::new(Exit::Integrity, "catalog_release", message).hint("nothing was changed")
            }
            AdoptError::Bundle { .. } => Self::new(Exit::Integrity, "bundle_refused", message),
            AdoptError::Refused {
                reason: AddError::Blocked { findings },
                name,
            } => Self::new(
                Exit::Gate,
                "gate_blocked",
                format!("the gate refuses the earlier {name} now; nothing was changed"),
            )
            .details(
                findings
                    .iter()
                    .filter(|finding| finding.level > Level::Warning)
                    .map(|finding| format!("{}: {}", finding.rule, finding.message)),
            ),
            AdoptError::Refused { .. } | AdoptError::Add(_) => Self::failed("not_signed", message),
        }
    }
}
