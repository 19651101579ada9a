//! A service of the built binary, and homes of people who use it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vault_tests::browser::{Browser, client};
use vault_tests::home::{Home, vault_binary};
use vault_tests::server::{OWNER_EMAIL, OWNER_PASSWORD, free_port};

use crate::meter::{now, timed};

/// `vault serve` on SQLite, its log in a file.
pub struct Service {
    child: Child,
    home: Home,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its public URL.
    pub url: String,
}

impl Service {
    /// Starts one without limits on how often a device may ask, and waits until it listens.
    pub fn start() -> Self {
        let home = Home::new();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        Self {
            child: launch(&home, port, &url),
            home,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            url,
        }
    }

    /// Ends the process and starts another one over the same data.
    pub fn restart(&mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
        self.child = launch(&self.home, self.address.port(), &self.url);
    }

    /// The file of its records and objects.
    pub fn database(&self) -> PathBuf {
        self.home.path().join("vault.db")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes a namespace and connects this home to it as its owner.
    pub fn connect(&self, home: &Home, slug: &str) {
        signing_in(
            home,
            &[
                "operator",
                "--url",
                &self.url,
                "--no-browser",
                "namespace",
                "create",
                slug,
                "--owner",
                OWNER_EMAIL,
            ],
        );
        let address = self.vault(slug);
        signing_in(home, &["cloud", "connect", &address, "--no-browser"]);
    }

    /// The address of a vault on it.
    pub fn vault(&self, slug: &str) -> String {
        format!("{}/v/{slug}", self.url)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(home: &Home, port: u16, url: &str) -> Child {
    let log = home.path().join("serve.log");
    let mut command = Command::new(vault_binary());
    home.environment(&mut command);
    let mut child = command
        .arg("serve")
        .env("VAULT_PUBLIC_URL", url)
        .env("VAULT_PORT", port.to_string())
        .env("VAULT_ADMIN_EMAIL", OWNER_EMAIL)
        .env("VAULT_ADMIN_PASSWORD", OWNER_PASSWORD)
        .env("VAULT_DATABASE_URL", home.path().join("vault.db"))
        .env("VAULT_STORAGE_PATH", home.vault())
        // One app and one machine send more than they may in a minute: these limits are off.
        .env("VAULT_LIMIT_CATALOG", "0")
        .env("VAULT_LIMIT_GRANT", "0")
        .env("VAULT_LIMIT_NAMESPACE", "0")
        .env("VAULT_LIMIT_NAMESPACE_READS", "0")
        .env("VAULT_LIMIT_NAMESPACE_WRITES", "0")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("a log"))
        .spawn()
        .expect("the built binary");
    let begun = now();
    let listens = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"listening\""));
    while !listens() {
        assert!(
            begun.elapsed() < Duration::from_secs(30)
                && child.try_wait().expect("a child").is_none(),
            "the service did not start:\n{}",
            std::fs::read_to_string(&log).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Runs a command that must succeed; its `data`, and how long it took.
pub fn run(home: &Home, words: &[&str]) -> (Value, Duration) {
    let words = [words, &["--json"]].concat();
    let (ran, took) = timed(|| home.run(&words).ok());
    (ran.json()["data"].clone(), took)
}

/// Adds skills in one command.
pub fn add(home: &Home, folders: &[PathBuf]) -> Duration {
    let mut words = vec!["add"];
    words.extend(
        folders
            .iter()
            .map(|folder| folder.to_str().expect("a path")),
    );
    run(home, &words).1
}

/// Runs a command that asks for a sign-in, and signs the owner in where it does.
fn signing_in(home: &Home, words: &[&str]) {
    let mut child = home
        .command(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built binary");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut all = String::new();
    loop {
        let mut line = String::new();
        if said.read_line(&mut line).expect("a pipe") == 0 {
            break;
        }
        all.push_str(&line);
        if line.contains("/oauth/authorize?") {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let mut browser = Browser::new();
                let back = browser
                    .approve(line.trim(), OWNER_EMAIL, OWNER_PASSWORD)
                    .await;
                let _ = client().get(back).send().await;
            });
            break;
        }
    }
    let _ = said.read_to_string(&mut all);
    assert!(child.wait().expect("a child").success(), "{words:?}\n{all}");
}

/// Every file below a folder, links not followed, with one look at each; their number.
pub fn stat_walk(folder: &Path) -> usize {
    let mut seen = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let looked = std::fs::symlink_metadata(entry.path()).expect("an entry");
            seen += 1;
            if looked.is_dir() {
                open.push(entry.path());
            }
        }
    }
    seen
}

/// Reads the SKILL.md of every bundle in a store, which are two folders down; their size together.
pub fn read_skills(store: &Path) -> usize {
    let bundles = std::fs::read_dir(store).expect("a store");
    bundles
        .map(|bundle| bundle.expect("an entry").path().join("files/SKILL.md"))
        .map(|file| std::fs::read(file).expect("a file").len())
        .sum()
}
