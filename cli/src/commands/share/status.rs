//! `vault status`: shows where this vault is published, and the linked vaults, whose releases this
//! machine installs.

mod link_status;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use vault_api::VaultHead;
use vault_format::{hash::Digest, root::VaultFingerprint, time::Timestamp};
use vault_library::{
    Origin, Vault, clock,
    publish::{self, state::RecordedRelease},
    shelf::{self, Listing},
    subscribe::{self},
};
use vault_service::error::ErrorCode as ServiceCode;
use vault_store::clock::{Clock, SystemClock};

pub use self::link_status::LinkStatus;
use super::devices::count_waiting_machines;
use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure},
    output::{
        BOLD, HINT, Report, WARN, Warning, clean, count, doctor, format_facts, format_size, paint,
    },
    service::{connection::Connection, tokens::TokenFile},
    tasks::{key_changes, publishing::Publisher, subscription::warn_of_end},
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

/// Where this vault is published, and the vaults that this machine is linked to.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Status {
    /// The vault at the connected service; null if this vault is not connected.
    connected: Option<Connected>,
    /// The linked vaults.
    links: Vec<LinkStatus>,
}

/// Shows the connected service and the linked vaults. A service that cannot be reached is a warning
/// and makes the exit code 7.
pub fn run(context: &Context, _arguments: &Arguments) -> Result<Report, Failure> {
    // Do not create a vault here.
    let Some(vault) = context.existing_vault()? else {
        return Err(fail!(NotConnected, "there is no vault here yet")
            .hint("vault add <folder>, or vault link <url>/v/<slug>"));
    };
    let connection = Connection::find(context)?;
    let linked = subscribe::list_links(&vault)?;
    if connection.is_none() && linked.is_empty() {
        return Err(fail!(
            NotConnected,
            "this vault is neither connected nor linked to a service"
        )
        .hint("vault cloud connect <url>, or vault link <url>/v/<slug>"));
    }
    let mut exit = Exit::Done;
    // A failed request is a warning and sets the exit code, so that all other vaults are shown too.
    let connected = connection.map(|it| Connected::load_status(context, &vault, it, &mut exit));
    let connected = connected.transpose()?;
    let links = linked
        .iter()
        .map(|link| LinkStatus::load_status(context, &vault, link, &mut exit));
    let links: Vec<_> = links.collect::<Result<_, _>>()?;
    warn_of_time_ahead(context, &vault)?;
    let tables = connected.iter().map(Connected::facts_text);
    let tables: Vec<_> = tables
        .chain(links.iter().map(LinkStatus::facts_text))
        .collect();
    Ok(Report::view(Status { connected, links }, tables.join("\n\n")).with_exit(exit))
}

/// Warns if this machine's clock was ahead before. vault judges expiry by the latest time that it
/// has seen, so valid releases may be refused until the clock reaches that time.
fn warn_of_time_ahead(context: &Context, vault: &Vault) -> Result<(), Failure> {
    let ahead = clock::times_ahead(vault)?.into_iter();
    if let Some(seen_at) = ahead.map(|time| time.seen_at).max() {
        let text = doctor::clock_was_ahead_text(SystemClock.now(), seen_at);
        let hint = "check the clock; if it is right now: vault doctor --reset-clock";
        context.ui.warn_with("clock_was_ahead", text, hint);
    }
    Ok(())
}

/// The vault at the connected service.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Connected {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    #[serde(flatten)]
    connection: Connection,
    /// Whether this machine is signed in.
    signed_in: bool,
    /// The number of installed skills that are this vault's own.
    own_skills: usize,
    /// What the service shows of the vault, as `GET /admin/vaults/<slug>` answers. Null if this
    /// machine is not signed in, the request failed, or the account may not see it.
    service: Value,
    /// Fingerprint of the vault, for people to compare: `vlt:<groups>/<version of its keys>`.
    fingerprint: VaultFingerprint,
    /// Version of the vault's signed list of keys, counted from 1.
    root_version: u64,
    /// The last release that this machine published or took over; null if there is none.
    last_push: Option<LastPush>,
    /// Whether the account is a member, who cannot publish.
    #[serde(skip)]
    is_member: bool,
    /// Whether there are keys to compare with those of the service. A vault that only holds links is
    /// not published.
    #[serde(skip)]
    has_keys: bool,
}

/// A release that the service has acknowledged.
#[derive(Debug, JsonSchema, Serialize)]
pub struct LastPush {
    /// Number of the release, counted from 1.
    release: u64,
    /// Number of skills in the release.
    skills: u64,
    /// When the service acknowledged it.
    at: Timestamp,
    /// When the release stops being valid, in UTC.
    expires_at: Timestamp,
    /// SHA-256 of the payload that the publishers signed.
    payload_sha256: Digest,
}

impl From<RecordedRelease> for LastPush {
    fn from(push: RecordedRelease) -> Self {
        Self {
            release: push.release,
            skills: push.skills,
            at: push.at,
            expires_at: push.expires_at,
            payload_sha256: push.payload_sha256,
        }
    }
}

impl Connected {
    fn load_status(
        context: &Context,
        vault: &Vault,
        connection: Connection,
        exit: &mut Exit,
    ) -> Result<Self, Failure> {
        let tokens = TokenFile::for_service(context, &connection.base, connection.slug.as_str())?;
        // Stored tokens only suggest a sign-in: the request below may show that it has ended.
        let mut signed_in = tokens.read()?.is_some();
        let address = connection.address();
        let mut failed = |failure: &Failure| {
            *exit = failure.exit();
            context.ui.warn(Warning::from(failure));
        };
        let (mut service, mut is_member) = (Value::Null, false);
        if signed_in {
            let path = format!("/admin/vaults/{}", connection.slug);
            let answer =
                context.block_on(async { connection.owner_client(context)?.get(&path).await });
            match answer {
                Ok(shown) => service = shown,
                // A member of the vault may not read this, and that is no failure.
                Err(failure) if failure.code == ServiceCode::PublisherRequired => is_member = true,
                Err(failure) => {
                    // Only this code means that the sign-in has ended.
                    signed_in = failure.code != ErrorCode::SignedOut;
                    failed(&failure);
                }
            }
            if let Ok(shown) = VaultHead::deserialize(&service) {
                key_changes::warn_of_pin_reset(context, &address, &shown);
            }
        }
        let state = publish::state::read_state(vault, connection.base.as_str(), &connection.slug)?;
        let last_push = state.and_then(|state| state.published).map(LastPush::from);
        if let Some(push) = &last_push {
            warn_of_end(context, &address, push.expires_at, true);
        }
        let own_version = vault.require_trust()?.chain().version();
        // If the service has newer keys, apply them: they may say that this machine can no longer
        // publish.
        if service.pointer("/pin/root_version").and_then(Value::as_u64) > Some(own_version) {
            let publisher = Publisher::new(context, vault, &connection)?;
            let key_change = context.block_on(publisher.apply_shown_keys());
            let _reported = key_change.inspect_err(&mut failed);
        }
        // Read the keys again, because the step above may have changed them.
        let trust = vault.require_trust()?;
        Ok(Self {
            own_skills: count_installed(&shelf::list_installed(vault)?, &Origin::Local),
            fingerprint: trust.fingerprint(),
            root_version: trust.chain().version(),
            has_keys: !is_member && !vault.only_holds_links()?,
            address,
            connection,
            signed_in,
            service,
            last_push,
            is_member,
        })
    }

    fn facts_text(&self) -> String {
        let login = format!("no  (vault cloud connect {})", self.address);
        let (pushed, good_until) = match &self.last_push {
            Some(push) => {
                let (release, skills, at) = (push.release, count(push.skills, "skill"), push.at);
                let pushed = format!("release {release} with {skills}, {at}");
                (Some(pushed), Some(push.expires_at.to_string()))
            }
            // A member cannot publish, so it does not matter that nothing was pushed.
            None if self.is_member => (None, None),
            None => (Some("never  (vault sync)".to_owned()), None),
        };
        let role = "member  (what you change waits as a draft: vault drafts list)";
        let version = format!("version {}", self.root_version);
        let mut rows = vec![
            ("connected to", Some(paint(HINT, &self.address))),
            (
                "signed in",
                Some(if self.signed_in {
                    "yes".to_owned()
                } else {
                    login
                }),
            ),
            ("your role", self.is_member.then(|| role.to_owned())),
            ("own skills", Some(self.own_skills.to_string())),
            ("last push", pushed),
            ("good until", good_until),
            (
                "fingerprint",
                self.has_keys.then(|| paint(BOLD, self.fingerprint)),
            ),
            ("keys", self.has_keys.then_some(version)),
        ];
        if self.service.is_object() {
            rows.extend(self.service_rows());
        }
        format_facts(rows)
    }

    /// Formats the main facts that the service reports about the vault. `--json` has all of them.
    fn service_rows(&self) -> [(&'static str, Option<String>); 12] {
        let service = &self.service;
        let number = |pointer: &str| service.pointer(pointer).and_then(Value::as_u64);
        // The service is not trusted: its texts could hold control characters of the terminal.
        let word = |pointer: &str| {
            let text = service.pointer(pointer).and_then(Value::as_str);
            clean(text.unwrap_or("unknown"), 100)
        };
        let published = self.last_push.as_ref().map(|push| push.release);
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
        let machines = match number("/counts/devices_pending").unwrap_or(0) {
            0 => "none waiting".to_owned(),
            waiting => format!("{}  (vault devices list)", count_waiting_machines(waiting)),
        };
        let waiting = |pointer: &str, what: &str, command: &str| {
            let number = number(pointer).filter(|number| *number > 0)?;
            Some(format!("{} waiting  ({command})", count(number, what)))
        };
        let pinned = service.pointer("/pin/fingerprint").and_then(Value::as_str);
        let (status, subscription) = (word("/status"), word("/subscription"));
        let grace = service.pointer("/grace_ends_at").and_then(Value::as_str);
        let grace = grace.map(|end| format!(", works until {}", clean(end, 40)));
        [
            ("the service", Some(release)),
            ("machines", Some(machines)),
            (
                "drafts",
                waiting("/drafts/pending", "draft", "vault drafts list"),
            ),
            (
                "drafts",
                waiting(
                    "/drafts/proposals",
                    "proposed release",
                    "vault release list",
                ),
            ),
            (
                "drafts",
                waiting("/drafts/key_requests", "publisher", "vault publishers list"),
            ),
            (
                "pinned vault",
                pinned.map(|pinned| paint(BOLD, clean(pinned, 60))),
            ),
            ("owner", Some(word("/owner"))),
            ("stored", describe_storage(service)),
            ("limits", describe_places(service)),
            ("status", (status != "active").then(|| paint(WARN, status))),
            (
                "subscription",
                (subscription != "none").then(|| subscription + &grace.unwrap_or_default()),
            ),
            ("set-up", setup_progress(service)),
        ]
    }
}

/// Formats the number of machines, people and drafts of the vault, each with its quota. Leaves out
/// those without a quota; `None` if none has one.
fn describe_places(service: &Value) -> Option<String> {
    let number = |pointer: String| service.pointer(&pointer).and_then(Value::as_u64);
    let places = ["machines", "people", "drafts"].into_iter();
    let limited = places.filter_map(|what| {
        let limit = number(format!("/quota/{what}"))?;
        let used = number(format!("/usage/{what}")).unwrap_or(0);
        let text = format!("{used} of {limit} {what}");
        let is_near = used.saturating_mul(100) >= limit.saturating_mul(80);
        Some(if is_near { paint(WARN, text) } else { text })
    });
    let limited: Vec<_> = limited.collect();
    (!limited.is_empty()).then(|| limited.join(", "))
}

/// Formats the bytes and objects that the vault stores, with the quotas; `None` if the service does
/// not report them.
fn describe_storage(service: &Value) -> Option<String> {
    let number = |pointer: &str| service.pointer(pointer).and_then(Value::as_u64);
    let (bytes, objects) = (number("/usage/bytes")?, number("/usage/objects")?);
    let (bytes_limit, objects_limit) = (number("/quota/bytes"), number("/quota/objects"));
    let near = |used: u64, limit: Option<u64>| {
        limit.is_some_and(|limit| used.saturating_mul(100) >= limit.saturating_mul(80))
    };
    let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    let text = format!(
        "{}{}, {objects}{} objects",
        format_size(bytes),
        of(bytes_limit.map(format_size)),
        of(objects_limit.map(|limit| limit.to_string())),
    );
    let is_near = near(bytes, bytes_limit) || near(objects, objects_limit);
    Some(if is_near { paint(WARN, text) } else { text })
}

/// Counts the intact skills of one origin: damaged and withheld ones are left out.
fn count_installed(listing: &Listing, origin: &Origin) -> usize {
    let skills = listing.skills.iter();
    skills.filter(|skill| skill.origin == *origin).count()
}

/// Describes how far a hosted vault is set up, and the next step. Returns `None` if every step is
/// done, or if the service is older than these steps.
fn setup_progress(service: &Value) -> Option<String> {
    let next = service.pointer("/next_step")?.as_str()?;
    let steps = service.pointer("/provisioning")?.as_array()?;
    // Leave out steps that this vault does not need: one that an operator created needs neither
    // starter skills nor a payment.
    let steps = steps.iter().filter(|step| step["needed"] != false);
    let (done, open): (Vec<_>, Vec<_>) = steps.partition(|step| step["state"] == "done");
    let next = match next {
        "paid_access" => "the service waits for the payment",
        "namespace" => "the service creates the vault",
        "cloud_import" => "the service saves the starter skills",
        "first_sync" => "publish a release  (vault sync)",
        // A newer service may name a step that this version does not know.
        _ => "finish the set-up on the service's page",
    };
    Some(format!(
        "{} of {} steps done; next: {next}",
        done.len(),
        done.len() + open.len()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            let text = setup_progress(&service(json!(next))).unwrap();
            assert!(text.starts_with("2 of 3 steps done; next: "), "{text}");
            assert!(text.len() + 14 <= 80, "{text}");
        }
        let sync = setup_progress(&service(json!("first_sync"))).unwrap();
        assert!(sync.ends_with("(vault sync)"), "{sync}");
        assert_eq!(setup_progress(&service(Value::Null)), None);
        assert_eq!(setup_progress(&json!({ "provisioning": [] })), None);
    }
}
