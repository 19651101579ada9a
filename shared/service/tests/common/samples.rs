//! One request for each row of the route table: what the tests of rights, of costs and of the functions send.
//!
//! A new row needs one line here.

use serde_json::Value;
use vault_service::{route::Route, router};

/// A request that changes nothing: it is good but for an id that nobody has, or for what it lacks.
pub struct Sample {
    pub route: &'static Route,
    pub path: String,
    pub body: &'static str,
    /// What a caller gets who may call: the status, and the code of an error.
    pub answer: &'static str,
    /// The most readings of the stores and the most writings that the route may cost, whatever is asked of it.
    pub budget: (usize, usize),
}

/// A line each: route, most readings, most writings, answer, and behind `|` the body.
const TABLE: &str = r#"
health.show         1 0  200
oauth.metadata      0 0  200
oauth.openid        0 0  200
oauth.resource      0 0  200
oauth.resource_mcp  0 0  200
client.register     0 2  400 invalid_redirect_uri | {}
oauth.authorize     6 1  400
oauth.login         1 2  400 | email=x
oauth.consent       2 1  400 | csrf=x
oauth.logout        0 1  403 | csrf=x
password.show       2 0  200
password.change     5 2  403 | csrf=x
token.grant         2 2  400 unsupported_grant_type | grant_type=x
token.revoke        3 1  200 | token=x
invite.show         2 0  404
invite.accept       3 1  404 | csrf=x
device.enrol        2 2  400 json_invalid | {}
device.current      1 1  200
catalog.read        2 1  200
bundle.read         3 0  404 bundle_not_found
mcp.call            2 0  200 | {"jsonrpc":"2.0","id":1,"method":"tools/list"}
vault.list          4 0  200
vault.show          4 0  200
object.missing      4 0  200 | {"class":"bundles","objects":[]}
object.pack         3 2  415 media_type | {}
object.put          3 2  415 media_type | {}
object.read         3 0  404 not_found
catalog.current     3 0  200
catalog.publish     9 5  428 precondition_required | {}
release.list        3 0  200
release.show        3 0  404 not_found
release.catalog     4 0  404 not_found
pin.reset           4 3  422 confirmation_mismatch | {"slug":"x"}
device.list         5 0  200
device.deny-pending 4 1  200
device.admit        4 1  404 not_found
device.deny         4 1  404 not_found
device.revoke       4 1  404 not_found
device.forget       4 1  404 not_found
user.list           3 0  200
user.create         5 1  422 email_invalid | {"email":"nobody"}
user.profile        3 1  404 user_not_found | {"profile":null}
user.role           5 1  404 user_not_found | {"role":"role:member"}
user.scopes         3 1  404 user_not_found | {"grant":["read"]}
user.remove         4 1  404 user_not_found
client.list         5 0  200
client.revoke       5 1  404 client_not_found
audit.list          3 0  200
namespace.list      4 0  200
namespace.create    3 1  422 slug_invalid | {"slug":"-","owner":"ada@example.org"}
namespace.show      5 0  404 not_found
namespace.suspend   5 1  404 not_found
namespace.resume    5 1  404 not_found
"#;

/// The sample of each route, in the order of the table. A row without a sample fails, and so does a sample without a row.
pub fn samples() -> Vec<Sample> {
    let samples: Vec<_> = router::all().map(Sample::of).collect();
    assert_eq!(
        samples.len(),
        TABLE.trim().lines().count(),
        "a sample is of no route"
    );
    samples
}

impl Sample {
    fn of(route: &'static Route) -> Self {
        let mut lines = TABLE.lines().filter_map(|line| line.split_once(' '));
        let line = lines.find(|(name, _)| *name == route.name);
        let (_, line) =
            line.unwrap_or_else(|| panic!("{}: say in samples.rs how to ask for it", route.name));
        let (line, body) = line.split_once(" | ").unwrap_or((line, ""));
        let (reads, line) = line.trim().split_once(' ').unwrap();
        let (writes, answer) = line.split_once(' ').unwrap();
        let segments = route.path.split('/').map(|segment| filled(route, segment));
        Self {
            route,
            path: segments.collect::<Vec<_>>().join("/"),
            body,
            answer: answer.trim(),
            budget: (reads.parse().unwrap(), writes.parse().unwrap()),
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
        ("id", "users") => format!("usr_{}", "0".repeat(26)),
        ("id", "clients") => format!("cli_{}", "0".repeat(26)),
        ("id", _) => format!("dev_{}", "a".repeat(26)),
        ("token", _) => "x".to_owned(),
        (other, _) => panic!("say in samples.rs what {{{other}}} is"),
    };
    value + rest
}

/// Status and code of an answer in one text, whichever of the three forms of errors it has: problems, OAuth, JSON-RPC.
pub fn short(status: u16, body: &Value) -> String {
    let error = &body["error"];
    let code = [&body["code"], error, &error["data"]["code"]];
    match code.iter().find_map(|code| code.as_str()) {
        Some(code) => format!("{status} {code}"),
        None => status.to_string(),
    }
}
