//! An owner's home that is signed in at a running service with a namespace of its own, and machines that link to it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use crate::browser::{self, Browser};
use crate::home::{Home, Ran};
use crate::server::{OWNER_EMAIL, OWNER_PASSWORD, Server};

/// The namespace of every team.
pub const SLUG: &str = "team";

/// The owner's machine, connected.
pub struct Team {
    /// The service.
    pub server: Server,
    /// The owner's home: its library publishes to the namespace.
    pub owner: Home,
}

impl Team {
    /// Signs the owner in at a server, which must be running: as operator for making the namespace, and then as its owner.
    pub fn new(server: Server, owner: Home) -> Self {
        let url = server.url.clone();
        let address = format!("{url}/v/{SLUG}");
        sign_in(
            &owner,
            &[
                "operator",
                "--url",
                &url,
                "--no-browser",
                "namespace",
                "create",
                SLUG,
                "--owner",
                OWNER_EMAIL,
            ],
        )
        .ok();
        sign_in(&owner, &["cloud", "connect", &address, "--no-browser"]).ok();
        Self { server, owner }
    }

    /// The address that machines link to.
    pub fn address(&self) -> String {
        format!("{}/v/{SLUG}", self.server.url)
    }

    /// The fingerprint of the owner's key.
    #[track_caller]
    pub fn fingerprint(&self) -> String {
        let shown = self.owner.run(&["--json", "key", "show"]).ok().json();
        text(&shown["data"]["fingerprint"])
    }

    /// `vault sync --cloud`, which must succeed; its data.
    #[track_caller]
    pub fn sync(&self) -> serde_json::Value {
        let synced = self.owner.run(&["--json", "sync", "--cloud"]).ok().json();
        synced["data"].clone()
    }

    /// Links a home to the namespace and admits it.
    #[track_caller]
    pub fn admit(&self, machine: &Home, name: &str) {
        let address = self.address();
        let linked = machine
            .run(&["--json", "link", &address, "--hostname", name])
            .ok()
            .json();
        let device = text(&linked["data"]["device_id"]);
        self.owner.run(&["devices", "admit", &device]).ok();
    }
}

/// Runs a command that asks for a sign-in, and signs the owner in on the pages that it names.
pub fn sign_in(home: &Home, arguments: &[&str]) -> Ran {
    let mut child = home
        .command(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built binary");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let (found, address) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut all = String::new();
        for line in stderr.lines().map_while(Result::ok) {
            if line.contains("/oauth/authorize?") {
                let _ = found.send(line.trim().to_owned());
            }
            all.push_str(&line);
            all.push('\n');
        }
        all
    });
    // The sender goes away with the child: then it failed, and its output says why.
    if let Ok(address) = address.recv_timeout(Duration::from_mins(1)) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(async {
                let back = Browser::new()
                    .approve(&address, OWNER_EMAIL, OWNER_PASSWORD)
                    .await;
                let page = browser::client().get(back).send().await;
                page.expect("the command's own page").error_for_status()
            })
            .expect("a good page");
    }
    let mut stdout = String::new();
    let _ = child
        .stdout
        .take()
        .expect("a pipe")
        .read_to_string(&mut stdout);
    let status = child.wait().expect("a command that ends");
    Ran {
        code: status.code().unwrap_or(-1),
        stdout,
        stderr: reader.join().unwrap_or_default(),
    }
}

fn text(value: &serde_json::Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}
