//! An owner's home that is signed in at a running service with a namespace of its own, and machines
//! that link to it.

use crate::home::Home;
use crate::person::{Answer, OWNER};
use crate::server::{OWNER_EMAIL, Server};

/// Slug of the namespace that every [`Team`] publishes to.
pub const SLUG: &str = "team";

/// A service with one namespace, and the home of its owner, who is signed in.
pub struct Team {
    /// The running service that holds the namespace [`SLUG`].
    pub server: Server,
    /// The owner's home: its library publishes to the namespace.
    pub owner: Home,
}

impl Team {
    /// Creates the namespace [`SLUG`] at a running server, for which the home signs in as operator,
    /// and then signs in as the owner of the namespace.
    pub fn new(server: Server, owner: Home) -> Self {
        let url = server.url.clone();
        let address = format!("{url}/v/{SLUG}");
        let create = ["namespace", "create", SLUG, "--owner", OWNER_EMAIL];
        let create = [&["operator", "--url", &url][..], &create].concat();
        owner.sign_in(&create, OWNER, Answer::Loopback).ok();
        let connect = ["cloud", "connect", &address];
        owner.sign_in(&connect, OWNER, Answer::Loopback).ok();
        Self { server, owner }
    }

    /// Returns the address of the namespace, which a machine passes to `vault link`.
    pub fn address(&self) -> String {
        format!("{}/v/{SLUG}", self.server.url)
    }

    /// Returns the fingerprint of the owner's vault, as `vault key show` prints it.
    #[track_caller]
    pub fn fingerprint(&self) -> String {
        text(&self.owner.json(&["key", "show"])["fingerprint"])
    }

    /// Runs `vault sync --cloud` as the owner and returns its JSON. Panics if it fails.
    #[track_caller]
    pub fn sync(&self) -> serde_json::Value {
        self.owner.json(&["sync", "--cloud"])
    }

    /// Links a home to the namespace, and approves its device as the owner.
    #[track_caller]
    pub fn admit(&self, machine: &Home, name: &str) {
        let address = self.address();
        let linked = machine.json(&["link", &address, "--hostname", name]);
        let device = text(&linked["device_id"]);
        self.owner.run(&["devices", "admit", &device]).ok();
    }
}

fn text(value: &serde_json::Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}
