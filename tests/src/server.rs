//! A running `vault serve` of the built binary, on loopback, with a home of its own.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::home::{Home, Ran, vault_binary};

/// The bootstrap owner of every test server.
pub const OWNER_EMAIL: &str = "owner@example.com";
/// Its password (24 characters or more).
pub const OWNER_PASSWORD: &str = "correct horse battery staple 42";

/// A server that ends with this value.
pub struct Server {
    child: Option<Child>,
    /// The server's own home: its library is `home.vault()`.
    pub home: Home,
    /// The public URL, without a slash at its end.
    pub url: String,
    port: u16,
    database: String,
}

/// Which database a server keeps.
#[derive(Clone, Debug)]
pub enum Database {
    /// A SQLite file in the server's home.
    Sqlite,
    /// A PostgreSQL address.
    Postgres(String),
}

impl Server {
    /// Starts a server and waits for the line that says it listens.
    pub fn start(database: &Database) -> Self {
        let home = Home::new();
        let database = match database {
            Database::Sqlite => home.path().join("vault.db").to_string_lossy().into_owned(),
            Database::Postgres(url) => url.clone(),
        };
        let port = free_port();
        let mut server = Self {
            child: None,
            home,
            url: format!("http://127.0.0.1:{port}"),
            port,
            database,
        };
        server.resume();
        server
    }

    /// Starts the process again over the same data, after `stop` or `kill`.
    pub fn resume(&mut self) {
        assert!(self.child.is_none(), "the server runs already");
        let mut command = Command::new(vault_binary());
        self.home.environment(&mut command);
        command
            .arg("serve")
            .env("VAULT_MODE", "remote")
            .env("VAULT_PUBLIC_URL", &self.url)
            .env("VAULT_PORT", self.port.to_string())
            .env("VAULT_ADMIN_EMAIL", OWNER_EMAIL)
            .env("VAULT_ADMIN_PASSWORD", OWNER_PASSWORD)
            .env("VAULT_DATABASE_URL", &self.database)
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the built binary");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let (listening, wait) = mpsc::channel();
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("a log file");
        std::thread::spawn(move || {
            use std::io::Write as _;
            let mut log = log;
            for line in stderr.lines().map_while(Result::ok) {
                let _ = writeln!(log, "{line}");
                if line.contains("listening") {
                    let _ = listening.send(());
                }
            }
        });
        self.child = Some(child);
        assert!(
            wait.recv_timeout(Duration::from_secs(30)).is_ok(),
            "the server never said that it listens:\n{}",
            self.log_text()
        );
    }

    /// Asks the server to stop and returns what it left.
    pub fn stop(&mut self) -> Ran {
        let child = self.child.take().expect("a running server");
        let _ = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status();
        child.wait_with_output().expect("a server that ends").into()
    }

    /// Ends the server at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a running server");
        let _ = child.kill();
        let _ = child.wait();
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running server").id()
    }

    /// Everything that the server logged so far.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn log(&self) -> std::path::PathBuf {
        self.home.path().join("serve.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port of loopback that nobody listens on right now.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .expect("a free port")
        .local_addr()
        .expect("its address")
        .port()
}
