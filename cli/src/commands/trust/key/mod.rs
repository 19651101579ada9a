//! `vault key`: shows and changes the keys of this vault. The *root* is the signed list of all
//! keys; each change of keys signs a new version of it. The *recovery key* is a root key in a file
//! that the owner keeps away from this machine; with one, only it can change the list.

mod after_theft;
pub mod create;
mod heal;
pub mod recovery;
mod recovery_create;
mod recovery_use;
mod rotate;
pub mod show;

pub(super) use self::rotate::parse_key_name;

use self::after_theft::{EndedSignIns, ShownReleases};

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vault_format::{
    name::SkillName,
    root::{KeyFingerprint, VaultFingerprint, VaultId},
};
use vault_library::{
    Vault,
    recovery::{RecoveredPlace, RecoveryKey},
    roots::{self, KeyChange, RootReport},
    trust::RootChanges,
};
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, HINT, Report, TICK, ViewWithText, join},
    service::{connection::Connection, sign_in::ready_client},
    tasks::{
        key_changes,
        publishing::everywhere::{self, KeyPublication, publish_everywhere},
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

/// Creates a recovery key in one file, for a vault that has none. The user has just named the file,
/// so the effects are shown but not asked about.
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
    pub(super) fn open_recovery_key(
        &self,
        context: &Context,
    ) -> Result<Option<RecoveryKey>, Failure> {
        let path = self.root_key.as_deref();
        path.map(|path| open_recovery(context, path)).transpose()
    }
}

/// Applies newer keys that the services show. Call it before a change of keys and before its
/// question: two changes from the same version would be a fork. On a terminal, opens the sign-in
/// page if a sign-in has ended. A service that cannot be reached is only a warning.
pub(super) fn apply_keys_of_services(context: &Context, vault: &Vault) -> Result<(), Failure> {
    // Without a terminal, no sign-in page can be opened.
    if context.ui.may_ask() {
        for connection in everywhere::published_namespaces(context, vault)? {
            // Ignore a failure: the request for newer keys below warns of it.
            let _warned = context.block_on(ready_client(context, &connection));
        }
    }
    everywhere::apply_newer_keys(context, vault)
}

/// Opens the recovery key if its file is named. Fails if neither it nor a key of this machine can
/// make this change.
pub(super) fn open_for_change(
    context: &Context,
    vault: &Vault,
    root_key: &RootKey,
    change: &KeyChange,
) -> Result<Option<RecoveryKey>, Failure> {
    let opened = root_key.open_recovery_key(context)?;
    // Check the rules for changes of keys now, before the user is asked to confirm the change.
    roots::check_change(vault, opened.as_ref(), change)?;
    Ok(opened)
}

/// Describes this machine to the library: the paths and passphrases with which it recovers or joins
/// a vault.
pub(super) fn this_machine_place(context: &Context) -> Result<RecoveredPlace, Failure> {
    Ok(RecoveredPlace {
        paths: context.vault_paths()?,
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        passphrases: context.key_passphrases()?,
    })
}

/// Opens a recovery file. Asks for its passphrase if it has one.
fn open_recovery(context: &Context, path: &Path) -> Result<RecoveryKey, Failure> {
    Ok(RecoveryKey::open(path, &*context.key_passphrases()?)?)
}

impl Arguments {
    /// Returns whether the command works without a vault: a recovery creates one.
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
        // Does not open the vault, because it also works without one.
        return recovery_use::run(context, arguments);
    }
    let vault = context.open_vault()?;
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

/// Describes to which services a change of keys will be published, for the list of effects before
/// its question.
pub(super) fn publication_effect(
    context: &Context,
    vault: &Vault,
    what: KeyPublication,
) -> Result<String, Failure> {
    let trust = vault.require_trust()?;
    let needed = trust.chain().document().release().threshold();
    publication_effect_with(context, vault, what, needed)
}

/// Like [`publication_effect`], for a change after which `needed` publishers must sign a release.
pub(super) fn publication_effect_with(
    context: &Context,
    vault: &Vault,
    what: KeyPublication,
    needed: usize,
) -> Result<String, Failure> {
    // Nobody has seen the keys of an unpublished vault, so the change affects nobody else.
    let published = everywhere::published_namespaces(context, vault)?;
    if published.is_empty() {
        return Ok("Nothing is published yet, so nobody else is affected".to_owned());
    }
    let addresses = join(published.iter().map(Connection::address));
    Ok(match (what, needed) {
        (KeyPublication::Keys, _) => format!("The new keys are published to {addresses}"),
        (KeyPublication::Release, 1) => {
            format!("A release under the new keys is published to {addresses}")
        }
        (KeyPublication::Release, _) => format!(
            "The new keys are published to {addresses}, and a release under them is proposed: \
             it needs {needed} signatures"
        ),
    })
}

/// A change of the vault's keys. Members about things that it did not change are absent.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub struct ChangedKeys {
    #[serde(flatten)]
    pub(super) keys: Option<NewKeys>,
    /// The services to which the change was sent, each with its `address` and whether it was
    /// `reached`.
    pub(super) published: Vec<Value>,
    /// Fingerprint of the key that was made a publisher; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint_added: Option<KeyFingerprint>,
    /// Fingerprint of the key that was removed from the list of keys; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint_removed: Option<KeyFingerprint>,
    /// The files of the recovery key that was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recovery_files: Option<Vec<PathBuf>>,
    /// Whether the vault was not published yet, so that it has a new fingerprint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) made_anew: Option<bool>,
    /// After a recovery: the releases that the service shows; null if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[expect(
        clippy::option_option,
        reason = "absent without a recovery, null without a release"
    )]
    pub(super) shown: Option<Option<ShownReleases>>,
    /// After a recovery: the sign-ins that were ended, for each service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sign_ins: Option<Vec<EndedSignIns>>,
    /// After a recovery: whether the vault was made on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vault_made: Option<bool>,
}

/// The vault's list of keys after a change.
#[derive(Debug, JsonSchema, Serialize)]
pub struct NewKeys {
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// Fingerprint of the vault, for people to compare: `vlt:<groups>/<version of its keys>`.
    fingerprint: VaultFingerprint,
    /// Version of the vault's signed list of keys, counted from 1.
    root_version: u64,
    /// The changes to the list of keys.
    changes: RootChanges,
    /// Skills that a revoked key signed, to be signed again.
    to_sign_again: Vec<SkillName>,
    /// Skills that are no longer trusted.
    lost: Vec<SkillName>,
}

/// Publishes a change of keys, if `what` is given, and creates its report. `done` is the first line
/// for people.
pub(super) fn publish_key_change(
    context: &Context,
    vault: &Vault,
    report: &RootReport,
    done: &str,
    what: Option<KeyPublication>,
) -> Result<ViewWithText<ChangedKeys>, Failure> {
    // Only warn if the recovery file could not be updated, because the keys have changed already.
    if let Some(error) = &report.unwritten {
        let text = format!("the recovery file was not updated: {error}");
        let hint = "it still works; vault key recovery check <file> checks it";
        context.ui.warn_with("recovery_file_unwritten", text, hint);
    }
    for name in &report.lost {
        let text = format!("{name} is no longer trusted: it was not published before the change");
        let hint = format!("add it again with vault add, or run vault remove {name}");
        context.ui.warn_with("skill_lost", text, hint);
    }
    let (changes, fingerprint) = (&report.changes, &report.fingerprint);
    let who = key_changes::format_changes(changes);
    let mut lines = vec![
        format!("{TICK} {done}"),
        format!("  {DIM}fingerprint{DIM:#}  {BOLD}{fingerprint}{BOLD:#}"),
        format!("  {DIM}keys       {DIM:#}  version {}: {who}", changes.to),
    ];
    lines.extend(waiting_line(&report.to_sign_again));
    let mut published = Vec::<Value>::new();
    // Publish last: on this machine, the new keys are valid even if no service can be reached.
    if let Some(what) = what {
        let (service_lines, entries) = publish_everywhere(context, vault, what)?;
        lines.extend(service_lines);
        published = entries;
    }
    let keys = NewKeys {
        vault_id: *vault.id(),
        fingerprint: *fingerprint,
        root_version: changes.to,
        changes: changes.clone(),
        to_sign_again: report.to_sign_again.clone(),
        lost: report.lost.clone(),
    };
    let view = ChangedKeys {
        keys: Some(keys),
        published,
        ..ChangedKeys::default()
    };
    let text = lines.join("\n");
    Ok(ViewWithText { view, text })
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
