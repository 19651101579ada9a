//! `/console/{slug}/skills`: the skills of the current release, as a chosen viewer (an owner, a
//! machine or a person) sees them.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use serde::de::DeserializeOwned;
use vault_format::name::AgentId;
use vault_format::text::printable;
use vault_policy::CompiledPolicy;
use vault_shelf::{Entry, ShelfError, Snapshot};
use vault_store::StoreError;
use vault_store::records::Record;

use super::Cache;
use super::catalogs::task_failed;
use super::content::open_shelf;
use super::guard::ConsolePage;
use super::machines::StaticOption;
use super::page::{PageLayout, Pager, show_page};
use super::visibility::{ChosenAgent, Exposure, Viewer, Visibility};
use crate::app::App;
use crate::model::client::{ClientId, Connection, connection_key, connections_partition};
use crate::model::namespace::{Kind, Namespace};
use crate::model::user::{State, User, is_user_id, user_key, users_partition};
use crate::shelf::shelf_refusal;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;

/// Maximum number of people that the page offers to choose, and of apps.
const MOST_OFFERED: usize = 100;
/// Maximum number of agents that the page offers to choose.
const MAX_AGENTS: usize = 50;
/// Maximum length of a description in the list, in characters.
const DESCRIPTION_CHARS: usize = 200;
/// Value of the field `who` for a machine.
const MACHINE: &str = "machine";
/// Value of the field `agent` for an agent that no skill names. No agent can have this id.
const OTHER_AGENT: &str = "*";

/// Which skills the list shows, by what the viewer sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SkillFilter {
    All,
    Shown,
    Hidden,
}

impl SkillFilter {
    /// The filters, with their words in the address and their names on the page.
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::All, "", "All skills"),
        (Self::Shown, "shown", "Skills that are shown"),
        (Self::Hidden, "hidden", "Skills that are not"),
    ];

    fn from_word(word: &str) -> Self {
        let entry = Self::ALL.iter().find(|(_, known, _)| *known == word);
        entry.map_or(Self::All, |(filter, _, _)| *filter)
    }

    fn matches_exposure(self, exposure: Exposure) -> bool {
        match self {
            Self::All => true,
            Self::Shown => exposure == Exposure::Shown,
            Self::Hidden => exposure != Exposure::Shown,
        }
    }
}

struct DynamicOption {
    word: String,
    title: String,
    chosen: bool,
}

struct SkillRow {
    href: String,
    name: String,
    description: String,
    tags: String,
    exposure: Exposure,
    reason: String,
}

#[derive(Template)]
#[template(path = "console/skills.html")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of the template"
)]
struct SkillsPage {
    shell: PageLayout,
    here: String,
    /// Message in place of the list, if the release cannot be read.
    problem: Option<&'static str>,
    viewers: Vec<DynamicOption>,
    apps: Vec<DynamicOption>,
    /// Sentence about options that the fields leave out, if there are any.
    left_out: Option<String>,
    people_href: String,
    /// Whether an app is chosen although the viewer sees the same through every app.
    app_has_no_effect: bool,
    agents: Vec<DynamicOption>,
    filters: Vec<StaticOption>,
    question: String,
    search: String,
    /// Whether a viewer was chosen; otherwise the page shows what an owner sees.
    is_chosen: bool,
    reasons: Vec<String>,
    /// Whether the vault has no release yet.
    nothing_published: bool,
    /// Whether publishers push releases; otherwise the service signs them.
    hosted: bool,
    rows: Vec<SkillRow>,
    pager: Pager,
}

/// The query parameters of the page, which the form above the list sets: they choose the viewer and
/// filter the skills.
#[derive(Default)]
struct SkillsQuery {
    who: String,
    app: String,
    agent: String,
    question: String,
    show: String,
    search: String,
}

impl SkillsQuery {
    fn from_query(page: &ConsolePage) -> Self {
        let field = |name: &str| {
            let value = page.query.value(name).unwrap_or_default();
            value.trim().to_owned()
        };
        Self {
            who: field("who"),
            app: field("app"),
            agent: field("agent"),
            question: field("ask"),
            show: field("show"),
            search: field("search"),
        }
    }

    /// Returns the address of a page of the list, with these values.
    fn page_href(&self, here: &str, number: usize) -> String {
        let number = number.to_string();
        let parameters = [
            ("who", &self.who),
            ("app", &self.app),
            ("agent", &self.agent),
            ("ask", &self.question),
            ("show", &self.show),
            ("search", &self.search),
            ("page", &number),
        ];
        let given = parameters.iter().filter(|(_, value)| !value.is_empty());
        let given: Vec<_> = given.map(|(name, value)| (*name, value.as_str())).collect();
        with_query(here, &given)
    }
}

/// Returns the message about an unreadable release, if the owner can do something about it, and
/// otherwise the error.
fn unreadable_release_message(error: ShelfError) -> Result<&'static str, ErrorPage> {
    match error {
        ShelfError::ReleaseAwaited => Ok(
            "The current release is no longer valid: a key that signed it was revoked, or an earlier version of vault published it. Sign a new release with: vault sync",
        ),
        ShelfError::SubscriptionLapsed => Ok(
            "The subscription of this vault has lapsed, so the content of its skills is not shown.",
        ),
        error => Err(shelf_refusal(error).into()),
    }
}

/// `GET /console/{slug}/skills`: shows the skills as the viewer sees them whom the query parameters
/// `who`, `app` and `agent` name.
pub(super) async fn show_skills(page: ConsolePage) -> Result<Response, ErrorPage> {
    let (app, namespace) = (page.app(), &page.namespace);
    let query = SkillsQuery::from_query(&page);
    let (snapshot, problem) = match open_shelf(&page).take_snapshot().await {
        Ok(snapshot) => (snapshot, None),
        Err(error) => (Arc::default(), Some(unreadable_release_message(error)?)),
    };
    let mut users = offered_users(app, namespace).await?;
    let connections = offered_apps(app, namespace, &query.app).await?;
    let left_out = left_out(users.more, connections.more);
    let mut clients = connections.items.iter().map(|one| &one.client);
    let client = clients.find(|one| one.as_str() == query.app).cloned();
    let chosen_app = client.is_some();
    let viewer = find_viewer(app, namespace, &query.who, client, &users.items).await?;
    let app_has_no_effect = chosen_app && !viewer.is_filtered();
    offer_viewer(&mut users.items, &viewer);
    let policy = compiled_policy(&page.cache, &snapshot);
    let entries = snapshot.entries().iter();
    let named_agents: BTreeSet<&AgentId> = entries.flat_map(|entry| &entry.texts.agents).collect();
    let agent = choose_agent(&query.agent, &named_agents);
    let agents = agent_options(&named_agents, &agent);
    let question = query.question.clone();
    // Expressions of the policy and a search through all texts may take long, so they run on a
    // blocking thread.
    let (filter, search) = (
        SkillFilter::from_word(&query.show),
        query.search.to_lowercase(),
    );
    let deciding = tokio::task::spawn_blocking(move || {
        let question = Some(question.as_str()).filter(|question| !question.is_empty());
        let visibility = Visibility::new(policy, &viewer, agent, question);
        let entries = snapshot.entries().iter().enumerate();
        let passing = entries
            .filter(|(_, entry)| {
                matches_search(entry, &search)
                    && filter.matches_exposure(visibility.skill_exposure(entry))
            })
            .map(|(at, _)| at);
        let passing: Vec<usize> = passing.collect();
        (visibility, passing, snapshot)
    });
    let (visibility, passing, snapshot) = deciding.await.map_err(|ended| task_failed(&ended))?;
    let here = page.address("/skills");
    let pager = Pager::from_query(&page, "skills", passing.len(), |number| {
        query.page_href(&here, number)
    });
    let page_positions = pager.take_rows(passing).into_iter();
    let entries = page_positions.filter_map(|at| snapshot.entries().get(at));
    let rows = entries
        .map(|entry| to_row(entry, &here, &visibility))
        .collect();
    let filters = SkillFilter::ALL
        .iter()
        .map(|(choice, word, title)| StaticOption {
            word,
            title,
            chosen: *choice == filter,
        });
    let template = SkillsPage {
        shell: PageLayout::for_page(&page),
        problem,
        viewers: viewer_options(&users.items, &query.who),
        apps: app_options(&connections.items, &query.app),
        left_out,
        people_href: page.address("/people"),
        app_has_no_effect,
        agents,
        filters: filters.collect(),
        is_chosen: !query.who.is_empty(),
        question: query.question,
        search: query.search,
        reasons: visibility.reasons,
        nothing_published: namespace.current.is_none(),
        hosted: namespace.kind == Kind::Hosted,
        rows,
        pager,
        here,
    };
    Ok(show_page(&template))
}

/// Adds the chosen person to the options, or the form would choose another viewer when it is sent
/// again.
fn offer_viewer(offered: &mut Vec<User>, viewer: &Viewer) {
    if let Viewer::Person { user, .. } = viewer
        && !offered.iter().any(|one| one.id == user.id)
    {
        offered.push(User::clone(user));
    }
}

/// Returns the agent that the field `agent` chooses.
fn choose_agent(word: &str, named_agents: &BTreeSet<&AgentId>) -> ChosenAgent {
    // An id that no skill names counts as another agent; a text that is no id counts as no choice.
    match word.parse::<AgentId>() {
        Ok(agent) if named_agents.contains(&agent) => ChosenAgent::Named(agent),
        Err(_) if word != OTHER_AGENT => ChosenAgent::Any,
        _ => ChosenAgent::Other,
    }
}

/// Returns the compiled policy of a release, from the cache if it is there.
fn compiled_policy(cache: &Cache, snapshot: &Snapshot) -> CompiledPolicy {
    let (Some(policy), Some(hash)) = (&snapshot.policy, snapshot.policy_sha256) else {
        return CompiledPolicy::absent();
    };
    if let Some(compiled) = cache.policies.find(&hash) {
        return compiled;
    }
    // A policy that does not compile grants nothing, here as for the tools.
    let compiled = CompiledPolicy::new((**policy).clone());
    let compiled = compiled.unwrap_or_else(|_| CompiledPolicy::absent());
    let size = 16 * policy.to_object().len();
    cache.policies.insert_value(hash, compiled.clone(), size);
    compiled
}

struct FirstRecords<T> {
    items: Vec<T>,
    /// Whether the partition has more records than were read.
    more: bool,
}

async fn read_first<T: DeserializeOwned>(
    app: &App,
    partition: &str,
) -> Result<FirstRecords<T>, StoreError> {
    let mut records = app
        .records
        .list_page(partition, "", None, MOST_OFFERED + 1)
        .await?;
    let more = records.len() > MOST_OFFERED;
    records.truncate(MOST_OFFERED);
    let items = records.iter().map(Record::read).collect::<Result<_, _>>()?;
    Ok(FirstRecords { items, more })
}

/// Reads the first users of the vault, leaves out those who have not accepted, and sorts the others
/// by e-mail address.
async fn offered_users(app: &App, namespace: &Namespace) -> Result<FirstRecords<User>, StoreError> {
    let mut users: FirstRecords<User> = read_first(app, &users_partition(&namespace.id)).await?;
    users.items.retain(|user| user.state() == State::Active);
    users.items.sort_by_key(|user| user.email.to_string());
    Ok(users)
}

/// Reads the first apps that are connected to the vault, and also the chosen one.
async fn offered_apps(
    app: &App,
    namespace: &Namespace,
    chosen: &str,
) -> Result<FirstRecords<Connection>, StoreError> {
    let partition = connections_partition(&namespace.id);
    let mut connections: FirstRecords<Connection> = read_first(app, &partition).await?;
    let is_chosen = |one: &Connection| one.client.as_str() == chosen;
    // A chosen app beyond the first ones is added, so that the field keeps the choice.
    if let Ok(client) = ClientId::try_from(chosen.to_owned())
        && !connections.items.iter().any(is_chosen)
        && let Some(connection) = app
            .records
            .get_one(&connection_key(&namespace.id, &client))
            .await?
    {
        connections.items.push(connection.read()?);
    }
    let connected = |connection: &Connection| connection.revoked_at.is_none();
    connections.items.retain(connected);
    Ok(connections)
}

/// Returns the sentence about options that the fields leave out.
fn left_out(more_people: bool, more_apps: bool) -> Option<String> {
    let what = match (more_people, more_apps) {
        (false, false) => return None,
        (true, false) => "people",
        (false, true) => "apps",
        (true, true) => "people and apps",
    };
    Some(format!(
        "The fields offer only the first {MOST_OFFERED} {what} of this vault."
    ))
}

/// Returns the viewer that the fields choose. Fails if the chosen person is not in the vault.
async fn find_viewer(
    app: &App,
    namespace: &Namespace,
    who: &str,
    client: Option<ClientId>,
    users: &[User],
) -> Result<Viewer, ErrorPage> {
    if who.is_empty() {
        return Ok(Viewer::Owner);
    }
    if who == MACHINE {
        return Ok(Viewer::Machine);
    }
    let user = match users.iter().find(|user| user.id == who) {
        Some(user) => user.clone(),
        // Only a well-formed user id may become part of a record's key.
        None if is_user_id(who) => {
            let user_record = app.records.get_one(&user_key(&namespace.id, who)).await?;
            user_record.ok_or(ErrorPage::NotFound)?.read()?
        }
        None => return Err(ErrorPage::NotFound),
    };
    Ok(Viewer::Person {
        user: Box::new(user),
        app: client,
    })
}

/// Returns the options of the field `who`.
fn viewer_options(users: &[User], chosen: &str) -> Vec<DynamicOption> {
    let fixed = [("", "An owner"), (MACHINE, "An admitted machine")];
    let fixed = fixed
        .iter()
        .map(|(word, title)| ((*word).to_owned(), (*title).to_owned()));
    let people = users
        .iter()
        .map(|user| (user.id.clone(), user.email.to_string()));
    let offers = fixed.chain(people).map(|(word, title)| DynamicOption {
        chosen: word == chosen,
        word,
        title,
    });
    offers.collect()
}

/// Returns the options of the field `app`.
fn app_options(connections: &[Connection], chosen: &str) -> Vec<DynamicOption> {
    let any = (String::new(), "Any app".to_owned());
    let connected = connections.iter().map(|connection| {
        let id = connection.client.to_string();
        let name = connection.name.clone();
        (id.clone(), name.unwrap_or(id))
    });
    let offers = std::iter::once(any).chain(connected);
    offers
        .map(|(word, title)| DynamicOption {
            chosen: word == chosen,
            word,
            title,
        })
        .collect()
}

/// Returns the options of the field `agent`: the agents that some skill names, and any other. Empty
/// if all skills are for every agent.
fn agent_options(named: &BTreeSet<&AgentId>, chosen: &ChosenAgent) -> Vec<DynamicOption> {
    if named.is_empty() {
        return Vec::new();
    }
    let offer = |word: &str, title: &str, agent: &ChosenAgent| DynamicOption {
        word: word.to_owned(),
        title: title.to_owned(),
        chosen: agent == chosen,
    };
    let any = offer("", "Any agent", &ChosenAgent::Any);
    let other = offer(OTHER_AGENT, "Another agent", &ChosenAgent::Other);
    let named = named.iter().take(MAX_AGENTS);
    let named = named.map(|agent| {
        let id = agent.as_str();
        offer(id, id, &ChosenAgent::Named((*agent).clone()))
    });
    std::iter::once(any).chain(named).chain([other]).collect()
}

/// Whether a skill has the text `search`, which is in lower case, in its name, description or tags.
fn matches_search(entry: &Entry, search: &str) -> bool {
    let texts = &entry.texts;
    search.is_empty()
        || entry.name().as_str().contains(search)
        || texts.description.to_lowercase().contains(search)
        || texts
            .tags
            .iter()
            .any(|tag| tag.to_lowercase().contains(search))
}

fn to_row(entry: &Entry, here: &str, visibility: &Visibility) -> SkillRow {
    SkillRow {
        href: format!("{here}/{}", entry.name()),
        name: entry.name().to_string(),
        description: excerpt(&entry.texts.description, DESCRIPTION_CHARS),
        tags: printable(&entry.texts.tags.join(", ")),
        exposure: visibility.skill_exposure(entry),
        reason: visibility.explain_exposure(entry),
    }
}

/// Returns the beginning of a text of a skill, with invisible characters written as escapes.
pub(super) fn excerpt(text: &str, chars: usize) -> String {
    // Cut before the characters are escaped, so that no escape is cut.
    let mut beginning = printable(&text.chars().take(chars).collect::<String>());
    if text.chars().nth(chars).is_some() {
        beginning.push('…');
    }
    beginning
}
