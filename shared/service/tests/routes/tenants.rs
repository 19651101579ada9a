//! The tenant walk: every route, as every kind of caller of one tenant, against everything of another. No data comes out, nothing changes, and
//! no answer tells whether what was asked for is there.
//!
//! The route table is what is walked, so a new route is in it with its sample. The one difference that is meant: a machine that enrols at an
//! unknown name is told so, for the person who mistyped it.

use std::collections::BTreeMap;

use serde_json::json;
use vault_format::keys::SecretKey;
use vault_format::request::device_id;
use vault_service::model::device::{self, DeviceStatus};
use vault_service::model::membership::invitations_partition;
use vault_service::model::namespace::{self, Kind, Namespace};
use vault_service::model::user::{Role, Scopes};
use vault_service::model::{account, audit, client, draft, enrolment, grant, session, user};
use vault_service::route::{Auth, Route};
use vault_store::records::{RecordKey, Records};

use crate::admin::{ADA, BOB, Desk, desk, reference, token};
use crate::common::samples::{Sample, samples};
use crate::common::{self, PASSWORD, Visitor};
use crate::support::{Answer, World, key};

/// The owner of the other tenant.
const FAY: &str = "fay@example.org";
/// A member there.
const GUS: &str = "gus@example.org";
/// The name of the other tenant.
const THERE: &str = "tenant-b";

/// Somebody who is invited there.
const HAL: &str = "hal@example.org";

/// Something of everything that a tenant has, as the variables of paths name it.
#[derive(Clone)]
struct Named {
    slug: String,
    device: String,
    user: String,
    email: &'static str,
    client: String,
    code: String,
    release: String,
    object: String,
}

impl Named {
    /// Ids of the same form that nobody has.
    fn absent() -> Self {
        Self {
            slug: "tenant-x".to_owned(),
            device: format!("dev_{}", "a".repeat(26)),
            user: format!("usr_{}", "0".repeat(26)),
            email: "nobody@example.org",
            client: format!("cli_{}", "0".repeat(26)),
            code: format!("enc_{}", "0".repeat(26)),
            release: "7777".to_owned(),
            object: "0".repeat(64),
        }
    }

    /// The path of a route, below this slug.
    fn path(&self, route: &Route, slug: &str) -> String {
        let segments = route.path.split('/').map(|segment| {
            let variable = segment.strip_prefix('{');
            let Some((name, rest)) = variable.and_then(|name| name.split_once('}')) else {
                return segment.to_owned();
            };
            let value = match name {
                "slug" => slug,
                "class" => "bundles",
                "sha256" | "bundle_hash" => &self.object,
                "release" => &self.release,
                "token" => "x",
                "email" => self.email,
                "id" if route.path.contains("/users/") => &self.user,
                "id" if route.path.contains("/clients/") => &self.client,
                "id" if route.path.contains("/enrolment-codes/") => &self.code,
                "id" if route.path.contains("/devices/") => &self.device,
                other => panic!("{}: say what {{{other}}} is of another tenant", route.path),
            };
            format!("{value}{rest}")
        });
        segments.collect::<Vec<_>>().join("/")
    }
}

/// The other tenant, with something of everything, and what only it knows.
struct Other {
    named: Named,
    /// The same with what is not decided yet: an invitation and a waiting machine.
    waiting: Named,
    /// An app and a browser of its owner, as the fields of forms name them.
    grant: String,
    session: String,
    namespace: Namespace,
    secrets: Vec<String>,
}

async fn other(desk: &Desk) -> Other {
    let (world, app) = (&desk.world, &desk.world.app);
    let namespace = world.namespace(THERE, Kind::Hosted).await;
    let home = reference(&namespace);
    common::member(app, FAY, &home, Role::Owner, Scopes::ALL).await;
    let gus = common::member(app, GUS, &home, Role::Member, Scopes::ALL).await;
    let owner = common::tokens(app, (FAY, PASSWORD), THERE, Scopes::ALL).await;
    let admitted = world.device(THERE, 51, DeviceStatus::Active).await;
    world.enrol(&key(52), THERE, "fay's own laptop").await;
    let body = json!({ "email": HAL });
    let invited = desk.ask(&owner.access, "POST", "/admin/users", Some(&body));
    let invited = invited.await.json()["id"].as_str().unwrap().to_owned();
    let draft = RecordKey::new(draft::partition(&namespace.id), "a draft of theirs");
    common::put(app, draft, &json!({ "text": "what tenant b drafts" })).await;
    let fays = account::partition(&common::account(app, FAY).await.id);
    let listed = app.records.list(&fays, "", None, 100).await.unwrap();
    let listed_as = |prefix: &str| {
        let mut ids = listed
            .iter()
            .filter_map(|one| one.key.key.strip_prefix(prefix));
        ids.next().unwrap().to_owned()
    };
    let codes = format!("/admin/vaults/{THERE}/enrolment-codes");
    let body = json!({ "uses": 3, "name": "fay-*" });
    let made = desk.ask(&owner.access, "POST", &codes, Some(&body)).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let object = b"what only tenant b has".to_vec();
    let sha256 = vault_format::hash::Digest::of(&object);
    let place = namespace.object(vault_store::objects::Class::Bundles, sha256);
    app.objects.put(&place, object.into()).await.unwrap();
    let named = Named {
        slug: THERE.to_owned(),
        device: device_id(&home.slug, &admitted.public()),
        user: gus.id.clone(),
        email: GUS,
        client: owner.client.clone(),
        code: text("id"),
        release: "1".to_owned(),
        object: sha256.to_string(),
    };
    Other {
        waiting: Named {
            device: device_id(&home.slug, &key(52).public()),
            user: invited,
            email: HAL,
            ..named.clone()
        },
        named,
        grant: listed_as(grant::ALLOWED),
        session: listed_as(session::SESSIONS),
        secrets: vec![
            FAY.to_owned(),
            GUS.to_owned(),
            HAL.to_owned(),
            "what tenant b drafts".to_owned(),
            text("code"),
            namespace.id.to_string(),
            "fay's own laptop".to_owned(),
            "what only tenant b has".to_owned(),
            owner.access,
        ],
        namespace: world.read_namespace(THERE).await,
    }
}

/// Every record of a tenant with its revision.
async fn records_of(world: &World, namespace: &Namespace) -> BTreeMap<String, u64> {
    let (id, slug) = (&namespace.id, &namespace.slug);
    let records: &dyn Records = &*world.memory;
    let mut found = BTreeMap::new();
    let app = &world.app;
    let [fay, gus] = [
        common::account(app, FAY).await,
        common::account(app, GUS).await,
    ];
    for partition in [
        account::partition(&fay.id),
        account::partition(&gus.id),
        invitations_partition(&HAL.parse().unwrap()),
        namespace::key(slug).partition,
        device::partition(slug),
        device::pending_partition(slug),
        device::id_key(slug, "x").partition,
        device::seen_key(slug, "x").partition,
        user::user_key(id, "x").partition,
        client::connections_partition(id),
        grant::grants_partition(Some(id)),
        enrolment::partition(id),
        enrolment::used_key(id, &vault_format::hash::Digest::of(b"x")).partition,
        audit::partition(Some(id)),
        draft::partition(id),
        format!("kept/{id}"),
    ] {
        for record in records.list(&partition, "", None, 1000).await.unwrap() {
            // A session stands in a partition of its own, under the name that the list of its account has.
            if record.key.key.starts_with(session::SESSIONS) {
                let of_session = records.list(&record.key.key, "", None, 10).await.unwrap();
                found.extend(
                    of_session
                        .iter()
                        .map(|one| (one.key.to_string(), one.revision)),
                );
            }
            found.insert(record.key.to_string(), record.revision);
        }
    }
    found
}

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

#[tokio::test]
async fn nobody_of_one_tenant_learns_or_changes_anything_of_another() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let callers = [
        Caller::Token("nobody", String::new()),
        Caller::Token("owner", desk.owner.clone()),
        Caller::Token("reader", token(world, ADA, "acme", Scopes::READ).await),
        Caller::Token("member", token(world, BOB, "acme", Scopes::ALL).await),
        Caller::Device(
            "admitted",
            world.device("acme", 7, DeviceStatus::Active).await,
        ),
        Caller::Device(
            "waiting",
            world.device("acme", 8, DeviceStatus::Pending).await,
        ),
        Caller::Device(
            "revoked",
            world.device("acme", 9, DeviceStatus::Revoked).await,
        ),
        Caller::Device("stranger", key(10)),
    ];
    let other = other(&desk).await;
    let absent = Named::absent();
    let before = records_of(world, &other.namespace).await;
    let mut asked = 0;
    let mut wrong = Vec::new();
    for sample in samples() {
        let route = sample.route;
        if matches!(route.auth, Auth::Public | Auth::Session) {
            continue;
        }
        for caller in &callers {
            if !route.path.contains('{') {
                // It names nothing of a tenant: what its token opens is that tenant's own.
                asked += 1;
                let answer = caller.ask(&desk, &sample, route.path).await.blotted();
                let secret = other
                    .secrets
                    .iter()
                    .find(|secret| answer.contains(&***secret));
                if secret.is_some() {
                    let (who, name) = (caller.name(), route.name);
                    wrong.push(format!("{name} by {who}: {secret:?}\n{answer}"));
                }
                continue;
            }
            // Everything of B in B, and in the caller's own vault; and what is not there, where it is not.
            for (there, not_there) in [
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
                let secret = other
                    .secrets
                    .iter()
                    .find(|secret| found.contains(&***secret));
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
    assert!(asked > 300, "{asked}");
    assert_eq!(records_of(world, &other.namespace).await, before);
}

/// A signed-in browser of one tenant, on every page and with every form, with everything of the other in its fields.
#[tokio::test]
async fn no_form_of_one_tenant_shows_or_changes_anything_of_another() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    let other = other(&desk).await;
    let before = records_of(world, &other.namespace).await;
    let mut asked = 0;
    for sample in samples() {
        let route = sample.route;
        if route.auth != Auth::Session {
            continue;
        }
        let mut ada = Visitor::new(app);
        let page = ada.get("/account").await;
        ada.log_in(&page, ADA, PASSWORD).await;
        let page = ada.get("/account").await;
        assert_eq!(page.heading(), "Your account");
        let path = other.named.path(route, THERE);
        let answer = if route.method == "GET" {
            ada.get(&path).await
        } else {
            let csrf = page.hidden("/account/sign-out", "csrf");
            let fields = [
                ("csrf", csrf.as_str()),
                ("return_to", "/account"),
                ("namespace", THERE),
                ("decision", "accept"),
                ("grant", &other.grant),
                ("session", &other.session),
                ("email", FAY),
            ];
            ada.post(&path, &fields).await
        };
        asked += 1;
        for secret in &other.secrets {
            let shown = answer.body.contains(secret.as_str());
            assert!(!shown || secret == FAY, "{}: {}", route.name, answer.body);
        }
    }
    assert!(asked > 8, "{asked}");
    assert_eq!(records_of(world, &other.namespace).await, before);
}

/// The walk finds what it is for: whoever belongs there gets answers that differ.
#[tokio::test]
async fn the_walk_tells_what_is_there_from_what_is_not() {
    let desk = desk().await;
    let other = other(&desk).await;
    let fay = token(&desk.world, FAY, THERE, Scopes::ALL).await;
    let owner = Caller::Token("their own owner", fay);
    let absent = Named::absent();
    let mut differ = Vec::new();
    for sample in samples() {
        let route = sample.route;
        if !route.path.contains("{id}") && !route.path.contains("{sha256}") {
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
    ] {
        assert!(differ.contains(&name), "{name}: {differ:?}");
    }
}
