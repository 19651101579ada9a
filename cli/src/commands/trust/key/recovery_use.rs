//! `vault key recovery use`: revokes a lost or stolen key with the recovery key, and creates a new
//! one on this machine, which may be empty.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use vault_format::{
    catalog::{ReleaseRef, SignedCatalog},
    keys::PublicKey,
    root::{KeyFingerprint, KeyName, RootChain},
};
use vault_library::{
    Origin, Vault,
    recovery::{self, RecoveryError, RecoveryKey, UseRecovery},
    roots, shelf,
    trust::NamedKey,
};

use super::{
    ChangedKeys, after_theft, apply_keys_of_services, open_recovery, publish_key_change,
    rotate::parse_key_name, this_machine_place,
};
use crate::{
    commands::share::sync::parse_last_good,
    context::Context,
    errors::Failure,
    output::{HINT, Report, ViewWithText, Warning, clean, either, format_key, join},
    service::{Address, connection::Connection, sign_in::sign_in_if_needed},
    tasks::{key_changes, publishing::everywhere::KeyPublication},
};

/// Maximum size of a catalog file, in bytes.
const MAX_CATALOG: u64 = 4 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
On an empty machine it makes the vault from the service and brings no skills: `vault cloud \
rollback` does. On a machine that has the vault or its backup, sign in first (`vault cloud \
connect`), so that the service learns of the new key at once and ends the sign-ins of the lost \
machine.

Examples:
  vault key recovery use /media/stick/vault.recovery --lost laptop
  vault key recovery use vault.recovery --from https://vault.example/v/team
  vault key recovery use vault.recovery --lost laptop --destroyed")]
pub(super) struct Arguments {
    /// The recovery key
    file: PathBuf,
    /// The address of the vault, or a file with its catalog [default: the address in the recovery
    /// key]
    #[arg(long, value_name = "URL|FILE")]
    from: Option<String>,
    /// A version of the keys that some machine has seen, as `vault status` shows it there
    #[arg(long, value_name = "N")]
    at_least: Option<u64>,
    /// The name or fingerprint of the lost key, if the vault has several publishers
    #[arg(long, value_name = "NAME")]
    lost: Option<String>,
    /// The disk with the lost key was destroyed: what the key signed stays valid
    #[arg(long)]
    destroyed: bool,
    /// The last release that you published yourself, as `vault status` shows it on a linked machine
    #[arg(long, value_name = "RELEASE:SHA256", value_parser = parse_last_good)]
    last_good: Option<ReleaseRef>,
    /// The name of the new key in the list of publishers
    #[arg(long, value_name = "NAME", value_parser = parse_key_name)]
    name: Option<KeyName>,
    /// Print the sign-in address and read the answer instead of opening a browser
    #[arg(long)]
    no_browser: bool,
}

/// Asks, revokes the lost key, creates a new one on this machine, publishes the change, and then
/// limits what a thief can do.
pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let mut key = open_recovery(context, &arguments.file)?;
    // A vault that only links other vaults has no keys of its own, so it becomes the recovered one.
    let before = match context.existing_vault()? {
        Some(vault) if vault.only_holds_links()? => None,
        vault => vault,
    };
    if let (Some(vault), None) = (&before, &arguments.from)
        && vault.trust()?.is_some()
        && let Err(failure) = apply_keys_of_services(context, vault)
    {
        // Only warn: a service must not be able to prevent the revocation of a stolen key.
        context.ui.warn(Warning::from(&failure));
    }
    let recovered_vault = key.file().vault_id;
    // The recovery key of another vault must not change this one.
    if let Some(vault) = &before
        && *vault.id() != recovered_vault
    {
        let here = *vault.id();
        return Err(RecoveryError::OtherVault {
            here,
            wanted: recovered_vault,
        }
        .into());
    }
    let catalog_source = shown_catalog(context, arguments, &key, before.as_ref())?;
    let catalog = catalog_source.catalog.as_deref();
    let chain = known_chain(before.as_ref(), catalog)?;
    let lost = lost_key(context, arguments.lost.as_deref(), before.as_ref(), &chain)?;
    // A service may hide newer keys. A higher version that the user has seen elsewhere reveals
    // that.
    if let Some(named) = arguments.at_least {
        require_version(named, before.as_ref(), &chain)?;
    }
    // If the file has a higher version, an interrupted run has written it, and the known chain does
    // not have it yet.
    if key.file().version <= chain.version() {
        key.check_role(&chain, None)?;
    }
    // If the lost key is another publisher's, this machine keeps its own key.
    let own_key = before.as_ref().and_then(|vault| vault.release_key().ok());
    let keeps_key = own_key.is_some_and(|own| lost.is_some_and(|lost| lost != own));
    confirm_recovery(context, arguments, &chain, (lost, keeps_key))?;
    let place = this_machine_place(context)?;
    let input = UseRecovery {
        key: &mut key,
        catalog,
        at_least: arguments.at_least,
        lost,
        destroyed: arguments.destroyed,
        name: arguments.name.clone(),
    };
    let (vault, report) = recovery::recover_vault(&place, input)?;
    // Connect the vault to the service from which it was recovered, for later commands.
    if let Some(connection) = &catalog_source.connection {
        connection.save(&vault)?;
    }
    // A destroyed key cannot be misused, so there is no hurry: the new keys are published with the
    // next release.
    let what = (!arguments.destroyed).then_some(KeyPublication::Keys);
    let done = either(
        keeps_key,
        "this machine signs with the key that it has",
        "created a new key on this machine in place of the lost one",
    );
    let mut done = publish_key_change(context, &vault, &report, done, what)?;
    if arguments.destroyed {
        done.text
            .push_str("\nThe service gets the new keys with the next release.");
    }
    // Do this only now, so that no failure here can delay the change of keys.
    limit_theft(context, arguments, &vault, &catalog_source, &mut done)?;
    done.text.push_str(&next_steps(&vault)?);
    done.view.vault_made = Some(before.is_none());
    Ok(done.into())
}

/// Fails if neither this machine nor the catalog has the root version `named` or a newer one.
fn require_version(named: u64, vault: Option<&Vault>, chain: &RootChain) -> Result<(), Failure> {
    let own = vault.map(Vault::trust).transpose()?.flatten();
    let newest = own.map_or(0, |own| own.chain().version());
    let newest = newest.max(chain.version());
    if named <= newest {
        return Ok(());
    }
    Err(fail!(
        RootRolledBack,
        "the keys that are shown end at version {newest}, and you named version {named}"
    )
    .hint("the service may hide a change of keys; --from takes the catalog of another machine or service"))
}

/// Adds to the report what a thief may have published, and ends the sign-ins that the lost machine
/// had.
fn limit_theft(
    context: &Context,
    arguments: &Arguments,
    vault: &Vault,
    shown: &ShownCatalog,
    done: &mut ViewWithText<ChangedKeys>,
) -> Result<(), Failure> {
    let connection = match shown.connection.clone() {
        None => Connection::find(context)?,
        named => named,
    };
    let (catalog, good) = (shown.catalog.as_deref(), arguments.last_good);
    let releases = after_theft::show_releases(context, vault, connection.as_ref(), catalog, good)?;
    // Keep this machine's sign-in if the disk was destroyed or this run has created it: then nobody
    // can have copied it.
    let own = !arguments.destroyed && !shown.signed_in_now;
    let sign_ins = after_theft::end_sign_ins(context, vault, own)?;
    for line in releases.lines.iter().chain(&sign_ins.lines) {
        done.text.push('\n');
        done.text.push_str(line);
    }
    done.view.shown = Some(releases.data);
    done.view.sign_ins = Some(sign_ins.data);
    Ok(())
}

/// Describes the next commands, which depend on whether this machine has the vault's skills.
fn next_steps(vault: &Vault) -> Result<String, Failure> {
    let listing = shelf::list_installed(vault)?;
    let own = listing.skills.iter().map(|skill| &skill.origin);
    // Damaged and withheld skills count too: the library is not empty.
    let withheld = listing.damaged.iter().map(|(_, origin, _)| origin);
    if !own.chain(withheld).any(|origin| *origin == Origin::Local) {
        return Ok(format!(
            "\nNext: {HINT}vault status --cloud{HINT:#} on a machine that you trust shows the last good release and its payload; then\n  \
             {HINT}vault cloud rollback <release> --last-good <release>:<payload>{HINT:#} restores the skills and publishes them.\n\
             The order of the releases comes from the service alone: a thief may have published some of them."
        ));
    }
    Ok(format!(
        "\nNext: {HINT}vault sync --cloud{HINT:#} publishes this library under the new key; \
         {HINT}--replace{HINT:#} drops what a thief published."
    ))
}

/// A catalog of the vault (signed list of a release's content with the vault's keys), and its
/// origin.
#[derive(Default)]
struct ShownCatalog {
    /// The bytes of the catalog, unverified; `None` if this machine knows the vault's keys and no
    /// catalog was named.
    catalog: Option<Vec<u8>>,
    /// The namespace from which it was fetched; `None` for a file.
    connection: Option<Connection>,
    /// Whether this run signed in to fetch it.
    signed_in_now: bool,
}

/// Reads the catalog from the file or service that `--from` names, or else from the address in the
/// recovery file. Fetches none if this machine knows the vault's keys and `--from` is missing.
fn shown_catalog(
    context: &Context,
    arguments: &Arguments,
    key: &RecoveryKey,
    vault: Option<&Vault>,
) -> Result<ShownCatalog, Failure> {
    let is_known = match vault {
        Some(vault) => vault.trust()?.is_some(),
        None => false,
    };
    let from = match (&arguments.from, key.file().addresses.first()) {
        (Some(from), _) => from.clone(),
        // A machine that knows the vault's keys needs no catalog unless one is named.
        (None, Some(address)) if !is_known => address.clone(),
        _ => return Ok(ShownCatalog::default()),
    };
    if Path::new(&from).is_file() {
        let fail = |error: std::io::Error| Failure::io("reading", &from, &error);
        // The file may come from anyone, so check its size before reading it.
        if fs::metadata(&from).map_err(fail)?.len() > MAX_CATALOG {
            return Err(fail!(
                CatalogSchema,
                "{} is not a catalog",
                clean(&from, 400)
            ));
        }
        return Ok(ShownCatalog {
            catalog: Some(fs::read(&from).map_err(fail)?),
            ..ShownCatalog::default()
        });
    }
    let address: Address = from.parse().map_err(|error| {
        fail!(
            Usage,
            "{} is neither a file nor an address: {error}",
            clean(&from, 400)
        )
    })?;
    let Address { base, slug } = address;
    let slug = slug.ok_or_else(|| {
        fail!(SlugMissing, "the address does not name a vault")
            .hint(format!("--from {base}/v/<slug>"))
    })?;
    let connection = Connection { base, slug };
    let fetched = fetch_catalog(context, &connection, arguments.no_browser);
    let (bytes, signed_in_now) = context.block_on(fetched)?;
    Ok(ShownCatalog {
        catalog: Some(bytes),
        connection: Some(connection),
        signed_in_now,
    })
}

/// Signs in if necessary and fetches the current catalog, unverified. Also returns whether it
/// signed in.
async fn fetch_catalog(
    context: &Context,
    connection: &Connection,
    no_browser: bool,
) -> Result<(Vec<u8>, bool), Failure> {
    let (client, signed_in_now) = sign_in_if_needed(context, connection, no_browser).await?;
    let slug = &connection.slug;
    let answer = client
        .read(&format!("/admin/vaults/{slug}/catalog"))
        .await?;
    Ok((answer.require_good()?.body, signed_in_now))
}

/// Returns the verified chain of root versions of the catalog, or else the one that this machine
/// knows.
fn known_chain(vault: Option<&Vault>, catalog: Option<&[u8]>) -> Result<RootChain, Failure> {
    if let Some(bytes) = catalog {
        // Verify only the chain of keys. The release itself may be a thief's.
        let file = SignedCatalog::parse(bytes)?;
        return RootChain::verify(file.roots()).map_err(|error| Failure::from(&error));
    }
    let trust = match vault {
        Some(vault) => vault.trust()?,
        None => None,
    };
    let trust = trust.ok_or_else(|| {
        fail!(
            CatalogNeeded,
            "this machine does not know the vault of the recovery key"
        )
        .hint("--from <url>/v/<slug>, or --from <file> with its catalog")
    })?;
    Ok(trust.chain().clone())
}

/// Returns the lost key: the named one, or else the only publisher's, if it is not on this machine.
/// Asks if there are several publishers, because a key that is elsewhere need not be lost.
fn lost_key(
    context: &Context,
    named: Option<&str>,
    vault: Option<&Vault>,
    chain: &RootChain,
) -> Result<Option<PublicKey>, Failure> {
    if let Some(text) = named {
        // `find_key` also searches older versions, because an earlier run may have revoked the key
        // already.
        let named_key = roots::find_key(chain, text);
        return named_key
            .map(Some)
            .map_err(|error| key_changes::key_not_found(text, error));
    }
    if let Some(vault) = vault {
        require_lost_elsewhere(vault, chain)?;
    }
    let own_keys = vault.map_or(Ok(Vec::new()), |vault| vault.keys().list())?;
    let publishers = chain.document().release().keys();
    if let [only] = publishers {
        return Ok((!own_keys.contains(only)).then_some(*only));
    }
    let names = publishers.iter();
    let names = names.map(|key| format_key(&NamedKey::from_chain(chain, key)));
    let names: Vec<String> = names.collect();
    // Do not guess: that could revoke an honest publisher.
    if !context.ui.may_ask() {
        let failure = fail!(
            KeyNotNamed,
            "the vault has several publishers: whose key is lost?"
        );
        return Err(failure
            .details(names)
            .hint("name the lost key: --lost <name>; add --destroyed only if nobody can have read its disk"));
    }
    let chosen = context
        .ui
        .choose_one("Whose key is lost?", "--lost <name>", names.clone())?;
    let place = names.iter().position(|name| *name == chosen);
    Ok(place.and_then(|place| publishers.get(place)).copied())
}

/// Fails if every publisher's key is on this machine, because then none seems to be lost. The user
/// must name the stolen one.
fn require_lost_elsewhere(vault: &Vault, chain: &RootChain) -> Result<(), Failure> {
    let own_keys = vault.keys().list()?;
    let publishers = chain.document().release().keys();
    if publishers.iter().any(|key| !own_keys.contains(key)) {
        return Ok(());
    }
    let names = publishers.iter().filter_map(|key| {
        let name = chain.document().name_of(key)?;
        Some(clean(name.as_str(), 64))
    });
    Err(fail!(
        KeyNotNamed,
        "the publisher's key is on this machine; confirm that it was stolen"
    )
    .hint(format!("--lost {}", join(names))))
}

/// Shows what happens to the lost key and to the skills that it signed, and asks.
fn confirm_recovery(
    context: &Context,
    arguments: &Arguments,
    chain: &RootChain,
    (lost, keeps_key): (Option<PublicKey>, bool),
) -> Result<(), Failure> {
    let lost = lost.or_else(|| match chain.document().release().keys() {
        [only] => Some(*only),
        _ => None,
    });
    let name = lost.map(|key| {
        let name = chain.document().shown_name(&key);
        let name = name.map(|name| name.to_string()).unwrap_or_default();
        format!("{} ({})", clean(&name, 64), KeyFingerprint::publisher(&key))
    });
    let whose = name.unwrap_or_else(|| "the lost key".to_owned());
    let key = either(
        keeps_key,
        "Keep this machine's key",
        "Create a new key on this machine",
    );
    if arguments.destroyed {
        return context.ui.confirm_step(
            &format!("{key} in place of {whose}?"),
            &[
                format!("What {whose} signed stays valid everywhere"),
                "If anyone could have read its disk, leave out --destroyed".to_owned(),
            ],
        );
    }
    context.ui.confirm_step(
        &format!("{key} and revoke {whose}?"),
        &[
            format!("{whose} can no longer publish"),
            "Machines do not run skills that it signed until you sign and publish them again"
                .to_owned(),
            "If the lost disk was destroyed and nobody can have read it, answer no and run the command again with --destroyed: then what it signed stays valid".to_owned(),
            "This cannot be undone".to_owned(),
        ],
    )
}
