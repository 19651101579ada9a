//! Shared code of the servers for tests: a folder that all test processes of one build folder find,
//! its lock, the watchdog that stops an unused server, and the error for a missing server.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use vault_format::hash::Digest;
use vault_store::random::{SystemRandom, random_bytes};

/// Number of seconds without any user after which a shared server is stopped.
pub(crate) const IDLE: u32 = 20;

/// The script of the watchdog. It waits until no process has held the lock `users` for a while, and
/// then holds the lock of the folder. Its arguments are the folder and the seconds.
const WAIT: &str = r#"
while :; do
    idle=0
    while [ "$idle" -lt "$2" ]; do
        sleep 1
        [ -d "$1" ] || break
        if flock -n "$1/users" true; then idle=$((idle + 1)); else idle=0; fi
    done
    [ -d "$1" ] || break
    exec 9>"$1/lock" || break
    flock 9
    flock -n "$1/users" true && break
    exec 9>&-
done
"#;

/// The reason why a test has no server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no server for tests: {0}")]
pub struct Absent(pub(crate) String);

impl Absent {
    pub(crate) fn because(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// Returns the value. Without one, prints the reason on stderr and returns `None`; with `CI=true`,
/// it fails instead.
#[expect(
    clippy::disallowed_methods,
    reason = "test support asks whether this is CI"
)]
#[expect(
    clippy::print_stderr,
    reason = "test support says what a test leaves out"
)]
pub fn or_say_why<T>(found: Result<T, Absent>) -> Option<T> {
    match found {
        Ok(value) => Some(value),
        Err(absent) if std::env::var("CI").is_ok_and(|value| value == "true") => panic!("{absent}"),
        Err(absent) => {
            eprintln!("left out: {absent}");
            None
        }
    }
}

/// Takes the lock of the folder. The watchdog may remove the folder at any moment, and a lock on a
/// removed file is void.
fn lock(base: &Path) -> Result<File, Absent> {
    for _ in 0..100 {
        fs::create_dir_all(base).map_err(Absent::because)?;
        if fs::symlink_metadata(base).map_err(Absent::because)?.uid() != own_uid()? {
            return Err(Absent(format!(
                "{} belongs to somebody else",
                base.display()
            )));
        }
        let path = base.join("lock");
        let Ok(file) = File::create(&path) else {
            continue;
        };
        file.lock().map_err(Absent::because)?;
        let held = file.metadata().map_err(Absent::because)?;
        if fs::metadata(&path).is_ok_and(|named| named.ino() == held.ino()) {
            return Ok(file);
        }
    }
    Err(Absent(format!("{} cannot be locked", base.display())))
}

/// Counts this process among the users of the folder's server until the returned file is closed.
pub(crate) fn user_of(base: &Path) -> Result<File, Absent> {
    let users = File::create(base.join("users")).map_err(Absent::because)?;
    users.lock_shared().map_err(Absent::because)?;
    Ok(users)
}

/// Returns the port of the server that all test processes of one build folder share, and starts the
/// server if it does not answer. `user` counts this process among its users until the process ends.
pub(crate) fn shared_port(
    kind: &str,
    user: &OnceLock<File>,
    answers: fn(u16) -> bool,
    start: impl FnOnce(&Path) -> Result<u16, Absent>,
) -> Result<u16, Absent> {
    let program = std::env::current_exe().map_err(Absent::because)?;
    let folder = program.parent().unwrap_or(&program).as_os_str();
    let folder = Digest::of(folder.as_encoded_bytes()).to_string();
    let name = format!("vault-{kind}-{}-{}", own_uid()?, &folder[..12]);
    let base = std::env::temp_dir().join(name);
    let _lock = lock(&base)?;
    let _ = user.set(user_of(&base)?);
    let address = base.join("port");
    let port = fs::read_to_string(&address).ok();
    let port = port.and_then(|text| text.parse().ok());
    if let Some(port) = port.filter(|port| answers(*port)) {
        return Ok(port);
    }
    let port = start(&base)?;
    fs::write(address, port.to_string()).map_err(Absent::because)?;
    Ok(port)
}

/// Starts a watchdog in a process group of its own, so that it outlives the process that started
/// it. When the server has had no user for this many seconds, it runs `stop`, with the folder as
/// `$1` and `server` as `$3`, and removes the folder.
pub(crate) fn watch(base: &Path, idle: u32, stop: &str, server: &str) -> Result<(), Absent> {
    let run = |command: &mut Command| {
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    };
    let flock = run(Command::new("flock").arg("--version")).and_then(|mut child| child.wait());
    if !flock.is_ok_and(|status| status.success()) {
        return Err(Absent("flock (util-linux) was not found".to_owned()));
    }
    let script = format!("{WAIT}{stop}rm -rf \"$1\"\n");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, "watchdog"]).arg(base);
    run(command.args([&idle.to_string(), server]))
        .map(drop)
        .map_err(Absent::because)
}

/// Returns a port that is free at this moment.
pub(crate) fn free_port() -> Result<u16, Absent> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(Absent::because)
}

/// Returns the id of the user that runs this process.
pub(crate) fn own_uid() -> Result<u32, Absent> {
    fs::metadata("/proc/self")
        .map(|process| process.uid())
        .map_err(Absent::because)
}

/// Returns sixteen random hexadecimal characters.
pub(crate) fn random_word() -> String {
    format!("{:016x}", u64::from_be_bytes(random_bytes(&SystemRandom)))
}
