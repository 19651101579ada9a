//! Linked vaults: the client that signs as this machine, and checks of the catalog that the service
//! shows.

use vault_library::{
    Vault,
    subscribe::{AcceptedCatalog, Link},
};
use vault_service::model::device::DeviceStatus;
use vault_skill::catalog;

use crate::{
    context::Context,
    errors::Failure,
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
    let Some(release) = link.pin().release else {
        return Ok(());
    };
    Err(fail!(
        ServiceRolledBack,
        "the service shows no catalog, but release {release} is pinned: it was rolled back"
    )
    .hint("installed skills stay as they are; tell the owner"))
}

/// Warns about anomalies of an accepted catalog.
pub fn warn_about_catalog(context: &Context, catalog: &AcceptedCatalog) {
    for warning in &catalog.accepted().warnings {
        context.ui.warn(match warning {
            catalog::Warning::IssuedInFuture => Warning::new(
                "issued_in_future",
                "the catalog was signed in this machine's future: one of the two clocks is off",
            ),
            catalog::Warning::ClockWentBack => Warning::new(
                "clock_went_back",
                "this machine's clock shows an earlier time than before; expiry is judged by the latest time seen",
            ),
            catalog::Warning::PreviousDiffers => Warning::new(
                "previous_differs",
                "the catalog does not follow the one that this machine knows: the owner may have signed two",
            )
            .hint("compare `vault status --cloud` on two machines"),
        });
    }
}
