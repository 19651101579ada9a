//! `vault status --cloud`: shows where this vault is published, and the vaults that this machine is
//! linked to.

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use vault_library::{Origin, Vault, publish, shelf, subscribe};
use vault_skill::{catalog::SignedCatalog, hash::Digest, time::Timestamp};
use vault_store::clock::{Clock, SystemClock};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, DIM, GOOD, HINT, Report, Table, WARN, Warning, clean, count, paint, size},
    service::{connection::Connection, tokens::TokenFile},
    subscription::device_client,
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
    let connected = connection
        .map(|connection| Connected::load(context, &vault, connection, &mut exit))
        .transpose()?;
    let mut subscriptions = Vec::new();
    for link in &linked {
        subscriptions.push(LinkStatus::load(context, &vault, link, &mut exit)?);
    }
    let blocks: Vec<String> = connected
        .iter()
        .map(Connected::text)
        .chain(subscriptions.iter().map(LinkStatus::text))
        .collect();
    let data = json!({
        "connected": connected.as_ref().map(Connected::json), "links": subscriptions,
    });
    Ok(Report::new(data, blocks.join("\n\n")).exit(exit))
}

/// The service on which this vault is published.
struct Connected {
    address: String,
    connection: Connection,
    signed_in: bool,
    own_skills: usize,
    last_push: Option<publish::state::AcknowledgedRelease>,
    /// The service's own view of the namespace. Null if this machine is not signed in or the
    /// request failed.
    service: Value,
}

impl Connected {
    fn load(
        context: &Context,
        vault: &Vault,
        connection: Connection,
        exit: &mut Exit,
    ) -> Result<Self, Failure> {
        let tokens = TokenFile::of(context, &connection.base, connection.slug.as_str())?;
        let signed_in = tokens.read()?.is_some();
        let mut service = Value::Null;
        if signed_in {
            let path = format!("/admin/vaults/{}", connection.slug);
            let asked = context.block_on(async { connection.owner(context)?.get(&path).await });
            service = asked.unwrap_or_else(|failure: Failure| {
                *exit = failure.exit();
                context.ui.warn(Warning::from(&failure));
                Value::Null
            });
        }
        Ok(Self {
            address: connection.address(),
            signed_in,
            own_skills: installed(vault, |origin| *origin == Origin::Local)?,
            last_push: publish::state::read(vault, connection.base.as_str(), &connection.slug)?
                .and_then(|state| state.published),
            service,
            connection,
        })
    }

    fn json(&self) -> Value {
        json!({
            "address": self.address,
            "base": self.connection.base.as_str(),
            "slug": self.connection.slug,
            "signed_in": self.signed_in,
            "own_skills": self.own_skills,
            "last_push": self.last_push.as_ref().map(|known| json!({
                "release": known.release, "skills": known.skills, "at": known.at,
                "expires_at": known.expires_at, "payload_sha256": known.payload_sha256,
            })),
            "service": self.service,
        })
    }

    fn text(&self) -> String {
        let mut table = Table::default();
        let mut row = |name: &str, value: String| table.row([paint(DIM, name), value]);
        row("connected to", paint(HINT, &self.address));
        row(
            "signed in",
            if self.signed_in {
                "yes".to_owned()
            } else {
                format!("no  (vault cloud connect {})", self.address)
            },
        );
        row("own skills", self.own_skills.to_string());
        match &self.last_push {
            Some(known) => {
                let skills = count(known.skills, "skill");
                row(
                    "last push",
                    format!("release {} with {skills}, {}", known.release, known.at),
                );
                row("good until", known.expires_at.to_string());
            }
            None => row("last push", "never  (vault sync --cloud)".to_owned()),
        }
        if self.service.is_object() {
            let published = self.last_push.as_ref().map(|known| known.release);
            service_rows(&self.service, published, &mut row);
        }
        table.text()
    }
}

/// Counts the installed skills whose origin is `wanted`.
fn installed(vault: &Vault, wanted: impl Fn(&Origin) -> bool) -> Result<usize, Failure> {
    let skills = shelf::list(vault)?.skills;
    Ok(skills.iter().filter(|skill| wanted(&skill.origin)).count())
}

/// Adds the service's view of the namespace to the table. `--json` has every member.
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

/// A linked vault: what is pinned and installed here, and what its service shows this machine.
#[derive(Serialize)]
struct LinkStatus {
    address: String,
    link: String,
    status: String,
    vault_fingerprint: Option<String>,
    release: Option<u64>,
    offered_release: Option<u64>,
    rolled_back: bool,
    payload_sha256: Option<Digest>,
    installed: usize,
    expires_at: Option<Timestamp>,
    stale: bool,
}

impl LinkStatus {
    fn load(
        context: &Context,
        vault: &Vault,
        link: &subscribe::Link,
        exit: &mut Exit,
    ) -> Result<Self, Failure> {
        let pin = link.pin();
        let address = format!("{}/v/{}", pin.base, pin.slug);
        let expires_at = link
            .catalog_bytes()?
            .and_then(|bytes| SignedCatalog::parse(&bytes).ok()?.verify().ok())
            .map(|catalog| catalog.expires_at);
        let now = SystemClock.now().max(pin.latest_seen_at);
        let asked =
            context.block_on(async { device_client(context, vault, link)?.current().await });
        let (status, offered) = match asked {
            Ok(state) => (state.status, state.catalog.map(|catalog| catalog.release)),
            Err(failure) => {
                // A failed integrity check outranks an unreachable service.
                if *exit != Exit::Integrity {
                    *exit = failure.exit();
                }
                context.ui.warn(Warning::from(&failure));
                ("unknown".to_owned(), None)
            }
        };
        // The service shows the current release to every active or pending machine, and release
        // numbers never fall. A missing or lower number means that the service was rolled back.
        let rolled_back = matches!(status.as_str(), "active" | "pending")
            && pin
                .release
                .is_some_and(|have| offered.is_none_or(|there| there < have));
        if rolled_back {
            *exit = Exit::Integrity;
            context.ui.warn(
                Warning::new(
                    "service_rolled_back",
                    format!(
                        "{address} no longer shows the release that is pinned: it was rolled back"
                    ),
                )
                .hint("installed skills stay as they are; tell the owner"),
            );
        }
        Ok(Self {
            address,
            link: link.id().as_str().to_owned(),
            status,
            vault_fingerprint: pin.public_key.map(|key| key.fingerprint()),
            release: pin.release,
            offered_release: offered,
            rolled_back,
            payload_sha256: pin.payload_sha256,
            installed: installed(
                vault,
                |origin| matches!(origin, Origin::Linked(id) if id == link.id()),
            )?,
            expires_at,
            stale: expires_at.is_some_and(|expires_at| expires_at <= now),
        })
    }

    fn text(&self) -> String {
        let mut table = Table::default();
        let mut row = |name: &str, value: String| table.row([paint(DIM, name), value]);
        row("linked to", paint(HINT, &self.address));
        row(
            "this machine",
            match self.status.as_str() {
                "active" => paint(GOOD, "admitted"),
                "pending" => paint(WARN, "waits for the owner"),
                "revoked" => paint(WARN, "shut out"),
                _ => "unknown".to_owned(),
            },
        );
        if let Some(fingerprint) = &self.vault_fingerprint {
            row("vault's key", paint(BOLD, fingerprint));
        }
        row(
            "release",
            release_words(self.release, self.offered_release, self.rolled_back),
        );
        if let Some(hash) = &self.payload_sha256 {
            row("payload", hash.to_string());
        }
        row("installed", count(self.installed as u64, "skill"));
        if let Some(expires_at) = self.expires_at {
            let word = if self.stale {
                "stale since"
            } else {
                "good until"
            };
            row(word, expires_at.to_string());
        }
        table.text()
    }
}

/// Compares the pinned release with the one that the service shows.
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
