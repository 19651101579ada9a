//! The skills that a caller sees: a snapshot of a shelf (store of skills), filtered by the
//! caller's grant (what the policy allows). Every answer about skills goes through this module.
//!
//! A skill that is not granted is skipped before any part of it is read, so that a request for it
//! costs and returns the same as one for a name that does not exist. Searches rank only granted
//! skills, since the rarity of a word among hidden skills would reveal something about them.
//!
//! Work that may take long (matching a policy's expressions with a query, building an index) runs
//! outside the threads that answer requests, a few tasks at a time for each snapshot. So an owner's
//! policy can delay only that owner's vault.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::Semaphore;
use vault_format::name::{AgentId, SkillName};
use vault_policy::search::{Ranking, Text};
use vault_policy::{Asker, CompiledPolicy, Grant, Reach, View};
use vault_shelf::{Entry, ReleaseKeys, Snapshot};

use crate::fault::{Fault, ToolError};
use crate::session::Person;
use crate::uri;

/// The name under which a policy knows this server as a platform.
pub const PLATFORM: &str = "mcp";
/// The largest number of snapshots for which derived data is cached.
const MAX_SNAPSHOTS: usize = 32;
/// The largest number of rankings that are cached for one snapshot, each for one set of granted
/// skills.
const MAX_VIEWS: usize = 16;
/// The number of long tasks that run at once for one snapshot. Further tasks wait, up to the time
/// limit of their requests.
const LONG_AT_ONCE: usize = 4;

/// The skills of a snapshot that the caller may see, for one purpose.
pub struct Visible {
    snapshot: Arc<Snapshot>,
    derived: Arc<DerivedData>,
    grant: Grant,
}

/// One result of a search.
pub struct SearchHit<'v> {
    /// The skill that was found.
    pub entry: &'v Entry,
    /// The score; comparable within one answer only.
    pub score: f64,
}

impl Visible {
    /// The keys that make the release valid; `None` if the shelf does not serve a release.
    pub fn keys(&self) -> Option<&ReleaseKeys> {
        self.snapshot.keys.as_ref()
    }

    /// The visible skills, in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.snapshot
            .entries()
            .iter()
            .filter(|entry| self.is_granted(entry))
    }

    /// The visible skills whose names come after `name`, in that order.
    pub fn entries_after(&self, name: Option<&SkillName>) -> impl Iterator<Item = &Entry> {
        let entries = self.snapshot.entries();
        let start = name.map_or(0, |name| {
            entries.partition_point(|entry| entry.name() <= name)
        });
        entries
            .get(start..)
            .unwrap_or_default()
            .iter()
            .filter(|entry| self.is_granted(entry))
    }

    /// Returns the skill of this name if it is visible.
    pub fn find(&self, name: &SkillName) -> Option<&Entry> {
        self.snapshot
            .find(name)
            .filter(|entry| self.is_granted(entry))
    }

    /// Finds the visible skill with this id: a bare name, `<owner>/<name>`, or `<vault>/<name>` of
    /// a linked vault. Returns it with the first part of its addresses. A policy grants bare names,
    /// so a skill that can only be named by the last form is visible only to callers who see
    /// everything.
    pub fn find_id<'v>(&'v self, owner: &'v str, id: &str) -> Option<(&'v str, &'v Entry)> {
        if let Some(name) = uri::parse_id(owner, id) {
            return Some((owner, self.find(&name)?));
        }
        let (vault, name) = id.split_once('/')?;
        // If a skill of a linked vault holds the bare name, a grant of that name is a grant of this
        // skill. So members may also use its qualified id.
        let bare = name.parse().ok().and_then(|name| self.find(&name));
        let is_of_vault = |entry: &&Entry| {
            entry
                .vault
                .as_ref()
                .is_some_and(|own| own.as_str() == vault)
        };
        if let Some(entry) = bare.filter(is_of_vault) {
            return Some((owner, entry));
        }
        // Members get the same answer for every other name in a linked vault, whether it exists or
        // not.
        if !self.grant.is_everything() {
            return None;
        }
        let entry = self.snapshot.find_qualified(vault, name)?;
        Some((entry.vault.as_ref()?.as_str(), entry))
    }

    /// Prepares searches. The ranking is built outside the request's thread, if it is not cached
    /// yet. Fails if that work is aborted.
    pub async fn into_searchable(self) -> Result<Searchable, Fault> {
        if self.grant.is_everything() && self.snapshot.has_ranking() {
            return Ok(Searchable {
                visible: self,
                ranked: None,
            });
        }
        // Use a cached ranking at once, without waiting for a turn among the long tasks.
        if let Some(ranked) = self.known_ranking() {
            return Ok(Searchable {
                visible: self,
                ranked: Some(ranked),
            });
        }
        let derived = Arc::clone(&self.derived);
        derived
            .run_blocking(move || {
                let ranked = self.build_ranking();
                Searchable {
                    visible: self,
                    ranked,
                }
            })
            .await
    }

    /// Runs long work on the visible skills outside the request's thread. Fails if it is aborted.
    pub async fn run_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let derived = Arc::clone(&self.derived);
        derived.run_blocking(move || work(&self)).await
    }

    /// The unfiltered snapshot. The caller must not answer with a skill's name or text from it
    /// unless this `Visible` grants the skill.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The compiled policy by which the caller's grant was decided.
    pub fn policy(&self) -> &CompiledPolicy {
        self.derived.policy(&self.snapshot)
    }

    fn is_granted(&self, entry: &Entry) -> bool {
        self.grant.allows(entry.name(), &entry.texts.tags)
    }

    /// Returns the cached ranking of the granted skills.
    fn known_ranking(&self) -> Option<Arc<GrantedRanking>> {
        let views = lock_unpoisoned(&self.derived.views);
        views.get(&self.grant.view()).map(Arc::clone)
    }

    /// Returns the ranking of the granted skills. `None` for a caller that sees everything and uses
    /// the shelf's own ranking, which is built if needed.
    fn build_ranking(&self) -> Option<Arc<GrantedRanking>> {
        if self.grant.is_everything() {
            self.snapshot.ranking();
            return None;
        }
        if let Some(ranked) = self.known_ranking() {
            return Some(ranked);
        }
        let entries = self.snapshot.entries();
        let positions: Vec<usize> = (0..entries.len())
            .filter(|at| entries.get(*at).is_some_and(|entry| self.is_granted(entry)))
            .collect();
        let texts = positions
            .iter()
            .filter_map(|at| entries.get(*at))
            .map(|entry| Text::from(&entry.texts));
        let ranked = Arc::new(GrantedRanking {
            ranking: Ranking::new(texts),
            positions,
        });
        // Lock only after the ranking is built: two requests may both build it, but neither waits
        // for the other.
        let mut views = lock_unpoisoned(&self.derived.views);
        // Empty the whole cache if it is full: few vaults have this many different grants.
        if views.len() >= MAX_VIEWS {
            views.clear();
        }
        // The key is the set of granted groups, so that all members of one profile share a ranking.
        views.insert(self.grant.view(), Arc::clone(&ranked));
        Some(ranked)
    }
}

/// The visible skills with the index for searches.
pub struct Searchable {
    visible: Visible,
    /// `None` for a caller that sees everything, who uses the snapshot's own ranking.
    ranked: Option<Arc<GrantedRanking>>,
}

impl Searchable {
    /// Returns the best `top_k` skills for a query, best first, of those that are meant for
    /// `agent`.
    pub fn search(&self, query: &str, top_k: usize, agent: Option<&AgentId>) -> Vec<SearchHit<'_>> {
        let snapshot = &self.visible.snapshot;
        let positions = self.ranked.as_ref().map(|ranked| &ranked.positions);
        let ranking = self
            .ranked
            .as_ref()
            .map_or_else(|| snapshot.ranking(), |ranked| &ranked.ranking);
        // The filter by agent is applied to the ranked hits, so with a filter all hits are
        // requested.
        let hit_limit = if agent.is_some() {
            ranking.len()
        } else {
            top_k
        };
        ranking
            .search(query, hit_limit)
            .into_iter()
            .filter_map(|hit| {
                let at = positions
                    .map_or(Some(&hit.position), |positions| positions.get(hit.position))?;
                let entry = snapshot.entries().get(*at)?;
                let score = hit.score;
                is_for(entry, agent).then_some(SearchHit { entry, score })
            })
            .take(top_k)
            .collect()
    }
}

/// Whether a skill is meant for an agent: it names the agent, or no agent at all. Without an agent,
/// every skill is.
pub fn is_for(entry: &Entry, agent: Option<&AgentId>) -> bool {
    agent.is_none_or(|agent| entry.texts.agents.is_empty() || entry.texts.agents.contains(agent))
}

/// The search index over those skills of a snapshot that one set of grants allows.
struct GrantedRanking {
    ranking: Ranking,
    /// For each skill in the ranking, its index in the snapshot.
    positions: Vec<usize>,
}

/// Data that is computed from a snapshot once, when it is first needed.
struct DerivedData {
    policy: OnceLock<CompiledPolicy>,
    views: Mutex<HashMap<View, Arc<GrantedRanking>>>,
    long: Arc<Semaphore>,
}

impl Default for DerivedData {
    fn default() -> Self {
        Self {
            policy: OnceLock::new(),
            views: Mutex::default(),
            long: Arc::new(Semaphore::new(LONG_AT_ONCE)),
        }
    }
}

impl DerivedData {
    /// Returns the snapshot's policy, compiled at the first use.
    fn policy(&self, snapshot: &Snapshot) -> &CompiledPolicy {
        self.policy.get_or_init(|| compile_policy(snapshot))
    }

    /// Tells whether a grant can be decided on the request's own thread: the policy is compiled,
    /// and no expression has to be matched with a query.
    fn is_quick(&self, reach: Reach<'_>) -> bool {
        self.policy.get().is_some_and(|policy| {
            !matches!(reach, Reach::Query(_))
                || policy.policy().rules.as_ref().is_none_or(Vec::is_empty)
        })
    }

    fn decide_grant(&self, snapshot: &Snapshot, person: &Person, reach: Reach<'_>) -> Grant {
        let callers: Vec<&str> = person.ids.iter().map(String::as_str).collect();
        let asker = Asker {
            callers: &callers,
            bound_profile: person.profile.as_deref(),
            platform: PLATFORM,
            channel: None,
        };
        self.policy(snapshot).grant_for(&asker, reach)
    }

    /// Runs work on a blocking thread, as soon as fewer than [`LONG_AT_ONCE`] tasks of this
    /// snapshot run. A task counts until it ends, even if no request waits for it any more.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let broken = |cause: String| Fault::by_service(ToolError::Internal, cause);
        // The permit moves into the task: if the request is dropped, the work goes on and still
        // counts.
        let turn = Arc::clone(&self.long).acquire_owned().await;
        let turn = turn.map_err(|closed| broken(closed.to_string()))?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await
            .map_err(|error| broken(format!("a task ended unexpectedly: {error}")))
    }
}

/// A cache of the data derived from those snapshots that are in use.
#[derive(Default)]
pub struct SnapshotCache(Mutex<Vec<(Weak<Snapshot>, Arc<DerivedData>)>>);

impl SnapshotCache {
    /// Returns the skills of this snapshot that this person sees. Fails if the work that decides it
    /// is aborted.
    pub async fn visible_to(
        &self,
        snapshot: Arc<Snapshot>,
        person: &Person,
        reach: Reach<'_>,
    ) -> Result<Visible, Fault> {
        let derived = self.derived_data(&snapshot);
        // The policy does not apply to owners, so that a broken policy cannot lock them out.
        let grant = if person.owner {
            Grant::everything()
        } else if derived.is_quick(reach) {
            derived.decide_grant(&snapshot, person, reach)
        } else {
            let (derived_copy, of, person) =
                (Arc::clone(&derived), Arc::clone(&snapshot), person.clone());
            let asked = OwnedReach::from(reach);
            let decide = move || derived_copy.decide_grant(&of, &person, asked.as_reach());
            derived.run_blocking(decide).await?
        };
        Ok(Visible {
            snapshot,
            derived,
            grant,
        })
    }

    fn derived_data(&self, snapshot: &Arc<Snapshot>) -> Arc<DerivedData> {
        let mut cached_data = lock_unpoisoned(&self.0);
        let this = Arc::downgrade(snapshot);
        if let Some((_, derived)) = cached_data.iter().find(|(weak, _)| weak.ptr_eq(&this)) {
            return Arc::clone(derived);
        }
        // The references are weak, so that the cache does not keep an old release in memory after
        // the last request for it.
        cached_data.retain(|(weak, _)| weak.strong_count() > 0);
        if cached_data.len() >= MAX_SNAPSHOTS {
            cached_data.remove(0);
        }
        let derived = Arc::<DerivedData>::default();
        cached_data.push((this, Arc::clone(&derived)));
        derived
    }
}

/// A [`Reach`] that owns its query, to be moved to another thread.
enum OwnedReach {
    List,
    Query(String),
    Fetch,
}

impl From<Reach<'_>> for OwnedReach {
    fn from(reach: Reach<'_>) -> Self {
        match reach {
            Reach::List => Self::List,
            Reach::Query(query) => Self::Query(query.to_owned()),
            Reach::Fetch => Self::Fetch,
        }
    }
}

impl OwnedReach {
    fn as_reach(&self) -> Reach<'_> {
        match self {
            Self::List => Reach::List,
            Self::Query(query) => Reach::Query(query),
            Self::Fetch => Reach::Fetch,
        }
    }
}

/// Compiles the snapshot's policy. A policy that cannot be compiled grants nothing.
fn compile_policy(snapshot: &Snapshot) -> CompiledPolicy {
    let Some(policy) = &snapshot.policy else {
        return CompiledPolicy::absent();
    };
    CompiledPolicy::new((**policy).clone()).unwrap_or_else(|error| {
        tracing::error!(%error, "the policy cannot be used, so members see nothing");
        CompiledPolicy::absent()
    })
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic in one request must not fail all later ones. The maps stay valid after any panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::thread;

    use vault_format::draft::Submitter;
    use vault_policy::Policy;
    use vault_shelf::{Shelf as _, Writes};
    use vault_testing::memory::shelf::MemoryShelf;

    use super::*;
    use crate::session::Right;

    const POLICY: &str = r#"
default_profile = "team"
[profiles.team]
groups = ["docs"]
[groups.docs]
skills = ["tag:docs"]
[groups.money]
skills = ["payroll"]
[[rules]]
when = "salary"
add_groups = ["money"]
"#;

    async fn snapshot() -> Arc<Snapshot> {
        let shelf = MemoryShelf::new("acme", Writes::Signed);
        for (name, tag) in [("notes", "docs"), ("payroll", "secret")] {
            shelf
                .put_text(name, "Handles the salary", &[tag], &[])
                .unwrap();
        }
        shelf.set_policy(Some(Policy::from_toml(POLICY).unwrap()));
        shelf.take_snapshot().await.unwrap()
    }

    fn member() -> Person {
        Person {
            ids: vec!["ann@example.com".to_owned()],
            profile: None,
            owner: false,
            read: Right::Granted,
            write: Right::Never,
            submitter: Submitter {
                user_id: "usr_1".to_owned(),
                client_id: None,
            },
            local: false,
        }
    }

    fn names(visible: &Visible) -> Vec<&str> {
        let entries = visible.entries();
        entries.map(|entry| entry.name().as_str()).collect()
    }

    /// All places for long tasks are taken, so one more task has to wait. Requests that need no
    /// long work are still answered, on the only thread of the test.
    #[tokio::test]
    async fn a_query_that_takes_long_keeps_no_other_request_waiting() {
        let (cache, snapshot, ann) = (SnapshotCache::default(), snapshot().await, member());
        let visible = |reach| cache.visible_to(Arc::clone(&snapshot), &ann, reach);
        // The first query compiles the policy.
        assert_eq!(names(&visible(Reach::List).await.unwrap()), ["notes"]);
        let long = Arc::clone(&cache.derived_data(&snapshot).long);
        assert_eq!(long.available_permits(), LONG_AT_ONCE);
        let held = u32::try_from(LONG_AT_ONCE).unwrap();
        let held = long.acquire_many_owned(held).await.unwrap();

        let mut query = pin!(visible(Reach::Query("salary")));
        tokio::select! {
            biased;
            _ = &mut query => panic!("the bound was passed by"),
            listed = visible(Reach::List) => assert_eq!(names(&listed.unwrap()), ["notes"]),
        }
        // The waiting task does not delay another vault or a later release of this one.
        let other = self::snapshot().await;
        let elsewhere = cache.visible_to(Arc::clone(&other), &ann, Reach::Query("salary"));
        tokio::select! {
            biased;
            _ = &mut query => panic!("the bound was passed by"),
            found = elsewhere => assert_eq!(names(&found.unwrap()), ["notes", "payroll"]),
        }
        drop(held);
        assert_eq!(names(&query.await.unwrap()), ["notes", "payroll"]);
    }

    #[tokio::test]
    async fn long_work_is_done_on_another_thread() {
        let (cache, snapshot, ann) = (SnapshotCache::default(), snapshot().await, member());
        let here = thread::current().id();
        let all = cache.visible_to(Arc::clone(&snapshot), &ann, Reach::List);
        let there = all
            .await
            .unwrap()
            .run_blocking(|_| thread::current().id())
            .await;
        assert_ne!(there.unwrap(), here);
        // A ranking, the owner's or a member's, waits for its turn if it is not cached, and only
        // then.
        let long = Arc::clone(&cache.derived_data(&snapshot).long);
        for person in [&Person::local_owner(), &ann] {
            let visible = || cache.visible_to(Arc::clone(&snapshot), person, Reach::List);
            let all = u32::try_from(LONG_AT_ONCE).unwrap();
            let held = long.acquire_many(all).await.unwrap();
            let first = visible().await.unwrap();
            let mut first = pin!(first.into_searchable());
            tokio::select! {
                biased;
                _ = &mut first => panic!("made on the request's own thread"),
                () = std::future::ready(()) => {}
            }
            drop(held);
            assert_eq!(first.await.unwrap().search("salary", 1, None).len(), 1);
            let held = long.acquire_many(all).await.unwrap();
            let again = visible().await.unwrap().into_searchable().await;
            assert_eq!(again.unwrap().search("salary", 1, None).len(), 1);
            drop(held);
        }
    }

    /// A task that no request waits for any more still counts until it ends.
    #[tokio::test]
    async fn what_was_begun_counts_to_its_end() {
        let derived = DerivedData::default();
        let (begun, is_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let work = derived.run_blocking(move || {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
        });
        {
            let mut work = pin!(work);
            tokio::select! {
                biased;
                _ = &mut work => panic!("it waits"),
                begun = is_begun => begun.unwrap(),
            }
        }
        assert_eq!(derived.long.available_permits(), LONG_AT_ONCE - 1);
        go_on.send(()).unwrap();
        let all = u32::try_from(LONG_AT_ONCE).unwrap();
        assert!(derived.long.acquire_many(all).await.is_ok());
    }
}
