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
        // The server sends each file as a complete response.
        let serve = |path: &str, head: &str, body: &str| {
            let text = format!("HTTP/1.0 {head}\r\nConnection: close\r\n\r\n{body}");
            home.write(&format!("tls/{path}"), text);
        };
        for (path, name) in [("pdf", "pdf"), ("older/skills/csv", "csv")] {
            let path = format!("{path}/SKILL.md");
            serve(&path, "200 OK", &skill_md(name));
        }
        for (path, to) in [
            ("network", "https://10.0.0.1/SKILL.md"),
            ("metadata", "https://169.254.169.254/SKILL.md"),
            ("mapped", "https://[::ffff:10.0.0.1]/SKILL.md"),
            ("here", "https://localhost/SKILL.md"),
            ("here-too", "https://localhost.:8443/SKILL.md"),
            ("below", "https://a.localhost/SKILL.md"),
        ] {
            let head = format!("302 Found\r\nLocation: {to}");
            serve(&format!("{path}/SKILL.md"), &head, "");
        }
        serve_marketplace(home);
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
        let mut serve = openssl("s_server -accept 127.0.0.1:0 -cert cert.pem -key key -HTTP");
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

/// Serves an archive with a marketplace, whose plugin is in a repository.
fn serve_marketplace(home: &Home) {
    let plugin = r#"{"name":"gif","source":{"source":"github","repo":"acme/gif"}}"#;
    let market = format!(r#"{{"name":"m","plugins":[{plugin}]}}"#);
    home.write("market/.claude-plugin/marketplace.json", market);
    let packed = home.path("market.tar.gz");
    let mut tar = Command::new("tar");
    let tar = tar.arg("-czf").arg(&packed).arg("-C");
    run_program(tar.arg(home.path("market")).arg("."));
    let mut answer = b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n".to_vec();
    answer.extend(std::fs::read(packed).unwrap());
    home.write("tls/market.tar.gz", answer);
}

impl Drop for SecureSite {
    fn drop(&mut self) {
        let _ended = self.server.kill();
        let _ended = self.server.wait();
    }
}

/// A proxy on loopback, and the heads of the requests to it.
struct TestProxy {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    /// Starts a proxy that leads every tunnel to one server, or refuses all of them.
    fn start(to: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (to, record) = (to.map(str::to_owned), Arc::clone(&asked));
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                record.lock().unwrap().push(read_head(&mut client));
                let Some(to) = &to else {
                    let refusal = b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n";
                    client.write_all(refusal).unwrap();
                    continue;
                };
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                connect_streams(client, TcpStream::connect(to).unwrap());
            }
        });
        Self { address, asked }
    }

    /// Returns the first lines of the requests since the last call.
    fn take_lines(&self) -> Vec<String> {
        let heads = std::mem::take(&mut *self.asked.lock().unwrap());
        let lines = heads.iter().map(|head| head.lines().next().unwrap_or(""));
        lines.map(str::to_owned).collect()
    }
}

fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn connect_streams(client: TcpStream, server: TcpStream) {
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

/// A machine behind a proxy, with the authority of the company.
struct Company {
    machine: Machine,
    proxy: TestProxy,
    authority: String,
    site: SecureSite,
}

impl Company {
    fn new() -> Self {
        let machine = Machine::new();
        let site = SecureSite::new(&machine.home);
        Self {
            proxy: TestProxy::start(Some(&site.address)),
            authority: site.authority.to_str().unwrap().to_owned(),
            machine,
            site,
        }
    }

    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = self.machine.command(arguments);
        command
            .env_remove("VAULT_SOURCES_ALLOW_LOOPBACK")
            .env("SSL_CERT_FILE", &self.authority)
            .env("GIT_SSL_CAINFO", &self.authority)
            .envs(variables.iter().copied());
        command
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let arguments = [&["--json"], arguments].concat();
        Ended::of(&mut self.command(&arguments, variables))
    }

    /// Runs a command behind the proxy.
    fn through(&self, arguments: &[&str]) -> Ended {
        self.run(arguments, &[("HTTPS_PROXY", &self.proxy.address)])
    }
}

const SOURCE: &str = "https://skills.example/pdf/SKILL.md";
const TUNNEL: &str = "CONNECT skills.example:443 HTTP/1.1";

#[test]
fn sites_registries_and_repositories_are_reached_through_the_proxy() {
    let company = Company::new();
    company.through(&["add", SOURCE]).ok();
    let document = company.machine.document("pdf");
    assert_eq!(document, skill_md("pdf"));
    assert!(company.proxy.take_lines().iter().all(|line| line == TUNNEL));
    company.through(&["outdated"]).ok();
    assert_eq!(company.proxy.take_lines(), [TUNNEL]);
    let proxy = company.proxy.address.as_str();
    for (variable, other) in [
        ("https_proxy", "HTTPS_PROXY"),
        ("ALL_PROXY", "NO_PROXY"),
        ("all_proxy", "no_proxy"),
    ] {
        // The variable in lower case counts where both are set.
        let variables = [(variable, proxy), (other, "other.example:1")];
        company.run(&["outdated"], &variables).ok();
        assert_eq!(company.proxy.take_lines(), [TUNNEL], "{variable}");
    }
    // The site has no address but behind the proxy.
    let variables = [
        ("https_proxy", ""),
        ("HTTPS_PROXY", proxy),
        ("ALL_PROXY", proxy),
    ];
    for variables in [&variables[..], &[("HTTPS_PROXY", ""), variables[2]]] {
        let direct = company.run(&["add", SOURCE], variables);
        direct.fails(7, "source_unreachable");
        assert_eq!(company.proxy.take_lines(), [""; 0], "{variables:?}");
    }
    let variables = [("https_proxy", proxy), ("HTTPS_PROXY", "")];
    company.run(&["outdated"], &variables).ok();
    assert_eq!(company.proxy.take_lines(), [TUNNEL]);
    let registry = [
        ("HTTPS_PROXY", proxy),
        ("VAULT_REGISTRY_URL", "https://skills.example/older"),
    ];
    company.run(&["add", "registry:csv"], &registry).ok();
    assert!(company.proxy.take_lines().iter().all(|line| line == TUNNEL));
    // The proxy leads git to the site, which has no certificate for the plugin's host.
    let market = "https://skills.example/market.tar.gz";
    let handed_over = company.through(&["add", market, "--plugin", "gif"]);
    handed_over.fails(7, "source_unreachable");
    let lines = company.proxy.take_lines();
    assert_eq!(lines.last().unwrap(), "CONNECT github.com:443 HTTP/1.1");
}

#[test]
fn a_certificate_of_a_private_authority_has_a_hint() {
    let company = Company::new();
    let proxy = ("HTTPS_PROXY", company.proxy.address.as_str());
    let system = ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
    let unknown = company.run(&["add", SOURCE], &[proxy, system]);
    let unknown = unknown.fails(7, "source_unreachable");
    let hint = unknown["hint"].to_string();
    assert!(hint.contains("SSL_CERT_FILE"), "{unknown}");
    // Also without a proxy, and of a service.
    let direct = format!("https://{}", company.site.address);
    for (command, code) in [
        (
            ["add", &format!("{direct}/pdf/SKILL.md")],
            "source_unreachable",
        ),
        (["link", &format!("{direct}/v/acme")], "unreachable"),
    ] {
        let unknown = company.run(&command, &[system]).fails(7, code);
        let hint = unknown["hint"].to_string();
        assert!(hint.contains("SSL_CERT_FILE"), "{unknown}");
    }
}

#[test]
fn private_addresses_and_direct_hosts_never_reach_the_proxy() {
    let company = Company::new();
    for private in [
        "https://10.0.0.1/a/SKILL.md",
        "https://[fd00::1]/a/SKILL.md",
        "https://169.254.169.254/a/SKILL.md",
    ] {
        let refused = company.through(&["add", private]);
        refused.fails(5, "source_not_public");
    }
    let proxy = ("HTTPS_PROXY", company.proxy.address.as_str());
    for direct in ["other.test,example", "*"] {
        // Without the proxy this host has no address.
        let direct = company.run(&["add", SOURCE], &[proxy, ("NO_PROXY", direct)]);
        direct.fails(7, "source_unreachable");
    }
    assert_eq!(company.proxy.take_lines(), [""; 0]);
    for path in ["network", "metadata", "mapped", "here", "here-too", "below"] {
        let source = format!("https://skills.example/{path}/SKILL.md");
        let refused = company.through(&["add", &source]);
        assert_ne!(refused.code, 0, "{}", refused.out);
        // Not every resolver knows names below `localhost`.
        if !matches!(path, "here-too" | "below") {
            refused.fails(5, "source_not_public");
        }
        assert_eq!(company.proxy.take_lines(), [TUNNEL], "{path}");
    }
}

#[test]
fn the_password_of_a_proxy_is_sent_to_it_and_shown_nowhere() {
    let company = Company::new();
    let address = format!("http://ann:s3cret@{}", company.proxy.address);
    let added = company.run(&["add", SOURCE], &[("HTTPS_PROXY", &address)]);
    added.ok();
    let heads = std::mem::take(&mut *company.proxy.asked.lock().unwrap());
    let sent = "proxy-authorization: basic ";
    let sends = |head: &String| head.to_ascii_lowercase().contains(sent);
    assert!(heads.iter().all(sends), "{heads:?}");
    let refusing = TestProxy::start(None);
    let refused = format!("http://ann:s3cret@{}", refusing.address);
    for (address, source, code) in [
        (refused.as_str(), SOURCE, 7),
        (&refused, "https://skills.example/a.git", 7),
        ("socks5://ann:s3cret@proxy.example", SOURCE, 2),
        ("http://ann:s3cret@", SOURCE, 2),
        ("http://ann:s3cret@proxy.example:x", SOURCE, 2),
        ("http://ann:s3cret@:x", "https://skills.example/a.git", 7),
        (
            "ann:s3cret/x@127.0.0.1:9",
            "https://skills.example/a.git",
            7,
        ),
        (
            "http://ann:s3cret\"x@127.0.0.1:9",
            "https://skills.example/a.git",
            7,
        ),
        (
            "http://ann:s3cret x@127.0.0.1:9",
            "https://skills.example/a.git",
            7,
        ),
        ("ann:2026/s3cret@proxy.example", SOURCE, 2),
    ] {
        let mut command = company.command(&["add", source, "--verbose"], &[]);
        let output = command.env("HTTPS_PROXY", address).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(code), "{address}: {text}");
        assert!(!text.contains("s3cret"), "{address}: {text}");
        let place = if code == 2 {
            "HTTPS_PROXY"
        } else {
            "skills.example"
        };
        assert!(text.contains(place), "{address}: {text}");
        if address == refused && source == SOURCE {
            let through = format!("through the proxy {}", refusing.address);
            assert!(text.contains(&through), "{text}");
        }
    }
    // Folders need no proxy.
    company.machine.home.skill("csv", "Text.");
    let folder = company.machine.home.path("csv");
    let broken = ("HTTPS_PROXY", "socks5://proxy.example");
    company
        .run(&["add", folder.to_str().unwrap()], &[broken])
        .ok();
}

#[test]
fn tools_of_agents_reach_no_proxy() {
    use crate::support::agent::Agent;
    let company = Company::new();
    let proxy = ("HTTPS_PROXY", company.proxy.address.as_str());
    let mut agent = Agent::start(company.command(&["mcp"], &[proxy]));
    agent.greet();
    for (kind, identifier) in [
        ("wellknown", "wellknown:https://skills.example/pdf"),
        ("git", "https://skills.example/acme/skills.git"),
    ] {
        let asked = json!({ "source": kind, "identifier": identifier });
        let answer = agent.call("add_skill", &asked);
        assert_eq!(answer["isError"], true, "{answer}");
        let unreachable = answer.to_string().contains("source_unreachable");
        assert!(unreachable, "{answer}");
    }
    agent.end();
    assert_eq!(company.proxy.take_lines(), [""; 0]);
}
