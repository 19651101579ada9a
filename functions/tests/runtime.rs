//! The built functions under a small Runtime API on loopback: how they start, what they answer, how long both take.
//!
//! Figures are printed, never asserted: `cargo test -p vault-functions --release --test runtime -- --nocapture` shows them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const FUNCTIONS: [(&str, &str); 5] = [
    ("oauth", env!("CARGO_BIN_EXE_oauth")),
    ("mcp", env!("CARGO_BIN_EXE_mcp")),
    ("admin", env!("CARGO_BIN_EXE_admin")),
    ("devices", env!("CARGO_BIN_EXE_devices")),
    ("catalog", env!("CARGO_BIN_EXE_catalog")),
];
/// Longer than any of it takes; only to end a test that hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the Lambda service is to a function: it gives out events and takes answers.
struct Runtime {
    listener: TcpListener,
}

impl Runtime {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// The next connection of the function; `None` once it has ended instead.
    fn accept(&self, function: &mut Child) -> Option<BufReader<TcpStream>> {
        self.listener.set_nonblocking(true).unwrap();
        let start = now();
        loop {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return Some(BufReader::new(stream));
            }
            if function.try_wait().unwrap().is_some() || start.elapsed() > PATIENCE {
                return None;
            }
            std::thread::yield_now();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures a process")]
fn now() -> Instant {
    Instant::now()
}

/// Reads one HTTP request: its first line and its body.
fn read(stream: &mut BufReader<TcpStream>) -> (String, Vec<u8>) {
    let mut first = String::new();
    stream.read_line(&mut first).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (first.trim_end().to_owned(), body)
}

fn give(stream: &mut BufReader<TcpStream>, id: usize, event: &Value) {
    let body = event.to_string();
    let deadline = 4_000_000_000_000u64;
    let head = format!(
        "HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: {id}\r\nLambda-Runtime-Deadline-Ms: {deadline}\r\n\
         Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:eu-central-1:000000000000:function:x\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .get_mut()
        .write_all(&[head.as_bytes(), body.as_bytes()].concat())
        .unwrap();
}

fn accepted(stream: &mut BufReader<TcpStream>) {
    let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
    stream.get_mut().write_all(answer).unwrap();
}

fn start(path: &str, runtime: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(path)
        .env_clear()
        .env("AWS_LAMBDA_RUNTIME_API", runtime)
        .env("AWS_LAMBDA_FUNCTION_NAME", "x")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
        .env("AWS_LAMBDA_LOG_GROUP_NAME", "x")
        .env("AWS_LAMBDA_LOG_STREAM_NAME", "x")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

const GOOD: &[(&str, &str)] = &[
    ("VAULT_TABLE", "vault"),
    ("VAULT_BUCKET", "vault-objects"),
    ("VAULT_PUBLIC_URL", "https://vault.example"),
    ("AWS_REGION", "eu-central-1"),
    // Nobody listens there: what these tests ask for needs no store.
    ("VAULT_AWS_ENDPOINT", "http://127.0.0.1:1"),
    ("VAULT_LOG_LEVEL", "error"),
];

/// A request that needs no store: unsigned, under `/v/`.
fn unsigned() -> Value {
    let mut event: Value = serde_json::from_str(include_str!("events/http.json")).unwrap();
    event["rawPath"] = "/v/acme/catalog.json".into();
    event
}

#[test]
fn each_function_starts_answers_and_keeps_its_process() {
    const CALLS: usize = 50;
    for (name, path) in FUNCTIONS {
        let runtime = Runtime::new();
        let address = runtime.address();
        let began = now();
        let mut function = start(path, &address, GOOD);
        let mut init = None;
        let mut times = Vec::new();
        let mut given = now();
        let (mut id, mut answered) = (0, 0);
        // A client may ask for the next event on the same connection or on a new one.
        while answered < CALLS {
            let Some(mut stream) = runtime.accept(&mut function) else {
                panic!("{name} ended: {}", log(&mut function));
            };
            while answered < CALLS {
                if stream.fill_buf().is_ok_and(<[u8]>::is_empty) {
                    break;
                }
                let (first, body) = read(&mut stream);
                if first.starts_with("GET") {
                    init.get_or_insert_with(|| began.elapsed());
                    id += 1;
                    given = now();
                    give(&mut stream, id, &unsigned());
                    continue;
                }
                times.push(given.elapsed());
                assert!(first.contains("/response "), "{first}");
                let answer: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(answer["statusCode"], 401, "{answer}");
                assert_eq!(answer["headers"]["www-authenticate"], "VaultDevice");
                accepted(&mut stream);
                answered += 1;
            }
        }
        let peak = peak_memory(function.id());
        function.kill().unwrap();
        function.wait().unwrap();
        let size = std::fs::metadata(path).unwrap().len();
        let cold = times.remove(0);
        times.sort_unstable();
        println!(
            "{name}: init {:?}, first {cold:?}, warm p50 {:?}, p95 {:?}, peak {} KiB, binary {size} bytes",
            init.unwrap(),
            times[times.len() / 2],
            times[times.len() * 95 / 100],
            peak.unwrap_or_default(),
        );
    }
}

/// The most memory that a process had, in KiB, where the system tells it.
fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn log(function: &mut Child) -> String {
    let mut text = String::new();
    let _ = function.stderr.take().unwrap().read_to_string(&mut text);
    text
}

#[test]
fn a_store_that_is_down_is_503_and_never_a_refusal() {
    let runtime = Runtime::new();
    let (_, path) = FUNCTIONS[2];
    let mut function = start(path, &runtime.address(), GOOD);
    let mut health = unsigned();
    health["rawPath"] = "/healthz".into();
    let mut vaults = unsigned();
    vaults["rawPath"] = "/admin/vaults".into();
    vaults["headers"]["authorization"] = format!("Bearer vat_{}", "A".repeat(43)).into();
    let mut events = vec![health, vaults];
    let mut statuses = Vec::new();
    while statuses.len() < 2 {
        let mut stream = runtime.accept(&mut function).unwrap();
        while statuses.len() < 2 {
            if stream.fill_buf().is_ok_and(<[u8]>::is_empty) {
                break;
            }
            let (first, body) = read(&mut stream);
            if first.starts_with("GET") {
                give(&mut stream, events.len(), &events.remove(0));
            } else {
                let answer: Value = serde_json::from_slice(&body).unwrap();
                statuses.push(answer["statusCode"].clone());
                accepted(&mut stream);
            }
        }
    }
    function.kill().unwrap();
    function.wait().unwrap();
    assert_eq!(statuses, [json!(503), json!(503)]);
}

#[test]
fn a_missing_variable_is_named_in_one_line_and_the_function_ends() {
    for (name, path) in FUNCTIONS {
        let some = &GOOD[2..4];
        let output = start(path, "127.0.0.1:1", some).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        let line: Value = serde_json::from_str(&log).unwrap();
        assert_eq!(
            line["error"], "VAULT_TABLE, VAULT_BUCKET must be set",
            "{log}"
        );
    }
}
