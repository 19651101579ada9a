//! The deployed service that the tests run against instead of servers of their own, where
//! `VAULT_TEST_SERVICE` names one: the folder in which `localstack/up` keeps the address. What
//! cannot run there says so, and is written down beside it.

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
    /// Name and port of the public address, as in the header `Host`.
    pub fn host(&self) -> String {
        let url = url::Url::parse(&self.url).expect("an address");
        url.authority().to_owned()
    }

    /// Returns the host name in the public address, without the port.
    pub fn name(&self) -> String {
        let url = url::Url::parse(&self.url).expect("an address");
        url.host_str().expect("a name").to_owned()
    }

    /// Where that name leads: names below `localhost` are this machine (RFC 6761), whatever its
    /// resolver says.
    pub fn listens_at(&self) -> SocketAddr {
        let url = url::Url::parse(&self.url).expect("an address");
        (Ipv4Addr::LOCALHOST, url.port().expect("a port")).into()
    }
}

/// The deployed service; `None` where every test starts servers of its own.
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

/// Whether the test that asks, or the part of it that is named, is left out because a deployed
/// service is tested. Writes its name and the reason down; `tests/run` prints and counts them.
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
    // One call, so that lines of tests that run at once do not mix.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the folder of the deployed service");
    true
}
