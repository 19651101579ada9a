//! `vault key recovery use`: replaces a lost or stolen key, on an empty machine too.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde_json::json;
use vault_library::{
    Vault,
    recovery::{self, RecoveredPlace, RecoveryError, RecoveryKey, UseRecovery},
};
use vault_skill::{
    catalog::SignedCatalog,
    keys::PublicKey,
    root::{KeyFingerprint, KeyName, RootChain},
};
use vault_store::{clock::SystemClock, random::SystemRandom};

use super::{changed, open_recovery, rotate::key_name};
use crate::{
    context::Context,
    errors::Failure,
    output::{HINT, Report, clean, join},
    publishing::everywhere::What,
    service::{
        Address, OwnerClient,
        connection::Connection,
        sign_in::{SignIn, sign_in},
        tokens::TokenFile,
    },
};

/// The largest catalog file, in bytes.
const MAX_CATALOG: u64 = 4 << 20;

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The recovery key
    file: PathBuf,
    /// Where the vault is published, or a file with its catalog [default: the address in the recovery key]
    #[arg(long, value_name = "URL|FILE")]
    from: Option<String>,
    /// A version of the keys that some machine has seen, as `vault status --cloud` shows it
    #[arg(long, value_name = "N")]
    at_least: Option<u64>,
    /// The lost key by its name or fingerprint, where the vault has several publishers
    #[arg(long, value_name = "NAME")]
    lost: Option<String>,
    /// The disk with the lost key is known to be destroyed: what the key signed stays good
    #[arg(long)]
    destroyed: bool,
    /// What the new key is called in the list of publishers
    #[arg(long, value_name = "NAME", value_parser = key_name)]
    name: Option<KeyName>,
    /// Do not open a browser: print the sign-in address and read the answer
    #[arg(long)]
    no_browser: bool,
}

/// Makes a new key on this machine in place of the lost one, after a question.
pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let mut key = open_recovery(context, &arguments.file)?;
    let before = context.existing_vault()?;
    let wanted = key.file().vault_id;
    if let Some(vault) = &before
        && *vault.id() != wanted
    {
        let here = *vault.id();
        return Err(RecoveryError::OtherVault { here, wanted }.into());
    }
    let (catalog, connection) = shown_catalog(context, arguments, &key, before.as_ref())?;
    let chain = known_chain(before.as_ref(), catalog.as_deref())?;
    let lost = arguments
        .lost
        .as_deref()
        .map(|text| find_key(&chain, text))
        .transpose()?;
    if let (Some(vault), None) = (&before, lost) {
        require_lost_elsewhere(vault, &chain)?;
    }
    ask(context, arguments, &chain, lost)?;
    let place = RecoveredPlace {
        paths: context.paths()?,
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        passphrases: context.passphrases()?,
    };
    let input = UseRecovery {
        key: &mut key,
        catalog: catalog.as_deref(),
        at_least: arguments.at_least,
        lost,
        destroyed: arguments.destroyed,
        name: arguments.name.clone(),
    };
    let (vault, report) = recovery::recover(&place, input)?;
    if let Some(connection) = &connection {
        connection.save(&vault)?;
    }
    // A key that nobody can have takes nothing with it, so its last release may stand until the next.
    let what = (!arguments.destroyed).then_some(What::Keys);
    let done = "made a new key on this machine in place of the lost one";
    let mut done = changed(context, &vault, &report, done, what)?;
    done.text.push_str(&next_steps(before.is_none()));
    done.data["vault_made"] = json!(before.is_none());
    Ok(done)
}

/// What remains to be done, for a machine with or without the vault's skills.
fn next_steps(is_empty: bool) -> String {
    if is_empty {
        return format!(
            "\nNext: {HINT}vault status --cloud{HINT:#} on a machine that you trust shows the last good release and its payload, then\n  \
             {HINT}vault cloud rollback <release> --last-good <release>:<payload>{HINT:#} brings the skills back and publishes them.\n\
             The service alone says which releases came last: a thief may have published some of them."
        );
    }
    format!(
        "\nNext: {HINT}vault sync --cloud{HINT:#} publishes this library under the new key; \
         {HINT}--replace{HINT:#} drops what a thief published."
    )
}

/// The exact bytes of a catalog of the vault, if one is needed or named, and the namespace that they
/// are from.
fn shown_catalog(
    context: &Context,
    arguments: &Arguments,
    key: &RecoveryKey,
    vault: Option<&Vault>,
) -> Result<(Option<Vec<u8>>, Option<Connection>), Failure> {
    let is_known = match vault {
        Some(vault) => vault.trust()?.is_some(),
        None => false,
    };
    let from = match (&arguments.from, key.file().addresses.first()) {
        (Some(from), _) => from.clone(),
        (None, Some(address)) if !is_known => address.clone(),
        _ => return Ok((None, None)),
    };
    if Path::new(&from).is_file() {
        let fail = |error: std::io::Error| Failure::io("reading", &from, &error);
        if fs::metadata(&from).map_err(fail)?.len() > MAX_CATALOG {
            return Err(fail!(CatalogSchema, "{} is no catalog", clean(&from, 400)));
        }
        return Ok((Some(fs::read(&from).map_err(fail)?), None));
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
    let bytes = context.block_on(fetch_catalog(context, &connection, arguments.no_browser))?;
    Ok((Some(bytes), Some(connection)))
}

/// Signs in if necessary and fetches the current catalog, unverified.
async fn fetch_catalog(
    context: &Context,
    connection: &Connection,
    no_browser: bool,
) -> Result<Vec<u8>, Failure> {
    let (base, slug) = (&connection.base, connection.slug.as_str());
    let file = TokenFile::of(context, base, slug)?;
    let client = match file.read()? {
        Some(tokens) => OwnerClient::with(context, base, file, tokens)?,
        None => {
            let wanted = SignIn {
                base,
                namespace: Some(slug),
                no_browser,
            };
            let tokens = sign_in(context, wanted).await?;
            file.write(&tokens, &file.lock()?)?;
            OwnerClient::with(context, base, file, tokens)?
        }
    };
    let answer = client
        .read(&format!("/admin/vaults/{slug}/catalog"))
        .await?;
    Ok(answer.good()?.body)
}

/// The newest keys that are shown: by the catalog, or else by this machine.
fn known_chain(vault: Option<&Vault>, catalog: Option<&[u8]>) -> Result<RootChain, Failure> {
    if let Some(bytes) = catalog {
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

/// Fails where every publisher's key is on this machine: then it is not clear that one was stolen.
fn require_lost_elsewhere(vault: &Vault, chain: &RootChain) -> Result<(), Failure> {
    let here = vault.keys().list()?;
    let publishers = chain.document().release().keys();
    if publishers.iter().any(|key| !here.contains(key)) {
        return Ok(());
    }
    let names = publishers.iter().filter_map(|key| {
        let name = chain.document().name_of(key)?;
        Some(clean(name.as_str(), 64))
    });
    Err(fail!(
        KeyNotNamed,
        "the publisher's key is on this machine; say whether it was stolen"
    )
    .hint(format!("--lost {}", join(names))))
}

fn find_key(chain: &RootChain, text: &str) -> Result<PublicKey, Failure> {
    let fingerprint: Option<KeyFingerprint> = text.parse().ok();
    let mut keys = chain.document().keys().iter();
    let found = keys.find(|entry| {
        entry.name.as_str() == text
            || fingerprint.is_some_and(|fingerprint| fingerprint.matches(&entry.public_key))
    });
    found.map(|entry| entry.public_key).ok_or_else(|| {
        fail!(KeyUnknown, "the vault has no key `{}`", clean(text, 80))
            .hint("vault publishers list shows their names and fingerprints")
    })
}

/// Says what becomes of the lost key and of what it signed, and asks.
fn ask(
    context: &Context,
    arguments: &Arguments,
    chain: &RootChain,
    lost: Option<PublicKey>,
) -> Result<(), Failure> {
    let lost = lost.or_else(|| match chain.document().release().keys() {
        [only] => Some(*only),
        _ => None,
    });
    let whose = lost.map_or_else(
        || "the lost key".to_owned(),
        |key| {
            let name = chain.document().name_of(&key).map(ToString::to_string);
            let name = clean(&name.unwrap_or_default(), 64);
            format!("the lost key, {name} ({})", KeyFingerprint::publisher(&key))
        },
    );
    if arguments.destroyed {
        return context.ui.confirm_step(
            "Make a new key on this machine in place of the lost one?",
            &[
                format!("What {whose} signed stays good everywhere"),
                "If anybody could have read its disk, leave out --destroyed".to_owned(),
            ],
        );
    }
    context.ui.confirm_step(
        "Make a new key on this machine and revoke the lost one?",
        &[
            format!("Nobody can publish any more with {whose}"),
            "Machines run none of the skills that it signed until you sign them again and publish"
                .to_owned(),
            "It can't be undone".to_owned(),
        ],
    )
}
