//! The running server as others meet it: raw requests over loopback, limits from the environment,
//! its log, and how it stops.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use vault_format::keys::SecretKey;
use vault_format::request::sign_request;
use vault_store::clock::{Clock as _, SystemClock};
use vault_tests::home::{Home, vault_binary};
use vault_tests::place;
use vault_tests::server::{Database, OWNER_EMAIL, OWNER_PASSWORD, Server};

use crate::support;

/// An answer: status, head and body.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn short(&self) -> String {
        let problem: Value = serde_json::from_str(&self.body).unwrap_or_default();
        match problem["code"].as_str() {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(held, _)| held.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    stream
}

fn read(stream: &mut TcpStream) -> Reply {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn head(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let host = server.authority();
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n"
}

fn send(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let length = body.len().to_string();
    let mut all = headers.to_vec();
    all.push(("Content-Length", &length));
    let mut stream = connect(server);
    stream
        .write_all(format!("{}{body}", head(server, method, path, &all)).as_bytes())
        .unwrap();
    read(&mut stream)
}

/// A request that a device signs by the machine's clock.
fn signed(server: &Server, device: &SecretKey, method: &str, path: &str, body: &str) -> Reply {
    let by = sign_request(device, method, path, SystemClock.now());
    let headers = [
        ("X-Vault-Device", by.device.as_str()),
        ("X-Vault-Timestamp", &by.timestamp),
        ("X-Vault-Signature", &by.signature),
        ("Content-Type", "application/json"),
    ];
    send(server, method, path, &headers, body)
}

fn device(n: u8) -> SecretKey {
    SecretKey::from_seed([n; 32])
}

fn enrolment(device: &SecretKey) -> String {
    json!({"public_key": device.public(), "hostname": "laptop"}).to_string()
}

fn enrol(server: &Server, n: u8) -> Reply {
    enrol_at(server, "default", n)
}

fn enrol_at(server: &Server, slug: &str, n: u8) -> Reply {
    let device = device(n);
    let path = format!("/v/{slug}/devices");
    signed(server, &device, "POST", &path, &enrolment(&device))
}

/// An error code and a signature that counts: both ways through the built server. The routes are
/// tested in process.
#[test]
fn the_built_server_answers_with_the_codes_of_the_table() {
    let server = Server::start(&Database::Sqlite);
    // A hosted service has no vault of its own.
    let slug = if server.is_own() {
        "default".to_owned()
    } else {
        support::connect(&server, &Home::new(), support::SLUG);
        support::slug(&server)
    };
    let bundle = format!("/v/{slug}/bundles/{}.json", "0".repeat(64));
    let unsigned = send(&server, "GET", &bundle, &[], "");
    assert_eq!(unsigned.short(), "401 signature_required");
    assert_eq!(enrol_at(&server, &slug, 1).status, 201);
    let pending = signed(&server, &device(1), "GET", &bundle, "");
    assert_eq!(pending.short(), "403 device_pending");
}

/// Every limit is a setting; 0 switches it off.
#[test]
fn limits_come_from_the_environment() {
    if place::leaves_out("", "it starts servers with limits of its own") {
        return;
    }
    let some = Server::start_with(
        &Database::Sqlite,
        &[
            ("VAULT_LIMIT_ENROL_SLUG", "2"),
            ("VAULT_LIMIT_ENROL_SOURCE", "0"),
            ("VAULT_LIMIT_CATALOG", "2"),
            ("VAULT_LIMIT_REGISTER", "1"),
        ],
    );
    // A window is a minute of the clock: the next one may begin in between, but not after each
    // second try.
    let tries: Vec<Reply> = (1..=6).map(|n| enrol(&some, n)).collect();
    let refused = tries
        .iter()
        .find(|reply| reply.status == 429)
        .expect("a limit of two");
    assert_eq!(refused.short(), "429 rate_limited");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let reads =
        (0..6).map(|_| signed(&some, &device(1), "GET", "/v/default/devices/current", "").status);
    assert!(reads.filter(|status| *status == 429).count() >= 1);
    let client = json!({"client_name": "x", "redirect_uris": ["https://x.example/"]}).to_string();
    let media = [("Content-Type", "application/json")];
    let register =
        |server: &Server| send(server, "POST", "/oauth/register", &media, &client).status;
    let answers: Vec<u16> = (0..3).map(|_| register(&some)).collect();
    assert!(
        answers.contains(&201) && answers.contains(&429),
        "{answers:?}"
    );

    let none = Server::start_with(
        &Database::Sqlite,
        &[
            ("VAULT_LIMIT_ENROL_SLUG", "0"),
            ("VAULT_LIMIT_ENROL_SOURCE", "0"),
            ("VAULT_LIMIT_CATALOG", "0"),
            ("VAULT_LIMIT_BUNDLES", "0"),
            ("VAULT_LIMIT_REGISTER", "0"),
        ],
    );
    for n in 1..=20 {
        assert_eq!(enrol(&none, n).status, 201);
    }
    assert_eq!(enrol(&none, 21).short(), "409 pending_queue_full");
    // A person reads what to do about it.
    let late = Home::new().fails(
        &format!("link {}/v/default", none.url),
        1,
        "pending_queue_full",
    );
    assert!(late.hint.unwrap().contains("must admit or deny"));
    for _ in 0..130 {
        assert_eq!(
            signed(&none, &device(1), "GET", "/v/default/devices/current", "").status,
            200
        );
    }
}

#[test]
fn a_limit_that_is_no_number_ends_the_start_with_2() {
    if place::leaves_out("", "it is about `vault serve`") {
        return;
    }
    for (name, value) in [
        ("VAULT_LIMIT_CATALOG", "-1"),
        ("VAULT_LIMIT_BUNDLES", "many"),
        ("VAULT_LIMIT_TOKEN", "4294967296"),
        ("VAULT_LIMIT_SIGN_IN", "1.5"),
    ] {
        let home = Home::new();
        let mut command = Command::new(vault_binary());
        home.environment(&mut command);
        let output = command
            .arg("serve")
            .env("VAULT_PUBLIC_URL", "http://127.0.0.1:1")
            .env("VAULT_ADMIN_EMAIL", OWNER_EMAIL)
            .env("VAULT_ADMIN_PASSWORD", OWNER_PASSWORD)
            .env(name, value)
            .current_dir(home.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {told}");
        assert!(told.contains(name), "{told}");
        assert!(!home.path().join("data").exists(), "nothing is created");
    }
}

/// The first owner is made once: what the variables say later changes nothing, and stops nothing.
#[test]
fn a_second_start_does_not_judge_the_bootstrap_password() {
    if place::leaves_out("", "it is about `vault serve`") {
        return;
    }
    let mut server = Server::start(&Database::Sqlite);
    server.stop();
    server.set("VAULT_ADMIN_PASSWORD", "short");
    server.set("VAULT_ADMIN_EMAIL", "no address");
    server.resume();
    let log = server.log_text();
    assert!(log.contains("an account exists already"), "{log}");
    server.stop();
    // A database without an owner, of whatever age: the password is judged, and says so in the same
    // words.
    let home = Home::new();
    std::fs::write(home.path().join("empty.db"), b"").unwrap();
    let ran: vault_tests::home::Ran = home
        .command(&["serve"])
        .env("VAULT_PUBLIC_URL", "http://127.0.0.1:9")
        .env("VAULT_PORT", "0")
        .env("VAULT_ADMIN_EMAIL", OWNER_EMAIL)
        .env("VAULT_ADMIN_PASSWORD", "short")
        .env("VAULT_DATABASE_URL", home.path().join("empty.db"))
        .output()
        .unwrap()
        .into();
    let ran = ran.expect_code(2);
    assert!(
        ran.stderr.contains("at least 24 characters"),
        "{}",
        ran.stderr
    );
    assert!(!home.vault().exists(), "no library is made");
}

/// SIGTERM: who is being answered is answered, nobody new gets in, the status is 0; the log is JSON
/// lines without secrets.
#[test]
fn sigterm_lets_a_running_request_end() {
    if place::leaves_out("", "it is about `vault serve`") {
        return;
    }
    let mut server = Server::start(&Database::Sqlite);
    let device = device(1);
    let body = enrolment(&device);
    let by = sign_request(&device, "POST", "/v/default/devices", SystemClock.now());
    let length = body.len().to_string();
    let headers = [
        ("X-Vault-Device", by.device.as_str()),
        ("X-Vault-Timestamp", &by.timestamp),
        ("X-Vault-Signature", &by.signature),
        ("Content-Type", "application/json"),
        ("Content-Length", &length),
        ("Expect", "100-continue"),
    ];
    let mut stream = connect(&server);
    stream
        .write_all(head(&server, "POST", "/v/default/devices", &headers).as_bytes())
        .unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).unwrap();
    assert_eq!(
        &go_on, b"HTTP/1.1 100 Continue\r\n\r\n",
        "the handler reads the body now"
    );

    let killed = Command::new("kill")
        .args(["-TERM", &server.pid().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    // Bounded: each refused or closed connection is one look at whether the listener is gone.
    let gone = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        TcpStream::connect(("127.0.0.1", server.port())).is_err()
    });
    assert!(gone, "nobody new gets in");
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(read(&mut stream).status, 201, "who was there is answered");

    let ran = server.stop();
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, ""),
        "standard output is not the log's"
    );
    // The log is copied by a thread of the test, which may be a line behind.
    let log = (0..3000)
        .map(|_| server.log_text())
        .find(|log| {
            log.contains("\"stopped\"") || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        })
        .expect("a line that says it stopped");
    for line in log.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("a JSON line: {line}"));
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
    }
    for secret in [
        OWNER_PASSWORD,
        &by.signature,
        &by.device,
        "laptop",
        "$argon2",
    ] {
        assert!(!log.contains(secret), "{secret} stands in the log");
    }
}
