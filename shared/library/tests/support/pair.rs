//! An owner who publishes to a host, and a device that links the vault.

use std::path::PathBuf;

use vault_library::subscribe::{
    self, AcceptOptions, AcceptedCatalog, Link, LinkError, PullReport, Selection,
};

use super::Home;
use super::host::{BASE, Host};

pub struct Pair {
    pub owner: Home,
    pub host: Host,
    pub device: Home,
    pub link: Link,
}

impl Pair {
    /// The owner has published these skills; the device has not pulled yet.
    pub fn new(skills: &[&str], body: &str) -> Self {
        let owner = Home::new(1);
        let mut host = Host::new("acme");
        for skill in skills {
            owner.add(skill, body);
        }
        host.sync(&owner.vault, owner.now()).unwrap();
        let device = Home::new(2);
        let link = subscribe::link_vault(&device.vault, BASE, &host.slug).unwrap();
        Self {
            owner,
            host,
            device,
            link,
        }
    }

    pub fn publish(&mut self) {
        self.host.sync(&self.owner.vault, self.owner.now()).unwrap();
    }

    pub fn pull(&self, selection: &Selection) -> Result<PullReport, LinkError> {
        self.host.pull(&self.device.vault, &self.link, selection)
    }

    pub fn pull_all(&self) -> PullReport {
        self.pull(&Selection::default()).unwrap()
    }

    /// The current state of the link.
    pub fn current_link(&self) -> Link {
        let link = subscribe::find_link_by_id(&self.device.vault, self.link.id());
        link.unwrap().unwrap()
    }

    /// The host's current catalog, accepted.
    pub fn accept(&self) -> AcceptedCatalog {
        let bytes = self.host.current.as_ref().unwrap();
        let accepted = self.current_link().accept_catalog(
            &self.device.vault,
            bytes,
            &AcceptOptions::default(),
        );
        accepted.unwrap()
    }

    /// Whether every skill of the device passes verification.
    pub fn is_clean(&self) -> bool {
        self.device.is_clean()
    }

    pub fn folder(&self) -> PathBuf {
        self.device
            .path("vault/links")
            .join(self.link.id().as_str())
    }

    pub fn installed(&self) -> Vec<String> {
        super::file_names(&self.folder().join("skills"))
    }
}
