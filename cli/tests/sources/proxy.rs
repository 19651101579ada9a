//! `vault add` behind the proxy of a company, whose authority signs certificates.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use super::*;

const EXTENSIONS: &str = "subjectAltName=DNS:skills.example\nbasicConstraints=CA:FALSE\n";

/// An HTTPS server for `skills.example`, whose certificate a new authority has signed.
struct SecureSite {
    server: Child,
    address: String,
    authority: PathBuf,
}

impl SecureSite {
    fn new(home: &Home) -> Self {
        home.write("tls/pdf/SKILL.md", skill_md("pdf"));
        home.write("tls/extensions", EXTENSIONS);
        let folder = home.path("tls");
        let openssl = |arguments: &str| {
            let mut command = Command::new("openssl");
            command.args(arguments.split(' ')).current_dir(&folder);
            command.stderr(Stdio::null());
            command
        };
        let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        for arguments in [
            format!("req -x509 {new_key} -keyout ca.key -out ca.pem -days 2 -subj /CN=corp"),
            format!("req {new_key} -keyout key -out request -subj /CN=skills.example"),
            "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile extensions -out cert.pem"
                .to_owned(),
        ] {
            run_program(&mut openssl(&arguments));
        }
        // Port 0 is a free one, which the server prints.
        let mut serve = openssl("s_server -accept 127.0.0.1:0 -cert cert.pem -key key -WWW");
        let mut server = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned));
        // The server must not wait for a reader of its messages.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            server,
            address: address.unwrap(),
            authority: folder.join("ca.pem"),
        }
    }
}

impl Drop for SecureSite {
    fn drop(&mut self) {
        let _ended = self.server.kill();
        let _ended = self.server.wait();
    }
}

/// Starts a proxy that leads every tunnel to one server, and records the hosts that were asked for.
fn start_proxy(to: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (to, record) = (to.to_owned(), Arc::clone(&asked));
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if client.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let line = head.lines().next().unwrap_or_default().to_owned();
            record.lock().unwrap().push(line);
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let server = TcpStream::connect(&to).unwrap();
            for (mut from, mut into) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server, client),
            ] {
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut from, &mut into);
                    let _ended = into.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, asked)
}

#[test]
fn a_site_is_reached_through_the_proxy_with_the_authority_of_the_company() {
    let machine = Machine::new();
    let site = SecureSite::new(&machine.home);
    let (proxy, asked) = start_proxy(&site.address);
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = machine.command(&[&["--json"], arguments].concat());
        command.env_remove("VAULT_SOURCES_ALLOW_LOOPBACK");
        Ended::of(command.envs(variables.iter().copied()))
    };
    let source = "https://skills.example/pdf/SKILL.md";
    let authority = ("SSL_CERT_FILE", site.authority.to_str().unwrap());
    let through = ("HTTPS_PROXY", proxy.as_str());
    let unknown = run(&["add", source], &[through]).fails(7, "source_unreachable");
    assert!(
        unknown["hint"].to_string().contains("SSL_CERT_FILE"),
        "{unknown}"
    );
    // A host in NO_PROXY is not asked of the proxy. This one has no address.
    let before = asked.lock().unwrap().len();
    let direct = ("NO_PROXY", "other.test,example");
    run(&["add", source], &[through, authority, direct]).fails(7, "source_unreachable");
    // Addresses of networks that only the proxy reaches, and names of the proxy itself.
    for private in [
        "https://10.0.0.1/a/SKILL.md",
        "https://[fd00::1]/a/SKILL.md",
    ] {
        run(&["add", private], &[through, authority]).fails(5, "source_not_public");
    }
    assert_eq!(asked.lock().unwrap().len(), before);
    run(&["add", source], &[through, authority]).ok();
    assert_eq!(machine.document("pdf"), skill_md("pdf"));
    let lines = asked.lock().unwrap().clone();
    let tunnel = "CONNECT skills.example:443 HTTP/1.1";
    assert!(lines.iter().all(|line| line == tunnel), "{lines:?}");
    let bad = run(&["add", source], &[("HTTPS_PROXY", "socks5://u:pass@a")]);
    assert!(!bad.out.contains("pass"), "{}", bad.out);
    bad.fails(2, "setting_invalid");
}
