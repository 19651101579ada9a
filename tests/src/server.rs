//! A running `vault serve` of the built binary, on loopback, with a home of its own. If
//! [`place::deployed`] returns a service, that one is used instead, with namespaces that no other
//! test uses.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::home::{Home, Ran, vault_binary};
use crate::place::{self, Place};

/// E-mail address of the first account of every test server.
pub const OWNER_EMAIL: &str = "owner@example.com";
/// Password of that account. A server requires at least 24 characters.
pub const OWNER_PASSWORD: &str = "correct horse battery staple 42";

/// A `vault serve` process, which ends when the value is dropped.
pub struct Server {
    child: Option<Child>,
    /// Thread that reads the process's log, which ends with the process.
    logging: Option<JoinHandle<()>>,
    /// The server's own home: its library is `home.vault()`.
    pub home: Home,
    /// The public URL, without a slash at its end.
    pub url: String,
    port: u16,
    database: String,
    settings: Vec<(String, String)>,
    /// Suffix of the names of namespaces and accounts, which keeps the tests of a deployed service
    /// apart. Empty for a server of this test alone.
    suffix: String,
}

/// The database in which a test server stores its data.
#[derive(Clone, Debug)]
pub enum Database {
    /// A SQLite file in the server's home.
    Sqlite,
    /// The PostgreSQL database at this address.
    Postgres(String),
}

impl Server {
    /// Starts a server and waits until its log says that it listens. Panics if it does not.
    pub fn start(database: &Database) -> Self {
        Self::start_with(database, &[])
    }

    /// Like [`Server::start`], with further environment variables, such as `VAULT_LIMIT_CATALOG`.
    /// Set `VAULT_PUBLIC_URL` to the address of a relay to have clients reach the server through
    /// it.
    pub fn start_with(database: &Database, settings: &[(&str, &str)]) -> Self {
        if let Some(place) = place::deployed() {
            return Self::at(place, database, settings);
        }
        let home = Home::new();
        let database = match database {
            Database::Sqlite => home.path().join("vault.db").to_string_lossy().into_owned(),
            Database::Postgres(url) => url.clone(),
        };
        let port = free_port();
        let settings: Vec<(String, String)> = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let url = settings
            .iter()
            .find(|(name, _)| name == "VAULT_PUBLIC_URL")
            .map_or_else(
                || format!("http://127.0.0.1:{port}"),
                |(_, url)| url.clone(),
            );
        let mut server = Self {
            child: None,
            logging: None,
            home,
            url,
            port,
            database,
            settings,
            suffix: String::new(),
        };
        server.resume();
        server
    }

    /// Returns the deployed service with a new suffix, so that no other test uses its namespaces.
    fn at(place: &Place, database: &Database, settings: &[(&str, &str)]) -> Self {
        assert!(
            matches!(database, Database::Sqlite),
            "a deployed service has one database: `place::leaves_out` says so"
        );
        // The service was deployed without limits, and a test cannot change its settings.
        assert!(
            settings
                .iter()
                .all(|(name, value)| name.starts_with("VAULT_LIMIT_") && *value == "0"),
            "settings of a deployed service: {settings:?}"
        );
        Self {
            child: None,
            logging: None,
            home: Home::new(),
            url: place.url.clone(),
            port: place.listens_at().port(),
            database: String::new(),
            settings: Vec::new(),
            suffix: fresh_suffix(),
        }
    }

    /// Whether this is a process of the test, which it may stop, trace and inspect, and not a
    /// deployed service.
    pub fn is_own(&self) -> bool {
        self.suffix.is_empty()
    }

    /// Returns the name that a namespace or an account of this test has at the service: `name` with
    /// the suffix.
    pub fn named(&self, name: &str) -> String {
        format!("{name}{}", self.suffix)
    }

    /// Returns host and port of the public address.
    pub fn authority(&self) -> &str {
        self.url.split_once("://").expect("an address").1
    }

    /// Starts the process again with the same data, after `stop` or `kill`.
    pub fn resume(&mut self) {
        assert!(
            self.launch(Command::new(vault_binary())),
            "the server never said that it listens:\n{}",
            self.log_text()
        );
    }

    /// Sets a variable for the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the process again under strace with these options. Returns false if the process ended
    /// before it listened, which an injected fault may cause.
    pub fn resume_traced(&mut self, options: &[String]) -> bool {
        let mut command = Command::new("strace");
        // With `-D` strace detaches from the command, so that the child process is the server
        // itself.
        command
            .arg("-D")
            .args(options)
            .arg("--")
            .arg(vault_binary());
        self.launch(command)
    }

    fn launch(&mut self, mut command: Command) -> bool {
        assert!(self.is_own(), "a deployed service is not started here");
        assert!(self.child.is_none(), "the server runs already");
        self.home.environment(&mut command);
        command
            .arg("serve")
            .env("VAULT_MODE", "remote")
            .env("VAULT_PUBLIC_URL", &self.url)
            .env("VAULT_PORT", self.port.to_string())
            .env("VAULT_ADMIN_EMAIL", OWNER_EMAIL)
            .env("VAULT_ADMIN_PASSWORD", OWNER_PASSWORD)
            .env("VAULT_DATABASE_URL", &self.database)
            .env("VAULT_STORAGE_PATH", self.home.vault())
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
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
        let logging = std::thread::spawn(move || {
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
        self.logging = Some(logging);
        // This fails at once if the process ends, because the thread then drops the sender.
        wait.recv_timeout(Duration::from_mins(1)).is_ok()
    }

    /// The port of loopback on which the process listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until the process of a killed server has ended.
    pub fn wait(&mut self) {
        let mut child = self.child.take().expect("a started server");
        let _ = child.wait();
    }

    /// Sends SIGTERM and waits until the server ends. Returns its exit code and output; its log is
    /// in [`Server::log_text`].
    pub fn stop(&mut self) -> Ran {
        let child = self.child.take().expect("a running server");
        let _ = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status();
        let left = child.wait_with_output().expect("a server that ends");
        // The last lines may still be in the pipe when the process is gone.
        if let Some(logging) = self.logging.take() {
            logging.join().expect("a log that can be written");
        }
        left.into()
    }

    /// Kills the server with SIGKILL, and waits until it has ended.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a running server");
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts a second process with the same database and public address, another port and a home
    /// of its own. For a deployed service, which has several processes already, returns the same
    /// service.
    #[must_use]
    pub fn replica(&self) -> Self {
        if let Some(place) = place::deployed() {
            let mut same = Self::at(place, &Database::Sqlite, &[]);
            same.suffix.clone_from(&self.suffix);
            return same;
        }
        let same = [("VAULT_PUBLIC_URL", self.url.as_str())];
        // `Postgres` takes any address of a database, also that of a SQLite file.
        Self::start_with(&Database::Postgres(self.database.clone()), &same)
    }

    /// Returns the address at which this process listens, which can differ from the public one.
    pub fn listens_at(&self) -> String {
        if !self.is_own() {
            return self.url.clone();
        }
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The address of a PostgreSQL database, or the path of the SQLite file. Empty for a deployed
    /// service.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The process id of the running server. Panics if it does not run.
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

/// Returns a hyphen and eight random letters and digits.
fn fresh_suffix() -> String {
    let folder = tempfile::Builder::new()
        .prefix("-")
        .rand_bytes(8)
        .tempdir()
        .expect("a temporary folder");
    let name = folder.path().file_name().expect("its name");
    name.to_string_lossy().to_lowercase()
}

/// Returns a port of loopback that is free now. It is below the ports that the system gives to
/// programs that ask for any port, so that no other test takes it before the server listens.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Each test runs in its own process, and ids of processes are consecutive. Starting 16 apart
    // keeps their ports apart.
    let start = std::process::id().wrapping_mul(16);
    (0..PORTS)
        .map(|_| {
            let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
            u16::try_from(FIRST + offset).expect("a port")
        })
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}
