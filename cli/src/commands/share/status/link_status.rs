//! The part of `vault status` about one linked vault: what this machine has pinned and installed,
//! and what the service shows now.

use schemars::JsonSchema;
use serde::Serialize;
use vault_api::CurrentDevice;
use vault_format::{
    hash::Digest,
    name::{SkillName, Slug},
    root::VaultFingerprint,
    time::Timestamp,
};
use vault_library::{
    Origin, Vault,
    shelf::{self},
    subscribe::{self, AcceptOptions, LastPull, Link, LinkId, PullGate, Selection},
    trust::VaultTrust,
};
use vault_service::model::device::DeviceStatus;
use vault_store::clock::{Clock, SystemClock};

use super::count_installed;
use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, DIM, HINT, WARN, Warning, clean, count, doctor, either, format_facts, paint},
    tasks::subscription::{
        accept_catalog, device_client, link_address, selection_text, status_text, warn_of_end,
    },
};

/// A linked vault: what is pinned and installed here, and what its service shows this machine.
#[derive(Debug, JsonSchema, Serialize)]
pub struct LinkStatus {
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// Id of the link on this machine: the slug and ten hex digits.
    link: LinkId,
    /// Local name of the vault, as in `<vault>/<skill>`.
    name: Slug,
    /// What a pull does with skills that the gate refuses.
    gate: PullGate,
    /// The owner's decision about this machine; `unknown` if the service could not be asked.
    status: &'static str,
    /// The fingerprint of the vault; null if none is pinned.
    vault_fingerprint: Option<VaultFingerprint>,
    /// Version of the pinned keys, counted from 1; null if none are pinned.
    root_version: Option<u64>,
    /// The pinned release; null before the first pull.
    release: Option<u64>,
    /// The release that the service shows.
    offered_release: Option<u64>,
    /// Whether the service no longer shows the pinned release.
    rolled_back: bool,
    /// SHA-256 of the payload of the pinned release.
    payload_sha256: Option<Digest>,
    /// Number of skills that are installed from the vault.
    installed: usize,
    /// Skills that are not run until the owner's next release, because a revoked key signed them.
    withheld: Vec<SkillName>,
    /// When the pinned release expires.
    expires_at: Option<Timestamp>,
    /// Whether the pinned release has expired.
    stale: bool,
    /// The last pull; null before the first one.
    last_pull: Option<LastPull>,
    /// The skills that were selected; null if all are.
    selection: Option<Selection>,
    /// The fingerprint that `vault link --expect-key` demands; null once the vault is pinned.
    expected_fingerprint: Option<VaultFingerprint>,
    #[serde(skip)]
    is_renamed: bool,
    #[serde(skip)]
    device: Option<DeviceStatus>,
}

impl LinkStatus {
    pub(super) fn load_status(
        context: &Context,
        vault: &Vault,
        link: &Link,
        exit: &mut Exit,
    ) -> Result<Self, Failure> {
        let (pin, address) = (link.pin().clone(), link_address(link));
        let expires_at = link.catalog(vault)?.map(|catalog| catalog.expires_at);
        let trust = link.trust(vault)?;
        // A clock that was set back must not make an expired release look valid.
        let seen_at = trust.as_ref().and_then(VaultTrust::latest_seen_at);
        let now = SystemClock.now().max(seen_at.unwrap_or(Timestamp::MIN));
        let mut failed = |failure: &Failure| {
            // A failed integrity check outranks an unreachable service.
            if *exit != Exit::Integrity {
                *exit = failure.exit();
            }
            context.ui.warn(Warning::from(failure));
        };
        let state = async { device_client(context, vault, link)?.fetch_current().await };
        let state = context.block_on(state).inspect_err(&mut failed).ok();
        if let Some(state) = &state {
            let key_change = take_shown_keys(context, vault, link, state);
            let _reported = key_change.inspect_err(&mut failed);
        }
        let device = state.as_ref().map(|state| state.status);
        // Set the exit code, so that a script that monitors the status notices the revocation.
        if matches!(device, Some(DeviceStatus::Revoked)) && *exit == Exit::Done {
            *exit = Exit::NotAllowed;
        }
        let offered_release = state.and_then(|state| Some(state.catalog.flatten()?.release));
        // The service shows the current release to every active or pending machine, and release
        // numbers never fall. A missing or lower number means that the service was rolled back.
        let readable = matches!(device, Some(DeviceStatus::Active | DeviceStatus::Pending));
        let release = pin.counted.as_ref().map(|counted| counted.release);
        // `None` is less than every number, because hiding all releases is a rollback as well.
        let rolled_back = readable && release.is_some_and(|it| offered_release < Some(it));
        if rolled_back {
            *exit = Exit::Integrity;
            let text =
                format!("{address} no longer shows the release that is pinned: it was rolled back");
            let hint = "installed skills stay as they are; tell the owner";
            context.ui.warn_with("service_rolled_back", text, hint);
        }
        let listing = shelf::list_installed(vault)?;
        let withheld = listing.withheld_skills();
        let withheld = withheld.get(&Some(link.id())).into_iter().flatten();
        // Read the keys again, because `take_shown_keys` may have applied newer ones.
        let trust = link.trust(vault)?;
        if let Some(expires_at) = expires_at {
            warn_of_end(context, &address, expires_at, false);
        }
        Ok(Self {
            link: link.id().clone(),
            gate: pin.gate,
            status: device.map_or("unknown", DeviceStatus::as_str),
            vault_fingerprint: trust.as_ref().map(VaultTrust::fingerprint),
            root_version: trust.as_ref().map(|trust| trust.chain().version()),
            payload_sha256: pin.counted.map(|counted| counted.payload_sha256),
            installed: count_installed(&listing, &Origin::Linked(link.id().clone())),
            withheld: withheld.map(|name| (*name).clone()).collect(),
            stale: expires_at.is_some_and(|expires_at| expires_at <= now),
            last_pull: subscribe::last_pull(vault, link)?,
            selection: Some(link.selection()).filter(|selection| !selection.is_all()),
            expected_fingerprint: pin.expected,
            is_renamed: pin.name != pin.slug,
            name: pin.name,
            address,
            release,
            offered_release,
            rolled_back,
            expires_at,
            device,
        })
    }

    pub(super) fn facts_text(&self) -> String {
        let (name, address) = (&self.name, &self.address);
        let withheld = || {
            paint(
                WARN,
                doctor::withheld_message(Some(name.as_str()), &self.withheld),
            )
        };
        let selected = self.selection.as_ref().map(|selection| {
            let end = format!("{DIM}(end with: vault cloud pull --from {name} --all){DIM:#}");
            format!("{}  {end}", selection_text(selection))
        });
        let expected = self.expected_fingerprint.map(|expected| {
            format!(
                "{expected}  {DIM}(replace with: vault link {address} --expect-key <fingerprint>){DIM:#}"
            )
        });
        let ends = either(self.stale, "stale since", "good until");
        format_facts([
            ("linked to", Some(paint(HINT, address))),
            ("called here", self.is_renamed.then(|| paint(BOLD, name))),
            ("this machine", Some(status_text(self.device))),
            (
                "the vault",
                self.vault_fingerprint.map(|it| paint(BOLD, it)),
            ),
            ("keys", self.root_version.map(|it| format!("version {it}"))),
            ("release", Some(self.release_text())),
            ("payload", self.payload_sha256.map(|hash| hash.to_string())),
            ("installed", Some(count(self.installed, "skill"))),
            ("withheld", (!self.withheld.is_empty()).then(withheld)),
            ("last pull", self.last_pull.as_ref().map(last_pull_text)),
            ("selected", selected),
            ("expected", expected),
            (ends, self.expires_at.map(|at| at.to_string())),
        ])
    }

    /// Formats the pinned release, and the one that the service shows if it is another.
    fn release_text(&self) -> String {
        match (self.release, self.offered_release) {
            (None, _) => "none yet".to_owned(),
            (Some(pinned), Some(current)) if current > pinned => {
                format!("{pinned}; the service shows release {current}  (vault cloud pull)")
            }
            (Some(pinned), Some(current)) if self.rolled_back => {
                format!("{WARN}{pinned}, but the service shows release {current}{WARN:#}")
            }
            (Some(pinned), None) if self.rolled_back => {
                format!("{WARN}{pinned}, but the service shows none{WARN:#}")
            }
            (Some(pinned), _) => pinned.to_string(),
        }
    }
}

/// Applies newer keys of a linked vault that the service shows, and warns which keys were added,
/// removed or revoked. Installs nothing.
fn take_shown_keys(
    context: &Context,
    vault: &Vault,
    link: &Link,
    state: &CurrentDevice,
) -> Result<(), Failure> {
    let (Some(counted), Some(Some(shown))) = (&link.pin().counted, &state.catalog) else {
        return Ok(());
    };
    let readable = matches!(state.status, DeviceStatus::Active | DeviceStatus::Pending);
    // The keys are part of the catalog, so an unchanged catalog has no newer ones.
    if !readable || shown.sha256 == counted.file_sha256 {
        return Ok(());
    }
    let bytes =
        context.block_on(async { device_client(context, vault, link)?.fetch_catalog().await })?;
    if let Some(bytes) = bytes {
        // Accepting a catalog stores its keys, and neither pins nor installs it.
        accept_catalog(context, vault, link, &bytes, &AcceptOptions::default())?;
    }
    Ok(())
}

/// Formats the time of the last pull, with its release or its error.
fn last_pull_text(LastPull { at, release, error }: &LastPull) -> String {
    match (error, release) {
        (Some(error), _) => {
            let message = clean(&error.message, 200);
            format!("{WARN}{at}, failed: {message}{WARN:#}")
        }
        (None, Some(release)) => format!("{at}, release {release}"),
        (None, None) => format!("{at}, nothing was published"),
    }
}
