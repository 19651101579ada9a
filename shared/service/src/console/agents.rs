//! The form of a skill that the current release gives each agent of a linked machine: the skill as it
//! is, a variant that was made for the agent, or nothing. `vault profiles` on such a machine says the same.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use vault_format::catalog::{Catalog, ProfileEntry, SkillEntry};
use vault_format::hash::Digest;
use vault_format::name::AgentId;
use vault_format::text::error_chain;
use vault_policy::published::{PublishedForm, PublishedProfiles};
use vault_shelf::{Entry, ShelfError};
use vault_store::StoreError;
use vault_store::objects::Class;

use super::catalogs::task_failed;
use super::guard::ConsolePage;
use crate::app::{ActingUser, Shelves as _};
use crate::web::error_page::ErrorPage;

/// Maximum number of agents that the page names.
const MAX_AGENTS: usize = 200;
/// Maximum size of a release's profiles together, in bytes. New releases stay below it.
const MAX_BYTES: u64 = 32 << 20;
/// Number of profiles that are read at once.
const READ_AT_ONCE: usize = 32;
/// Estimated memory that a skill in a profile takes, in bytes.
const SKILL_BYTES: usize = 192;

/// What one agent gets of the skill: the skill as it is, a variant, or nothing.
pub(super) struct AgentRow {
    pub(super) agent: String,
    pub(super) gets: &'static str,
    /// SHA-256 of the bundle that the agent gets, in hexadecimal; empty if it gets none.
    pub(super) bundle: String,
}

/// The forms of one skill that agents get.
pub(super) struct AgentForms {
    /// The release whose profiles (lists of skills for an agent) these forms are from; `None` if no
    /// release has the skill.
    pub(super) release: Option<u64>,
    /// Sentence for the page if the profiles of the release cannot be shown.
    pub(super) problem: Option<&'static str>,
    pub(super) rows: Vec<AgentRow>,
    /// Number of named agents that the page leaves out.
    pub(super) more: usize,
}

impl AgentForms {
    /// Reads the profiles of the current release for a skill of the shelf.
    pub(super) async fn read_forms(page: &ConsolePage, entry: &Entry) -> Result<Self, ErrorPage> {
        let catalogs = &page.cache.catalogs;
        let catalog = catalogs
            .current_catalog(page.app(), &page.namespace)
            .await?;
        let mut forms = Self {
            release: None,
            problem: None,
            rows: Vec::new(),
            more: 0,
        };
        let Some(catalog) = catalog else {
            return Ok(forms);
        };
        let Some(plain) = catalog.skill(entry.name()) else {
            return Ok(forms);
        };
        forms.release = Some(catalog.release);
        match forms.read_rows(page, &catalog, (plain, entry)).await {
            Ok(problem) => forms.problem = problem,
            // The rest of the page does not need the profiles.
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the profiles of a release were not read"
                );
                forms.problem = Some(
                    "The profiles of this release cannot be read at the moment. Load this page \
                     again in a minute.",
                );
            }
        }
        Ok(forms)
    }

    /// Reads the rows about a skill of the release. `entry` is the skill on the shelf. Returns a
    /// sentence for the page if there are none.
    async fn read_rows(
        &mut self,
        page: &ConsolePage,
        catalog: &Arc<Catalog>,
        (plain, entry): (&SkillEntry, &Entry),
    ) -> Result<Option<&'static str>, ShelfError> {
        let profiles = match read_profiles(page, catalog).await? {
            Ok(profiles) => profiles,
            Err(problem) => return Ok(Some(problem)),
        };
        let agents = released_agents(page, plain, entry).await?;
        self.rows = agent_rows(&profiles, plain, &agents);
        self.leave_out_rows();
        Ok(None)
    }

    /// Keeps as many rows as the page shows, and the last one, which is about all other agents.
    fn leave_out_rows(&mut self) {
        let others = self.rows.pop();
        self.more = self.rows.len().saturating_sub(MAX_AGENTS);
        self.rows.truncate(MAX_AGENTS);
        self.rows.extend(others);
    }
}

/// Returns the agents that the released version of a skill names.
async fn released_agents(
    page: &ConsolePage,
    plain: &SkillEntry,
    entry: &Entry,
) -> Result<Vec<AgentId>, ShelfError> {
    if entry.texts.bundle_hash == plain.bundle_hash {
        return Ok(entry.texts.agents.clone());
    }
    // The shelf is the vault's library, which has a version that is not published.
    let ActingUser {
        app,
        namespace,
        actor,
        ..
    } = page.as_acting_user();
    let releases = page.cache.releases.shelf(app, namespace, actor.source);
    let snapshot = releases.take_snapshot().await?;
    let released = snapshot.find(&plain.name);
    Ok(released.map_or_else(Vec::new, |released| released.texts.agents.clone()))
}

/// Returns a row for each agent that the release has a profile for, and one for all others. Agents
/// that get something else than the plain skill come first.
fn agent_rows(
    profiles: &PublishedProfiles,
    plain: &SkillEntry,
    agents: &[AgentId],
) -> Vec<AgentRow> {
    let named = profiles.agents().filter(|(agent, _)| !agent.is_any());
    let mut rows: Vec<_> = named
        .map(|(agent, published)| {
            let form = published.form_of(&plain.name);
            (rank(form), to_row(agent.to_string(), form, plain))
        })
        .collect();
    rows.sort_by_key(|(rank, _)| *rank);
    let mut rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    // A machine shows an agent without a profile the skills that name it or no agent.
    let others = match profiles.agent(&AgentId::any()) {
        Some(published) => published.form_of(&plain.name),
        None if agents.is_empty() => PublishedForm::Plain,
        None => PublishedForm::LeftOut,
    };
    // Without a profile for other agents, some agents that the skill names may have none either.
    // They get the plain skill, and a row here.
    if profiles.agent(&AgentId::any()).is_none() {
        let unlisted = agents
            .iter()
            .filter(|agent| profiles.agent(agent).is_none());
        rows.extend(unlisted.map(|agent| to_row(agent.to_string(), PublishedForm::Plain, plain)));
    }
    let name = if rows.is_empty() {
        "every agent"
    } else {
        "every other agent"
    };
    rows.push(to_row(name.to_owned(), others, plain));
    rows
}

const fn rank(form: PublishedForm<'_>) -> u8 {
    match form {
        PublishedForm::Variant(_) => 0,
        PublishedForm::LeftOut => 1,
        PublishedForm::Plain => 2,
    }
}

fn to_row(agent: String, form: PublishedForm<'_>, plain: &SkillEntry) -> AgentRow {
    let (gets, bundle) = match form {
        PublishedForm::Plain => ("the skill as it is", plain.bundle_hash.to_string()),
        PublishedForm::Variant(variant) => ("a variant", variant.bundle_hash.to_string()),
        PublishedForm::LeftOut => ("not this skill", String::new()),
    };
    AgentRow {
        agent,
        gets,
        bundle,
    }
}

/// Reads the profiles of the current catalog; the inner error is a text for the page.
async fn read_profiles(
    page: &ConsolePage,
    catalog: &Arc<Catalog>,
) -> Result<Result<Arc<PublishedProfiles>, &'static str>, StoreError> {
    let Some(current) = page.namespace.readable_current() else {
        return Ok(Ok(Arc::default()));
    };
    let key = (page.namespace.id, current.sha256);
    if let Some(profiles) = page.cache.profiles.find(&key) {
        return Ok(Ok(profiles));
    }
    if catalog.profiles.iter().map(|entry| entry.size).sum::<u64>() > MAX_BYTES {
        return Ok(Err(
            "The profiles of this release are too large to be shown here. On a linked machine, \
             vault profiles says what each of its agents gets.",
        ));
    }
    let mut objects = HashMap::new();
    for some in catalog.profiles.chunks(READ_AT_ONCE) {
        read_objects(page, some, &mut objects).await?;
    }
    // Profiles of a large vault take long to parse: not on a thread that answers requests.
    let catalog = Arc::clone(catalog);
    let reading = tokio::task::spawn_blocking(move || {
        PublishedProfiles::read(&catalog, &|hash| objects.get(hash).cloned())
    });
    let Ok(profiles) = reading.await.map_err(|ended| task_failed(&ended))? else {
        return Ok(Err(
            "The stored profiles of this release are damaged. Publish them again with: vault sync \
             --renew",
        ));
    };
    let size = profiles.named_skills() * SKILL_BYTES + 1024;
    let profiles = Arc::new(profiles);
    page.cache
        .profiles
        .insert_value(key, Arc::clone(&profiles), size);
    Ok(Ok(profiles))
}

async fn read_objects(
    page: &ConsolePage,
    entries: &[ProfileEntry],
    objects: &mut HashMap<Digest, Vec<u8>>,
) -> Result<(), StoreError> {
    let mut readings = JoinSet::new();
    for entry in entries {
        let (app, hash) = (page.app().clone(), entry.bundle_hash);
        let key = page.namespace.object_key(Class::Bundles, hash);
        readings.spawn(async move { (hash, app.object(&key).await) });
    }
    while let Some(outcome) = readings.join_next().await {
        let (hash, object) = outcome.map_err(|ended| task_failed(&ended))?;
        // A missing object is left out, and parsing the profiles then fails where one names it.
        if let Some(object) = object? {
            objects.insert(hash, object.bytes.to_vec());
        }
    }
    Ok(())
}
