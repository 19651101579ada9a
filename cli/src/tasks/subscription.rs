//! Linked vaults: vaults of other people or machines whose releases this machine installs from a
//! service. This module creates the client with which a link reads, and judges the catalogs (signed
//! lists of a release's content) that the service shows.

use vault_format::{
    catalog::{CatalogWarning, SignedCatalog},
    keys::SecretKey,
    root::{RootChain, VaultFingerprint},
    time::Timestamp,
};
use vault_library::{
    Vault, publish,
    subscribe::{self, AcceptOptions, AcceptedCatalog, Link, LinkError, Selection},
};
use vault_service::model::device::DeviceStatus;
use vault_store::clock::{Clock as _, SystemClock};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{GOOD, WARN, Warning, clean, count, either, join, paint},
    service::{Base, DeviceClient},
    tasks::key_changes,
};

/// Creates the client that signs its requests with this machine's key for the link.
pub fn device_client(
    context: &Context,
    vault: &Vault,
    link: &Link,
) -> Result<DeviceClient, Failure> {
    device_client_with(context, link, link.device_key(vault)?)
}

/// Creates the client that signs its requests with `key`, for example before the key is stored.
pub fn device_client_with(
    context: &Context,
    link: &Link,
    key: SecretKey,
) -> Result<DeviceClient, Failure> {
    let base: Base = link
        .pin()
        .base
        .parse()
        .map_err(|error| fail!(VaultDamaged, "{error}"))?;
    DeviceClient::new(context, &base, &link.pin().slug, key)
}

/// Creates the failure for a machine that is linked to no vault.
pub fn not_linked() -> Failure {
    fail!(NotLinked, "this machine is not linked to a vault").hint("vault link <url>/v/<slug>")
}

/// Finds a link by its address, its id, its local name, or its slug. Fails if none or several
/// match.
pub fn find_link(vault: &Vault, asked: &str) -> Result<Link, Failure> {
    let mut links = subscribe::list_links(vault)?;
    if links.is_empty() {
        return Err(not_linked());
    }
    let names = join(links.iter().map(|link| &link.pin().name));
    let ids = join(links.iter().map(Link::id));
    let asked = asked.trim_end_matches('/');
    let is_named = |link: &Link| {
        let pin = link.pin();
        link.id().as_str() == asked || pin.name.as_str() == asked || link_address(link) == asked
    };
    // Two services may have vaults of the same slug, so a slug only counts if nothing else matches.
    if links.iter().any(is_named) {
        links.retain(is_named);
    } else {
        links.retain(|link| link.pin().slug.as_str() == asked);
    }
    let asked = clean(asked, 200);
    match links.len() {
        0 | 1 => links.pop().ok_or_else(|| {
            fail!(NotLinked, "this machine is not linked to `{asked}`")
                .hint(format!("it is linked to: {names}"))
        }),
        _ => Err(
            fail!(LinkAmbiguous, "several linked vaults are called `{asked}`")
                .hint(format!("name one by its id: {ids}")),
        ),
    }
}

/// Formats a selection of skills as the options of `vault link` that create it; empty if it selects
/// everything.
pub fn selection_text(selection: &Selection) -> String {
    let mut options = Vec::new();
    let mut add =
        |option: &str, value: &str| options.push(format!("{option} {}", clean(value, 64)));
    if let Some(agent) = &selection.agent {
        add("--agent", agent.as_str());
    }
    if let Some(tag) = &selection.tag {
        add("--tag", tag);
    }
    for skill in &selection.skills {
        add("--skill", skill.as_str());
    }
    if let Some(name) = &selection.install_as {
        add("--as", name.as_str());
    }
    options.join(" ")
}

/// Returns the address of the linked vault: `<service>/v/<slug>`.
pub fn link_address(link: &Link) -> String {
    format!("{}/v/{}", link.pin().base, link.pin().slug)
}

/// Warns of a release that expires within 30 days or has expired. `own` means that this vault
/// published it.
pub fn warn_of_end(context: &Context, address: &str, ends_at: Timestamp, own: bool) {
    let now = SystemClock.now();
    if publish::ends_soon(ends_at, now) {
        context.ui.warn(end_warning(address, ends_at, now, own));
    }
}

fn end_warning(address: &str, ends_at: Timestamp, now: Timestamp, own: bool) -> Warning {
    let left = ends_at.unix() - now.unix();
    let day = ends_at.to_string();
    let day = day.split('T').next().unwrap_or_default();
    let when = match left / 86_400 {
        _ if left <= 0 => format!("ended on {day}"),
        days => format!("ends on {day}, in {}", count(days.cast_unsigned(), "day")),
    };
    let hint = either(
        own,
        "vault sync renews a release that ends within 30 days",
        "its owner renews it with vault sync; installed skills stay as they are",
    );
    let text = format!("the release at {} {when}", clean(address, 200));
    Warning::new("release_ends", text).hint(hint)
}

/// Formats the owner's decision about this machine for people. Pass `None` if the service could not
/// be asked.
pub fn status_text(status: Option<DeviceStatus>) -> String {
    match status {
        Some(DeviceStatus::Active) => paint(GOOD, "admitted"),
        Some(DeviceStatus::Pending) => paint(WARN, "waiting for approval"),
        Some(DeviceStatus::Revoked) => paint(WARN, "access revoked"),
        None => "unknown".to_owned(),
    }
}

/// Fails if this machine has pinned a release of the link. Call it when the service shows no
/// catalog: hiding all releases is also a rollback.
pub fn check_not_rolled_back(link: &Link) -> Result<(), Failure> {
    let Some(counted) = &link.pin().counted else {
        return Ok(());
    };
    let release = counted.release;
    Err(fail!(
        ServiceRolledBack,
        "the service has no catalog, but release {release} is pinned: the service was rolled back"
    )
    .hint("installed skills stay as they are; tell the owner"))
}

/// Replaces the message of a failure by one that names the vault that the service showed and the
/// one that was expected, so that people can compare the fingerprints.
fn name_shown_vault(
    mut failure: Failure,
    bytes: &[u8],
    expected: Option<VaultFingerprint>,
) -> Failure {
    // The catalog was rejected. It is only parsed for a name to show, and nothing is trusted.
    let file = SignedCatalog::parse(bytes).ok();
    let Some(chain) = file.and_then(|file| RootChain::verify(file.roots()).ok()) else {
        return failure;
    };
    let shown = chain.fingerprint();
    failure.message = match expected {
        Some(expected) if expected == shown => format!(
            "this machine has linked another vault at this address; to link {shown} in its place: vault unlink, then link it again"
        ),
        Some(expected) => format!("the service shows the vault {shown}, not {expected}"),
        None => format!("the service shows another vault, {shown}, than the one that is pinned"),
    };
    failure
}

/// Verifies a catalog of a linked vault against this machine's pin, and prints the warnings about
/// it. Changes of the vault's keys are reported even if the catalog is rejected.
pub fn accept_catalog(
    context: &Context,
    vault: &Vault,
    link: &Link,
    bytes: &[u8],
    options: &AcceptOptions,
) -> Result<AcceptedCatalog, Failure> {
    let address = link_address(link);
    let accepted = link
        .accept_catalog(vault, bytes, options)
        .map_err(|error| {
            if let LinkError::Catalog {
                roots: Some(changes),
                ..
            } = &error
            {
                key_changes::warn_of_changes(context, &address, changes);
            }
            let failure = Failure::from(error);
            let expected = options.expected.or(link.pin().expected);
            if failure.code != ErrorCode::VaultChanged {
                return failure;
            }
            let failure = name_shown_vault(failure, bytes, expected);
            match expected {
            Some(_) => failure.hint(format!(
                "nothing was changed; if the owner confirms the fingerprint that is shown: vault \
                 link {address} --expect-key <fingerprint>"
            )),
            None => failure,
        }
        })?;
    if let Some(changes) = accepted.root_changes() {
        key_changes::warn_of_changes(context, &address, changes);
    }
    key_changes::warn_about_roots(context, &address, accepted.root_warnings());
    for warning in accepted.warnings() {
        context.ui.warn(match warning {
            CatalogWarning::IssuedInFuture => Warning::new(
                "issued_in_future",
                "the catalog's time is in this machine's future: one of the two clocks is wrong",
            ),
            CatalogWarning::Expired => Warning::new("expired", "the catalog has expired"),
            CatalogWarning::ClockWentBack => Warning::new(
                "clock_went_back",
                "this machine's clock went back; expiry is judged by the latest time that it has shown",
            ),
        });
    }
    Ok(accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_release_is_worded_by_whose_it_is_and_how_long_it_lasts() {
        let now = Timestamp::from_unix(1_800_000_000);
        let warn =
            |days, own| end_warning("https://a.example/v/acme", now.plus_days(days), now, own);
        let text = "the release at https://a.example/v/acme";
        assert_eq!(
            warn(17, true).message,
            format!("{text} ends on 2027-02-01, in 17 days")
        );
        assert_eq!(
            warn(-1, true).message,
            format!("{text} ended on 2027-01-14")
        );
        let hints = [true, false].map(|own| warn(17, own).hint.unwrap());
        assert!(hints[0].starts_with("vault sync renews"), "{hints:?}");
        assert!(hints[1].starts_with("its owner renews"), "{hints:?}");
    }
}
