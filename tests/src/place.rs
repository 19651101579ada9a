//! The deployed service against which the tests run if `VAULT_TEST_SERVICE` names the folder in
//! which `localstack/up` keeps its address. Otherwise each test starts servers of its own. A test
//! that cannot run against a deployed service is skipped, and recorded in the file `left-out` of
//! that folder.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;

/// A service that was deployed before the tests, with the five functions behind a gateway.
#[derive(Debug)]
pub struct Place {
    /// The public address, without a slash at its end.
    pub url: String,
    /// Address of the AWS emulator, without a slash at its end.
    pub endpoint: String,
    /// Folder in which `localstack/up` keeps the address of the deployment.
    pub folder: PathBuf,
}

impl Place {
    /// Returns host name and port of the public address, as the header `Host` has them.
    pub fn host(&self) -> String {
        let url = url::Url::parse(&self.url).expect("an address");
        url.authority().to_owned()
    }

    /// Returns the host name in the public address, without the port.
    pub fn name(&self) -> String {
        let url = url::Url::parse(&self.url).expect("an address");
        url.host_str().expect("a name").to_owned()
    }

    /// Returns the address to connect to: loopback, because the host name is below `localhost`,
    /// which always means this machine (RFC 6761), even if its resolver does not know the name.
    pub fn listens_at(&self) -> SocketAddr {
        let url = url::Url::parse(&self.url).expect("an address");
        (Ipv4Addr::LOCALHOST, url.port().expect("a port")).into()
    }
}

/// Returns the deployed service; `None` if every test starts servers of its own.
pub fn deployed() -> Option<&'static Place> {
    static PLACE: OnceLock<Option<Place>> = OnceLock::new();
    PLACE.get_or_init(named).as_ref()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one variable that chooses what is tested"
)]
fn named() -> Option<Place> {
    let folder = PathBuf::from(std::env::var_os("VAULT_TEST_SERVICE")?);
    let read = |name: &str| {
        let path = folder.join(name);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}: run localstack/up", path.display()));
        text.trim().to_owned()
    };
    Some(Place {
        url: read("address"),
        endpoint: read("endpoint"),
        folder,
    })
}

/// Returns true if a deployed service is tested. The caller then skips `part` of its test, or the
/// whole test if `part` is empty. Records the name of the test and `reason`, which `tests/run`
/// prints and counts.
#[expect(clippy::print_stderr, reason = "says what a test leaves out")]
pub fn leaves_out(part: &str, reason: &str) -> bool {
    let Some(place) = deployed() else {
        return false;
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let line = if part.is_empty() {
        format!("{name}: {reason}\n")
    } else {
        format!("{name}, {part}: {reason}\n")
    };
    eprint!("left out: {line}");
    let file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(place.folder.join("left-out"));
    // Write the line with one call, so that lines of concurrent tests do not mix.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the folder of the deployed service");
    true
}
