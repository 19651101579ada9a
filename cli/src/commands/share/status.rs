//! `vault status --cloud`: where this library is published, and which vaults this machine is linked to.

use clap::Args;
use serde_json::{Value, json};
use vault_library::{Vault, cloud, links, shelf};
use vault_skill::catalog::SignedCatalog;
use vault_store::clock::{Clock, SystemClock};

use crate::{
    commands::share::link::device_client,
    context::Context,
    errors::{Exit, Failure},
    output::{
        report::{Report, Warning},
        style::{BOLD, DIM, GOOD, HINT, WARN, paint},
        table::Table,
        text::{clean, count, size},
    },
    service::{connection::Connection, tokens::TokenFile},
};

/// Since 0.5.0 (beta).
#[derive(Args, Debug)]
#[command(after_help = "\
Release and payload hash of a linked vault must be the same on all machines: compare them where in doubt.

Examples:
  vault status --cloud
  vault status --cloud --json

Since 0.5.0 (beta).")]
pub struct Arguments {
    /// Ask the connected service and the linked vaults
    #[arg(long, required = true)]
    cloud: bool,
}

/// Shows both sides; a service that cannot be reached is said, and ends with 7.
pub fn run(context: &Context, _arguments: &Arguments) -> Result<Report, Failure> {
    let Some(vault) = context.existing_vault()? else {
        return Err(
            Failure::usage("not_connected", "there is no vault here yet")
                .hint("vault add <folder>, or vault link <url>/v/<slug>"),
        );
    };
    let connection = Connection::find(context)?;
    let linked = links::all(&vault)?;
    if connection.is_none() && linked.is_empty() {
        return Err(Failure::usage(
            "not_connected",
            "this vault is neither connected nor linked to a service",
        )
        .hint("vault cloud connect <url>, or vault link <url>/v/<slug>"));
    }
    let mut exit = Exit::Done;
    let mut blocks = Vec::new();
    let connected = match &connection {
        Some(connection) => {
            let (data, text) = published(context, &vault, connection, &mut exit)?;
            blocks.push(text);
            data
        }
        None => Value::Null,
    };
    let mut links_data = Vec::new();
    for link in &linked {
        let (data, text) = linked_vault(context, &vault, link, &mut exit)?;
        links_data.push(data);
        blocks.push(text);
    }
    Ok(Report::new(
        json!({ "connected": connected, "links": links_data }),
        blocks.join("\n\n"),
    )
    .exit(exit))
}

fn published(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    exit: &mut Exit,
) -> Result<(Value, String), Failure> {
    let state = cloud::state(vault, connection.base.as_str(), &connection.slug)?;
    let known = state.as_ref().and_then(|state| state.published.as_ref());
    let own = shelf::list(vault)?
        .skills
        .iter()
        .filter(|skill| skill.origin == vault_library::Origin::Local)
        .count();
    let signed_in = TokenFile::of(context, &connection.base, connection.slug.as_str())?
        .read()?
        .is_some();
    let service: Value = if signed_in {
        let asked = context.block_on(async {
            connection
                .owner(context)?
                .get(&format!("/admin/vaults/{}", connection.slug))
                .await
        });
        asked.unwrap_or_else(|failure: Failure| {
            *exit = failure.exit;
            context.ui.warn(Warning {
                hint: failure.hint.clone(),
                ..Warning::new(failure.code.clone(), failure.message.clone())
            });
            Value::Null
        })
    } else {
        Value::Null
    };
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([paint(DIM, name), value]);
    row("connected to", paint(HINT, connection.address()));
    row(
        "signed in",
        if signed_in {
            "yes".to_owned()
        } else {
            format!("no  (vault cloud connect {})", connection.address())
        },
    );
    row("own skills", own.to_string());
    match known {
        Some(known) => {
            row(
                "last push",
                format!(
                    "release {} with {}, {}",
                    known.release,
                    count(known.skills, "skill"),
                    known.at
                ),
            );
            row("good until", known.expires_at.to_string());
        }
        None => row("last push", "never  (vault sync --cloud)".to_owned()),
    }
    if service.is_object() {
        service_rows(&service, known.map(|known| known.release), &mut row);
    }
    Ok((
        json!({
            "address": connection.address(),
            "base": connection.base.as_str(),
            "slug": connection.slug,
            "signed_in": signed_in,
            "own_skills": own,
            "last_push": known.map(|known| json!({
                "release": known.release, "skills": known.skills, "at": known.at,
                "expires_at": known.expires_at, "payload_sha256": known.payload_sha256,
            })),
            "service": service,
        }),
        table.text(),
    ))
}

/// How the namespace stands on the service, in words; `--json` has every member.
fn service_rows(service: &Value, published: Option<u64>, row: &mut impl FnMut(&str, String)) {
    let number = |pointer: &str| service.pointer(pointer).and_then(Value::as_u64);
    let word = |pointer: &str| {
        let text = service.pointer(pointer).and_then(Value::as_str);
        clean(text.unwrap_or("unknown"), 100)
    };
    row(
        "the service",
        match number("/release/release") {
            Some(release) if Some(release) == published => {
                format!(
                    "shows release {release}, {} releases kept",
                    number("/counts/releases").unwrap_or(1)
                )
            }
            Some(release) => paint(
                WARN,
                format_args!("shows release {release}, which was not published from here"),
            ),
            None => "has no release yet".to_owned(),
        },
    );
    let waiting = number("/counts/devices_pending").unwrap_or(0);
    row(
        "machines",
        if waiting == 0 {
            "none waits".to_owned()
        } else {
            format!(
                "{} {}  (vault devices list)",
                count(waiting, "machine"),
                if waiting == 1 { "waits" } else { "wait" }
            )
        },
    );
    if let Some(fingerprint) = service.pointer("/pin/fingerprint").and_then(Value::as_str) {
        row("pinned key", paint(BOLD, clean(fingerprint, 60)));
    }
    row("owner", word("/owner"));
    if let Some(bytes) = number("/quota/bytes") {
        row("quota", size(bytes));
    }
    if word("/status") != "active" {
        row("status", paint(WARN, word("/status")));
    }
    if word("/subscription") != "none" {
        row("subscription", word("/subscription"));
    }
}

fn linked_vault(
    context: &Context,
    vault: &Vault,
    link: &links::Link,
    exit: &mut Exit,
) -> Result<(Value, String), Failure> {
    let pin = link.pin();
    let address = format!("{}/v/{}", pin.base, pin.slug);
    let expires_at = link
        .catalog_bytes()?
        .and_then(|bytes| SignedCatalog::parse(&bytes).ok()?.verify().ok())
        .map(|catalog| catalog.expires_at);
    let now = SystemClock.now().max(pin.latest_seen_at);
    let stale = expires_at.is_some_and(|expires_at| expires_at <= now);
    let installed = shelf::list(vault)?
        .skills
        .iter()
        .filter(
            |skill| matches!(&skill.origin, vault_library::Origin::Linked(id) if id == link.id()),
        )
        .count();
    let asked = context.block_on(async { device_client(context, vault, link)?.current().await });
    let (status, offered) = match asked {
        Ok(state) => (state.status, state.catalog.map(|catalog| catalog.release)),
        Err(failure) => {
            // A service that lied weighs more than one that is silent.
            if *exit != Exit::Integrity {
                *exit = failure.exit;
            }
            context.ui.warn(Warning {
                hint: failure.hint.clone(),
                ..Warning::new(failure.code.clone(), failure.message.clone())
            });
            ("unknown".to_owned(), None)
        }
    };
    // A waiting or admitted machine is shown the current release, and it never falls.
    let rolled_back = matches!(status.as_str(), "active" | "pending")
        && pin
            .release
            .is_some_and(|have| offered.is_none_or(|there| there < have));
    if rolled_back {
        *exit = Exit::Integrity;
        context.ui.warn(
            Warning::new(
                "service_rolled_back",
                format!("{address} no longer shows the release that is pinned: it was rolled back"),
            )
            .hint("installed skills stay as they are; tell the owner"),
        );
    }
    let mut table = Table::default();
    let mut row = |name: &str, value: String| table.row([paint(DIM, name), value]);
    row("linked to", paint(HINT, &address));
    row(
        "this machine",
        match status.as_str() {
            "active" => paint(GOOD, "admitted"),
            "pending" => paint(WARN, "waits for the owner"),
            "revoked" => paint(WARN, "shut out"),
            _ => "unknown".to_owned(),
        },
    );
    if let Some(key) = &pin.public_key {
        row("vault's key", paint(BOLD, key.fingerprint()));
    }
    row("release", release_words(pin.release, offered, rolled_back));
    if let Some(hash) = &pin.payload_sha256 {
        row("payload", hash.to_string());
    }
    row("installed", count(installed as u64, "skill"));
    if let Some(expires_at) = expires_at {
        row(
            if stale { "stale since" } else { "good until" },
            expires_at.to_string(),
        );
    }
    Ok((
        json!({
            "address": address,
            "link": link.id().as_str(),
            "status": status,
            "vault_fingerprint": pin.public_key.map(|key| key.fingerprint()),
            "release": pin.release,
            "offered_release": offered,
            "rolled_back": rolled_back,
            "payload_sha256": pin.payload_sha256,
            "installed": installed,
            "expires_at": expires_at,
            "stale": stale,
        }),
        table.text(),
    ))
}

/// The pinned release beside the one that the service shows.
fn release_words(pinned: Option<u64>, offered: Option<u64>, rolled_back: bool) -> String {
    match (pinned, offered) {
        (None, _) => "none yet".to_owned(),
        (Some(have), Some(there)) if there > have => {
            format!("{have}, release {there} is there  (vault cloud pull)")
        }
        (Some(have), Some(there)) if rolled_back => paint(
            WARN,
            format_args!("{have}, but the service shows release {there}"),
        ),
        (Some(have), None) if rolled_back => {
            paint(WARN, format_args!("{have}, but the service shows none"))
        }
        (Some(have), _) => have.to_string(),
    }
}
