//! `vault key`: shows and changes the keys of this vault.

mod after_theft;
mod create;
mod heal;
mod recovery;
mod recovery_create;
mod recovery_use;
mod rotate;
mod show;

pub(super) use self::rotate::key_name;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use vault_format::name::SkillName;
use vault_library::{
    Vault,
    recovery::RecoveryKey,
    roots::{self, KeyChange, RootReport},
};

use crate::{
    context::Context,
    errors::Failure,
    key_changes,
    output::{BOLD, DIM, HINT, Report, TICK, Warning, join},
    publishing::everywhere::{self, What, publish_everywhere},
    service::{
        connection::Connection,
        sign_in::{Needs, ready},
    },
};

/// The arguments of `vault key`.
#[derive(Args, Debug)]
#[command(after_help = "\
Linked machines follow each change of keys with their next pull. The recovery key is a file that \
you keep away from this machine; with it you recover the vault when the machine is lost or \
stolen. docs/keys.md explains each case step by step.

Examples:
  vault key show
  vault key recovery create /media/stick/vault.recovery
  vault key rotate --root-key /media/stick/vault.recovery
  vault key recovery use /media/stick/vault.recovery")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the vault's fingerprint, its keys and their files
    Show,
    /// Create a key on this machine that an owner can make a publisher
    Create(create::Arguments),
    /// Rotate the signing key (the recovery key endorses the new one)
    Rotate(rotate::Arguments),
    /// Choose one history of keys after two were signed
    Heal(heal::Arguments),
    /// Create, check or use the recovery key
    Recovery(RecoveryArguments),
}

#[derive(Args, Debug)]
struct RecoveryArguments {
    #[command(subcommand)]
    action: RecoveryAction,
}

#[derive(Debug, Subcommand)]
enum RecoveryAction {
    /// Create a recovery key; from then on, only it can change the vault's keys
    Create(recovery_create::Arguments),
    /// Check whether a recovery key belongs to this vault
    Check(recovery::Arguments),
    /// Replace a lost or stolen key, also on a new machine
    Use(recovery_use::Arguments),
}

/// Makes a recovery key for a vault that has none, in one file, after a question.
pub fn make_recovery_key(
    context: &Context,
    vault: &Vault,
    file: PathBuf,
) -> Result<Report, Failure> {
    recovery_create::run(context, vault, &recovery_create::Arguments::in_file(file))
}

/// The file of the recovery key, for a vault that has one.
#[derive(Args, Debug, Default)]
pub(super) struct RootKey {
    /// The recovery key, if the vault has one
    #[arg(long, value_name = "FILE")]
    root_key: Option<PathBuf>,
}

impl RootKey {
    pub(super) fn open(&self, context: &Context) -> Result<Option<RecoveryKey>, Failure> {
        let path = self.root_key.as_deref();
        path.map(|path| open_recovery(context, path)).transpose()
    }
}

/// Looks at the services before a change of the keys, and before anybody is asked about it. On a
/// terminal it opens the sign-in page where a sign-in has ended. Takes newer keys that the services
/// show. A service that cannot be reached is a warning.
pub(super) fn ask_services(context: &Context, vault: &Vault) -> Result<(), Failure> {
    if context.ui.may_ask() {
        for connection in everywhere::published(context, vault)? {
            // What fails here is a warning when the service is asked for newer keys.
            let _warned = context.block_on(ready(context, &connection, Needs::SignIn));
        }
    }
    everywhere::take_newer_keys(context, vault)
}

/// Opens the recovery key, and fails unless it, or a key of this machine, can make this change.
pub(super) fn open_for(
    context: &Context,
    vault: &Vault,
    root_key: &RootKey,
    change: &KeyChange,
) -> Result<Option<RecoveryKey>, Failure> {
    let opened = root_key.open(context)?;
    roots::check(vault, opened.as_ref(), change)?;
    Ok(opened)
}

/// Opens a recovery file. Asks for its passphrase if it has one.
fn open_recovery(context: &Context, path: &Path) -> Result<RecoveryKey, Failure> {
    Ok(RecoveryKey::open(path, &*context.passphrases()?)?)
}

impl Arguments {
    /// Whether the command works where there is no vault yet: with a recovery key it makes one.
    pub const fn may_create_vault(&self) -> bool {
        matches!(
            self.action,
            Action::Recovery(RecoveryArguments {
                action: RecoveryAction::Use(_)
            })
        )
    }
}

/// Shows or changes the keys.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Action::Recovery(RecoveryArguments {
        action: RecoveryAction::Use(arguments),
    }) = &arguments.action
    {
        // It also works where there is no vault yet.
        return recovery_use::run(context, arguments);
    }
    let vault = context.vault()?;
    match &arguments.action {
        Action::Show => show::run(&vault),
        Action::Create(arguments) => create::run(context, &context.vault_or_new()?, arguments),
        Action::Rotate(arguments) => rotate::run(context, &vault, arguments),
        Action::Heal(arguments) => heal::run(context, &vault, arguments),
        Action::Recovery(RecoveryArguments { action }) => match action {
            RecoveryAction::Create(arguments) => recovery_create::run(context, &vault, arguments),
            RecoveryAction::Check(arguments) => recovery::run(context, &vault, arguments),
            RecoveryAction::Use(arguments) => recovery_use::run(context, arguments),
        },
    }
}

/// Where a change of keys will be published, as an effect for the question before it.
pub(super) fn published_to(
    context: &Context,
    vault: &Vault,
    what: What,
) -> Result<String, Failure> {
    let trust = vault.require_trust()?;
    let needed = trust.chain().document().release().threshold();
    published_with(context, vault, what, needed)
}

/// [`published_to`], where the change sets how many publishers sign a release.
pub(super) fn published_with(
    context: &Context,
    vault: &Vault,
    what: What,
    needed: usize,
) -> Result<String, Failure> {
    let published = everywhere::published(context, vault)?;
    if published.is_empty() {
        return Ok("Nothing is published yet, so nobody else is affected".to_owned());
    }
    let addresses = join(published.iter().map(Connection::address));
    Ok(match (what, needed) {
        (What::Keys, _) => format!("The new keys are published to {addresses}"),
        (What::Release, 1) => format!("A release under the new keys is published to {addresses}"),
        (What::Release, _) => format!(
            "The new keys are published to {addresses}, and a release under them is proposed: \
             it needs {needed} signatures"
        ),
    })
}

/// Publishes a change of keys and reports it.
pub(super) fn changed(
    context: &Context,
    vault: &Vault,
    report: &RootReport,
    done: &str,
    what: Option<What>,
) -> Result<Report, Failure> {
    if let Some(error) = &report.unwritten {
        let text = format!("the recovery file was not updated: {error}");
        let hint = "it still works; vault key recovery check <file> checks it";
        context
            .ui
            .warn(Warning::new("recovery_file_unwritten", text).hint(hint));
    }
    for name in &report.lost {
        let text = format!("{name} is no longer trusted: it was not published before the change");
        let hint = format!("add it again with vault add, or run vault remove {name}");
        context.ui.warn(Warning::new("skill_lost", text).hint(hint));
    }
    let (changes, fingerprint) = (&report.changes, &report.fingerprint);
    let who = key_changes::text(changes);
    let mut lines = vec![
        format!("{TICK} {done}"),
        format!("  {DIM}fingerprint{DIM:#}  {BOLD}{fingerprint}{BOLD:#}"),
        format!("  {DIM}keys       {DIM:#}  version {}: {who}", changes.to),
    ];
    lines.extend(waiting_line(&report.to_sign_again));
    let mut published = Vec::<Value>::new();
    if let Some(what) = what {
        let (said, entries) = publish_everywhere(context, vault, what)?;
        lines.extend(said);
        published = entries;
    }
    let data = json!({
        "vault_id": vault.id(), "fingerprint": fingerprint, "root_version": changes.to,
        "changes": changes, "to_sign_again": report.to_sign_again, "lost": report.lost,
        "published": published,
    });
    Ok(Report::new(data, lines.join("\n")))
}

fn waiting_line(names: &[SkillName]) -> Option<String> {
    let listed: Vec<_> = names.iter().map(ToString::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Signed by the revoked key, and not run until you sign them again ({HINT}vault sync --cloud{HINT:#} asks): {}",
            listed.join(", ")
        )
    })
}
