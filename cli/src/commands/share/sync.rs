//! `vault sync`: publishes this vault as the next release of the connected namespace (its place on
//! a service).

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vault_format::{catalog::ReleaseRef, root::KeyFingerprint};
use vault_library::{
    Vault,
    publish::{self, OnDivergence},
};
use vault_service::error::ErrorCode as ServiceCode;

use super::drafts;
use crate::{
    commands::trust::key,
    context::Context,
    errors::{Exit, Failure},
    output::{Report, clean, either},
    service::{connection::Connection, drafts::DraftClient},
    tasks::{
        approval::{self, Approvals},
        drift::warn_of_changed_folders,
        key_changes,
        publishing::{
            Publisher, SyncOptions, SyncReport, everywhere, review::ReleaseReview, sync_report,
        },
        subscription::warn_of_end,
    },
};

/// The arguments of `vault sync`.
#[derive(Args, Debug)]
#[command(after_help = "\
Publishes the skills as they are in the vault, not in their folders: `vault add` or `vault \
update` comes first. A sync signs a new release only if something changed, if the current one \
expires within 30 days, or with --renew.

In a vault of several publishers, a sync first takes over what the others changed: it scans it, \
shows every difference and asks; --yes is no answer. Without a terminal it stops with exit 3 and \
names the command. It stops with exit 3, too, and names what both sides changed. If another machine \
published with this machine's key, it stops with exit 3 and shows the difference.

Examples:
  vault sync
  vault sync --adopt
  vault sync --renew --json")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Arguments {
    /// Publish to the connected service (the default)
    #[arg(long)]
    cloud: bool,
    /// Take over what someone else published, even where this vault changed it too
    #[arg(long, conflicts_with = "replace")]
    adopt: bool,
    /// Replace what someone else published with this library
    #[arg(long)]
    replace: bool,
    /// Sign a new release even if nothing changed
    #[arg(long)]
    renew: bool,
    /// Days until the release expires, 1 to 400
    #[arg(long, value_name = "DAYS", default_value_t = publish::DEFAULT_DAYS, value_parser = clap::value_parser!(i64).range(1..=400))]
    days: i64,
    /// The last release that the owner published before a key was stolen, as `vault status --cloud`
    /// shows it on a linked machine
    #[arg(long, value_name = "RELEASE:SHA256", value_parser = parse_last_good)]
    last_good: Option<ReleaseRef>,
    /// Publish with a release number above this one, because a machine may have seen it
    #[arg(long, value_name = "N")]
    above_release: Option<u64>,
    #[command(flatten)]
    review: ReleaseReview,
    /// Also sign for this address, before the vault moves there; repeatable
    #[arg(long, value_name = "URL")]
    also: Vec<crate::service::Address>,
}

/// A namespace after a sync, and the files that were approved for it.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Sync {
    #[serde(flatten)]
    release: SyncReport,
    #[serde(flatten)]
    approvals: Approvals,
}

/// Publishes the vault to the connected namespace.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let options = SyncOptions {
        on_divergence: match (arguments.adopt, arguments.replace) {
            (true, _) => OnDivergence::Adopt,
            (_, true) => OnDivergence::Replace,
            _ => OnDivergence::Stop,
        },
        renew: arguments.renew,
        days: arguments.days,
        also: arguments
            .also
            .iter()
            .map(|address| address.base.to_string())
            .collect(),
        last_good: arguments.last_good,
        above_release: arguments.above_release,
        review: arguments.review.clone(),
    };
    let connection = Connection::load(context)?;
    // A recovery key may give an unpublished vault another fingerprint, so create the publisher
    // after this.
    let vault = offer_recovery_key(context, &connection, context.vault_or_new()?)?;
    let publisher = Publisher::new(context, &vault, &connection)?;
    // Approve first, so that this release carries the policy as the owner has written it.
    let approvals = approval::ask_for_approvals(context, &vault, |_| true)?;
    let outcome = context
        .block_on(publisher.sync_release(&options))
        .map_err(|failure| add_publisher_hint(context, &vault, &connection, failure))?;
    key_changes::warn_about_own(context, &vault)?;
    warn_of_changed_folders(context, &vault)?;
    let state = publish::state::read_state(&vault, connection.base.as_str(), &connection.slug)?;
    if let Some(published) = state.and_then(|state| state.published) {
        warn_of_end(context, &connection.address(), published.expires_at, true);
    }
    // The release is published by now, so ignore a failure of this request.
    let _unread = context.block_on(publisher.warn_of_pin_reset());
    let mut done = sync_report(&connection, &outcome);
    // A proposed release closes no drafts, because it may never get its signatures.
    if !outcome.is_proposed() {
        let release = outcome.release();
        let closed = drafts::close_published(context, &vault, &connection, release);
        // Ignore a failure: the next sync closes the remaining drafts.
        for draft in closed.unwrap_or_default() {
            let line = drafts::accepted_line(&draft, draft.reason.as_deref());
            done.text.push_str(&format!("\n{line}"));
        }
    }
    let exit = either(approvals.pending.is_empty(), Exit::Done, Exit::Differences);
    let release = done.view;
    Ok(Report::view(Sync { release, approvals }, done.text).with_exit(exit))
}

/// Replaces the service's refusal of an account that may not publish by a failure with the next
/// step: wait for an owner, or ask one. Returns other failures unchanged.
fn add_publisher_hint(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    failure: Failure,
) -> Failure {
    if failure.code != ServiceCode::PublisherRequired {
        return failure;
    }
    // If this request fails, the general hint below still helps.
    if let Ok(Some(add)) = waiting_request(context, vault, connection) {
        let message = "your request to publish waits for an owner";
        return Failure::new(failure.code, message)
            .hint(format!("an owner runs: {add}; then run vault sync again"));
    }
    let state = publish::state::read_state(vault, connection.base.as_str(), &connection.slug);
    let has_published = state.is_ok_and(|state| state.is_some_and(|it| it.published.is_some()));
    let message = if has_published {
        "your account may no longer publish this vault".to_owned()
    } else {
        failure.message
    };
    let address = clean(&connection.address(), 200);
    let hint = format!("ask an owner to let you publish: vault publishers request {address}");
    Failure::new(failure.code, message).hint(hint)
}

/// If this machine has a pending request to become a publisher, returns the command with which an
/// owner accepts it.
fn waiting_request(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
) -> Result<Option<String>, Failure> {
    let own_keys = vault.keys().list()?;
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, connection);
    let waiting = context.block_on(drafts.list(false))?;
    let mut keys = waiting.iter().filter_map(|draft| draft.key.as_ref());
    let Some(asked) = keys.find(|asked| own_keys.contains(&asked.public_key)) else {
        return Ok(None);
    };
    let fingerprint = KeyFingerprint::publisher(&asked.public_key);
    let trust = vault.require_trust()?;
    Ok(Some(key_changes::add_command(&trust, &fingerprint)))
}

/// Offers to create a recovery key before the first release, because afterwards other machines have
/// pinned the keys without one. Returns the vault, opened again if its keys have changed.
fn offer_recovery_key(
    context: &Context,
    connection: &Connection,
    vault: Vault,
) -> Result<Vault, Failure> {
    let is_published = !everywhere::published_namespaces(context, &vault)?.is_empty();
    // If a key that can change the vault's keys is elsewhere, losing this machine does not lose the
    // vault.
    if is_published || !context.ui.may_ask() || !key_changes::all_root_keys_here(&vault)? {
        return Ok(vault);
    }
    // Ask the service first whether the account may publish, so that the question is not asked in
    // vain.
    let path = format!("/admin/vaults/{}", connection.slug);
    let _: Value =
        context.block_on(async { connection.owner_client(context)?.get(&path).await })?;
    context.ui.must_see(
        "This vault has no recovery key: if this machine is lost or stolen, so is the vault.",
    );
    let question = "Where to write one, for example on a USB stick (Enter: publish without):";
    let file = context.ui.ask_text(question)?;
    if file.is_empty() {
        return Ok(vault);
    }
    let created_key = key::make_recovery_key(context, &vault, file.into())?;
    context.ui.must_see(created_key.text);
    // The unpublished vault has got other keys, so open it again.
    context.open_vault()
}

/// Parses `<release>:<sha256>`: a release number and the SHA-256 of its payload.
pub fn parse_last_good(text: &str) -> Result<ReleaseRef, String> {
    let form = || "write the release and its payload hash as the status shows them: 41:9f86d0…";
    let (release, payload) = text.split_once(':').ok_or_else(form)?;
    Ok(ReleaseRef {
        release: release.parse().map_err(|_| form())?,
        payload_sha256: payload.parse().map_err(|_| form())?,
    })
}
