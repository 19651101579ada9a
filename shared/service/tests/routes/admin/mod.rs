//! `/admin/…`: who may what, and what each route does, over the namespace `acme` with release 42 of
//! the vectors.

mod audit;
mod catalog;
mod clients;
mod confirmations;
mod conflicts;
mod devices;
mod drafts;
mod elevation;
mod invitations;
mod made;
mod many;
mod matrix;
mod notices;
mod objects;
mod operator;
mod owners;
pub mod permits;
mod pin;
mod publishers;
mod releases;
mod users;
mod vaults;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Notify;
use vault_service::model::audit::Entry;
use vault_service::model::namespace::{Kind, Namespace};
use vault_service::model::user::{NamespaceRef, Role, Scopes, User};
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, Records as _, When, Write};
use vault_testing::memory::Memory;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD};
use crate::support::{Answer, World, bearer, world_with};

/// The owner of `acme`.
pub const ADA: &str = "ada@example.org";
/// A member of `acme` with both scopes.
pub const BOB: &str = "bob@example.org";
/// A publisher of `acme`.
pub const CY: &str = "cy@example.org";
/// The owner of `other`.
pub const EVE: &str = "eve@example.org";
/// A service with two tenants and the people of both.
pub struct Desk {
    pub world: World,
    pub acme: Namespace,
    pub other: Namespace,
    pub commits: Arc<Commits>,
    /// ADA's token with both scopes.
    pub owner: String,
}

/// A desk whose namespace `acme` has the vectors' objects and release 42.
pub async fn desk() -> Desk {
    desk_with(|_| {}).await
}

/// The same, with changed settings.
pub async fn desk_with(change: impl FnOnce(&mut vault_service::config::Config)) -> Desk {
    let desk = desk_of(Kind::Hosted, change).await;
    desk.world.put_vectors(&desk.acme).await;
    let bytes = crate::support::vector("catalog-42.json");
    desk.world.publish("acme", bytes).await.unwrap();
    desk
}

/// A desk whose namespace `acme` holds nothing.
pub async fn empty_desk() -> Desk {
    desk_of(Kind::Hosted, |_| {}).await
}

pub async fn desk_of(kind: Kind, change: impl FnOnce(&mut vault_service::config::Config)) -> Desk {
    let mut world = world_with(|config| {
        config.token_ttl_seconds = 24 * 3600;
        change(config);
    });
    let commits = Commits::watch(&mut world);
    common::bootstrap(&world.app).await;
    let acme = world.namespace("acme", kind).await;
    let other = world.namespace("other", Kind::Hosted).await;
    common::member(&world.app, ADA, &reference(&acme), Role::Owner, Scopes::ALL).await;
    let owner = token(&world, ADA, "acme", Scopes::ALL).await;
    Desk {
        world,
        acme,
        other,
        commits,
        owner,
    }
}

pub fn reference(namespace: &Namespace) -> NamespaceRef {
    namespace.to_ref()
}

/// A token by the whole walk through sign-in and consent.
pub async fn token(world: &World, email: &str, slug: &str, scopes: Scopes) -> String {
    let password = if email == OWNER {
        OWNER_PASSWORD
    } else {
        PASSWORD
    };
    common::tokens(&world.app, (email, password), slug, scopes)
        .await
        .access
}

impl Desk {
    /// A token of the operator, who owns `default` and nothing else.
    pub async fn operator(&self) -> String {
        common::operator_token(&self.world.app).await
    }

    /// A token of the owner of `other`.
    pub async fn stranger(&self) -> String {
        let app = &self.world.app;
        common::member(app, EVE, &reference(&self.other), Role::Owner, Scopes::ALL).await;
        token(&self.world, EVE, "other", Scopes::ALL).await
    }

    /// A request of ADA without a body.
    pub async fn get(&self, path: &str) -> Answer {
        self.ask(&self.owner, "GET", path, None).await
    }

    /// A request of ADA with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(&self.owner, "POST", path, Some(body)).await
    }

    /// A request of an app whose person confirms whatever the service wants to have confirmed.
    pub async fn ask(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.ask_once(token, method, path, body).await;
        if answer.short() != "403 confirmation_needed" {
            return answer;
        }
        common::confirm_asked(&self.world.app, token).await;
        self.ask_once(token, method, path, body).await
    }

    /// A request whose person confirms nothing.
    pub async fn ask_once(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let body = body.map(|body| ("application/json", body.to_string().into_bytes()));
        self.send(token, method, path, body, &[]).await
    }

    /// Any request; `token` may be empty.
    pub async fn send(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let request = bearer(token, method, path, body, headers);
        self.world.send(request).await
    }

    /// The audit entries of a namespace, oldest first.
    pub async fn entries(&self, namespace: &Namespace) -> Vec<Entry> {
        common::entries_of(&self.world.app, Some(&namespace.id)).await
    }

    /// Action and outcome of all entries of `acme`, sorted.
    pub async fn outcomes(&self) -> Vec<String> {
        let entries = self.entries(&self.acme).await;
        let mut short: Vec<_> = entries
            .iter()
            .map(|entry| format!("{} {}", entry.action, entry.outcome))
            .collect();
        short.sort();
        short
    }

    /// How many entries of `acme` say this.
    pub async fn count(&self, outcome: &str) -> usize {
        let all = self.outcomes().await;
        all.iter().filter(|entry| *entry == outcome).count()
    }
}

/// Remembers which keys each commit wrote together.
pub struct Commits {
    memory: Arc<Memory>,
    seen: Mutex<Vec<Vec<RecordKey>>>,
    skipped: AtomicUsize,
    interfered: AtomicUsize,
    changed: Mutex<Option<User>>,
    sooner: Mutex<Vec<Write>>,
    paused: Mutex<Option<Pause>>,
    planned: Mutex<Option<Plan>>,
    reads: AtomicUsize,
}

/// What happens right before the next commits that write one record.
type Plan = (RecordKey, VecDeque<Planned>);

/// What happens right before a commit.
pub enum Planned {
    Nothing,
    /// The store does not answer.
    Failure,
    /// Another writer is faster.
    Sooner(Vec<Write>),
}

/// A commit that waits: it tells when it is reached, and goes on when it is told to.
#[derive(Clone, Default)]
pub struct Pause {
    pub reached: Arc<Notify>,
    pub go_on: Arc<Notify>,
}

impl Commits {
    /// Watches the commits of a service from now on.
    pub fn watch(world: &mut World) -> Arc<Self> {
        let commits = Arc::new(Self {
            memory: Arc::clone(&world.memory),
            seen: Mutex::default(),
            skipped: AtomicUsize::new(0),
            interfered: AtomicUsize::new(0),
            changed: Mutex::default(),
            sooner: Mutex::default(),
            paused: Mutex::default(),
            planned: Mutex::default(),
            reads: AtomicUsize::new(0),
        });
        world.app.ports.records = Hooked::new(&world.memory, commits.clone());
        world.router = vault_service::router(world.app.clone());
        commits
    }

    /// Lets the next commit wait.
    pub fn pause_next(&self) -> Pause {
        let pause = Pause::default();
        *self.paused.lock().unwrap() = Some(pause.clone());
        pause
    }

    /// Lets the next commits fail as those do that other writers get in the way of.
    pub fn interfere(&self, times: usize) {
        self.interfered.store(times, Ordering::SeqCst);
    }

    /// Lets one commit fail like that, after so many others.
    pub fn interfere_after(&self, skipped: usize) {
        self.skipped.store(skipped, Ordering::SeqCst);
        self.interfere(1);
    }

    /// Whether a commit has failed since [`Self::interfere_after`].
    pub fn has_interfered(&self) -> bool {
        self.interfered.swap(0, Ordering::SeqCst) == 0
    }

    /// Makes a user a member right before the next commit that is more than a note of when somebody
    /// was seen.
    pub fn demote_before_next(&self, user: User) {
        let role = Role::Member;
        self.change_before_next(User { role, ..user });
    }

    /// Makes the user this one right before that commit.
    pub fn change_before_next(&self, user: User) {
        *self.changed.lock().unwrap() = Some(user);
    }

    /// Makes these writes right before the next commit: another writer is faster.
    pub fn write_before_next(&self, writes: Vec<Write>) {
        *self.sooner.lock().unwrap() = writes;
    }

    /// Plans what happens right before the next commits that write this record, one after another.
    pub fn plan(&self, key: RecordKey, planned: impl IntoIterator<Item = Planned>) {
        *self.planned.lock().unwrap() = Some((key, planned.into_iter().collect()));
    }

    fn next_planned(&self, writes: &[Write]) -> Option<Planned> {
        let mut plan = self.planned.lock().unwrap();
        let (key, planned) = plan.as_mut()?;
        let is_meant = writes.iter().any(|write| write.key() == key);
        is_meant.then(|| planned.pop_front()).flatten()
    }

    /// Makes these writes in a task of its own, so that they do not count for the request.
    async fn write_as_another(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        let memory = Arc::clone(&self.memory);
        let written = tokio::spawn(async move { memory.commit_writes(writes).await });
        assert!(written.await.expect("no panic")?.is_done());
        Ok(())
    }

    /// Every partition that a successful commit wrote.
    pub fn written(&self) -> BTreeSet<String> {
        let seen = self.seen.lock().unwrap();
        let all = seen.iter().flatten().map(|key| key.partition.clone());
        all.collect()
    }

    /// How often the stores were asked for something.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Forgets what was seen.
    pub fn clear(&self) {
        self.seen.lock().unwrap().clear();
    }

    /// The partitions that successful commits wrote since, without ids, one sorted list a commit;
    /// notes of when a user was seen left out.
    pub fn partitions(&self) -> Vec<Vec<String>> {
        let seen = self.seen.lock().unwrap();
        let short = |key: &RecordKey| key.partition.split('/').next().unwrap().to_owned();
        let mut all = Vec::new();
        for commit in seen.iter() {
            let mut names: Vec<_> = commit.iter().map(short).collect();
            names.sort();
            names.dedup();
            if names != ["user"] {
                all.push(names);
            }
        }
        all
    }
}

#[async_trait]
impl Hook for Commits {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let Call::Commit(writes) = call else {
            self.reads.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        };
        let paused = self.paused.lock().unwrap().take();
        if let Some(pause) = paused {
            pause.reached.notify_one();
            pause.go_on.notified().await;
        }
        let less = |left: usize| left.checked_sub(1);
        let lower = |count: &AtomicUsize| {
            let lowered = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            lowered.is_ok()
        };
        if !lower(&self.skipped) && lower(&self.interfered) {
            return Err(StoreError::Conflict);
        }
        match self.next_planned(writes) {
            Some(Planned::Failure) => return Err(StoreError::Busy),
            Some(Planned::Sooner(writes)) => self.write_as_another(writes).await?,
            Some(Planned::Nothing) | None => {}
        }
        let sooner = std::mem::take(&mut *self.sooner.lock().unwrap());
        if !sooner.is_empty() {
            self.write_as_another(sooner).await?;
        }
        let changed = self.changed.lock().unwrap().take_if(|_| writes.len() > 1);
        if let Some(user) = changed {
            let write = Write::put(user.key(), Document::from_value(&user)?, When::Any);
            self.write_as_another(vec![write]).await?;
        }
        Ok(())
    }

    async fn after(&self, call: Call<'_>, done: bool) {
        if let (Call::Commit(writes), true) = (call, done) {
            let keys = writes.iter().map(|write| write.key().clone()).collect();
            self.seen.lock().unwrap().push(keys);
        }
    }
}
