//! What each route asks of the stores: with one of everything and with many, so that nothing asks once for each. The samples say how much
//! each may cost.
//!
//! Counted at the ports. `read` is one reading by keys (one transaction of DynamoDB, up to 100 keys), `list` one page of a partition, `commit`
//! one transaction that writes; `get` and `put` are one object each, `ask` is one question which objects are missing. A user who was not seen
//! for a minute costs one `commit` more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use vault_format::catalog::{SkillEntry, Stored as StoredRelease, Withdrawn};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::name::Slug;
use vault_format::request::device_id;
use vault_service::config::Limits;
use vault_service::model::account::{self, Email};
use vault_service::model::membership::invitation_key;
use vault_service::model::namespace::Kind;
use vault_service::model::user::{Membership, Role, Scopes, User, membership_key, user_key};
use vault_service::route::Auth;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::{RecordKey, Records};
use vault_testing::memory::hooked::{self, Hook, Hooked};

use crate::account::second_factor::code as account_code;
use crate::admin::{ADA, reference, token};
use crate::common::exchange::{self, Exchange};
use crate::common::samples::samples;
use crate::common::{self, CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize};
use crate::support::{World, bearer, key, resigned, vector, world_with};

/// How many there are of everything in the larger world: devices, releases, skills, users, namespaces, clients.
const MANY: usize = 24;
/// Hashes in one question, for each of those: more than one reading may name.
const HASHES: usize = 20;

/// One call of a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Call {
    /// Records by this many keys.
    Read(usize),
    /// An object.
    Get,
    /// Any other reading.
    Other,
    Write,
}

/// Writes down what the stores are asked.
#[derive(Default)]
struct Counting(Mutex<Vec<Call>>);

impl Counting {
    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[async_trait]
impl Hook for Counting {
    async fn before(&self, call: hooked::Call<'_>) -> Result<(), StoreError> {
        let call = match call {
            hooked::Call::GetMany(keys) => Call::Read(keys.len()),
            hooked::Call::Get(_) => Call::Get,
            hooked::Call::Commit(_) | hooked::Call::Put(_) | hooked::Call::Delete(_) => Call::Write,
            _ => Call::Other,
        };
        self.0.lock().unwrap().push(call);
        Ok(())
    }
}

/// `n` of everything, and what rows need of it.
struct Scene {
    n: usize,
    world: World,
    counting: Arc<Counting>,
    owner: String,
    operator: String,
    /// Admitted devices.
    devices: Vec<SecretKey>,
    /// The next device key that nobody has used.
    fresh: u8,
    /// The invitation that the operator's row made.
    invitation: String,
}

impl Scene {
    /// A service whose stores count.
    fn counted() -> (World, Arc<Counting>) {
        let mut world = world_with(|config| {
            config.token_ttl_seconds = 24 * 3600;
            // Counted, since that costs a call, and never reached.
            let all = 1_000_000;
            config.limits = Limits {
                enrol_per_slug: all,
                enrol_per_source: all,
                sign_in_failures: all,
                sign_in_per_account: all,
                register_per_source: all,
                unused_per_source: all,
                token_failures: all,
                tokens_per_grant: all,
                ..Limits::off()
            };
        });
        let counting = Arc::new(Counting::default());
        let hooked = Hooked::new(&world.memory, counting.clone());
        (world.app.records, world.app.objects) = (hooked.clone(), hooked);
        world.router = vault_service::router(world.app.clone());
        (world, counting)
    }

    async fn of(n: usize) -> Self {
        let (world, counting) = Self::counted();
        let app = world.app.clone();
        common::bootstrap(&app).await;
        let acme = world.namespace("acme", Kind::Hosted).await;
        common::member(&app, ADA, &reference(&acme), Role::Owner, Scopes::ALL).await;
        for at in 1..n {
            let more = world.namespace(&format!("more-{at}"), Kind::Hosted).await;
            common::member(&app, ADA, &reference(&more), Role::Member, Scopes::ALL).await;
            let email = format!("user-{at}@example.org");
            let user = common::listed_user(&app, &email, &reference(&acme), Scopes::ALL);
            common::commit(&app, user.creation().unwrap()).await;
            common::register(&app, CALLBACK).await;
        }
        let owner = token(&world, ADA, "acme", Scopes::ALL).await;
        let operator = common::operator_token(&app).await;
        let mut scene = Self {
            n,
            world,
            counting,
            owner,
            operator,
            devices: Vec::new(),
            fresh: 1,
            invitation: String::new(),
        };
        for _ in 0..n {
            let next = scene.next(|number| Scene::skills(0..n, number)).await;
            scene.world.publish("acme", next).await.unwrap();
            let device = scene.enrolled().await;
            assert_eq!(scene.decide(&device, "admit").await, 200);
            scene.devices.push(device);
        }
        for _ in 0..n.min(10) {
            scene.enrolled().await;
        }
        // Both were seen a moment ago, then.
        for token in [&scene.owner, &scene.operator] {
            assert_eq!(scene.ask(token, "GET", "/admin/vaults").await, 200);
        }
        scene
    }

    /// Skills whose bundles are there.
    fn skills(which: std::ops::Range<usize>, release: u64) -> Vec<SkillEntry> {
        which
            .map(|at| SkillEntry {
                name: format!("skill-{at:05}").parse().unwrap(),
                version: release,
                bundle_hash: Digest::of(&bundle(at)),
                size: bundle(at).len() as u64,
            })
            .collect()
    }

    /// The signed catalog of the next release, with these skills; their bundles are put first.
    async fn next(&self, skills: impl FnOnce(u64) -> Vec<SkillEntry>) -> Vec<u8> {
        self.next_without(skills, Vec::new()).await
    }

    async fn next_without(
        &self,
        skills: impl FnOnce(u64) -> Vec<SkillEntry>,
        withdrawn: Vec<Withdrawn>,
    ) -> Vec<u8> {
        let namespace = self.world.read_namespace("acme").await;
        let current = namespace.current.as_ref();
        let release = current.map_or(1, |current| current.release + 1);
        let skills = skills(release);
        for skill in &skills {
            let at: usize = skill.name.as_str()["skill-".len()..].parse().unwrap();
            self.world
                .put_object(&namespace, Class::Bundles, bundle(at))
                .await;
        }
        resigned("catalog-42.json", |catalog| {
            catalog.release = release;
            catalog.previous = current.map(|current| StoredRelease {
                release: current.release,
                payload_sha256: current.payload_sha256,
            });
            catalog.issued_at = self.world.now();
            catalog.expires_at = self.world.now().plus_days(90);
            catalog.skills = skills;
            catalog.withdrawn = withdrawn;
            catalog.profiles.clear();
            catalog.index.clear();
            catalog.policy = None;
        })
    }

    /// A device that waits.
    async fn enrolled(&mut self) -> SecretKey {
        let device = key(self.fresh);
        self.fresh += 1;
        let answer = self.world.enrol(&device, "acme", "machine").await;
        assert_eq!(answer.status, 201);
        device
    }

    /// The path of a user's route.
    async fn user(&self, email: &str, what: &str) -> String {
        let id = self.membership(email).await.user_id;
        format!("/admin/users/{id}{what}")
    }

    /// Where the entry of a user stands: with the account, or with an address that was invited.
    async fn entry_key(&self, email: &str) -> RecordKey {
        let (email, acme): (Email, Slug) = (email.parse().unwrap(), "acme".parse().unwrap());
        let found = account::find(&*self.world.memory, &email).await.unwrap();
        let key = found.map(|account| membership_key(&account.value.id, &acme));
        match key {
            Some(key)
                if Records::get(&*self.world.memory, &key)
                    .await
                    .unwrap()
                    .is_some() =>
            {
                key
            }
            _ => invitation_key(&email, &acme),
        }
    }

    /// Signs the owner and the operator in again, without counting it.
    async fn sign_in_again(&mut self) {
        let calls = self.counting.take();
        self.owner = token(&self.world, ADA, "acme", Scopes::ALL).await;
        self.operator = common::operator_token(&self.world.app).await;
        for token in [&self.owner, &self.operator] {
            assert_eq!(self.ask(token, "GET", "/admin/vaults").await, 200);
        }
        self.counting.take();
        self.counting.0.lock().unwrap().extend(calls);
    }

    async fn membership(&self, email: &str) -> Membership {
        let key = self.entry_key(email).await;
        common::read(&self.world.app, &key).await
    }

    /// Makes a user of `acme` an owner, past all rules.
    async fn promote(&self, email: &str) {
        let member = self.membership(email).await;
        let key = user_key(&member.namespace.id, &member.user_id);
        let mut user: User = common::read(&self.world.app, &key).await;
        user.role = Role::Owner;
        common::put(&self.world.app, key, &user).await;
    }

    async fn decide(&self, device: &SecretKey, decision: &str) -> u16 {
        let id = device_id(&"acme".parse().unwrap(), &device.public());
        let path = format!("/admin/vaults/acme/devices/{id}/{decision}");
        self.ask(&self.owner, "POST", &path).await
    }

    async fn ask(&self, token: &str, method: &str, path: &str) -> u16 {
        self.send(token, method, path, None, &[]).await.0
    }

    async fn post(&self, token: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = ("application/json", body.to_string().into_bytes());
        self.send(token, "POST", path, Some(body), &[]).await
    }

    /// One request, counted alone.
    async fn send(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let request = bearer(token, method, path, body, headers);
        self.counting.take();
        let answer = self.world.send(request).await;
        (answer.status.as_u16(), answer.json())
    }

    /// A message to the tools.
    async fn tool(&self, token: &str, message: &Value) -> (u16, Value) {
        let body = Some(("application/json", message.to_string().into_bytes()));
        let headers = [
            ("host", "vault.example"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        self.send(token, "POST", "/mcp", body, &headers).await
    }

    /// The sample of a route, by whom the route is for, counted alone.
    async fn sample(&self, name: &str) -> u16 {
        let sample = samples()
            .into_iter()
            .find(|sample| sample.route.name == name);
        let sample = sample.unwrap();
        let token = match sample.route.auth {
            Auth::Device => return self.read(&sample.path).await,
            Auth::Public | Auth::Session => "",
            Auth::Operator | Auth::OperatorWrite => &self.operator,
            _ => &self.owner,
        };
        let body = (!sample.body.is_empty()).then(|| ("", sample.body.into()));
        let (method, path) = (sample.route.method, &sample.path);
        self.send(token, method, path, body, &sample.headers())
            .await
            .0
    }

    /// A request of a device, counted alone.
    async fn read(&self, path: &str) -> u16 {
        let request = self.world.signed(&self.devices[0], "GET", path);
        self.counting.take();
        self.world.send(request).await.status.as_u16()
    }

    /// Goes on as a process that has just started: nothing is remembered.
    fn restart(&mut self) {
        self.world = self.world.restarted();
    }

    async fn push(&self, bytes: Vec<u8>) -> u16 {
        let tag = self.world.etag("acme").await;
        let body = Some(("application/octet-stream", bytes));
        let headers = [("if-match", tag.as_str())];
        let path = "/admin/vaults/acme/catalog";
        self.send(&self.owner, "PUT", path, body, &headers).await.0
    }
}

/// A bundle of the vectors with other words in it.
fn bundle(at: usize) -> Vec<u8> {
    let name = "bundle-1db6dc66040e83889fb2b9f0f5a5d757d1bf1fc615ff56a4c791474a18533ed6.json";
    let text = String::from_utf8(vector(name)).unwrap();
    text.replace("Sum up the log.", &format!("Sum up log {at}."))
        .into_bytes()
}

/// A route, which of several ways through it (empty for the only one), and the status of its answer.
type Row = (&'static str, &'static str, u16);

/// In this order: a row may leave something for those behind it.
const ROWS: &[Row] = &[
    ("health.show", "", 200),
    ("oauth.metadata", "", 200),
    ("oauth.openid", "", 200),
    ("oauth.resource", "", 200),
    ("oauth.resource_mcp", "", 200),
    ("client.register", "", 201),
    ("oauth.authorize", "nobody signed in", 200),
    ("oauth.login", "", 303),
    ("oauth.authorize", "all namespaces", 200),
    ("oauth.authorize", "namespace named", 200),
    ("oauth.consent", "", 303),
    ("oauth.authorize", "decided", 302),
    ("oauth.logout", "", 303),
    ("token.grant", "a code", 200),
    ("token.grant", "a refresh token", 200),
    ("token.revoke", "", 200),
    ("device.enrol", "new", 201),
    ("device.enrol", "known", 200),
    ("device.current", "", 200),
    ("catalog.read", "cold", 200),
    ("catalog.read", "warm", 200),
    ("bundle.read", "cold", 200),
    ("bundle.read", "warm", 200),
    ("bundle.read", "of no release", 404),
    ("vault.list", "", 200),
    ("vault.show", "", 200),
    ("object.missing", "", 200),
    ("object.pack", "", 200),
    ("object.put", "", 201),
    ("object.read", "cold", 200),
    ("object.read", "warm", 200),
    ("catalog.current", "", 200),
    ("release.list", "", 200),
    ("release.show", "", 200),
    ("release.catalog", "", 200),
    ("device.list", "all", 200),
    ("device.list", "waiting", 200),
    ("device.admit", "", 200),
    ("device.deny", "", 200),
    ("device.revoke", "", 200),
    ("device.forget", "", 200),
    ("device.deny-pending", "", 200),
    ("mcp.call", "", 200),
    ("user.list", "", 200),
    ("user.create", "somebody new", 201),
    ("user.create", "invited anew", 201),
    ("user.create", "for an account", 201),
    ("account.show", "", 200),
    ("membership.answer", "", 303),
    ("user.profile", "", 200),
    ("user.role", "", 200),
    ("user.role", "stepping back", 200),
    ("user.scopes", "", 200),
    ("membership.leave", "", 303),
    ("user.remove", "", 200),
    ("client.list", "", 200),
    ("client.revoke", "", 200),
    ("audit.list", "", 200),
    ("audit.list", "filtered", 200),
    ("namespace.suspend", "", 200),
    ("namespace.resume", "", 200),
    ("namespace.list", "", 200),
    ("namespace.create", "for an account", 201),
    ("namespace.create", "for somebody new", 201),
    ("namespace.show", "", 200),
    ("invite.show", "", 200),
    ("invite.accept", "", 200),
    ("catalog.publish", "nothing new", 200),
    ("catalog.publish", "new skills", 200),
    ("catalog.publish", "withdrawing", 200),
    ("bundle.read", "withdrawn", 404),
    ("pin.reset", "", 200),
    ("app.end", "", 303),
    ("session.end", "", 303),
    ("session.end-all", "", 303),
    ("second-factor.show", "", 200),
    ("second-factor.change", "", 200),
    ("oauth.second-factor", "", 303),
    ("account.list", "", 200),
    ("account.invite", "", 201),
    ("account.reset", "", 200),
    ("account.disable", "", 200),
    ("account.enable", "", 200),
    ("account.sign-out", "", 200),
    ("account.grant", "", 200),
    ("account.revoke", "", 200),
    ("account.delete", "", 200),
    ("vault.sign-out", "", 200),
    ("namespace.sign-out", "", 200),
    ("service.sign-out", "", 200),
    ("enrolment.invite", "", 201),
    ("enrolment.list", "", 200),
    ("enrolment.end", "", 200),
    // Behind everything that enrols.
    ("enrolment.set", "", 200),
    ("password.show", "", 200),
    ("password.change", "", 200),
];

/// The rows above, and those of routes whose sample says all.
fn rows() -> Vec<Row> {
    let mut rows = ROWS.to_vec();
    for sample in samples() {
        let name = sample.route.name;
        if !ROWS.iter().any(|row| row.0 == name) {
            rows.push((name, "", sample.answer[..3].parse().unwrap()));
        }
    }
    rows
}

/// What each route answers where it has something to do, by the name of the route.
pub async fn examples() -> BTreeMap<&'static str, Exchange> {
    let mut scene = Scene::of(1).await;
    let mut examples = BTreeMap::new();
    for row in rows() {
        assert_eq!(ask(&mut scene, &row).await, row.2, "{row:?}");
        examples.entry(row.0).or_insert_with(exchange::last);
    }
    examples
}

/// What grows with the number of things: readings and writings for each but the first.
const fn for_each(name: &str) -> (usize, usize) {
    match name.as_bytes() {
        // Each object of the pack is put.
        b"object.pack" => (0, 1),
        // Each bundle that the release before did not name is read once, for the parts that it names.
        b"catalog.publish" => (1, 0),
        _ => (0, 0),
    }
}

/// Asks for a row's route, the last request counted alone; its status.
async fn ask(scene: &mut Scene, &(name, case, _): &Row) -> u16 {
    let (owner, operator) = (scene.owner.clone(), scene.operator.clone());
    let of = |path: &str| format!("/admin/vaults/acme{path}");
    let n = scene.n;
    match (name, case) {
        ("device.enrol", case) => {
            let device = match case {
                "known" => scene.devices[0].clone(),
                _ => key(scene.fresh),
            };
            scene.fresh += u8::from(case == "new");
            scene.counting.take();
            let answer = scene.world.enrol(&device, "acme", "machine").await;
            answer.status.as_u16()
        }
        ("catalog.read", case) => {
            scene.restart();
            if case == "warm" {
                scene.read("/v/acme/catalog.json").await;
            }
            scene.read("/v/acme/catalog.json").await
        }
        ("bundle.read", case) => {
            let hash = match case {
                "of no release" => Digest::of(b"nobody"),
                "withdrawn" => Digest::of(&bundle(0)),
                _ => Digest::of(&bundle(n - 1)),
            };
            let path = format!("/v/acme/bundles/{hash}.json");
            scene.restart();
            if case == "warm" {
                scene.read(&path).await;
            }
            scene.read(&path).await
        }
        ("object.missing", _) => {
            let asked = if n == 1 { 1 } else { n * HASHES };
            let objects: Vec<_> = (0..asked)
                .map(|at| json!({ "sha256": Digest::of(&at.to_be_bytes()), "size": 8 }))
                .collect();
            let body = json!({ "class": "bundles", "objects": objects });
            scene.post(&owner, &of("/objects/missing"), &body).await.0
        }
        ("object.pack", _) => {
            let one = |at: usize| {
                let bytes = format!("object {at}");
                let hash = Digest::of(bytes.as_bytes());
                format!("{hash} {}\n{bytes}", bytes.len())
            };
            let pack: String = (0..n).map(one).collect();
            let body = Some(("application/vnd.vault.pack", pack.into_bytes()));
            scene
                .send(&owner, "POST", &of("/objects/bundles"), body, &[])
                .await
                .0
        }
        ("object.put", _) => {
            let path = of(&format!("/objects/bundles/{}", Digest::of(b"alone")));
            let body = Some(("application/octet-stream", b"alone".to_vec()));
            scene.send(&owner, "PUT", &path, body, &[]).await.0
        }
        ("object.read", case) => {
            let path = of(&format!("/objects/bundles/{}", Digest::of(b"alone")));
            scene.restart();
            if case == "warm" {
                scene.ask(&owner, "GET", &path).await;
            }
            scene.ask(&owner, "GET", &path).await
        }
        ("catalog.current", _) => {
            scene.restart();
            scene.ask(&owner, "GET", &of("/catalog")).await
        }
        ("catalog.publish", case) => {
            let next = match case {
                "nothing new" => scene.next(|number| Scene::skills(0..n, number)).await,
                "new skills" => scene.next(|number| Scene::skills(0..2 * n, number)).await,
                _ => {
                    let release = scene.world.current("acme").await.release;
                    let skills = Scene::skills(0..2 * n, release);
                    let withdrawn = skills[..n].iter().map(|skill| Withdrawn {
                        name: skill.name.clone(),
                        bundle_hash: skill.bundle_hash,
                        reason: "it was wrong".to_owned(),
                        since_release: release + 1,
                    });
                    let withdrawn = withdrawn.collect();
                    scene
                        .next_without(|number| Scene::skills(n..2 * n, number), withdrawn)
                        .await
                }
            };
            scene.restart();
            scene.push(next).await
        }
        ("release.catalog", _) => {
            scene.restart();
            scene.ask(&owner, "GET", &of("/releases/1/catalog")).await
        }
        ("enrolment.invite", _) => {
            let body = json!({ "uses": 3 });
            scene.post(&owner, &of("/enrolment-codes"), &body).await.0
        }
        ("enrolment.list", _) => scene.ask(&owner, "GET", &of("/enrolment-codes")).await,
        ("enrolment.end", _) => {
            let path = of("/enrolment-codes");
            let (_, listed) = scene.send(&owner, "GET", &path, None, &[]).await;
            let id = listed["items"][0]["id"].as_str().unwrap();
            let path = format!("{path}/{id}");
            scene.ask(&owner, "DELETE", &path).await
        }
        ("enrolment.set", _) => {
            let body = json!({ "enrolment": "codes" }).to_string().into_bytes();
            let body = Some(("application/json", body));
            let path = of("/enrolment");
            scene.send(&owner, "PUT", &path, body, &[]).await.0
        }
        ("pin.reset", _) => {
            let body = json!({ "slug": "acme" });
            scene.post(&owner, &of("/pin/reset"), &body).await.0
        }
        ("device.list", "waiting") => {
            scene
                .ask(&owner, "GET", &of("/devices?status=pending"))
                .await
        }
        ("device.admit" | "device.deny", _) => {
            let device = scene.enrolled().await;
            scene.decide(&device, &name["device.".len()..]).await
        }
        ("device.revoke", _) => {
            let device = scene.enrolled().await;
            scene.decide(&device, "admit").await;
            scene.decide(&device, "revoke").await
        }
        ("device.forget", _) => {
            let device = scene.enrolled().await;
            scene.decide(&device, "deny").await;
            scene.decide(&device, "forget").await
        }
        ("namespace.create", case) => {
            let (slug, email) = match case {
                "for an account" => ("tenant-1", ADA),
                _ => ("tenant-2", "new@example.org"),
            };
            let body = json!({ "slug": slug, "owner": email });
            let (status, made) = scene
                .post(&operator, "/admin/operator/namespaces", &body)
                .await;
            if let Some(url) = made["invite_url"].as_str() {
                url["https://vault.example".len()..].clone_into(&mut scene.invitation);
            }
            status
        }
        ("user.create", case) => {
            let email = match case {
                "for an account" => OWNER,
                _ => "guest@example.org",
            };
            let body = json!({ "email": email, "role": "role:owner", "scopes": ["read", "write"] });
            scene.post(&owner, "/admin/users", &body).await.0
        }
        ("user.profile", _) => {
            let path = scene.user(OWNER, "/profile").await;
            let body = Some(("application/json", br#"{"profile":"p"}"#.to_vec()));
            scene.send(&owner, "PUT", &path, body, &[]).await.0
        }
        ("user.role", case) => {
            let stepping_back = case == "stepping back";
            let path = scene
                .user(if stepping_back { ADA } else { OWNER }, "/role")
                .await;
            let role = if stepping_back {
                "role:member"
            } else {
                "role:owner"
            };
            let body = json!({ "role": role }).to_string().into_bytes();
            let body = Some(("application/json", body));
            let status = scene.send(&owner, "PUT", &path, body, &[]).await.0;
            if stepping_back {
                let calls = scene.counting.take();
                scene.promote(ADA).await;
                *scene.counting.0.lock().unwrap() = calls;
            }
            status
        }
        ("user.scopes", _) => {
            let path = scene.user(OWNER, "/scopes").await;
            let body = json!({ "revoke": ["read"] });
            scene.post(&owner, &path, &body).await.0
        }
        ("user.remove", _) => {
            let path = scene.user("guest@example.org", "").await;
            scene.ask(&owner, "DELETE", &path).await
        }
        ("client.revoke", _) => {
            let mut client = String::new();
            for _ in 0..n {
                let who = (ADA, PASSWORD);
                client = common::tokens(&scene.world.app, who, "acme", Scopes::READ)
                    .await
                    .client;
            }
            let path = format!("/admin/clients/{client}");
            scene.ask(&owner, "DELETE", &path).await
        }
        ("audit.list", "filtered") => {
            let query = "action=device.admit&since=2026-01-01T00:00:00Z";
            let path = format!("/admin/audit?{query}");
            scene.ask(&owner, "GET", &path).await
        }
        ("namespace.suspend" | "namespace.resume", _) => {
            let what = &name["namespace.".len()..];
            let path = format!("/admin/operator/namespaces/acme/{what}");
            scene.ask(&operator, "POST", &path).await
        }
        ("namespace.show", _) => {
            scene
                .ask(&operator, "GET", "/admin/operator/namespaces/acme")
                .await
        }
        ("invite.show", _) => {
            let path = scene.invitation.clone();
            scene.ask("", "GET", &path).await
        }
        ("invite.accept", _) => {
            let app = scene.world.app.clone();
            let mut visitor = Visitor::new(&app);
            let path = scene.invitation.clone();
            let csrf = visitor.get(&path).await.hidden(&path, "csrf");
            scene.counting.take();
            let fields = [("csrf", csrf.as_str()), ("password", PASSWORD)];
            visitor.post(&path, &fields).await.status
        }
        ("account.show" | "membership.answer" | "membership.leave", _) => {
            account_page(scene, name).await
        }
        ("app.end" | "session.end" | "session.end-all", _) => ending(scene, name).await,
        ("second-factor.show" | "second-factor.change" | "oauth.second-factor", _) => {
            second_factor(scene, name).await
        }
        ("account.list", _) => {
            let path = "/admin/operator/accounts";
            scene.ask(&operator, "GET", path).await
        }
        ("account.invite", _) => {
            let body = json!({ "email": "more@example.org" });
            scene
                .post(&operator, "/admin/operator/accounts", &body)
                .await
                .0
        }
        ("account.delete", _) => {
            let path = "/admin/operator/accounts/more@example.org";
            scene.ask(&operator, "DELETE", path).await
        }
        ("vault.sign-out" | "namespace.sign-out" | "service.sign-out", _) => {
            let (token, path, body) = match name {
                "vault.sign-out" => (
                    &owner,
                    "/admin/vaults/acme/sign-out",
                    json!({"slug": "acme"}),
                ),
                "service.sign-out" => (
                    &operator,
                    "/admin/operator/sign-out",
                    json!({"confirm": "everybody"}),
                ),
                _ => (
                    &operator,
                    "/admin/operator/namespaces/acme/sign-out",
                    json!({}),
                ),
            };
            let status = scene.post(token, path, &body).await.0;
            scene.sign_in_again().await;
            status
        }
        (name, _) if name.starts_with("account.") => {
            let what = &name["account.".len()..];
            let path = format!("/admin/operator/accounts/more@example.org/{what}");
            scene.ask(&operator, "POST", &path).await
        }
        ("password.show" | "password.change", _) => password(scene, name).await,
        (
            "client.register" | "oauth.authorize" | "oauth.login" | "oauth.consent"
            | "oauth.logout" | "token.grant" | "token.revoke",
            _,
        ) => walk(scene, name, case).await,
        _ => scene.sample(name).await,
    }
}

/// The account page and its forms, by the operator, whom Ada invited.
async fn account_page(scene: &Scene, name: &str) -> u16 {
    let mut visitor = Visitor::new(&scene.world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, OWNER, OWNER_PASSWORD).await;
    scene.counting.take();
    let page = visitor.get("/account").await;
    match name {
        "account.show" => page.status,
        "membership.answer" => {
            scene.counting.take();
            visitor.answer(&page, "acme", "accept").await.status
        }
        _ => {
            let csrf = page.hidden("/account/vaults", "csrf");
            let fields = [("csrf", csrf.as_str()), ("namespace", "acme")];
            scene.counting.take();
            visitor.post("/account/vaults", &fields).await.status
        }
    }
}

/// The forms of the account page that end what was signed in, by a person of the row's own.
async fn ending(scene: &Scene, name: &str) -> u16 {
    let app = &scene.world.app;
    let email = format!("{name}@example.org");
    let acme = reference(&scene.world.read_namespace("acme").await);
    common::member(app, &email, &acme, Role::Member, Scopes::ALL).await;
    common::tokens(app, (&email, PASSWORD), "acme", Scopes::ALL).await;
    let mut visitor = Visitor::new(app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, &email, PASSWORD).await;
    let page = visitor.get("/account").await;
    let (path, field) = match name {
        "app.end" => ("/account/apps", "grant"),
        "session.end" => ("/account/sessions", "session"),
        _ => ("/account/sign-out", "csrf"),
    };
    let (csrf, value) = (page.hidden(path, "csrf"), page.hidden(path, field));
    let mut fields = vec![("csrf", csrf.as_str())];
    fields.extend((field != "csrf").then_some((field, value.as_str())));
    scene.counting.take();
    visitor.post(path, &fields).await.status
}

/// The second factor of the first person of these rows: shown, turned on, asked for.
async fn second_factor(scene: &mut Scene, name: &str) -> u16 {
    let app = scene.world.app.clone();
    let (email, path) = ("factor@example.org", "/account/second-factor");
    let mut visitor = Visitor::new(&app);
    let page = visitor.get(path).await;
    if name == "second-factor.show" {
        let acme = reference(&scene.world.read_namespace("acme").await);
        common::member(&app, email, &acme, Role::Owner, Scopes::ALL).await;
    }
    let page = visitor.log_in(&page, email, PASSWORD).await;
    let typed = |secret: &str| account_code(secret, scene.world.now().unix());
    if name == "oauth.second-factor" {
        scene.world.clock.advance(30);
        let typed = account_code(&scene.invitation, scene.world.now().unix());
        let path = "/oauth/second-factor";
        let (csrf, back) = (page.hidden(path, "csrf"), page.hidden(path, "return_to"));
        let fields = [
            ("csrf", csrf.as_str()),
            ("return_to", &back),
            ("code", &typed),
        ];
        scene.counting.take();
        return visitor.post(path, &fields).await.status;
    }
    scene.counting.take();
    let page = visitor.get(path).await;
    if name == "second-factor.show" {
        return page.status;
    }
    let (csrf, secret) = (page.hidden(path, "csrf"), page.hidden(path, "secret"));
    let typed = typed(&secret);
    let fields = [
        ("csrf", csrf.as_str()),
        ("secret", &secret),
        ("code", &typed),
    ];
    scene.counting.take();
    let done = visitor.post(path, &fields).await;
    scene.invitation = secret;
    done.status
}

/// The page where a password is changed, and the change; the last rows, since Ada has another password then.
async fn password(scene: &Scene, name: &str) -> u16 {
    let mut visitor = Visitor::new(&scene.world.app);
    let path = "/oauth/password";
    let page = visitor.get(path).await;
    visitor.log_in(&page, ADA, PASSWORD).await;
    scene.counting.take();
    let page = visitor.get(path).await;
    if name == "password.show" {
        return page.status;
    }
    let csrf = page.hidden(path, "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("current", PASSWORD),
        ("password", "another password of hers"),
    ];
    scene.counting.take();
    visitor.post(path, &fields).await.status
}

/// The routes of the walk from registration to the end of a token.
async fn walk(scene: &Scene, name: &str, case: &str) -> u16 {
    let app = &scene.world.app;
    let counting = &scene.counting;
    if name == "client.register" {
        let body = json!({ "redirect_uris": [CALLBACK] });
        return scene.post("", "/oauth/register", &body).await.0;
    }
    let client = common::register(app, CALLBACK).await;
    let fixed: &[(&str, &str)] = match case {
        "namespace named" => &[("vault_namespace", "acme")],
        _ => &[],
    };
    let address = authorize(&client, CALLBACK, fixed);
    let mut visitor = Visitor::new(app);
    if case == "nobody signed in" {
        counting.take();
        return visitor.get(&address).await.status;
    }
    let page = visitor.get(&address).await;
    counting.take();
    let signed_in = visitor.log_in(&page, ADA, PASSWORD).await;
    if name == "oauth.login" {
        return signed_in.status;
    }
    counting.take();
    let page = visitor.get(&address).await;
    if name == "oauth.authorize" && case != "decided" {
        return page.status;
    }
    counting.take();
    if name == "oauth.logout" {
        return visitor.log_out(&page).await.status;
    }
    let decided = visitor.allow(&page, "acme", Scopes::ALL).await;
    if name == "oauth.consent" {
        return decided.status;
    }
    counting.take();
    let back = visitor.get(&address).await;
    if name == "oauth.authorize" {
        return back.status;
    }
    let code = back.returned("code").unwrap();
    counting.take();
    let granted = common::exchange(app, &client, &code).await;
    match (name, case) {
        ("token.grant", "a code") => granted.status,
        ("token.grant", _) => {
            counting.take();
            let refresh = granted.text("refresh_token");
            common::refresh(app, &client, &refresh).await.status
        }
        ("token.revoke", _) => {
            let refresh = granted.text("refresh_token");
            let fields = [("client_id", client.as_str()), ("token", &refresh)];
            counting.take();
            common::post_form(app, "/oauth/revoke", &fields)
                .await
                .status
        }
        _ => panic!("{name}: say here how to ask for it"),
    }
}

/// Readings and writings.
fn cost(calls: &[Call]) -> (usize, usize) {
    let writings = calls.iter().filter(|call| **call == Call::Write).count();
    (calls.len() - writings, writings)
}

/// The budget of a sample holds with one of everything and with many, on each way through its route.
#[tokio::test]
async fn no_route_asks_once_for_each() {
    let mut scenes = [Scene::of(1).await, Scene::of(MANY).await];
    let mut wrong = Vec::new();
    let mut most: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for row in rows() {
        let (name, case, wanted) = row;
        let each = for_each(name);
        for scene in &mut scenes {
            let status = ask(scene, &row).await;
            let (reads, writes) = cost(&scene.counting.take());
            let more = scene.n - 1;
            let cost = (
                reads.saturating_sub(each.0 * more),
                writes.saturating_sub(each.1 * more),
            );
            let most = most.entry(name).or_default();
            *most = (most.0.max(cost.0), most.1.max(cost.1));
            if status != wanted {
                wrong.push(format!("{name} {case} with {}: {status}", scene.n));
            }
        }
    }
    for sample in samples() {
        let (name, budget) = (sample.route.name, sample.budget);
        match most.get(name) {
            Some(cost) if cost.0 <= budget.0 && cost.1 <= budget.1 => {}
            cost => wrong.push(format!("{name} costs {cost:?}, not {budget:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A device, its namespace and its last visit, in one reading; the catalog from memory. Only the first visit of a day is written.
#[tokio::test]
async fn a_warm_signed_catalog_is_three_record_reads_and_no_object() {
    let scene = Scene::of(MANY).await;
    assert_eq!(scene.read("/v/acme/catalog.json").await, 200);
    let cold = scene.counting.take();
    assert_eq!(cold, [Call::Read(3), Call::Get, Call::Write]);
    for _ in 0..3 {
        assert_eq!(scene.read("/v/acme/catalog.json").await, 200);
        assert_eq!(scene.counting.take(), [Call::Read(3)]);
    }
}

/// The token, then all that it names; list, policy and skill from memory.
#[tokio::test]
async fn a_warm_tool_is_two_record_reads_and_no_object() {
    let (world, counting) = Scene::counted();
    common::bootstrap(&world.app).await;
    let acme = world.acme().await;
    world.clock.advance(31 * 3600);
    let rotated = vector("catalog-43-rotated.json");
    world.publish("acme", rotated).await.unwrap();
    common::member(&world.app, ADA, &reference(&acme), Role::Owner, Scopes::ALL).await;
    let owner = token(&world, ADA, "acme", Scopes::ALL).await;
    let scene = Scene {
        n: 1,
        world,
        counting,
        owner: owner.clone(),
        operator: String::new(),
        devices: Vec::new(),
        fresh: 1,
        invitation: String::new(),
    };
    let call = |name: &str, arguments: Value| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": arguments },
        })
    };
    let calls = [
        call("skill_list", json!({})),
        call("get_skill", json!({ "name": "commit-log" })),
        call("get_skill", json!({ "query": "log" })),
        call("skill_fetch", json!({ "id": "acme/commit-log" })),
    ];
    for message in &calls {
        let (status, answer) = scene.tool(&owner, message).await;
        assert_eq!(
            (status, &answer["result"]["isError"]),
            (200, &json!(false)),
            "{answer}"
        );
    }
    for message in &calls {
        assert_eq!(scene.tool(&owner, message).await.0, 200);
        let warm = scene.counting.take();
        assert_eq!(warm, [Call::Read(1), Call::Read(6)], "{message}");
    }
}
