//! Linked vaults: the client that signs as this machine, and checks of what the service shows.

use vault_library::{
    Vault,
    subscribe::{AcceptOptions, AcceptedCatalog, Link, LinkError},
};
use vault_service::model::device::DeviceStatus;
use vault_skill::{
    catalog::{CatalogWarning, SignedCatalog},
    root::{RootChain, VaultFingerprint},
};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    key_changes,
    output::{GOOD, WARN, Warning, paint},
    service::{Base, DeviceClient},
};

/// Creates the client that signs with this machine's key for the link.
pub fn device_client(
    context: &Context,
    vault: &Vault,
    link: &Link,
) -> Result<DeviceClient, Failure> {
    let base: Base = link
        .pin()
        .base
        .parse()
        .map_err(|error| fail!(VaultDamaged, "{error}"))?;
    DeviceClient::new(context, &base, &link.pin().slug, link.device_key(vault)?)
}

/// The address of the linked vault.
pub fn address(link: &Link) -> String {
    format!("{}/v/{}", link.pin().base, link.pin().slug)
}

/// Formats the owner's decision about this machine; `None` if the service could not be asked.
pub fn status_text(status: Option<DeviceStatus>) -> String {
    match status {
        Some(DeviceStatus::Active) => paint(GOOD, "admitted"),
        Some(DeviceStatus::Pending) => paint(WARN, "waits for the owner"),
        Some(DeviceStatus::Revoked) => paint(WARN, "shut out"),
        None => "unknown".to_owned(),
    }
}

/// Fails if a release is pinned. Call it when the service shows no catalog: hiding all releases is
/// also a rollback.
pub fn check_not_rolled_back(link: &Link) -> Result<(), Failure> {
    let Some(counted) = &link.pin().counted else {
        return Ok(());
    };
    let release = counted.release;
    Err(fail!(
        ServiceRolledBack,
        "the service shows no catalog, but release {release} is pinned: it was rolled back"
    )
    .hint("installed skills stay as they are; tell the owner"))
}

/// Says which vault was shown where another one was expected, for people to compare.
fn name_shown_vault(
    mut failure: Failure,
    bytes: &[u8],
    expected: Option<VaultFingerprint>,
) -> Failure {
    let file = SignedCatalog::parse(bytes).ok();
    let Some(chain) = file.and_then(|file| RootChain::verify(file.roots()).ok()) else {
        return failure;
    };
    let shown = chain.fingerprint();
    failure.message = match expected {
        Some(expected) => format!("the service shows the vault {shown}, not {expected}"),
        None => format!("the service shows another vault, {shown}, than the one that is pinned"),
    };
    failure
}

/// Judges a catalog of a linked vault, and says how the vault's keys have changed, also if the catalog
/// is then refused.
pub fn accept(
    context: &Context,
    vault: &Vault,
    link: &Link,
    bytes: &[u8],
    options: &AcceptOptions,
) -> Result<AcceptedCatalog, Failure> {
    let address = address(link);
    let accepted = link.accept(vault, bytes, options).map_err(|error| {
        if let LinkError::Catalog {
            roots: Some(changes),
            ..
        } = &error
        {
            key_changes::warn(context, &address, changes);
        }
        let failure = Failure::from(error);
        let expected = options.expected.or(link.pin().expected);
        if failure.code == ErrorCode::VaultChanged {
            name_shown_vault(failure, bytes, expected)
        } else {
            failure
        }
    })?;
    if let Some(changes) = accepted.root_changes() {
        key_changes::warn(context, &address, changes);
    }
    key_changes::warn_about_roots(context, &address, accepted.root_warnings());
    for warning in accepted.warnings() {
        context.ui.warn(match warning {
            CatalogWarning::IssuedInFuture => Warning::new(
                "issued_in_future",
                "the catalog was signed in this machine's future: one of the two clocks is off",
            ),
            CatalogWarning::ClockWentBack => Warning::new(
                "clock_went_back",
                "this machine's clock shows an earlier time than before; expiry is judged by the latest time seen",
            ),
        });
    }
    Ok(accepted)
}
