//! `vault key`: shows, rotates and recovers the keys that sign this vault's skills and releases.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use vault_library::{
    Vault,
    keys::{self, KeyKind},
    rotate::{self, RotateError, RotateReport},
};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, chain},
    output::{BOLD, DIM, GOOD, HINT, Report, Warning, clean, count, paint},
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
                context
                    .ui
                    .confirm_or_stop("Replace the key of this vault and sign every skill again?")?;
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
    let here = keys.path(KeyKind::Release).exists();
    let mut lines = vec![
        format!("{}      {}", paint(DIM, "vault id"), vault.id()),
        format!(
            "{}   {}",
            paint(DIM, "fingerprint"),
            paint(BOLD, public.fingerprint())
        ),
        format!("{}    {public}", paint(DIM, "public key")),
        format!(
            "{}    {}",
            paint(DIM, "secret key"),
            if here {
                keys.path(KeyKind::Release).display().to_string()
            } else {
                "not on this machine".to_owned()
            }
        ),
    ];
    if let Some(recovery) = &recovery {
        lines.push(format!(
            "{}      {}",
            paint(DIM, "recovery"),
            recovery.fingerprint()
        ));
    }
    if let Some(path) = &left_here {
        lines.push(format!(
            "{} the recovery key still lies in {}: move it to a safe place",
            paint(HINT, "hint:"),
            path.display()
        ));
    }
    Ok(Report::new(
        json!({
            "vault_id": vault.id(),
            "public_key": public,
            "fingerprint": public.fingerprint(),
            "secret_here": here,
            "recovery_fingerprint": recovery.map(|key| key.fingerprint()),
            "recovery_file": left_here,
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
    context.ui.confirm_or_stop(
        "Replace the recovery key? The old one counts for nothing after the next release.",
    )?;
    let report = rotate::replace_recovery(vault, &old).map_err(failed)?;
    let mut done = replaced(context, vault, &report, "made a new recovery key");
    let new = vault.keys().path(KeyKind::Recovery);
    done.text.push_str(&format!(
        "\n{} move {} to a safe place",
        paint(HINT, "hint:"),
        new.display()
    ));
    done.data["recovery_file"] = json!(new);
    Ok(done)
}

fn replaced(context: &Context, vault: &Vault, report: &RotateReport, what: &str) -> Report {
    for name in &report.damaged {
        context.ui.warn(
            Warning::new(
                "skill_damaged",
                format!("{name} is not what was signed and was not signed again"),
            )
            .hint(format!("vault add it again, or vault remove {name}")),
        );
    }
    for (name, reason) in &report.refused {
        context.ui.warn(
            Warning::new(
                "gate_blocked",
                format!(
                    "{name} was not signed again: {}",
                    clean(&reason.to_string(), 400)
                ),
            )
            .hint(format!("vault add it again, or vault remove {name}")),
        );
    }
    let refused: Vec<_> = report.refused.iter().map(|(name, _)| name).collect();
    let fingerprint = vault
        .keys()
        .public()
        .map_or_else(|_| String::new(), |key| key.fingerprint());
    let again = if report.signed_again.is_empty() {
        String::new()
    } else {
        format!(
            ", signed {} again",
            count(report.signed_again.len() as u64, "skill")
        )
    };
    Report::new(
        json!({
            "fingerprint": fingerprint,
            "sequence": report.statement.sequence,
            "signed_again": report.signed_again,
            "damaged": report.damaged,
            "refused": refused,
        }),
        format!(
            "{} {what}{again}\n  {}  {}\nPublish it with: vault sync --cloud",
            paint(GOOD, "✓"),
            paint(DIM, "fingerprint"),
            paint(BOLD, fingerprint)
        ),
    )
}

fn failed(error: RotateError) -> Failure {
    let message = chain(&error);
    match error {
        RotateError::Vault(error) => error.into(),
        RotateError::Statement(_) => Failure::new(ErrorCode::RotationRefused, message),
        RotateError::OtherRecoveryKey => Failure::new(ErrorCode::RecoveryKeyWrong, message),
        RotateError::NoRecoveryKey => Failure::new(ErrorCode::RecoveryMissing, message),
        RotateError::UnknownKey => Failure::new(ErrorCode::KeyUnknown, message),
    }
}
