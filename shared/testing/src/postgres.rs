//! Test support: a PostgreSQL server for tests in a temporary folder.
//!
//! [`database`] creates an empty database on a server that all test processes of one build folder
//! share. The first process starts it, and a watchdog stops it and removes its folder some seconds
//! after the last process has ended, even if that was killed: each process holds a file lock, which
//! the kernel releases. [`Cluster::start`] starts a server for one test, which may stop and start
//! it again. `VAULT_TEST_POSTGRES_URL` names another server for [`database`] to use instead.
//! Nothing of the service uses this module.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tokio_postgres::NoTls;

use crate::servers::{Absent, IDLE, free_port, own_uid, random_word, shared_port, user_of, watch};

/// The variable with the address of a server to use instead. Its role must be allowed to create
/// databases.
const VARIABLE: &str = "VAULT_TEST_POSTGRES_URL";

/// The script with which the watchdog stops the server. [`watch`] describes its arguments.
const STOP: &str = r#"
if read -r pid <"$1/data/postmaster.pid"; then
    kill -QUIT "$pid"
    tries=0
    while kill -0 "$pid" && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
fi
"#;

/// An empty database. It is dropped together with this value.
#[derive(Debug)]
pub struct Database {
    admin: String,
    name: String,
}

/// Creates an empty database on the shared server. Fails if this machine has no PostgreSQL. Panics
/// if the server named by `VAULT_TEST_POSTGRES_URL` cannot be used, since a person who sets it
/// wants to test with it.
#[expect(clippy::disallowed_methods, reason = "the one variable of this module")]
pub fn database() -> Result<Database, Absent> {
    static SERVER: OnceLock<Result<String, Absent>> = OnceLock::new();
    if let Ok(named) = std::env::var(VARIABLE) {
        return Ok(Database::create(&named).unwrap_or_else(|absent| panic!("{VARIABLE}: {absent}")));
    }
    Database::create(
        SERVER
            .get_or_init(shared_server)
            .as_ref()
            .map_err(Clone::clone)?,
    )
}

impl Database {
    fn create(admin: &str) -> Result<Self, Absent> {
        let name = format!("vault_{}", random_word());
        run_sql(admin, &format!("create database {name}"))?;
        Ok(Self {
            admin: admin.to_owned(),
            name,
        })
    }

    /// The address of the database, for `vault_sql::Sql::open_database`.
    pub fn url(&self) -> String {
        with_database(&self.admin, &self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that has stopped has nothing to drop.
        let _ = run_sql(
            &self.admin,
            &format!("drop database {} with (force)", self.name),
        );
    }
}

/// A server for one test. Its folder is removed together with this value.
#[derive(Debug)]
pub struct Cluster {
    server: Server,
    _user: File,
}

impl Cluster {
    /// Starts a new server. Fails if this machine has no PostgreSQL.
    pub fn start() -> Result<Self, Absent> {
        let base = std::env::temp_dir().join(format!("vault-postgres-{}", random_word()));
        fs::create_dir(&base).map_err(Absent::because)?;
        let user = user_of(&base)?;
        let server = Server::create(base, 3)?;
        Ok(Self {
            server,
            _user: user,
        })
    }

    /// Starts a new server with this certificate and key (PEM). It accepts every role except the
    /// administrator's only over TLS.
    pub fn start_with_tls(certificate: &[u8], key: &[u8]) -> Result<Self, Absent> {
        let cluster = Self::start()?;
        let data = cluster.server.data();
        let who = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n\
                   hostnossl postgres all 127.0.0.1/32 trust\n";
        for (name, content) in [
            ("server.crt", certificate),
            ("server.key", key),
            ("pg_hba.conf", who.as_bytes()),
        ] {
            let file = data.join(name);
            fs::write(&file, content).map_err(Absent::because)?;
            fs::set_permissions(&file, Permissions::from_mode(0o600)).map_err(Absent::because)?;
            if let Some((user, group)) = cluster.server.other {
                chown(&file, Some(user), Some(group)).map_err(Absent::because)?;
            }
        }
        let settings = OpenOptions::new()
            .append(true)
            .open(data.join("postgresql.auto.conf"));
        settings
            .and_then(|mut file| file.write_all(b"ssl = on\n"))
            .map_err(Absent::because)?;
        cluster.crash()?;
        cluster.restart()?;
        Ok(cluster)
    }

    /// Creates an empty database on this server.
    pub fn database(&self) -> Result<Database, Absent> {
        Database::create(&self.server.url())
    }

    /// Stops the server as a crash would: connections are cut, and nothing is flushed.
    pub fn crash(&self) -> Result<(), Absent> {
        self.server.control(&["-m", "immediate", "stop"])
    }

    /// Starts the stopped server again, on the same port.
    pub fn restart(&self) -> Result<(), Absent> {
        self.server.control(&["-t", "60", "start"])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.crash();
        let _ = fs::remove_dir_all(&self.server.base);
    }
}

/// Returns the address of the shared server, which is started if it does not run.
fn shared_server() -> Result<String, Absent> {
    static USER: OnceLock<File> = OnceLock::new();
    let start = |base: &Path| Ok(Server::create(base.to_owned(), IDLE)?.port);
    shared_port("postgres", &USER, answers, start).map(url)
}

#[derive(Debug)]
struct Server {
    programs: PathBuf,
    base: PathBuf,
    port: u16,
    /// User and group of the server if this process is root: PostgreSQL refuses to run as root.
    other: Option<(u32, u32)>,
}

impl Server {
    /// Creates a cluster in `base`, starts it, and starts a watchdog for it.
    fn create(base: PathBuf, idle: u32) -> Result<Self, Absent> {
        let programs = programs().ok_or_else(|| Absent("initdb was not found".to_owned()))?;
        let other = if own_uid()? == 0 {
            Some(unprivileged()?)
        } else {
            None
        };
        let mut server = Self {
            programs,
            base,
            port: 0,
            other,
        };
        let data = server.data();
        let _ = fs::remove_dir_all(&data);
        fs::set_permissions(&server.base, Permissions::from_mode(0o755))
            .map_err(Absent::because)?;
        fs::create_dir(&data).map_err(Absent::because)?;
        fs::set_permissions(&data, Permissions::from_mode(0o700)).map_err(Absent::because)?;
        if let Some((user, group)) = server.other {
            chown(&data, Some(user), Some(group)).map_err(Absent::because)?;
        }
        let directory = format!("--pgdata={}", data.display());
        let layout = [
            "--username=vault",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ];
        server.run("initdb", [directory.as_str()].iter().chain(&layout))?;
        watch(&server.base, idle, STOP, "")?;
        // Another program may take the free port before the server does.
        for _ in 0..4 {
            server.configure()?;
            if server.control(&["-t", "60", "start"]).is_ok() {
                return Ok(server);
            }
        }
        let log = fs::read_to_string(data.join("log")).unwrap_or_default();
        Err(Absent(format!("it does not start: {log}")))
    }

    fn configure(&mut self) -> Result<(), Absent> {
        self.port = free_port()?;
        // Do not flush to disk: nothing in these databases has to survive a crash of the machine. A
        // crash of only the server loses nothing.
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nmax_connections = 300\n\
             shared_buffers = 32MB\nfsync = off\nfull_page_writes = off\nautovacuum = off\n",
            self.port,
            // The longest path of a socket is 107 bytes. In a longer folder, the server is reached
            // only by its port.
            if self.data().as_os_str().len() < 80 {
                self.data().display().to_string()
            } else {
                String::new()
            },
        );
        fs::write(self.data().join("postgresql.auto.conf"), settings).map_err(Absent::because)
    }

    fn control(&self, arguments: &[&str]) -> Result<(), Absent> {
        let (data, log) = (
            self.data().display().to_string(),
            self.data().join("log").display().to_string(),
        );
        self.run(
            "pg_ctl",
            ["-D", &data, "-l", &log, "-s", "-w"]
                .iter()
                .chain(arguments),
        )
    }

    fn run<'a>(
        &self,
        program: &str,
        arguments: impl Iterator<Item = &'a &'a str>,
    ) -> Result<(), Absent> {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(arguments)
            .current_dir("/")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        if let Some((user, group)) = self.other {
            command.uid(user).gid(group);
        }
        let output = command.output().map_err(Absent::because)?;
        if output.status.success() {
            return Ok(());
        }
        Err(Absent(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        )))
    }

    fn data(&self) -> PathBuf {
        self.base.join("data")
    }

    fn url(&self) -> String {
        url(self.port)
    }
}

fn url(port: u16) -> String {
    format!("postgres://vault@127.0.0.1:{port}/postgres")
}

fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok()
}

/// Returns the folder with the newest installed server programs.
fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = vec![
        "/usr/local/pgsql/bin".into(),
        "/usr/local/bin".into(),
        "/usr/bin".into(),
    ];
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().map(|(_, folder)| folder));
    folders
        .into_iter()
        .rev()
        .find(|folder| folder.join("initdb").exists() && folder.join("pg_ctl").exists())
}

/// Returns the user and group `postgres`, or else `nobody`.
fn unprivileged() -> Result<(u32, u32), Absent> {
    let accounts = fs::read_to_string("/etc/passwd").map_err(Absent::because)?;
    let account = |name: &str| {
        let line = accounts
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    };
    let found = account("postgres").or_else(|| account("nobody"));
    found.ok_or_else(|| {
        Absent("PostgreSQL refuses to run as root, and there is no user nobody".to_owned())
    })
}

/// Runs one statement on a thread with a runtime of its own, because callers may be inside or
/// outside of a runtime.
fn run_sql(admin: &str, statement: &str) -> Result<(), Absent> {
    let (admin, statement) = (admin.to_owned(), statement.to_owned());
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.map_err(Absent::because)?.block_on(async {
            let (client, connection) = tokio_postgres::connect(&admin, NoTls)
                .await
                .map_err(Absent::because)?;
            let connection = tokio::spawn(connection);
            let ran = client
                .batch_execute(&statement)
                .await
                .map_err(Absent::because);
            connection.abort();
            ran
        })
    };
    std::thread::spawn(run)
        .join()
        .map_err(|_| Absent("a test thread panicked".to_owned()))?
}

/// Returns the address with another database name.
fn with_database(url: &str, name: &str) -> String {
    let (address, query) = url
        .split_once('?')
        .map_or((url, None), |(address, query)| (address, Some(query)));
    let host = address.find("://").map_or(0, |at| at + 3);
    let path = address[host..]
        .find('/')
        .map_or(address.len(), |at| host + at);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{name}{query}", &address[..path])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_takes_the_place_of_another_in_an_address() {
        let cases = [
            (
                "postgres://vault@127.0.0.1:5/postgres",
                "postgres://vault@127.0.0.1:5/x",
            ),
            ("postgres://h", "postgres://h/x"),
            (
                "postgres://u:p@h/?sslmode=disable",
                "postgres://u:p@h/x?sslmode=disable",
            ),
            (
                "postgres:///d?host=/run/postgresql",
                "postgres:///x?host=/run/postgresql",
            ),
        ];
        for (admin, expected) in cases {
            assert_eq!(with_database(admin, "x"), expected);
        }
    }
}
