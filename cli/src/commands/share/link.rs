//! `vault link`: enrols this machine in a vault and pins the vault's key.

use clap::Args;
use serde_json::json;
use vault_library::{
    Vault,
    subscribe::{self, AcceptedCatalog, Link, LinkError, LinkId},
};
use vault_service::error::Code;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, FailureCode, codes::service_code},
    output::{BOLD, DIM, GOOD, HINT, Report, WARN, clean, paint},
    service::{Address, DeviceState, connection::Connection},
    subscription::{check_not_rolled_back, device_client, warn_about_catalog},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Without an address it links the vault that this machine is connected to. Give the owner the machine's fingerprint;
compare the vault's fingerprint with the one that the owner sees in `vault key show`, or pass it as --expect-key.

Examples:
  vault link https://vault.example/v/team
  vault link https://vault.example/v/team --expect-key 2ABC-3DEF-4GHI-5JKL-6MNO-7PQR-2STU-3VWX
  vault link https://vault.example/v/team --repin --expect-key 2ABC-…

Since 0.5.0 (beta).")]
pub struct Arguments {
    #[arg(help = "The vault: <url>/v/<slug>")]
    address: Option<Address>,
    /// Pin only a key with this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<String>,
    /// Forget the pinned key and pin the one that is served now
    #[arg(long)]
    repin: bool,
    /// What this machine is called in the owner's list [default: its host name]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
}

/// Enrols the machine, reads the catalog, and pins the key.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = target(context, arguments.address.as_ref())?;
    if arguments.repin && arguments.expect_key.is_none() {
        let question = "Pin whatever key the service shows now, without comparing a fingerprint?";
        context.ui.confirm_or_stop(question)?;
    }
    let vault = context.vault_or_new()?;
    let id = LinkId::of(connection.base.as_str(), &connection.slug);
    let is_new = subscribe::find(&vault, &id)?.is_none();
    let link = subscribe::create(&vault, connection.base.as_str(), &connection.slug)?;
    // Store the expected fingerprint before anything is sent, so that a later pull without the flag
    // cannot pin another key.
    if let Some(expected) = arguments.expect_key.as_deref().filter(|_| !arguments.repin) {
        subscribe::expect(&vault, &id, expected)?;
    }
    let hostname = arguments
        .hostname
        .clone()
        .or_else(|| context.process.host_name())
        .map_or_else(
            || "unnamed machine".to_owned(),
            |name| name.chars().take(64).collect(),
        );
    let asked = context.block_on(enrol(context, &vault, &link, &hostname));
    let (state, catalog) = match asked {
        Ok(answers) => answers,
        Err(failure) => {
            // Remove a new link if the service cannot have recorded the enrolment, so that a
            // mistyped address leaves nothing behind. Keep the link in every other case.
            if is_new && never_arrived(&failure) {
                subscribe::remove(&vault, &id)?;
            }
            return Err(failure);
        }
    };
    let machine = link.device_key(&vault)?.public().fingerprint();
    if state.status == "revoked" {
        return Err(fail!(
            DeviceRevoked,
            "this machine ({machine}) was shut out of {}",
            connection.address()
        )
        .hint("the owner can forget it (vault devices forget), then link again"));
    }
    if catalog.is_none() && !arguments.repin {
        check_not_rolled_back(&link)?;
    }
    let offer = catalog
        .map(|bytes| {
            link.accept(
                &vault,
                &bytes,
                arguments.expect_key.as_deref(),
                arguments.repin,
            )
            .map_err(|error| not_expected(error, &state, &machine))
        })
        .transpose()?;
    if let Some(offer) = &offer {
        subscribe::pin_only(&vault, offer)?;
        warn_about_catalog(context, offer);
    }
    Ok(report(&connection, &link, &state, &machine, offer.as_ref()))
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
    let catalog = match state.status.as_str() {
        "revoked" => None,
        _ => client.catalog().await?,
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

/// Adds a hint and the state of the machine to a fingerprint mismatch. Only an enrolled machine may
/// read a catalog, so the machine is enrolled at this point.
fn not_expected(error: LinkError, state: &DeviceState, machine: &str) -> Failure {
    if !matches!(error, LinkError::Fingerprint { .. }) {
        return error.into();
    }
    Failure::from(error)
        .hint(format!(
            "nothing was pinned; ask the owner for the fingerprint (vault key show). This machine ({machine}) is enrolled as {}: link again, or let the owner deny it",
            clean(&state.status, 20)
        ))
        .data(json!({
            "device_id": clean(&state.device_id, 40),
            "status": clean(&state.status, 20),
            "device_fingerprint": machine,
        }))
}

fn target(context: &Context, address: Option<&Address>) -> Result<Connection, Failure> {
    match address {
        Some(Address {
            base,
            slug: Some(slug),
        }) => Ok(Connection {
            base: base.clone(),
            slug: slug.clone(),
        }),
        Some(Address { base, slug: None }) => {
            Err(fail!(SlugMissing, "the address does not name a vault")
                .hint(format!("vault link {base}/v/<slug>")))
        }
        None => Connection::find(context)?.ok_or_else(|| {
            fail!(
                NotConnected,
                "which vault? This machine is not connected to one"
            )
            .hint("vault link <url>/v/<slug>")
        }),
    }
}

fn report(
    connection: &Connection,
    link: &Link,
    state: &DeviceState,
    machine: &str,
    offer: Option<&AcceptedCatalog>,
) -> Report {
    let key = offer.map(|offer| offer.accepted().catalog.public_key.fingerprint());
    let release = offer.map(|offer| offer.accepted().catalog.release);
    let active = state.status == "active";
    let mut lines = vec![
        format!(
            "{} linked {}",
            paint(GOOD, "✓"),
            paint(HINT, connection.address())
        ),
        format!(
            "  {}  {}  {}",
            paint(DIM, "this machine's key"),
            paint(BOLD, machine),
            if active {
                paint(GOOD, "admitted")
            } else {
                paint(WARN, "waits for the owner")
            }
        ),
    ];
    match (&key, release) {
        (Some(key), Some(release)) => {
            lines.push(format!(
                "  {}  {}  release {release}{}",
                paint(DIM, "the vault's key   "),
                paint(BOLD, key),
                if offer.is_some_and(AcceptedCatalog::is_first) {
                    ", pinned now"
                } else {
                    ""
                }
            ));
        }
        _ => lines.push(format!(
            "  {}  enrolled, no catalog yet: the first pull shows and pins it",
            paint(DIM, "the vault's key   ")
        )),
    }
    lines.push(if active {
        "Install with: vault cloud pull".to_owned()
    } else {
        format!(
            "The owner admits this machine with: vault devices admit {}\nThen install with: vault cloud pull",
            clean(&state.device_id, 40)
        )
    });
    Report::new(
        json!({
            "address": connection.address(),
            "link": link.id().as_str(),
            "device_id": state.device_id,
            "status": state.status,
            "device_fingerprint": machine,
            "vault_fingerprint": key,
            "release": release,
            "pinned": offer.is_some(),
        }),
        lines.join("\n"),
    )
}
