//! A linked machine, and what "refused" means for it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};
use vault_format::bundle::EncodedBundle;
use vault_tests::home::{Arguments, Home, Ran};
use vault_tests::host::{Answer, Host, Namespace, Request};
use vault_tests::signed::{Owner, entry, skill};
use vault_tests::tree::{self, Entry};

/// The exit codes that attacks end with.
pub const FAILED: i32 = 1;
pub const USAGE: i32 = 2;
pub const DIFFERENCES: i32 = 3;
pub const NOT_ALLOWED: i32 = 4;
pub const GATE: i32 = 5;
pub const INTEGRITY: i32 = 6;
pub const NETWORK: i32 = 7;

/// The release that every machine begins with; the attacks concern the next one.
pub const FIRST: u64 = 5;

/// A machine that was linked and pulled release 5, its host, and the two honest states of it.
pub struct Scene {
    pub host: Host,
    pub owner: Owner,
    pub machine: Home,
    pub first: Namespace,
    pub next: Namespace,
    /// The bundles of the next release: `alpha` and `beta`.
    pub bundles: [EncodedBundle; 2],
}

impl Scene {
    pub fn new() -> Self {
        let host = Host::start();
        let owner = Owner::at(&host);
        let old = skill("alpha", 1, &[]);
        let first = Namespace::new(owner.signed(FIRST, 0, &[entry("alpha", 1, &old)]), &[&old]);
        let bundles = [
            skill("alpha", 2, &[("notes/more.md", b"More.\n")]),
            skill("beta", 1, &[]),
        ];
        let entries = [
            entry("alpha", 2, &bundles[0]),
            entry("beta", 1, &bundles[1]),
        ];
        let next = Namespace::new(
            owner.signed(FIRST + 1, 0, &entries),
            &[&old, &bundles[0], &bundles[1]],
        );
        host.serve(first.clone());
        let machine = Home::new();
        machine.run(&format!("link {}", host.address())).ok();
        machine.run("cloud pull").ok();
        Self {
            host,
            owner,
            machine,
            first,
            next,
            bundles,
        }
    }

    /// The next release with another catalog.
    pub fn with_catalog(&self, catalog: impl Into<Vec<u8>>) -> Namespace {
        Namespace {
            catalog: Some(catalog.into()),
            ..self.next.clone()
        }
    }

    /// Serves an attack and pulls: it must end so, and leave the machine as it was.
    #[track_caller]
    pub fn refused(&self, name: &str, namespace: Namespace, exit: i32, code: &str) -> Ran {
        self.host.serve(namespace);
        self.pull_refused(name, exit, code)
    }

    /// [`Self::refused`], since the bytes are not those that were signed for.
    #[track_caller]
    pub fn rejects(&self, name: &str, namespace: Namespace, code: &str) -> Ran {
        self.refused(name, namespace, INTEGRITY, code)
    }

    /// A pull from the host as it is: it must end so, and leave the machine as it was.
    #[track_caller]
    pub fn pull_refused(&self, name: &str, exit: i32, code: &str) -> Ran {
        refused(&self.machine, name, "cloud pull --json", exit, code)
    }

    /// The honest next release arrives after whatever happened before.
    #[track_caller]
    pub fn arrives(&self) {
        self.host.serve(self.next.clone());
        let ran = self.machine.run("cloud pull --json").ok();
        assert_eq!(ran.json()["data"]["release"], FIRST + 1);
        let installed = self.machine.run("skill list").ok();
        let names: Vec<_> = installed
            .json()
            .as_array()
            .expect("a list of skills")
            .iter()
            .map(|skill| skill["name"].as_str().expect("a name").to_owned())
            .collect();
        assert_eq!(names, ["alpha", "beta"]);
    }
}

/// Runs a command that must end with this exit code and word and leave the whole home as it was.
#[track_caller]
pub fn refused(
    machine: &Home,
    name: &str,
    command: &(impl Arguments + ?Sized),
    exit: i32,
    code: &str,
) -> Ran {
    refused_but_for(machine, name, command, exit, code, &[])
}

/// What a command that takes the writer's lock and looks at every file may touch: who holds the
/// lock, and the index, which can be deleted at any time.
pub const WRITERS: &[&str] = &[".vault/index.db", ".vault/lock"];

/// [`refused`], with places that may change.
#[track_caller]
pub fn refused_but_for(
    machine: &Home,
    name: &str,
    command: &(impl Arguments + ?Sized),
    exit: i32,
    code: &str,
    may_change: &[&str],
) -> Ran {
    let before = tree::snapshot(machine.path(), may_change);
    let ran = machine.run(command);
    assert_eq!(ran.refused(exit).code, code, "{name}");
    unchanged_but_for(machine, name, &before, may_change);
    ran
}

/// `vault cloud connect` with a browser that is sent to the address and comes back as `answer`
/// says: it is given the callback that would be right.
pub fn connect(
    machine: &Home,
    address: &str,
    answer: impl FnOnce(String) -> Option<String>,
) -> Ran {
    let mut child = machine
        .command(&format!("cloud connect {address} --no-browser --json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built binary");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    let mut answer = Some(answer);
    // Ends with the process at the latest: then the stream does.
    while stderr.read_line(&mut said).expect("text") > 0 {
        let line = said.lines().next_back().unwrap_or_default().trim();
        if line.contains("/oauth/authorize?")
            && let Some(answer) = answer.take()
            && let Some(callback) = answer(right_callback(line))
        {
            visit(&callback);
        }
    }
    let output = child.wait_with_output().expect("a process that ended");
    Ran {
        stderr: said,
        ..output.into()
    }
}

/// Where a service sends the browser after sign-in and consent.
fn right_callback(authorize: &str) -> String {
    let authorize = url::Url::parse(authorize).expect("an address");
    let member = |name: &str| {
        let found = authorize.query_pairs().find(|(member, _)| member == name);
        found.expect("a member of the query").1.into_owned()
    };
    let issuer = authorize.origin().ascii_serialization();
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("code", "vac_test")
        .append_pair("state", &member("state"))
        .append_pair("iss", &issuer)
        .finish();
    format!("{}?{query}", member("redirect_uri"))
}

/// `GET` of a loopback address.
fn visit(address: &str) {
    let address = url::Url::parse(address).expect("an address");
    let port = address.port().expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the callback's listener");
    let target = &address[url::Position::BeforePath..];
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    )
    .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a page");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Calls a tool of `vault mcp` on this machine, and returns its result.
pub fn call_tool(machine: &Home, tool: &str, arguments: &Value) -> Value {
    let mut child = machine
        .command(&["mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let greeting = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    let called = json!({ "name": tool, "arguments": arguments });
    let mut answer = Value::Null;
    for (id, method, params) in [(1, "initialize", greeting), (2, "tools/call", called)] {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{request}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        answer = serde_json::from_str(&line).unwrap();
        if id == 1 {
            let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            writeln!(input, "{done}").unwrap();
        }
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    answer["result"].clone()
}

/// The word of a failure in the envelope.
pub fn word(ran: &Ran) -> String {
    serde_json::from_str::<Value>(&ran.stdout)
        .ok()
        .and_then(|envelope| Some(envelope["error"]["code"].as_str()?.to_owned()))
        .unwrap_or_default()
}

/// Nothing in the home came, went or changed, but for the record of when and how the last pull
/// ended.
#[track_caller]
pub fn unchanged(machine: &Home, name: &str, before: &BTreeMap<String, Entry>) {
    unchanged_but_for(machine, name, before, &[]);
}

/// [`unchanged`], with places that `before` left out too.
#[track_caller]
pub fn unchanged_but_for(
    machine: &Home,
    name: &str,
    before: &BTreeMap<String, Entry>,
    may_change: &[&str],
) {
    let after = tree::snapshot(machine.path(), may_change);
    let differing: Vec<_> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .filter(|path| !path.ends_with("/last-pull.json"))
        .collect();
    assert!(differing.is_empty(), "{name} changed {differing:?}");
}

/// Answers the catalog of `/v/` with this and leaves the rest honest.
pub fn instead_of_catalog(answer: Answer) -> impl Fn(&Request) -> Option<Answer> {
    move |request| {
        request
            .is_for("GET", "catalog.json")
            .then(|| answer.clone())
    }
}

/// Numbers that look random and are the same each time.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("below a usize")
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }
}
