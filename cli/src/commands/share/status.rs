//! `vault status`: shows where this vault is published, and the vaults that this machine is
//! linked to.

use clap::Args;
use serde_json::{Value, json};
use vault_api::CurrentDevice;
use vault_format::time::Timestamp;
use vault_library::{
    Origin, Vault, clock, publish, shelf,
    subscribe::{self, AcceptOptions, LastPull},
    trust::VaultTrust,
};
use vault_service::{error::ErrorCode as ServiceCode, model::device::DeviceStatus};
use vault_store::clock::{Clock, SystemClock};

use super::devices::machines_wait;
use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure},
    key_changes,
    output::{BOLD, DIM, HINT, Report, Table, WARN, Warning, clean, count, doctor, paint, size},
    publishing::Publisher,
    service::{connection::Connection, tokens::TokenFile},
    subscription::{
        accept, address, device_client, selection_json, selection_text, status_text, warn_of_end,
    },
};

/// The arguments of `vault status`.
#[derive(Args, Debug)]
#[command(after_help = "\
A linked vault must show the same release and payload hash on all machines. If in doubt, compare \
them.

Examples:
  vault status
  vault status --json")]
pub struct Arguments {
    /// Ask the connected service and the linked vaults (the default)
    #[arg(long)]
    cloud: bool,
}

/// Shows the connected service and the linked vaults. Warns of a service that cannot be reached and
/// ends with exit code 7.
pub fn run(context: &Context, _arguments: &Arguments) -> Result<Report, Failure> {
    let Some(vault) = context.existing_vault()? else {
        return Err(fail!(NotConnected, "there is no vault here yet")
            .hint("vault add <folder>, or vault link <url>/v/<slug>"));
    };
    let connection = Connection::find(context)?;
    let linked = subscribe::all(&vault)?;
    if connection.is_none() && linked.is_empty() {
        return Err(fail!(
            NotConnected,
            "this vault is neither connected nor linked to a service"
        )
        .hint("vault cloud connect <url>, or vault link <url>/v/<slug>"));
    }
    let mut exit = Exit::Done;
    let mut tables = Vec::new();
    let mut connected = Value::Null;
    if let Some(connection) = connection {
        let (data, table) = connection_status(context, &vault, &connection, &mut exit)?;
        connected = data;
        tables.push(table.text());
    }
    let mut links = Vec::new();
    for link in &linked {
        let (data, table) = link_status(context, &vault, link, &mut exit)?;
        links.push(data);
        tables.push(table.text());
    }
    warn_of_time_ahead(context, &vault)?;
    let data = json!({ "connected": connected, "links": links });
    Ok(Report::new(data, tables.join("\n\n")).exit(exit))
}

/// Warns if this machine's clock was far ahead once: until it gets there, good releases may be
/// refused.
fn warn_of_time_ahead(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let ahead = clock::times_ahead(vault)?.into_iter();
    if let Some(seen_at) = ahead.map(|time| time.seen_at).max() {
        let text = doctor::was_ahead(SystemClock.now(), seen_at);
        let hint = "check the clock; if it is right now: vault doctor --reset-clock";
        let warning = Warning::new("clock_was_ahead", text);
        context.ui.warn(warning.hint(hint));
    }
    Ok(())
}

fn row(table: &mut Table, name: &str, value: impl Into<String>) {
    table.row([paint(DIM, name), value.into()]);
}

/// Describes the service on which this vault is published.
fn connection_status(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    exit: &mut Exit,
) -> Result<(Value, Table), Failure> {
    let tokens = TokenFile::of(context, &connection.base, connection.slug.as_str())?;
    let mut signed_in = tokens.read()?.is_some();
    let address = connection.address();
    // The service's own view of the namespace. Null if this machine is not signed in, the request
    // failed, or the account may not see it.
    let mut service = Value::Null;
    let mut is_member = false;
    if signed_in {
        let path = format!("/admin/vaults/{}", connection.slug);
        let answer = context.block_on(async { connection.owner(context)?.get(&path).await });
        match answer {
            Ok(shown) => service = shown,
            Err(failure) if failure.code == ServiceCode::PublisherRequired => is_member = true,
            Err(failure) => {
                signed_in = failure.code != ErrorCode::SignedOut;
                *exit = failure.exit();
                context.ui.warn(Warning::from(&failure));
            }
        }
        key_changes::warn_of_pin_reset(context, &address, &service);
    }
    let published = publish::state::read(vault, connection.base.as_str(), &connection.slug)?
        .and_then(|state| state.published);
    let own_skills = installed(vault, |origin| *origin == Origin::Local)?;
    let mut table = Table::default();
    row(&mut table, "connected to", paint(HINT, &address));
    let login = format!("no  (vault cloud connect {address})");
    row(
        &mut table,
        "signed in",
        if signed_in { "yes".to_owned() } else { login },
    );
    if is_member {
        let role = "member  (what you change waits as a draft: vault drafts list)";
        row(&mut table, "your role", role);
    }
    row(&mut table, "own skills", own_skills.to_string());
    match &published {
        Some(push) => {
            let skills = count(push.skills, "skill");
            let text = format!("release {} with {skills}, {}", push.release, push.at);
            row(&mut table, "last push", text);
            row(&mut table, "good until", push.expires_at.to_string());
            warn_of_end(context, &address, push.expires_at, true);
        }
        None if is_member => {}
        None => row(&mut table, "last push", "never  (vault sync)"),
    }
    let own_version = vault.require_trust()?.chain().version();
    if service.pointer("/pin/root_version").and_then(Value::as_u64) > Some(own_version) {
        let publisher = Publisher::new(context, vault, connection)?;
        let looked = context.block_on(publisher.look_at_keys());
        if let Err(failure) = looked {
            *exit = failure.exit();
            context.ui.warn(Warning::from(&failure));
        }
    }
    let trust = vault.require_trust()?;
    let (fingerprint, version) = (trust.fingerprint(), trust.chain().version());
    // A member cannot publish, and a vault without keys of its own is not published: nothing to
    // compare.
    if !is_member && !vault.only_holds_links()? {
        row(&mut table, "fingerprint", paint(BOLD, fingerprint));
        row(&mut table, "keys", format!("version {version}"));
    }
    if service.is_object() {
        service_rows(
            &service,
            published.as_ref().map(|push| push.release),
            &mut table,
        );
    }
    let data = json!({
        "address": address, "base": connection.base.as_str(), "slug": connection.slug,
        "signed_in": signed_in, "own_skills": own_skills, "service": service,
        "fingerprint": fingerprint, "root_version": version,
        "last_push": published.map(|push| json!({
            "release": push.release, "skills": push.skills, "at": push.at,
            "expires_at": push.expires_at, "payload_sha256": push.payload_sha256,
        })),
    });
    Ok((data, table))
}

/// Counts the installed skills whose origin is `wanted`.
fn installed(vault: &Vault, wanted: impl Fn(&Origin) -> bool) -> Result<usize, Failure> {
    let skills = shelf::list(vault)?.skills;
    Ok(skills.iter().filter(|skill| wanted(&skill.origin)).count())
}

/// Adds the service's view of the namespace to the table. `--json` has every member.
fn service_rows(service: &Value, published: Option<u64>, table: &mut Table) {
    let number = |pointer: &str| service.pointer(pointer).and_then(Value::as_u64);
    let word = |pointer: &str| {
        let text = service.pointer(pointer).and_then(Value::as_str);
        clean(text.unwrap_or("unknown"), 100)
    };
    let release = match number("/release/release") {
        Some(release) if Some(release) == published => {
            let kept = number("/counts/releases").unwrap_or(1);
            format!("shows release {release}, keeps {}", count(kept, "release"))
        }
        Some(release) => {
            format!(
                "{WARN}shows release {release}, which was not published from here{WARN:#}  (vault sync)"
            )
        }
        None => "has no release yet".to_owned(),
    };
    row(table, "the service", release);
    let machines = match number("/counts/devices_pending").unwrap_or(0) {
        0 => "none waiting".to_owned(),
        waiting => format!("{}  (vault devices list)", machines_wait(waiting)),
    };
    row(table, "machines", machines);
    let waiting = |pointer: &str, what: &str, command: &str| {
        let number = number(pointer).filter(|number| *number > 0)?;
        Some(format!("{} waiting  ({command})", count(number, what)))
    };
    let waiting = [
        waiting("/drafts/pending", "draft", "vault drafts list"),
        waiting(
            "/drafts/proposals",
            "proposed release",
            "vault release list",
        ),
        waiting("/drafts/key_requests", "publisher", "vault publishers list"),
    ];
    for waiting in waiting.into_iter().flatten() {
        row(table, "drafts", waiting);
    }
    if let Some(fingerprint) = service.pointer("/pin/fingerprint").and_then(Value::as_str) {
        row(table, "pinned vault", paint(BOLD, clean(fingerprint, 60)));
    }
    row(table, "owner", word("/owner"));
    if let Some(bytes) = number("/quota/bytes") {
        row(table, "quota", size(bytes));
    }
    if word("/status") != "active" {
        row(table, "status", paint(WARN, word("/status")));
    }
    if word("/subscription") != "none" {
        let grace = service.pointer("/grace_ends_at").and_then(Value::as_str);
        let grace = grace.map(|end| format!(", works until {}", clean(end, 40)));
        let text = word("/subscription") + &grace.unwrap_or_default();
        row(table, "subscription", text);
    }
    if let Some(setup) = setup(service) {
        row(table, "set-up", setup);
    }
}

/// Says how far a hosted vault is set up, and the next step. `None` if every step is done, or if
/// the service is older than the steps.
fn setup(service: &Value) -> Option<String> {
    let next = service.pointer("/next_step")?.as_str()?;
    let steps = service.pointer("/provisioning")?.as_array()?;
    let done = steps.iter().filter(|step| step["state"] == "done").count();
    let next = match next {
        "paid_access" => "the service waits for the payment",
        "namespace" => "the service creates the vault",
        "cloud_import" => "the service saves the starter skills",
        "first_sync" => "publish a release  (vault sync)",
        _ => "finish the set-up on the service's page",
    };
    Some(format!(
        "{done} of {} steps done; next: {next}",
        steps.len()
    ))
}

/// Describes a linked vault: what is pinned and installed here, and what its service shows this
/// machine.
fn link_status(
    context: &Context,
    vault: &Vault,
    link: &subscribe::Link,
    exit: &mut Exit,
) -> Result<(Value, Table), Failure> {
    let (pin, address) = (link.pin(), address(link));
    let expires_at = link.catalog(vault)?.map(|catalog| catalog.expires_at);
    let trust = link.trust(vault)?;
    let seen_at = trust.as_ref().and_then(VaultTrust::latest_seen_at);
    let now = SystemClock.now().max(seen_at.unwrap_or(Timestamp::MIN));
    let stale = expires_at.is_some_and(|expires_at| expires_at <= now);
    let mut failed = |failure: &Failure| {
        // A failed integrity check outranks an unreachable service.
        if *exit != Exit::Integrity {
            *exit = failure.exit();
        }
        context.ui.warn(Warning::from(failure));
    };
    let answer = context.block_on(async { device_client(context, vault, link)?.current().await });
    let state = answer.inspect_err(&mut failed).ok();
    if let Some(state) = &state {
        let looked = look_at_keys(context, vault, link, state);
        let _reported = looked.inspect_err(&mut failed);
    }
    let status = state.as_ref().map(|state| state.status);
    let current = state.and_then(|state| Some(state.catalog?.release));
    // The service shows the current release to every active or pending machine, and release
    // numbers never fall. A missing or lower number means that the service was rolled back.
    let readable = matches!(status, Some(DeviceStatus::Active | DeviceStatus::Pending));
    let pinned = pin.counted.as_ref().map(|counted| counted.release);
    let payload = pin.counted.as_ref().map(|counted| counted.payload_sha256);
    let rolled_back = readable && pinned.is_some_and(|pinned| current < Some(pinned));
    if rolled_back {
        *exit = Exit::Integrity;
        let text =
            format!("{address} no longer shows the release that is pinned: it was rolled back");
        let warning = Warning::new("service_rolled_back", text);
        context
            .ui
            .warn(warning.hint("installed skills stay as they are; tell the owner"));
    }
    let listing = shelf::list(vault)?;
    let installed = listing.skills.iter();
    let installed = installed.filter(|skill| skill.origin == Origin::Linked(link.id().clone()));
    let installed = installed.count();
    let withheld = listing.withheld();
    let withheld = withheld.get(&Some(link.id())).cloned().unwrap_or_default();
    // The look may have taken newer keys.
    let trust = link.trust(vault)?;
    let fingerprint = trust.as_ref().map(VaultTrust::fingerprint);
    let version = trust.as_ref().map(|trust| trust.chain().version());
    let mut table = Table::default();
    row(&mut table, "linked to", paint(HINT, &address));
    if pin.name != pin.slug {
        row(&mut table, "called here", paint(BOLD, &pin.name));
    }
    row(&mut table, "this machine", status_text(status));
    if let Some(fingerprint) = &fingerprint {
        row(&mut table, "the vault", paint(BOLD, fingerprint));
    }
    if let Some(version) = version {
        row(&mut table, "keys", format!("version {version}"));
    }
    row(
        &mut table,
        "release",
        release_text(pinned, current, rolled_back),
    );
    if let Some(hash) = &payload {
        row(&mut table, "payload", hash.to_string());
    }
    row(&mut table, "installed", count(installed, "skill"));
    if !withheld.is_empty() {
        let text = doctor::withheld(Some(pin.name.as_str()), &withheld);
        row(&mut table, "withheld", paint(WARN, text));
    }
    let last_pull = last_pull(vault, link, &mut table)?;
    let selection = link.selection();
    if !selection.is_all() {
        let end = format!(
            "{DIM}(end with: vault cloud pull --from {} --all){DIM:#}",
            pin.name
        );
        let text = format!("{}  {end}", selection_text(&selection));
        row(&mut table, "selected", text);
    }
    if let Some(expected) = &pin.expected {
        let replace =
            format!("{DIM}(replace with: vault link {address} --expect-key <fingerprint>){DIM:#}");
        row(&mut table, "expected", format!("{expected}  {replace}"));
    }
    if let Some(expires_at) = expires_at {
        let name = if stale { "stale since" } else { "good until" };
        row(&mut table, name, expires_at.to_string());
        warn_of_end(context, &address, expires_at, false);
    }
    let data = json!({
        "address": address, "link": link.id().as_str(), "name": pin.name, "gate": pin.gate,
        "status": status.map_or("unknown", DeviceStatus::as_str),
        "vault_fingerprint": fingerprint, "root_version": version, "release": pinned,
        "offered_release": current, "rolled_back": rolled_back, "payload_sha256": payload, "installed": installed, "withheld": withheld,
        "expires_at": expires_at, "stale": stale, "last_pull": last_pull,
        "selection": selection_json(&selection), "expected_fingerprint": pin.expected,
    });
    Ok((data, table))
}

/// Takes newer keys of a linked vault that the service shows, and says who was added, removed or
/// revoked. Installs nothing.
fn look_at_keys(
    context: &Context,
    vault: &Vault,
    link: &subscribe::Link,
    state: &CurrentDevice,
) -> Result<(), Failure> {
    let (Some(counted), Some(shown)) = (&link.pin().counted, &state.catalog) else {
        return Ok(());
    };
    let readable = matches!(state.status, DeviceStatus::Active | DeviceStatus::Pending);
    if !readable || shown.sha256 == counted.file_sha256 {
        return Ok(());
    }
    let bytes = context.block_on(async { device_client(context, vault, link)?.catalog().await })?;
    if let Some(bytes) = bytes {
        accept(context, vault, link, &bytes, &AcceptOptions::default())?;
    }
    Ok(())
}

/// Adds when the last pull ended, and with what result.
fn last_pull(
    vault: &Vault,
    link: &subscribe::Link,
    table: &mut Table,
) -> Result<Option<LastPull>, Failure> {
    let last_pull = subscribe::last_pull(vault, link)?;
    if let Some(LastPull { at, release, error }) = &last_pull {
        let text = match (error, release) {
            (Some(error), _) => {
                let message = clean(&error.message, 200);
                format!("{WARN}{at}, failed: {message}{WARN:#}")
            }
            (None, Some(release)) => format!("{at}, release {release}"),
            (None, None) => format!("{at}, nothing was published"),
        };
        row(table, "last pull", text);
    }
    Ok(last_pull)
}

/// Compares the pinned release with the one that the service shows.
fn release_text(pinned: Option<u64>, current: Option<u64>, rolled_back: bool) -> String {
    match (pinned, current) {
        (None, _) => "none yet".to_owned(),
        (Some(pinned), Some(current)) if current > pinned => {
            format!("{pinned}; the service shows release {current}  (vault cloud pull)")
        }
        (Some(pinned), Some(current)) if rolled_back => {
            format!("{WARN}{pinned}, but the service shows release {current}{WARN:#}")
        }
        (Some(pinned), None) if rolled_back => {
            format!("{WARN}{pinned}, but the service shows none{WARN:#}")
        }
        (Some(pinned), _) => pinned.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_of_setting_up_a_vault_fits_a_line() {
        let service = |next: Value| {
            let step = |state| json!({ "step": "x", "state": state });
            let steps = [step("done"), step("done"), step("pending")];
            json!({ "provisioning": steps, "next_step": next })
        };
        for next in [
            "paid_access",
            "namespace",
            "cloud_import",
            "first_sync",
            "another",
        ] {
            let text = setup(&service(json!(next))).unwrap();
            assert!(text.starts_with("2 of 3 steps done; next: "), "{text}");
            assert!(text.len() + 14 <= 80, "{text}");
        }
        let sync = setup(&service(json!("first_sync"))).unwrap();
        assert!(sync.ends_with("(vault sync)"), "{sync}");
        assert_eq!(setup(&service(Value::Null)), None);
        assert_eq!(setup(&json!({ "provisioning": [] })), None);
    }
}
