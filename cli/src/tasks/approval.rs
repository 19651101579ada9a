//! Approval of the files in the vault's folder that people edit by hand, such as `policy.toml`. An
//! edit takes effect only after the owner has approved it; until then the last approved version
//! stays in force. This module shows the edits, asks for the approval, and warns of edits that
//! still wait for it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use vault_library::{AuthoredFile, PendingFile, Vault, admit::approve, pending_files};

use crate::{
    context::Context,
    errors::{Exit, Failure, message_chain},
    output::{
        BOLD, Report, TICK, Warning,
        diff::{Detail, diff_texts},
        doctor::not_approved,
        paint,
    },
};

/// The result for the files that differ from their approved versions.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub struct Approvals {
    /// Files that are now in force.
    pub approved: Vec<String>,
    /// Files whose earlier approved version stays in force.
    #[serde(rename = "not_approved")]
    pub pending: Vec<String>,
}

impl Approvals {
    /// Adds the files to a command's JSON. While a file is pending, a command that succeeded exits
    /// with 3 instead of 0.
    pub fn add_to(&self, mut report: Report) -> Report {
        // A failure of the command itself matters more than a pending file.
        if report.exit == Exit::Done && !self.pending.is_empty() {
            report.exit = Exit::Differences;
        }
        if let (Value::Object(data), Value::Object(files)) = (&mut report.data, json!(self)) {
            data.extend(files);
        }
        report
    }
}

/// Asks about each file that differs from its approved version and for which `wanted` is true.
/// Without a terminal, only `--yes` approves.
pub fn ask_for_approvals(
    context: &Context,
    vault: &Vault,
    wanted: impl Fn(&AuthoredFile) -> bool,
) -> Result<Approvals, Failure> {
    let mut approvals = Approvals::default();
    for pending in pending_files(vault)? {
        if !wanted(&pending.file) {
            continue;
        }
        if !confirm_approval(context, &pending)? {
            // The user may have run `vault approve` itself, so do not advise just that.
            let hint = (!context.ui.may_ask()).then(|| {
                let file = &pending.file;
                format!(
                    "vault approve {file} --yes approves it unseen; on a terminal, vault approve {file} shows the changes and asks"
                )
            });
            warn_not_approved(context, &pending, None, hint);
            approvals.pending.push(pending.file.to_string());
            continue;
        }
        match approve::approve_file(vault, &pending) {
            Ok(()) => {
                let file = &pending.file;
                context
                    .ui
                    .note(format!("{TICK} approved {BOLD}{file}{BOLD:#}"));
                approvals.approved.push(file.to_string());
            }
            // If the vault cannot be written, the other files would fail too. Any other error
            // concerns this file only.
            Err(approve::ApproveError::Vault(error)) => return Err(error.into()),
            Err(error) => {
                let hint = format!("correct {}, then approve it", pending.file);
                warn_not_approved(context, &pending, Some(&message_chain(&error)), Some(hint));
                approvals.pending.push(pending.file.to_string());
            }
        }
    }
    Ok(approvals)
}

/// Warns, without a question, about each file that differs from its approved version and for which
/// `wanted` is true.
pub fn warn_about_pending(
    context: &Context,
    vault: &Vault,
    wanted: impl Fn(&AuthoredFile) -> bool,
) -> Result<(), Failure> {
    for pending in pending_files(vault)? {
        if wanted(&pending.file) {
            let hint = format!("vault approve {} shows the changes and asks", pending.file);
            warn_not_approved(context, &pending, None, Some(hint));
        }
    }
    Ok(())
}

/// Shows the difference and asks for the approval.
fn confirm_approval(context: &Context, pending: &PendingFile) -> Result<bool, Failure> {
    let ui = &context.ui;
    // An unreadable file has no difference to show, and without a question nobody reads it.
    if pending.found.is_ok() && ui.may_ask() && !ui.is_yes() {
        for line in pending_difference(pending) {
            ui.must_see(line);
        }
    }
    let question = format!("Approve this version of {}?", pending.file);
    Ok(ui.is_yes() || (ui.may_ask() && ui.confirm(&question)?))
}

/// Formats the changes since the file was approved as a heading and a full diff. For an unreadable
/// file, returns only the error.
pub fn pending_difference(pending: &PendingFile) -> Vec<String> {
    let PendingFile {
        file,
        approved,
        found,
    } = pending;
    let now = match found {
        Ok(now) => now.as_deref(),
        Err(error) => return vec![message_chain(error)],
    };
    let what = match (approved, now) {
        (None, _) => format!("new {file}"),
        (_, None) => format!("deleted {file}"),
        _ => format!("changed {file}"),
    };
    let mut lines = vec![paint(BOLD, what)];
    let before = approved.as_deref().unwrap_or_default();
    lines.extend(diff_texts(before, now.unwrap_or_default(), Detail::Full).lines);
    lines
}

fn warn_not_approved(
    context: &Context,
    pending: &PendingFile,
    reason: Option<&str>,
    hint: Option<String>,
) {
    let file = &pending.file;
    let reason = reason.map(|reason| format!(": {reason}"));
    let text = not_approved(file, pending.approved.is_none()) + &reason.unwrap_or_default();
    let warning = Warning::new("file_not_approved", text);
    context.ui.warn(match hint {
        Some(hint) => warning.hint(hint),
        None => warning,
    });
}

/// Logs each file that differs from its approved version. Servers call it, because nobody reads
/// their terminal.
pub fn log_pending(vault: &Vault) {
    match pending_files(vault) {
        Ok(pending) => {
            for PendingFile { file, approved, .. } in pending {
                let text = not_approved(&file, approved.is_none());
                // An error and not a warning: a server could go on with outdated rules for long.
                tracing::error!("{text}: vault approve {file}");
            }
        }
        Err(error) => {
            tracing::error!(error = %message_chain(&error), "the approved files cannot be read");
        }
    }
}
