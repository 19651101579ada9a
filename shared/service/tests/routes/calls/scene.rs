//! A service with so many of everything, whose stores count what they are asked.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use vault_format::catalog::{ReleaseRef as StoredRelease, Withdrawn};
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

use crate::admin::{ADA, reference, token};
use crate::common::samples::samples;
use crate::common::{self, CALLBACK};
use crate::skills::{PlainSkill, plain_skill};
use crate::support::{World, bearer, key, read_file, resigned, vector, vector_key, world_with};

/// One call of a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
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
pub(super) struct Counting(pub(super) Mutex<Vec<Call>>);

impl Counting {
    pub(super) fn take(&self) -> Vec<Call> {
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
pub(super) struct Scene {
    pub(super) n: usize,
    pub(super) world: World,
    pub(super) counting: Arc<Counting>,
    pub(super) owner: String,
    pub(super) operator: String,
    /// Admitted devices.
    pub(super) devices: Vec<SecretKey>,
    /// The next device key that nobody has used.
    pub(super) fresh: u8,
    /// The invitation that the operator's row made.
    pub(super) invitation: String,
}

impl Scene {
    /// A service whose stores count.
    pub(super) fn counted() -> (World, Arc<Counting>) {
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
                ..Limits::disabled()
            };
        });
        let counting = Arc::new(Counting::default());
        let hooked = Hooked::new(&world.memory, counting.clone());
        (world.app.ports.records, world.app.ports.objects) = (hooked.clone(), hooked);
        world.router = vault_service::router(world.app.clone());
        (world, counting)
    }

    pub(super) async fn of(n: usize) -> Self {
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
            common::commit(&app, user.creation_writes().unwrap()).await;
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
            let next = scene.next(0..n).await;
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

    /// The signed catalog of the next release, with these skills; their bundles are put first.
    pub(super) async fn next(&self, which: Range<usize>) -> Vec<u8> {
        self.next_without(which, Vec::new()).await
    }

    pub(super) async fn next_without(
        &self,
        which: Range<usize>,
        withdrawn: Vec<Withdrawn>,
    ) -> Vec<u8> {
        let namespace = self.world.read_namespace("acme").await;
        let current = namespace.current.as_ref();
        let release = current.map_or(1, |current| current.release + 1);
        let (mut skills, mut texts) = (Vec::new(), Vec::new());
        for skill in which.map(skill) {
            self.world
                .put_object(&namespace, Class::Bundles, skill.bytes)
                .await;
            skills.push(skill.entry);
            texts.push(skill.texts);
        }
        let (vectors, _) = read_file(&vector("catalog-42.json"));
        let index = self.world.put_index(&namespace, &vectors.vault_id, texts);
        let index = index.await;
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
            catalog.index = index;
            catalog.policy = None;
        })
    }

    /// A device that waits.
    pub(super) async fn enrolled(&mut self) -> SecretKey {
        let device = key(self.fresh);
        self.fresh += 1;
        let answer = self.world.enrol(&device, "acme", "machine").await;
        assert_eq!(answer.status, 201);
        device
    }

    /// The path of a user's route.
    pub(super) async fn user(&self, email: &str, what: &str) -> String {
        let id = self.membership(email).await.user_id;
        format!("/admin/users/{id}{what}")
    }

    /// Where the entry of a user stands: with the account, or with an address that was invited.
    pub(super) async fn entry_key(&self, email: &str) -> RecordKey {
        let (email, acme): (Email, Slug) = (email.parse().unwrap(), "acme".parse().unwrap());
        let found = account::find_account(&self.world.uncounted(), &email)
            .await
            .unwrap();
        let key = found.map(|account| membership_key(&account.value.id, &acme));
        match key {
            Some(key)
                if Records::get_one(&*self.world.memory, &key)
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
    pub(super) async fn sign_in_again(&mut self) {
        let calls = self.counting.take();
        self.owner = token(&self.world, ADA, "acme", Scopes::ALL).await;
        self.operator = common::operator_token(&self.world.app).await;
        for token in [&self.owner, &self.operator] {
            assert_eq!(self.ask(token, "GET", "/admin/vaults").await, 200);
        }
        self.counting.take();
        self.counting.0.lock().unwrap().extend(calls);
    }

    pub(super) async fn membership(&self, email: &str) -> Membership {
        let key = self.entry_key(email).await;
        common::read(&self.world.app, &key).await
    }

    /// Makes a user of `acme` an owner, past all rules.
    pub(super) async fn promote(&self, email: &str) {
        let member = self.membership(email).await;
        let key = user_key(&member.namespace.id, &member.user_id);
        let mut user: User = common::read(&self.world.app, &key).await;
        user.role = Role::Owner;
        common::put(&self.world.app, key, &user).await;
    }

    pub(super) async fn decide(&self, device: &SecretKey, decision: &str) -> u16 {
        let id = device_id(&"acme".parse().unwrap(), &device.public());
        let path = format!("/admin/vaults/acme/devices/{id}/{decision}");
        self.ask(&self.owner, "POST", &path).await
    }

    pub(super) async fn ask(&self, token: &str, method: &str, path: &str) -> u16 {
        self.send(token, method, path, None, &[]).await.0
    }

    pub(super) async fn post(&self, token: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = ("application/json", body.to_string().into_bytes());
        self.send(token, "POST", path, Some(body), &[]).await
    }

    /// One request, counted alone.
    pub(super) async fn send(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let request = || bearer(token, method, path, body.clone(), headers);
        self.counting.take();
        let mut answer = self.world.send(request()).await;
        // The act is counted, not the question whether the person wants it.
        if answer.short() == "403 confirmation_needed" {
            common::confirm_asked(&self.world.app, token).await;
            self.counting.take();
            answer = self.world.send(request()).await;
        }
        (answer.status.as_u16(), answer.json())
    }

    /// A message to the tools.
    pub(super) async fn tool(&self, token: &str, message: &Value) -> (u16, Value) {
        let body = Some(("application/json", message.to_string().into_bytes()));
        let headers = [
            ("host", "vault.example"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        self.send(token, "POST", "/mcp", body, &headers).await
    }

    /// The sample of a route, by whom the route is for, counted alone.
    pub(super) async fn sample(&self, name: &str) -> u16 {
        let sample = samples()
            .into_iter()
            .find(|sample| sample.route.name == name);
        let sample = sample.unwrap();
        let token = match sample.route.auth {
            Auth::Device => return self.read(&sample.path).await,
            Auth::Public | Auth::Session(_) => "",
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
    pub(super) async fn read(&self, path: &str) -> u16 {
        let request = self.world.signed(&self.devices[0], "GET", path);
        self.counting.take();
        self.world.send(request).await.status.as_u16()
    }

    /// Goes on as a process that has just started: nothing is remembered.
    pub(super) fn restart(&mut self) {
        self.world = self.world.restarted();
    }

    pub(super) async fn push(&self, bytes: Vec<u8>) -> u16 {
        let tag = self.world.etag("acme").await;
        let body = Some(("application/octet-stream", bytes));
        let headers = [("if-match", tag.as_str())];
        let path = "/admin/vaults/acme/catalog";
        self.send(&self.owner, "PUT", path, body, &headers).await.0
    }
}

/// A skill of the vault of the vectors.
pub(super) fn skill(at: usize) -> PlainSkill {
    let (catalog, _) = read_file(&vector("catalog-42.json"));
    let name = format!("skill-{at:05}");
    plain_skill(
        &catalog.vault_id,
        &vector_key("release 0"),
        &name,
        catalog.issued_at,
    )
}
