//! One request for each row of the route table: what the tests of rights, of costs and of the
//! functions send.
//!
//! A new row needs one row in `samples.txt`.

use serde_json::Value;
use vault_service::{route::Route, router};

/// A request that changes nothing: it is good but for an id that nobody has, or for what it lacks.
pub struct Sample {
    pub route: &'static Route,
    pub path: String,
    pub body: &'static str,
    /// What a caller gets who may call: the status, and the code of an error.
    pub answer: &'static str,
    /// The most readings of the stores and the most writings that the route may cost, whatever is
    /// asked of it.
    pub budget: (usize, usize),
    /// The lines that describe the route.
    pub description: Vec<&'static str>,
}

/// A row each: route, most readings, most writings, answer, and behind `|` the body. The lines
/// below it describe the route: `docs/api.md` and `docs/openapi.json` are written from them, and
/// every answer in the tests is held to them.
const TABLE: &str = include_str!("samples.txt");

/// The sample of each route, in the order of the table. A row without a sample fails, and so does a
/// sample without a row.
pub fn samples() -> Vec<Sample> {
    let samples: Vec<_> = router::all_routes().map(Sample::of).collect();
    assert_eq!(
        samples.len(),
        TABLE.lines().filter(|line| is_row(line)).count(),
        "a row of tests/common/samples.txt is of no route"
    );
    samples
}

impl Sample {
    fn of(route: &'static Route) -> Self {
        let mut lines = TABLE.lines();
        let rest = lines.find_map(|line| line.strip_prefix(route.name)?.strip_prefix(' '));
        let line = rest
            .unwrap_or_else(|| panic!("{}: add its row to tests/common/samples.txt", route.name));
        let description = lines.take_while(|line| line.starts_with(' '));
        let (line, body) = line.split_once(" | ").unwrap_or((line, ""));
        let (reads, line) = line.trim_start().split_once(' ').unwrap();
        let (writes, answer) = line.split_once(' ').unwrap();
        let segments = route.path.split('/').map(|segment| filled(route, segment));
        Self {
            route,
            path: segments.collect::<Vec<_>>().join("/"),
            body,
            answer: answer.trim(),
            budget: (reads.parse().unwrap(), writes.parse().unwrap()),
            description: description.map(str::trim).collect(),
        }
    }

    /// The headers that the route needs beside those of its caller.
    pub fn headers(&self) -> Vec<(&'static str, &'static str)> {
        let media = match self.body.as_bytes() {
            [] => None,
            [b'{', ..] => Some("application/json"),
            _ => Some("application/x-www-form-urlencoded"),
        };
        let mut headers = vec![("host", "vault.example")];
        headers.extend(media.map(|media| ("content-type", media)));
        if self.route.path == "/mcp" {
            headers.push(("accept", "application/json, text/event-stream"));
            headers.push(("mcp-protocol-version", "2025-11-25"));
        }
        headers
    }
}

/// Whether a line of the table begins a sample.
fn is_row(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_lowercase())
}

/// A segment of a path, with an id in it that nobody has where the row has a variable.
fn filled(route: &Route, segment: &str) -> String {
    let Some((name, rest)) = segment
        .strip_prefix('{')
        .and_then(|name| name.split_once('}'))
    else {
        return segment.to_owned();
    };
    let kind = route.path.split('/').nth(2).unwrap_or_default();
    let value = match (name, kind) {
        // What an operator does to `acme` would change it.
        ("slug", "operator") => "nobody".to_owned(),
        ("slug", _) => "acme".to_owned(),
        ("class", _) => "bundles".to_owned(),
        ("sha256" | "bundle_hash", _) => "0".repeat(64),
        ("release", _) => "1".to_owned(),
        ("id", _) if route.path.contains("/drafts/") => "0".repeat(26),
        ("id", _) if route.path.contains("/notices/") => format!("whk_{}", "0".repeat(26)),
        ("id", _) if route.path.contains("/people/") => format!("usr_{}", "0".repeat(26)),
        ("id", "users") => format!("usr_{}", "0".repeat(26)),
        ("id", _) if route.path.contains("/enrolment-codes/") => format!("enc_{}", "0".repeat(26)),
        ("id", "clients") => format!("cli_{}", "0".repeat(26)),
        ("id", _) => format!("dev_{}", "a".repeat(26)),
        ("email", _) => "nobody@example.org".to_owned(),
        ("name", _) => "nothing".to_owned(),
        ("token", _) => "x".to_owned(),
        (other, _) => panic!("say in samples.rs what {{{other}}} is"),
    };
    value + rest
}

/// Status and code of an answer in one text, whichever of the three forms of errors it has:
/// problems, OAuth, JSON-RPC.
pub fn short(status: u16, body: &Value) -> String {
    let error = &body["error"];
    let code = [&body["code"], error, &error["data"]["code"]];
    match code.iter().find_map(|code| code.as_str()) {
        Some(code) => format!("{status} {code}"),
        None => status.to_string(),
    }
}
