//! The tenant walk: every route, as every kind of caller of one tenant, against everything of
//! another. No data comes out, nothing changes, and no answer tells whether what was asked for is
//! there.
//!
//! The route table is what is walked, so a new route is in it with its sample. The one difference
//! that is meant: a machine that enrols at an unknown name is told so, for the person who mistyped
//! it.

mod budgets;
mod people;
mod removal;
mod there;

use serde_json::{Value, json};
use vault_format::keys::SecretKey;
use vault_service::model::device::DeviceStatus;
use vault_service::model::user::{Role, Scopes};
use vault_service::route::Auth;

use crate::admin::{ADA, BOB, Desk, desk, reference, token};
use crate::common::samples::{Sample, samples};
use crate::common::{self, OWNER};
use crate::support::{Answer, key};

use there::{FAY, Named, Other, SKILL, THERE, other, records_of};

/// A caller of tenant A.
enum Caller {
    Token(&'static str, String),
    Device(&'static str, SecretKey),
}

impl Caller {
    const fn name(&self) -> &'static str {
        match self {
            Self::Token(name, _) | Self::Device(name, _) => name,
        }
    }

    async fn ask(&self, desk: &Desk, sample: &Sample, path: &str) -> Answer {
        let method = sample.route.method;
        match self {
            Self::Token(_, token) => {
                let body = (!sample.body.is_empty()).then(|| ("", sample.body.into()));
                desk.send(token, method, path, body, &sample.headers())
                    .await
            }
            Self::Device(_, key) => {
                let mut request = desk.world.signed(key, method, path);
                for (name, value) in sample.headers() {
                    request.headers_mut().insert(name, value.parse().unwrap());
                }
                *request.body_mut() = sample.body.into();
                desk.world.send(request).await
            }
        }
    }
}

/// Every kind of caller of tenant A, and who operates the service.
async fn callers(desk: &Desk) -> Vec<Caller> {
    let (world, app) = (&desk.world, &desk.world.app);
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let device =
        async |name, n, status| Caller::Device(name, world.device("acme", n, status).await);
    vec![
        Caller::Token("nobody", String::new()),
        Caller::Token("owner", desk.owner.clone()),
        Caller::Token("reader", token(world, ADA, "acme", Scopes::READ).await),
        Caller::Token("member", token(world, BOB, "acme", Scopes::ALL).await),
        Caller::Token("operator", desk.operator().await),
        Caller::Token(
            "an operator's app",
            token(world, OWNER, "default", Scopes::ALL).await,
        ),
        device("admitted", 7, DeviceStatus::Active).await,
        device("waiting", 8, DeviceStatus::Pending).await,
        device("revoked", 9, DeviceStatus::Revoked).await,
        Caller::Device("stranger", key(10)),
    ]
}

impl Other {
    /// What only this tenant knows, in a text.
    fn told(&self, text: &str) -> Option<&String> {
        let mut secrets = self.secrets.iter();
        secrets.find(|secret| text.contains(secret.as_str()))
    }
}

#[tokio::test]
async fn nobody_of_one_tenant_learns_or_changes_anything_of_another() {
    let desk = desk().await;
    let world = &desk.world;
    let callers = callers(&desk).await;
    let other = other(&desk).await;
    let absent = Named::absent();
    let before = records_of(world, &other).await;
    let mut asked = 0;
    let mut wrong = Vec::new();
    for sample in samples() {
        let route = sample.route;
        // `people` walks these.
        if matches!(
            route.auth,
            Auth::Public | Auth::Session(_) | Auth::ClientOrBearer
        ) {
            continue;
        }
        let is_service = matches!(route.auth, Auth::Operator | Auth::OperatorWrite);
        for caller in &callers {
            // Operators are there to see and change all tenants.
            if is_service && caller.name() == "operator" {
                continue;
            }
            if !route.path.contains('{') {
                // It names nothing of a tenant: what its token opens is that tenant's own.
                asked += 1;
                let answer = caller.ask(&desk, &sample, route.path).await.blotted();
                if let Some(secret) = other.told(&answer) {
                    let (who, name) = (caller.name(), route.name);
                    wrong.push(format!("{name} by {who}: {secret:?}\n{answer}"));
                }
                continue;
            }
            // Everything of B in B, and in the caller's own vault; and what is not there, where it
            // is not.
            for (there, not_there) in [
                (
                    other.proposal.path(route, &other.named.slug),
                    absent.path(route, &absent.slug),
                ),
                (
                    other.proposal.path(route, "acme"),
                    absent.path(route, "acme"),
                ),
                (
                    other.named.path(route, &other.named.slug),
                    absent.path(route, &absent.slug),
                ),
                (other.named.path(route, "acme"), absent.path(route, "acme")),
                (
                    other.waiting.path(route, THERE),
                    absent.path(route, &absent.slug),
                ),
                (
                    other.waiting.path(route, "acme"),
                    absent.path(route, "acme"),
                ),
                (
                    absent.path(route, &other.named.slug),
                    absent.path(route, &absent.slug),
                ),
            ] {
                let is_enrolment = route.name == "device.enrol";
                if there == not_there || is_enrolment {
                    continue;
                }
                asked += 1;
                let answer = caller.ask(&desk, &sample, &there).await;
                let nothing = caller.ask(&desk, &sample, &not_there).await;
                let (found, wanted) = (answer.blotted(), nothing.blotted());
                let secret = other.told(&found);
                if found != wanted || secret.is_some() {
                    let (who, name) = (caller.name(), route.name);
                    wrong.push(format!(
                        "{name} by {who} at {there}: {secret:?}\n{found}\n{wanted}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(asked > 600, "{asked}");
    assert_eq!(records_of(world, &other).await, before);
}

/// What tools and resources can be asked for by name, of a vault and a skill.
fn messages(slug: &str, skill: &str) -> Vec<Value> {
    let tool = |name: &str, arguments: Value| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": arguments },
        })
    };
    let read = |uri: String| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": uri },
        })
    };
    let name = format!("{slug}/{skill}");
    vec![
        read(format!("skill://{name}/SKILL.md")),
        read(format!("skill://{name}/_manifest")),
        tool("skill_fetch", json!({ "id": name })),
        tool("get_skill", json!({ "name": name })),
        tool("check_updates", json!({ "skill": name })),
        tool("update_skill", json!({ "name": name })),
        tool("remove_skill", json!({ "name": name })),
    ]
}

/// Status and text of the answer to a message at `/mcp`.
async fn message(desk: &Desk, token: &str, message: &Value) -> String {
    let headers = [
        ("host", "vault.example"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let body = ("application/json", message.to_string().into_bytes());
    let answer = desk.send(token, "POST", "/mcp", Some(body), &headers).await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    format!("{} {text}", answer.status)
}

/// Tools name vaults in their arguments, where no route table sees them.
#[tokio::test]
async fn no_tool_reads_or_changes_anything_of_another_tenant() {
    let desk = desk().await;
    let callers = callers(&desk).await;
    let other = other(&desk).await;
    let before = records_of(&desk.world, &other).await;
    // Skills of the same names are in both, so another name shows what comes from there.
    let (there, absent) = (messages(THERE, SKILL), messages("tenant-x", SKILL));
    for caller in &callers {
        let Caller::Token(who, token) = caller else {
            continue;
        };
        for (there, absent) in there.iter().zip(&absent) {
            let found = message(&desk, token, there).await;
            let wanted = message(&desk, token, absent).await;
            assert_eq!(found, wanted.replace("tenant-x", THERE), "{who}: {there}");
            assert_eq!(other.told(&found), None, "{who}: {there}");
        }
    }
    assert_eq!(records_of(&desk.world, &other).await, before);
    // They find what they are for: who belongs there is answered.
    for (at, there) in there.iter().enumerate().take(4) {
        let found = message(&desk, &other.tokens.access, there).await;
        let nothing = message(&desk, &other.tokens.access, &absent[at]).await;
        assert_ne!(found, nothing.replace("tenant-x", THERE), "{there}");
    }
}

/// The walk finds what it is for: whoever belongs there gets answers that differ.
#[tokio::test]
async fn the_walk_tells_what_is_there_from_what_is_not() {
    let desk = desk().await;
    let other = other(&desk).await;
    let fay = token(&desk.world, FAY, THERE, Scopes::ALL).await;
    let absent = Named::absent();
    // A confirmation is shown to the app that asked for it, and to no other one of the same person.
    let confirmation = samples()
        .into_iter()
        .find(|it| it.route.name == "confirmation.show");
    let path = other.named.path(confirmation.unwrap().route, THERE);
    for (app, status) in [(&other.tokens.access, 200), (&fay, 404)] {
        assert_eq!(desk.ask_once(app, "GET", &path, None).await.status, status);
    }
    let owner = Caller::Token("their own owner", fay);
    let mut differ = Vec::new();
    for sample in samples() {
        let route = sample.route;
        let variables = ["{id}", "{sha256}", "{release}"];
        if !variables.iter().any(|name| route.path.contains(name)) {
            continue;
        }
        let there = owner
            .ask(&desk, &sample, &other.named.path(route, THERE))
            .await;
        let nothing = owner.ask(&desk, &sample, &absent.path(route, THERE)).await;
        if there.blotted() != nothing.blotted() {
            differ.push(route.name);
        }
    }
    for name in [
        "device.revoke",
        "user.scopes",
        "client.revoke",
        "enrolment.end",
        "object.read",
        "release.show",
        "release.catalog",
        "draft.read",
        "draft.withdraw",
        "draft.decline",
    ] {
        assert!(differ.contains(&name), "{name}: {differ:?}");
    }
}
