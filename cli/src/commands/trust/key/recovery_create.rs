//! `vault key recovery create`: creates a recovery key. From then on, only that key can change the
//! vault's list of keys.

use std::path::PathBuf;

use clap::Args;
use vault_library::{
    Vault,
    admit::Resigned,
    recovery::{self, NewRecovery},
};

use super::{RootKey, apply_keys_of_services, publication_effect, publish_key_change};
use crate::{
    context::Context,
    errors::Failure,
    output::{HINT, Report, clean, either, join},
    service::connection::Connection,
    tasks::publishing::everywhere::{self, KeyPublication},
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The file to write, on a USB stick or elsewhere away from this machine
    file: PathBuf,
    /// A second copy, for another place
    #[arg(long, value_name = "FILE")]
    second: Option<PathBuf>,
    #[command(flatten)]
    root_key: RootKey,
    /// Protect the files with a passphrase
    #[arg(long)]
    passphrase: bool,
    /// Whether the person has said yes by naming the file.
    #[arg(skip)]
    is_asked: bool,
}

impl Arguments {
    /// One file without a passphrase, which a person has just named for it.
    pub(super) fn in_file(file: PathBuf) -> Self {
        Self {
            file,
            second: None,
            root_key: RootKey::default(),
            passphrase: false,
            is_asked: true,
        }
    }
}

/// Asks, creates the recovery key, writes its files, and publishes the new keys.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    // The new root version must follow the newest one at any service. Two versions with the same
    // number would be a fork.
    apply_keys_of_services(context, vault)?;
    let root_key = arguments.root_key.open_recovery_key(context)?;
    // An unpublished vault gets a new fingerprint. The report also names the old one.
    let before = vault.require_trust()?.fingerprint();
    confirm_creation(context, vault, arguments.is_asked)?;
    let mut files = vec![arguments.file.clone()];
    files.extend(second_file(context, arguments)?);
    let passphrase = arguments
        .passphrase
        .then(|| {
            context
                .key_passphrases()?
                .choose_passphrase(&context.ui, "the recovery key")
        })
        .transpose()?;
    // Write all addresses into the file, so that an empty machine can find the vault.
    let namespaces = everywhere::known_namespaces(context, vault)?;
    let created = recovery::create_recovery_key(
        vault,
        root_key.as_ref(),
        NewRecovery {
            files: files.clone(),
            passphrase,
            addresses: namespaces.iter().map(Connection::address).collect(),
        },
    )?;
    let vault = created.vault;
    let changes = &created.report.changes;
    // If nothing changed, an interrupted run has created the key, and this run has completed the
    // files.
    let what = either(
        created.resigned.is_none() && changes.from == changes.to,
        "the recovery key already exists",
        "created a recovery key",
    );
    let mut done = publish_key_change(
        context,
        &vault,
        &created.report,
        what,
        Some(KeyPublication::Release),
    )?;
    if let Some(resigned) = &created.resigned {
        warn_of_unsigned(context, resigned);
        done.text.push_str(&format!(
            "\nThe vault was not published yet, so it has a new fingerprint; the old one was {before}."
        ));
        if !resigned.signed.is_empty() {
            let signed = join(&resigned.signed);
            done.text.push_str(&format!(" Signed again: {signed}."));
        }
    }
    for file in &files {
        let path = file.display();
        done.text.push_str(&format!(
            "\n  {HINT}{path}{HINT:#}  move it off this machine now (USB stick, password manager)"
        ));
    }
    if files.len() == 1 {
        let hint = "keep a second copy in another place, in case the first one breaks";
        done.text.push_str(&format!("\n{HINT}hint:{HINT:#} {hint}"));
    }
    done.view.recovery_files = Some(files);
    done.view.made_anew = Some(created.resigned.is_some());
    Ok(done.into())
}

/// Shows the effects of a recovery key, and asks unless `is_asked` is set, because the user has
/// already agreed.
fn confirm_creation(context: &Context, vault: &Vault, is_asked: bool) -> Result<(), Failure> {
    let mut effects = vec![
        "Only this file can then change the vault's keys. If you lose it, you cannot change them either".to_owned(),
        "Anyone who gets the file can take over the vault".to_owned(),
        publication_effect(context, vault, KeyPublication::Release)?,
    ];
    let again = recovery::to_sign_anew(vault)?;
    if !again.is_empty() {
        effects.push(format!(
            "The vault is not published yet: it gets a new fingerprint, and these skills are scanned and signed again: {}",
            join(&again)
        ));
    }
    if !is_asked {
        let question = "Create a recovery key?";
        return context.ui.confirm_wanted_step(question, &effects);
    }
    // The user has agreed by naming the file, but must still see the effects.
    for effect in &effects {
        context.ui.must_see(format!("  {effect}"));
    }
    Ok(())
}

/// Returns the file for the second copy: the one that `--second` names, or the answer to a
/// question. `None` means no copy.
fn second_file(context: &Context, arguments: &Arguments) -> Result<Option<PathBuf>, Failure> {
    if arguments.second.is_some() || !context.ui.may_ask() {
        return Ok(arguments.second.clone());
    }
    let question = "A second copy, for another place (Enter: none):";
    let file = context.ui.ask_text(question)?;
    Ok((!file.is_empty()).then(|| PathBuf::from(file)))
}

/// Warns of the skills that were not signed again with the new keys.
fn warn_of_unsigned(context: &Context, resigned: &Resigned) {
    let hint = |name| format!("add it again with vault add, or run vault remove {name}");
    for (name, reason) in &resigned.refused {
        let reason = clean(&reason.to_string(), 400);
        let text = format!("{name} was not signed again: {reason}");
        context.ui.warn_with("gate_blocked", text, hint(name));
    }
    for name in &resigned.damaged {
        let text = format!("{name} was modified after signing and was not signed again");
        context.ui.warn_with("skill_damaged", text, hint(name));
    }
}
