//! A device and its namespace, and what the device may read there.

use vault_format::name::Slug;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey};

use super::signed::Signer;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::device::{self, DeviceStatus, LastSeen, Standing};
use crate::model::namespace::{self, Served, Status};

/// A device and the namespace that knows it, as of one moment.
pub(super) struct Enrolled {
    pub(super) device: Standing,
    pub(super) namespace: Served,
    /// What stood under the key that was asked for besides.
    pub(super) extra: Option<Record>,
}

impl Enrolled {
    /// Reads device and namespace side by side: the same cost and the same answer whether the one
    /// or the other is unknown.
    pub(super) async fn look_up(
        app: &App,
        slug: &Slug,
        signer: &Signer<'_>,
        extra: Option<RecordKey>,
    ) -> Result<Self, Refusal> {
        let mut keys = vec![device::key(slug, signer.text()), namespace::key(slug)];
        keys.extend(extra);
        let mut records = app.records.get_many(&keys).await?.into_iter();
        let (device, namespace) = (records.next().flatten(), records.next().flatten());
        let unknown = || Refusal::new(ErrorCode::DeviceUnknown);
        let (Some(device), Some(namespace)) = (device, namespace) else {
            return Err(unknown());
        };
        let namespace: Served = namespace.read()?;
        let device: Standing = device.read()?;
        if namespace.status == Status::Deleted || device.namespace_id != namespace.id {
            return Err(unknown());
        }
        if namespace.status == Status::Suspended {
            return Err(ErrorCode::VaultSuspended.into());
        }
        signer.remember();
        Ok(Self {
            device,
            namespace,
            extra: records.next().flatten(),
        })
    }

    /// Remembers that the device was here and which release it now has. `extra` is what stood under
    /// [`device::seen_key`]. A read is answered whether or not this succeeds.
    pub(super) async fn note_visit(
        &self,
        app: &App,
        slug: &Slug,
        signer: &Signer<'_>,
        release: Option<u64>,
    ) {
        let noted = async {
            let held = self.extra.as_ref().map(Record::read).transpose()?;
            let now = app.clock.now();
            if let Some(next) = LastSeen::after(held, self.namespace.id, release, now) {
                let write = next.write(slug, signer.text(), now)?;
                // The write has no condition.
                let _ = app.records.commit(vec![write]).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = noted.await {
            tracing::warn!(
                error = error_chain(&error),
                "a device's visit was not noted"
            );
        }
    }

    /// Refuses a revoked device; a waiting one may read the catalog.
    pub(super) fn may_read_catalog(&self) -> Result<(), Refusal> {
        match self.device.status {
            DeviceStatus::Pending | DeviceStatus::Active => Ok(()),
            DeviceStatus::Revoked => Err(ErrorCode::DeviceRevoked.into()),
        }
    }

    /// Refuses everybody but an admitted device of a namespace that is paid for at `now`.
    pub(super) fn may_read_bundles(&self, now: Timestamp) -> Result<(), Refusal> {
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
