//! `vault key`: shows, rotates and recovers the keys that sign this vault's skills and releases.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use vault_library::{
    Vault,
    keys::{self, KeyKind},
    rotate::{self, RotateError, RotateReport},
};
use vault_skill::name::SkillName;

use crate::{
    context::Context,
    errors::{Failure, chain},
    output::{BOLD, DIM, HINT, Report, TICK, Warning, clean, count, paint},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Machines that linked the vault follow a rotation by themselves with the next release. The recovery key replaces a lost
or stolen key: keep its file away from this machine.

Examples:
  vault key show
  vault key rotate
  vault key recovery use /media/stick/vault.recovery --stolen

Since 0.5.0 (beta).")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the vault's id and the fingerprints of its keys
    Show,
    /// Replace the key in good order: the old one signs for the new one
    Rotate,
    /// Make or use the recovery key
    Recovery(RecoveryArguments),
}

#[derive(Args, Debug)]
struct RecoveryArguments {
    #[command(subcommand)]
    action: RecoveryAction,
}

#[derive(Debug, Subcommand)]
enum RecoveryAction {
    /// Make a new recovery key; the one in FILE signs for it
    Create {
        /// The present recovery key [default: where the vault left it]
        file: Option<PathBuf>,
    },
    /// Replace a lost or stolen key with the recovery key in FILE
    Use {
        /// The recovery key
        file: PathBuf,
        /// Others may have the old key: what it signs from now on counts for nothing
        #[arg(long)]
        stolen: bool,
    },
}

/// Shows or replaces the keys.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?.ok_or_else(|| {
        fail!(NoVault, "there is no vault here yet")
            .hint("vault add <folder> makes one with its first skill")
    })?;
    match &arguments.action {
        Action::Show => show(&vault),
        Action::Rotate => {
            let question = "Replace the key of this vault? The old one is deleted.";
            context.ui.confirm_or_stop(question)?;
            let report = rotate::rotate(&vault).map_err(failed)?;
            Ok(replaced(context, &vault, &report, "rotated the key"))
        }
        Action::Recovery(RecoveryArguments { action }) => match action {
            RecoveryAction::Create { file } => create(context, &vault, file.clone()),
            RecoveryAction::Use { file, stolen } => {
                let recovery = keys::read_file(file, KeyKind::Recovery)?;
                let question = "Replace the key of this vault and sign every skill again?";
                context.ui.confirm_or_stop(question)?;
                let report = rotate::recover(&vault, &recovery, *stolen).map_err(failed)?;
                Ok(replaced(context, &vault, &report, "replaced the key"))
            }
        },
    }
}

fn show(vault: &Vault) -> Result<Report, Failure> {
    let keys = vault.keys();
    let public = keys.public()?;
    let recovery = keys.recovery_public()?;
    let left_here = keys.recovery_left_here()?;
    let secret = keys.path(KeyKind::Release);
    let is_here = secret.exists();
    let missing = "not on this machine".to_owned();
    let row = |name: &str, value: String| format!("{DIM}{name:<14}{DIM:#}{value}");
    let mut lines = vec![
        row("vault id", vault.id().to_string()),
        row("fingerprint", paint(BOLD, public.fingerprint())),
        row("public key", public.to_string()),
        row(
            "secret key",
            if is_here {
                secret.display().to_string()
            } else {
                missing
            },
        ),
    ];
    lines.extend(
        recovery
            .as_ref()
            .map(|key| row("recovery", key.fingerprint())),
    );
    if let Some(path) = &left_here {
        lines.push(format!(
            "{HINT}hint:{HINT:#} the recovery key still lies in {}: move it to a safe place",
            path.display()
        ));
    }
    Ok(Report::new(
        json!({
            "vault_id": vault.id(), "public_key": public, "fingerprint": public.fingerprint(),
            "secret_here": is_here, "recovery_file": left_here,
            "recovery_fingerprint": recovery.map(|key| key.fingerprint()),
        }),
        lines.join("\n"),
    ))
}

fn create(context: &Context, vault: &Vault, file: Option<PathBuf>) -> Result<Report, Failure> {
    let path = match file {
        Some(path) => path,
        None => vault.keys().recovery_left_here()?.ok_or_else(|| {
            fail!(
                RecoveryMissing,
                "the present recovery key is not on this machine"
            )
            .hint("vault key recovery create <FILE> names it")
        })?,
    };
    let old = keys::read_file(&path, KeyKind::Recovery)?;
    let question =
        "Replace the recovery key? The old one counts for nothing after the next release.";
    context.ui.confirm_or_stop(question)?;
    let report = rotate::replace_recovery(vault, &old).map_err(failed)?;
    let mut done = replaced(context, vault, &report, "made a new recovery key");
    let new = vault.keys().path(KeyKind::Recovery);
    let hint = format!(
        "\n{HINT}hint:{HINT:#} move {} to a safe place",
        new.display()
    );
    done.text.push_str(&hint);
    done.data["recovery_file"] = json!(new);
    Ok(done)
}

fn replaced(context: &Context, vault: &Vault, report: &RotateReport, what: &str) -> Report {
    let warn = |code: &str, name: &SkillName, text: String| {
        let hint = format!("vault add it again, or vault remove {name}");
        context.ui.warn(Warning::new(code, text).hint(hint));
    };
    for name in &report.damaged {
        let text = format!("{name} is not what was signed and was not signed again");
        warn("skill_damaged", name, text);
    }
    for (name, reason) in &report.refused {
        let reason = clean(&reason.to_string(), 400);
        warn(
            "gate_blocked",
            name,
            format!("{name} was not signed again: {reason}"),
        );
    }
    let refused: Vec<_> = report.refused.iter().map(|(name, _)| name).collect();
    let fingerprint = vault
        .keys()
        .public()
        .map(|key| key.fingerprint())
        .unwrap_or_default();
    let again = match report.signed_again.len() {
        0 => String::new(),
        signed => format!(", signed {} again", count(signed, "skill")),
    };
    Report::new(
        json!({
            "fingerprint": fingerprint, "sequence": report.statement.sequence,
            "signed_again": report.signed_again, "damaged": report.damaged, "refused": refused,
        }),
        format!(
            "{TICK} {what}{again}\n  {DIM}fingerprint{DIM:#}  {BOLD}{fingerprint}{BOLD:#}\n\
             Publish it with: vault sync --cloud"
        ),
    )
}

fn failed(error: RotateError) -> Failure {
    let message = chain(&error);
    match error {
        RotateError::Vault(error) => error.into(),
        RotateError::Statement(_) => fail!(RotationRefused, "{message}"),
        RotateError::OtherRecoveryKey => fail!(RecoveryKeyWrong, "{message}"),
        RotateError::NoRecoveryKey => fail!(RecoveryMissing, "{message}"),
        RotateError::UnknownKey => fail!(KeyUnknown, "{message}"),
    }
}
