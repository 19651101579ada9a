//! The machines of a vault. The *visit* of a machine is the record of its last call: the day, and
//! the release that it has.

use std::collections::{HashMap, HashSet};

use vault_format::root::KeyFingerprint;
use vault_store::StoreError;
use vault_store::records::{MAX_PAGE, Record};

use crate::admin::devices::load_waiting;
use crate::app::App;
use crate::model::device::{self, Device, DeviceStatus, LastSeen};
use crate::model::namespace::Namespace;
use crate::ports::Ports;

/// Maximum number of machine records that a page reads: 5,000. For a larger vault, the command line
/// lists them all.
const MAX_MACHINES: usize = 5 * MAX_PAGE;

/// A machine with its last visit.
pub(super) struct Machine {
    pub(super) device: Device,
    pub(super) visit: Option<LastSeen>,
}

/// The machines of a vault: waiting ones first, then by name.
pub(super) struct Fleet {
    pub(super) machines: Vec<Machine>,
    /// Whether the vault has more machines than were read.
    pub(super) more: bool,
}

/// Release that a machine has, compared with the current one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HeldRelease {
    /// The machine may not download, or there is no release.
    Nothing,
    Current,
    /// The machine is admitted but has never fetched a release.
    Never,
    /// The machine has this earlier release.
    Behind(u64),
}

impl Machine {
    /// Returns the fingerprint that `vault link` prints on the machine.
    pub(super) fn fingerprint(&self) -> KeyFingerprint {
        KeyFingerprint::device(&self.device.public_key)
    }

    /// Compares with the number of the current release; `None` is a vault without a release.
    pub(super) fn held_release(&self, current: Option<u64>) -> HeldRelease {
        let Some(current) = current else {
            return HeldRelease::Nothing;
        };
        // A machine that is not admitted must not download, so it does not count as behind.
        if self.device.status != DeviceStatus::Active {
            return HeldRelease::Nothing;
        }
        match self.visit.as_ref().and_then(|visit| visit.release) {
            None => HeldRelease::Never,
            Some(release) if release < current => HeldRelease::Behind(release),
            Some(_) => HeldRelease::Current,
        }
    }
}

impl Fleet {
    /// Reads the machines of a vault: at most the first 5,000, and in any case every machine that
    /// waits for admission.
    pub(super) async fn read_machines(
        app: &App,
        namespace: &Namespace,
    ) -> Result<Self, StoreError> {
        let (records, slug) = (app, &namespace.slug);
        let (devices, more) = read_partition(records, &device::devices_partition(slug)).await?;
        let (visits, _) = read_partition(records, &device::seen_partition(slug)).await?;
        let mut last = HashMap::new();
        for record in visits {
            let visit: LastSeen = record.read()?;
            // Visits are stored under the slug, which may have had another namespace, so the ids
            // are compared.
            if visit.namespace_id == namespace.id {
                last.insert(record.key.key, visit);
            }
        }
        let mut machines = Vec::with_capacity(devices.len());
        for record in devices {
            let device: Device = record.read()?;
            if device.namespace_id == namespace.id {
                // In both partitions, the key of a record is the machine's public key.
                let visit = last.remove(&record.key.key);
                machines.push(Machine { device, visit });
            }
        }
        if more {
            // The bound must not hide a machine that waits, because the owner decides about it
            // here.
            let read: HashSet<_> = machines
                .iter()
                .map(|one| one.device.device_id.clone())
                .collect();
            let waiting = load_waiting(app, namespace).await?.into_iter();
            let unread = waiting.filter(|device| !read.contains(&device.device_id));
            machines.extend(unread.map(|device| Machine {
                device,
                visit: None,
            }));
        }
        machines.sort_by_cached_key(|machine| {
            let device = &machine.device;
            (
                device.status != DeviceStatus::Pending,
                // Machines of one network are sorted together, because one attacker may have
                // enrolled them.
                device.waiting_network().map(str::to_owned),
                device.name().to_lowercase(),
                device.device_id.clone(),
            )
        });
        Ok(Self { machines, more })
    }

    pub(super) fn count_status(&self, status: DeviceStatus) -> usize {
        let machines = self.machines.iter();
        machines.filter(|one| one.device.status == status).count()
    }

    /// Counts the machines that have an earlier release than the current one, or none.
    pub(super) fn count_behind(&self, current: Option<u64>) -> usize {
        let machines = self.machines.iter();
        let behind = |held| matches!(held, HeldRelease::Never | HeldRelease::Behind(_));
        machines
            .filter(|one| behind(one.held_release(current)))
            .count()
    }
}

/// Reads the records of a partition up to the bound. Also returns whether there are more.
async fn read_partition(ports: &Ports, partition: &str) -> Result<(Vec<Record>, bool), StoreError> {
    let mut all = Vec::new();
    loop {
        let after = all.last().map(|record: &Record| record.key.key.clone());
        let page = ports
            .records
            .list_page(partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        let is_last = page.len() < MAX_PAGE;
        all.extend(page);
        if is_last || all.len() >= MAX_MACHINES {
            return Ok((all, !is_last));
        }
    }
}
