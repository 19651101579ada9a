//! The one way to see skills: a shelf at one moment through what its caller is granted.
//!
//! A skill that is not granted is passed over before anything about it is read, so that asking for it costs and answers the same as asking
//! for a name that nobody has. Searches rank what is granted among itself: how rare a word is among hidden skills would say something of
//! them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use vault_skill::name::{AgentId, SkillName};
use vault_skill::policy::{Asker, CompiledPolicy, Grant, Reach, View};
use vault_skill::search::{Ranking, Text};
use vault_store::shelf::{Entry, Snapshot};

use crate::session::Person;

/// The platform under which callers of this server stand in a policy.
pub const PLATFORM: &str = "mcp";
/// Most snapshots of which something derived is remembered.
const MAX_SNAPSHOTS: usize = 32;
/// Most sets of granted skills of one snapshot that are remembered with their ranking.
const MAX_VIEWS: usize = 16;

/// What the caller may see of a shelf, for one purpose.
pub struct Visible {
    snapshot: Arc<Snapshot>,
    derived: Arc<Derived>,
    grant: Grant,
}

/// One answer of a search.
pub struct Found<'v> {
    /// The skill.
    pub entry: &'v Entry,
    /// How well it fits; comparable within one answer only.
    pub score: f64,
}

impl Visible {
    /// The skills, in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.snapshot
            .entries()
            .iter()
            .filter(|entry| self.sees(entry))
    }

    /// The skills whose names come after `name`.
    pub fn entries_after(&self, name: Option<&SkillName>) -> impl Iterator<Item = &Entry> {
        let entries = self.snapshot.entries();
        let start = name.map_or(0, |name| {
            entries.partition_point(|entry| entry.name() <= name)
        });
        entries
            .get(start..)
            .unwrap_or_default()
            .iter()
            .filter(|entry| self.sees(entry))
    }

    /// The skill of this name.
    pub fn find(&self, name: &SkillName) -> Option<&Entry> {
        self.snapshot.find(name).filter(|entry| self.sees(entry))
    }

    /// The best `top_k` skills for a query, best first, of those that are meant for `agent`.
    pub fn search(&self, query: &str, top_k: usize, agent: Option<&AgentId>) -> Vec<Found<'_>> {
        let ranked = self.ranked();
        let positions = ranked.as_ref().map(|ranked| &ranked.positions);
        let ranking = ranked
            .as_ref()
            .map_or_else(|| self.snapshot.ranking(), |ranked| &ranked.ranking);
        // The filter comes after the ranking, so with one more are asked for than wanted.
        let wanted = if agent.is_some() {
            ranking.len()
        } else {
            top_k
        };
        ranking
            .search(query, wanted)
            .into_iter()
            .filter_map(|hit| {
                let at = positions
                    .map_or(Some(&hit.position), |positions| positions.get(hit.position))?;
                let entry = self.snapshot.entries().get(*at)?;
                let score = hit.score;
                is_for(entry, agent).then_some(Found { entry, score })
            })
            .take(top_k)
            .collect()
    }

    /// The shelf's moment. What is read from it past [`Visible`] must not name a skill.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The policy that the grant is of.
    pub fn policy(&self) -> &CompiledPolicy {
        self.derived.policy.get_or_init(|| compiled(&self.snapshot))
    }

    fn sees(&self, entry: &Entry) -> bool {
        self.grant.allows(entry.name(), &entry.texts.tags)
    }

    /// The ranking of what is granted; nothing for who sees everything and shares the shelf's own.
    fn ranked(&self) -> Option<Arc<Ranked>> {
        if self.grant.is_everything() {
            return None;
        }
        let view = self.grant.view();
        let mut views = lock(&self.derived.views);
        if let Some(ranked) = views.get(&view) {
            return Some(Arc::clone(ranked));
        }
        drop(views);
        let entries = self.snapshot.entries();
        let positions: Vec<usize> = (0..entries.len())
            .filter(|at| entries.get(*at).is_some_and(|entry| self.sees(entry)))
            .collect();
        let texts = positions
            .iter()
            .filter_map(|at| entries.get(*at))
            .map(|entry| Text::from(&entry.texts));
        let ranked = Arc::new(Ranked {
            ranking: Ranking::new(texts),
            positions,
        });
        views = lock(&self.derived.views);
        if views.len() >= MAX_VIEWS {
            views.clear();
        }
        views.insert(view, Arc::clone(&ranked));
        Some(ranked)
    }
}

/// Whether a skill is meant for an agent: it names it, or none.
pub fn is_for(entry: &Entry, agent: Option<&AgentId>) -> bool {
    agent.is_none_or(|agent| entry.texts.agents.is_empty() || entry.texts.agents.contains(agent))
}

/// A ranking of some of a snapshot's skills.
struct Ranked {
    ranking: Ranking,
    /// Where the ranking's skills stand in the snapshot.
    positions: Vec<usize>,
}

/// What is made of a snapshot once, at its first use.
#[derive(Default)]
struct Derived {
    policy: OnceLock<CompiledPolicy>,
    views: Mutex<HashMap<View, Arc<Ranked>>>,
}

/// Remembers what was made of the snapshots that are in use.
#[derive(Default)]
pub struct Looks(Mutex<Vec<(Weak<Snapshot>, Arc<Derived>)>>);

impl Looks {
    /// What this person sees of this snapshot.
    pub fn visible(&self, snapshot: Arc<Snapshot>, person: &Person, reach: Reach<'_>) -> Visible {
        let derived = self.derived(&snapshot);
        let grant = if person.owner {
            Grant::everything()
        } else {
            let policy = derived.policy.get_or_init(|| compiled(&snapshot));
            let callers: Vec<&str> = person.ids.iter().map(String::as_str).collect();
            let asker = Asker {
                callers: &callers,
                bound_profile: person.profile.as_deref(),
                platform: PLATFORM,
                channel: None,
            };
            policy.granted(&asker, reach)
        };
        Visible {
            snapshot,
            derived,
            grant,
        }
    }

    fn derived(&self, snapshot: &Arc<Snapshot>) -> Arc<Derived> {
        let mut held = lock(&self.0);
        let this = Arc::downgrade(snapshot);
        if let Some((_, derived)) = held.iter().find(|(weak, _)| weak.ptr_eq(&this)) {
            return Arc::clone(derived);
        }
        held.retain(|(weak, _)| weak.strong_count() > 0);
        if held.len() >= MAX_SNAPSHOTS {
            held.remove(0);
        }
        let derived = Arc::<Derived>::default();
        held.push((this, Arc::clone(&derived)));
        derived
    }
}

/// The snapshot's policy, ready for use. One that cannot be used grants nothing.
fn compiled(snapshot: &Snapshot) -> CompiledPolicy {
    let Some(policy) = &snapshot.policy else {
        return CompiledPolicy::absent();
    };
    CompiledPolicy::new((**policy).clone()).unwrap_or_else(|error| {
        tracing::error!(%error, "the policy cannot be used, so members see nothing");
        CompiledPolicy::absent()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
