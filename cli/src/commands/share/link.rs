//! `vault link`: enrols this machine in a vault and pins the vault.

use clap::Args;
use serde_json::json;
use vault_library::{
    Vault,
    subscribe::{self, AcceptOptions, AcceptedCatalog, Link, LinkId},
};
use vault_service::{error::Code, model::device::DeviceStatus};
use vault_skill::root::{KeyFingerprint, VaultFingerprint};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, FailureCode, codes::service_code},
    output::{BOLD, DIM, HINT, Report, TICK, clean},
    service::{Address, DeviceState, connection::Connection},
    subscription::{accept, check_not_rolled_back, device_client, status_text},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Without an address it links the vault that this machine is connected to. Give the owner the machine's fingerprint;
compare the vault's fingerprint with the one that the owner sees in `vault key show`, or pass it as --expect-key.

Examples:
  vault link https://vault.example/v/team
  vault link https://vault.example/v/team --expect-key vlt:2abc-3def-4ghi-5jkl-6mno-7pqr-2stu-3vwx/2
  vault link https://vault.example/v/team --repin --expect-key vlt:2abc-…

Since 0.5.0 (beta).")]
pub struct Arguments {
    #[arg(help = "The vault: <url>/v/<slug>")]
    address: Option<Address>,
    /// Pin only the vault with this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<VaultFingerprint>,
    /// Pin the vault that is served now, even if another one is pinned
    #[arg(long)]
    repin: bool,
    /// What this machine is called in the owner's list [default: its host name]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
}

/// Enrols the machine, reads the catalog, and pins the vault.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = target(context, arguments.address.as_ref())?;
    let expected = arguments.expect_key;
    if arguments.repin && expected.is_none() {
        context.ui.confirm_step(
            "Trust whatever vault the service shows now, without comparing a fingerprint?",
            &[
                "If the service or the network is dishonest, it decides which skills run here"
                    .to_owned(),
            ],
        )?;
    }
    let vault = context.vault_for_links()?;
    let id = LinkId::of(connection.base.as_str(), &connection.slug);
    let is_new = subscribe::find(&vault, &id)?.is_none();
    let link = subscribe::create(&vault, connection.base.as_str(), &connection.slug)?;
    // Store the expected fingerprint before anything is sent, so that a later pull without the flag
    // cannot pin another vault.
    if let Some(expected) = expected.filter(|_| !arguments.repin) {
        subscribe::expect(&vault, &id, &expected)?;
    }
    let hostname = arguments
        .hostname
        .clone()
        .or_else(|| context.process.host_name());
    let hostname = hostname.unwrap_or_else(|| "unnamed machine".to_owned());
    let hostname: String = hostname.chars().take(64).collect();
    let enrolled = context.block_on(enrol(context, &vault, &link, &hostname));
    // Remove a new link if the service cannot have recorded the enrolment, so that a mistyped
    // address leaves nothing behind. Keep the link in every other case.
    if is_new && enrolled.as_ref().is_err_and(never_arrived) {
        subscribe::remove(&vault, &id)?;
    }
    let (state, catalog) = enrolled?;
    let machine = KeyFingerprint::device(&link.device_key(&vault)?.public()).to_string();
    if state.status == DeviceStatus::Revoked {
        let address = connection.address();
        return Err(fail!(
            DeviceRevoked,
            "this machine ({machine}) was shut out of {address}"
        )
        .hint("the owner can forget it (vault devices forget), then link again"));
    }
    if catalog.is_none() && !arguments.repin {
        check_not_rolled_back(&link)?;
    }
    let options = AcceptOptions {
        expected,
        repin: arguments.repin,
        ..AcceptOptions::default()
    };
    let catalog = catalog
        .map(|bytes| accept(context, &vault, &link, &bytes, &options))
        .transpose()
        .map_err(|failure| not_expected(failure, &state, &machine))?;
    if let Some(catalog) = &catalog {
        subscribe::pin_only(&vault, catalog)?;
    }
    Ok(report(
        &connection,
        &link,
        &state,
        &machine,
        catalog.as_ref(),
    ))
}

/// Enrols this machine and reads the catalog, unless the machine is revoked.
async fn enrol(
    context: &Context,
    vault: &Vault,
    link: &Link,
    hostname: &str,
) -> Result<(DeviceState, Option<Vec<u8>>), Failure> {
    let client = device_client(context, vault, link)?;
    let state = client.enrol(hostname).await?;
    let catalog = match state.status {
        DeviceStatus::Revoked => None,
        DeviceStatus::Pending | DeviceStatus::Active => client.catalog().await?,
    };
    Ok((state, catalog))
}

/// Whether the enrolment failed before any service could record it.
fn never_arrived(failure: &Failure) -> bool {
    match &failure.code {
        FailureCode::Own(code) => matches!(
            code,
            ErrorCode::Unreachable | ErrorCode::TlsUnavailable | ErrorCode::RedirectRefused
        ),
        FailureCode::Remote { word, status, .. } => {
            *status == 404 && service_code(word).is_none_or(|code| code == Code::VaultNotFound)
        }
    }
}

/// Adds a hint and the state of the machine where another vault was expected. Only an enrolled machine may
/// read a catalog, so the machine is enrolled at this point.
fn not_expected(failure: Failure, state: &DeviceState, machine: &str) -> Failure {
    if failure.code != ErrorCode::VaultChanged {
        return failure;
    }
    let status = state.status;
    failure
        .hint(format!(
            "nothing was pinned; ask the owner for the fingerprint (vault key show). This machine \
             ({machine}) is enrolled as {}: link again, or let the owner deny it",
            status.as_str()
        ))
        .data(json!({
            "device_id": clean(&state.device_id, 40), "status": status, "device_fingerprint": machine,
        }))
}

fn target(context: &Context, address: Option<&Address>) -> Result<Connection, Failure> {
    let Some(Address { base, slug }) = address.cloned() else {
        return Connection::find(context)?.ok_or_else(|| {
            fail!(
                NotConnected,
                "which vault? This machine is not connected to one"
            )
            .hint("vault link <url>/v/<slug>")
        });
    };
    match slug {
        Some(slug) => Ok(Connection { base, slug }),
        None => Err(fail!(SlugMissing, "the address does not name a vault")
            .hint(format!("vault link {base}/v/<slug>"))),
    }
}

fn report(
    connection: &Connection,
    link: &Link,
    state: &DeviceState,
    machine: &str,
    catalog: Option<&AcceptedCatalog>,
) -> Report {
    let key = catalog.map(|catalog| catalog.fingerprint().to_string());
    let release = catalog.map(|catalog| catalog.catalog().release);
    let address = connection.address();
    let pinned = match (&key, release) {
        (Some(key), Some(release)) => {
            let is_first = catalog.is_some_and(AcceptedCatalog::is_first);
            let now = if is_first { ", pinned now" } else { "" };
            format!("{BOLD}{key}{BOLD:#}  release {release}{now}")
        }
        _ => "enrolled, no catalog yet: the first pull shows and pins it".to_owned(),
    };
    let next = match state.status {
        DeviceStatus::Active => "Install with: vault cloud pull".to_owned(),
        DeviceStatus::Pending | DeviceStatus::Revoked => format!(
            "The owner admits this machine with: vault devices admit {}\nThen install with: vault cloud pull",
            clean(&state.device_id, 40)
        ),
    };
    let text = format!(
        "{TICK} linked {HINT}{address}{HINT:#}\n  \
         {DIM}this machine{DIM:#}  {BOLD}{machine}{BOLD:#}  {}\n  \
         {DIM}the vault   {DIM:#}  {pinned}\n{next}",
        status_text(Some(state.status))
    );
    Report::new(
        json!({
            "address": address, "link": link.id().as_str(), "device_id": state.device_id,
            "status": state.status, "device_fingerprint": machine, "vault_fingerprint": key,
            "release": release, "pinned": catalog.is_some(),
        }),
        text,
    )
}
