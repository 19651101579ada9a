//! `vault publishers request`: creates a key on this machine for a linked vault, and sends its
//! owner a request to make the key a publisher.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_api::VaultSummary;
use vault_format::{
    keys::PublicKey,
    name::Slug,
    root::{KeyFingerprint, KeyName, KeyStanding, VaultId},
};
use vault_library::{
    Vault, join,
    subscribe::{self, AcceptOptions},
};

use crate::{
    commands::trust::{
        key::{parse_key_name, this_machine_place},
        new_key::NewKey,
    },
    context::Context,
    errors::Failure,
    output::{BOLD, HINT, Report, TICK, clean},
    service::{Address, connection::Connection, drafts::DraftClient, sign_in::sign_in_if_needed},
    tasks::{
        key_changes,
        subscription::{accept_catalog, device_client},
    },
};

#[derive(Args, Debug)]
#[command(after_help = "\
Link the vault on this machine first, with the fingerprint that its owner told you. The request \
makes this vault folder the library of that vault, with a key of its own, and leaves linked \
vaults as they are. A folder that holds a vault of your own stays: name another one with --vault.

Examples:
  vault link https://vault.example/v/team --expect-key <fingerprint>
  vault publishers request https://vault.example/v/team --name bob
  vault --vault ~/team publishers request https://vault.example/v/team
  vault publishers request <url>/v/team --signer ssh-agent:SHA256:…")]
pub(super) struct Arguments {
    /// The vault: `<url>/v/<slug>`
    url: Address,
    /// The name of the key in the list of publishers
    #[arg(long, value_name = "NAME", value_parser = parse_key_name)]
    name: Option<KeyName>,
    #[command(flatten)]
    new_key: NewKey,
    /// Print the sign-in address and read the answer instead of opening a browser
    #[arg(long)]
    no_browser: bool,
}

/// A key of this machine that is to publish.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RequestedKey {
    /// Public key (Ed25519): 43 characters of base64url.
    public_key: PublicKey,
    /// Fingerprint of the key, which the owner compares with the one in the request.
    fingerprint: KeyFingerprint,
    /// Whether it may publish already. Then nothing was requested.
    publishes: bool,
    #[serde(flatten)]
    request: Option<KeyRequested>,
}

/// A request that waits for the owner.
#[derive(Debug, JsonSchema, Serialize)]
struct KeyRequested {
    /// Id under which the service lists the request for the owner.
    draft: String,
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
}

/// Joins the vault (makes the local vault folder a library of it, with a key of its own) and sends
/// the request.
pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Address { base, slug } = &arguments.url;
    let slug = slug.clone().ok_or_else(|| {
        fail!(SlugMissing, "the address does not name a vault")
            .hint(format!("vault publishers request {base}/v/<slug>"))
    })?;
    let connection = Connection {
        base: base.clone(),
        slug,
    };
    let signed_in = sign_in_if_needed(context, &connection, arguments.no_browser);
    let (client, _) = context.block_on(signed_in)?;
    let vaults = context.block_on(client.list("/admin/vaults"))?;
    let published_vault_id = published_vault(vaults, &connection.slug)?;
    let place = this_machine_place(context)?;
    // Refuse a folder with another vault before asking for a passphrase.
    if let Some(vault) = context.existing_vault()? {
        require_same_vault(&vault, &published_vault_id, &connection)?;
        take_shown_keys(context, &vault, &connection)?;
    }
    // Ask for the passphrase before `join_vault` creates the key, so that the key file is never
    // unencrypted.
    let in_agent = arguments.new_key.prepare(context)?;
    let (vault, key) = join::join_vault(&place, &published_vault_id, in_agent)?;
    connection.save(&vault)?;
    let fingerprint = KeyFingerprint::publisher(&key);
    // An owner may have added this key since an earlier request.
    let standing = vault.require_trust()?.roots().standing(&key);
    let mut view = RequestedKey {
        public_key: key,
        fingerprint,
        publishes: standing == KeyStanding::Release,
        request: None,
    };
    if view.publishes {
        let text = format!("{TICK} this machine may publish already: {HINT}vault sync{HINT:#}");
        return Ok(Report::view(view, text));
    }
    let bytes = join::sign_key_request(&vault, &connection.slug, &key, arguments.name.clone())?;
    let drafts = DraftClient::new(&client, &connection);
    let draft = context.block_on(drafts.request_key(bytes))?;
    let address = clean(&connection.address(), 200);
    let add = key_changes::add_command(&vault.require_trust()?, &fingerprint);
    let text = format!(
        "{TICK} asked to publish at {address}\n  {BOLD}{fingerprint}{BOLD:#}\n\
         Tell an owner this fingerprint, for example by phone. The owner runs:\n  \
         {HINT}{add}{HINT:#}\n\
         Then take the skills over and publish with: {HINT}vault sync{HINT:#}"
    );
    view.request = Some(KeyRequested {
        draft: draft.id.to_string(),
        vault_id: published_vault_id,
        address: connection.address(),
    });
    Ok(Report::view(view, text))
}

/// Returns the id of the vault that is published under this slug. Fails if the account has no
/// access to it, or if nothing is published yet.
fn published_vault(vaults: Vec<VaultSummary>, slug: &Slug) -> Result<VaultId, Failure> {
    let mut vaults = vaults.into_iter();
    let vault = vaults.find(|vault| vault.slug == *slug).ok_or_else(|| {
        fail!(NoSuchVault, "your account has no vault `{slug}` there")
            .hint("its owner invites you: vault users invite <your address>")
    })?;
    vault.vault_id.ok_or_else(|| {
        fail!(ReleaseNotFound, "nothing is published in this vault yet")
            .hint("its owner publishes the first release: vault sync; then ask again")
    })
}

fn require_same_vault(
    vault: &Vault,
    wanted: &VaultId,
    connection: &Connection,
) -> Result<(), Failure> {
    if vault.id() == wanted || vault.only_holds_links()? {
        return Ok(());
    }
    Err(fail!(
        VaultChanged,
        "the folder {} holds a vault of your own, not the one at {}",
        vault.paths().root.display(),
        connection.address()
    )
    .hint("name an empty folder for that one: vault --vault <folder> publishers request …"))
}

/// Applies newer keys of the linked vault that the service shows, because an owner may have removed
/// this machine's key. Failures are ignored, so that they do not prevent the request.
fn take_shown_keys(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
) -> Result<(), Failure> {
    for link in subscribe::list_links(vault)? {
        let pin = link.pin();
        if pin.base != connection.base.as_str() || pin.slug != connection.slug {
            continue;
        }
        let shown_catalog = async { device_client(context, vault, &link)?.fetch_catalog().await };
        if let Ok(Some(bytes)) = context.block_on(shown_catalog)
            && let Err(refused) =
                accept_catalog(context, vault, &link, &bytes, &AcceptOptions::default())
        {
            tracing::debug!(reason = %refused.message, "the shown release does not count");
        }
    }
    Ok(())
}
