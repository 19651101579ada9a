//! Looks up a device with its namespace, and decides what the device may read there.

use vault_format::name::Slug;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey};

use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::device::{self, DeviceStanding, DeviceStatus, LastSeen};
use crate::model::namespace::{self, ServedNamespace, Status};
use crate::spending::count_machine_read;

/// Whether the vault has admitted the device, by its stored record.
pub(super) async fn is_admitted(
    app: &App,
    slug: &Slug,
    signer: &Signer<'_>,
) -> Result<bool, StoreError> {
    let key = device::device_key(slug, signer.key_text());
    let device = app.get::<DeviceStanding>(&key).await?;
    let is_active = |device: &DeviceStanding| device.status == DeviceStatus::Active;
    Ok(device.is_some_and(|device| is_active(&device.value)))
}

/// A device and its namespace, read in one call.
pub(super) struct DeviceAccess {
    pub(super) device: DeviceStanding,
    pub(super) namespace: ServedNamespace,
    /// Record under the additional key that was given to [`DeviceAccess::look_up`].
    pub(super) extra: Option<Record>,
}

impl DeviceAccess {
    /// Reads the device and the namespace in one call, and counts the read of an admitted device.
    /// An unknown device gets the same answer in the same time as an unknown vault: otherwise a
    /// caller could find out which vaults exist.
    pub(super) async fn look_up(
        app: &App,
        slug: &Slug,
        signer: &Signer<'_>,
        extra: Option<RecordKey>,
    ) -> Result<Self, Refusal> {
        let mut keys = vec![
            device::device_key(slug, signer.key_text()),
            namespace::namespace_key(slug),
        ];
        keys.extend(extra);
        let mut records = app.records.get_many(&keys).await?.into_iter();
        let (device, namespace) = (records.next().flatten(), records.next().flatten());
        let unknown = || Refusal::new(ErrorCode::DeviceUnknown);
        let (Some(device), Some(namespace)) = (device, namespace) else {
            return Err(unknown());
        };
        let namespace: ServedNamespace = namespace.read()?;
        let device: DeviceStanding = device.read()?;
        // The device record is stored under the slug, which may have had another namespace. The id
        // shows whether the device enrolled in this one.
        if namespace.status == Status::Deleted || device.namespace_id != namespace.id {
            return Err(unknown());
        }
        // Checked after the device: only a device of this vault learns that it is suspended.
        if namespace.status == Status::Suspended {
            return Err(ErrorCode::VaultSuspended.into());
        }
        if device.status == DeviceStatus::Active {
            signer.cache_key(slug);
            // Anyone can send requests of machines that are not admitted, and copies of captured
            // requests. They must not use up the budget of the namespace.
            if !signer.is_repeated() {
                count_machine_read(app, &namespace)?;
            }
        }
        Ok(Self {
            device,
            namespace,
            extra: records.next().flatten(),
        })
    }

    /// Records when the device last called and which release it has now. `look_up` must have been
    /// given [`device::seen_key`] as the additional key. An error is only logged, so the request is
    /// answered in any case.
    pub(super) async fn note_visit(
        &self,
        app: &App,
        slug: &Slug,
        signer: &Signer<'_>,
        release: Option<u64>,
    ) {
        let record_visit = async {
            let last_seen = self.extra.as_ref().map(Record::read).transpose()?;
            let now = app.clock.now();
            // `None` if there is nothing new to record: polling causes at most one write for each
            // day and release.
            if let Some(next) = LastSeen::after_visit(last_seen, self.namespace.id, release, now) {
                let write = next.to_write(slug, signer.key_text(), now)?;
                // The write has no condition, so of two calls at once either may win.
                let _ = app.records.commit_writes(vec![write]).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = record_visit.await {
            tracing::warn!(
                error = error_chain(&error),
                "a device's visit was not noted"
            );
        }
    }

    /// Rejects a revoked device. One that waits for admission may read the catalog.
    pub(super) fn may_read_catalog(&self) -> Result<(), Refusal> {
        match self.device.status {
            DeviceStatus::Pending | DeviceStatus::Active => Ok(()),
            DeviceStatus::Revoked => Err(ErrorCode::DeviceRevoked.into()),
        }
    }

    /// Rejects a device that is not admitted, and every device if the subscription of the namespace
    /// has lapsed at `now`.
    pub(super) fn may_read_bundles(&self, now: Timestamp) -> Result<(), Refusal> {
        // Checked before the subscription: only an admitted device learns whether the vault is paid
        // for.
        match self.device.status {
            DeviceStatus::Pending => return Err(ErrorCode::DevicePending.into()),
            DeviceStatus::Revoked => return Err(ErrorCode::DeviceRevoked.into()),
            DeviceStatus::Active => {}
        }
        if self.namespace.subscription.is_live(now) {
            Ok(())
        } else {
            Err(ErrorCode::SubscriptionLapsed.into())
        }
    }
}
