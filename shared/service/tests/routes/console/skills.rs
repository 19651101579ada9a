//! Skills: who sees which and why, and what a page shows of one.

use std::net::IpAddr;
use std::sync::Arc;

use vault_format::catalog::{Catalog, ProfileEntry, ReleaseRef, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::manifest::Mode;
use vault_gate::RawFile;
use vault_policy::Policy;
use vault_policy::profile::Profile;
use vault_service::App;
use vault_service::model::namespace::Namespace;
use vault_service::model::user::{Role, Scopes};
use vault_service::shelf::Shelves;
use vault_shelf::{Change, Drift, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes};
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey, Objects as _};
use vault_testing::memory::hooked::{Call, Hook, Hooked};
use vault_testing::memory::shelf::MemoryShelf;

use crate::admin::{ADA, BOB, CY, Desk, EVE, desk, empty_desk, reference};
use crate::common::{self, PASSWORD, Reply, Visitor};
use crate::support::{file_of, read_file, vector, vector_key};
use crate::team::Team;

use super::{MAX_PAGE_BYTES, at};

const LIST: &str = "/console/acme/skills";

const POLICY: &str = r#"
default_profile = "team"
[profiles.team]
groups = ["docs"]
[groups.docs]
skills = ["tag:docs"]
[groups.money]
skills = ["payroll"]
[groups.rare]
skills = ["on-call"]
[[rules]]
when = "outage"
add_groups = ["rare"]
"#;

/// A service that reads every vault from one shelf.
struct OneShelf(Arc<dyn Shelf>);

impl Shelves for OneShelf {
    fn shelf(&self, _: &App, _: &Namespace, _: Option<IpAddr>) -> Arc<dyn Shelf> {
        Arc::clone(&self.0)
    }
}

/// The desk's service over this shelf, with Ada signed in.
async fn over(desk: &Desk, shelf: Arc<dyn Shelf>) -> (App, Option<String>) {
    let app = desk
        .world
        .app
        .clone()
        .with_shelves(Arc::new(OneShelf(shelf)));
    let mut ada = Visitor::new(&app);
    let page = ada.get(LIST).await;
    ada.log_in(&page, ADA, PASSWORD).await;
    let cookie = ada.cookie.clone();
    (app, cookie)
}

fn visitor(app: &App, cookie: Option<String>) -> Visitor<'_> {
    Visitor {
        cookie,
        ..Visitor::new(app)
    }
}

/// What a list says of each skill: name, mark, reason.
fn rows(page: &Reply) -> Vec<(String, String, String)> {
    let between = |text: &str, start: &str, end: &str| {
        let rest = text.split(start).nth(1).unwrap();
        rest.split(end).next().unwrap().to_owned()
    };
    let rows = page.body.split("scope=\"row\">").skip(1);
    rows.map(|row| {
        (
            between(row, "\">", "</a>"),
            between(row, "<span class=\"tag ", "</span>")
                .split_once('>')
                .unwrap()
                .1
                .to_owned(),
            between(row, "data-label=\"Why\"><bdi>", "</bdi>"),
        )
    })
    .collect()
}

fn row(name: &str, mark: &str, reason: &str) -> (String, String, String) {
    (name.to_owned(), mark.to_owned(), reason.to_owned())
}

#[tokio::test]
async fn the_list_says_who_sees_which_skill_and_why() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::READ).await;
    let other = reference(&desk.other);
    let eve = common::member(&desk.world.app, EVE, &other, Role::Member, Scopes::READ).await;
    let shelf = MemoryShelf::new("acme", Writes::Signed);
    for (name, tag) in [
        ("notes", "docs"),
        ("payroll", "secret"),
        ("on-call", "secret"),
    ] {
        shelf.put_text(name, "Does it", &[tag], &[]).unwrap();
    }
    shelf.set_policy(Some(Policy::from_toml(POLICY).unwrap()));
    let (app, cookie) = over(&desk, Arc::new(shelf)).await;
    let mut ada = visitor(&app, cookie);
    let page = ada.get(LIST).await;
    assert_eq!(rows(&page).len(), 3);
    assert!(rows(&page).iter().all(|row| row.1 == "shown"));
    assert!(
        page.body
            .contains(&format!("<option value=\"{}\">{BOB}", bob.id))
    );
    assert!(!page.body.contains(EVE), "a person of another vault");
    let page = ada.get(&format!("{LIST}?who={}", bob.id)).await;
    assert_eq!(
        rows(&page),
        [
            row("notes", "shown", "Granted by the group docs."),
            row(
                "on-call",
                "on request",
                "In no list. It can be fetched by its name, and a question that matches a rule finds it: granted by the group rare."
            ),
            row(
                "payroll",
                "not shown",
                "This person does not get the group money."
            ),
        ]
    );
    assert!(
        page.body.contains("the default profile is"),
        "{}",
        page.body
    );
    let asks = ada
        .get(&format!("{LIST}?who={}&ask=an+outage", bob.id))
        .await;
    assert_eq!(rows(&asks)[1].1, "shown");
    let hidden = ada.get(&format!("{LIST}?who={}&show=hidden", bob.id)).await;
    assert_eq!(rows(&hidden).len(), 2);
    let found = ada.get(&format!("{LIST}?search=PAYROLL")).await;
    assert_eq!(rows(&found).len(), 1);
    // For a person without the right to read, the policy is not the cause.
    let cy = common::member(&desk.world.app, CY, &acme, Role::Member, Scopes::NONE).await;
    let page = ada.get(&format!("{LIST}?who={}", cy.id)).await;
    for row in rows(&page) {
        assert_eq!(
            (&*row.1, &*row.2),
            ("not shown", "This person has no right to read.")
        );
    }
    let machine = ada.get(&format!("{LIST}?who=machine")).await;
    assert!(rows(&machine).iter().all(|row| row.1 == "shown"));
    assert!(machine.body.contains("does not apply to machines"));
    for who in [
        eve.id.as_str(),
        "usr_x",
        "nobody",
        "usr_00000000000000000000000000",
    ] {
        let page = ada.get(&format!("{LIST}?who={who}")).await;
        assert_eq!(page.status, 404, "{who}");
    }
}

/// The text of the chosen option of a field.
fn chosen<'r>(page: &'r Reply, field: &str) -> &'r str {
    let options = page.body.split(&format!("<select id=\"{field}\"")).nth(1);
    let options = options.unwrap().split("</select>").next().unwrap();
    let text = options.split(" selected>").nth(1).unwrap_or_default();
    text.split('<').next().unwrap()
}

#[tokio::test]
async fn a_chosen_app_without_effect_is_named() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    let app = &desk.world.app;
    let bob = common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let held = common::tokens(app, (BOB, PASSWORD), "acme", Scopes::ALL).await;
    let (mut ada, _) = at(&desk, ADA, LIST).await;
    let note = "The app has no effect on this list";
    for (who, is_noted) in [("", true), ("machine", true), (&*bob.id, false)] {
        let path = format!("{LIST}?who={who}&app={}", held.client);
        let page = ada.get(&path).await;
        assert_eq!(page.body.contains(note), is_noted, "{who}: {}", page.body);
        assert!(!chosen(&page, "app").is_empty(), "{who}");
    }
    let page = ada.get(LIST).await;
    assert!(!page.body.contains(note), "{}", page.body);
}

#[tokio::test]
async fn a_person_behind_the_first_hundred_can_be_chosen() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    let app = &desk.world.app;
    let mut last = String::new();
    for number in 0..101 {
        let email = format!("person-{number}@example.org");
        let user = common::listed_user(app, &email, &acme, Scopes::READ);
        last = last.max(user.id.clone());
        common::commit(app, user.creation_writes().unwrap()).await;
    }
    let (mut ada, page) = at(&desk, ADA, LIST).await;
    let cut = "The fields offer only the first 100 people of this vault.";
    assert!(page.body.contains(cut), "{}", page.body);
    let person = ada.get(&format!("/console/acme/people/{last}")).await;
    let link = format!("{LIST}?who={last}");
    assert!(person.body.contains(&link), "{}", person.body);
    let page = ada.get(&link).await;
    assert_eq!(
        chosen(&page, "who"),
        person.heading().replace("<bdi>", "").replace("</bdi>", "")
    );
}

/// A shelf of entries whose content nobody reads.
struct Listing(Arc<Snapshot>);

#[async_trait::async_trait]
impl Shelf for Listing {
    fn owner_name(&self) -> &'static str {
        "acme"
    }

    fn write_mode(&self) -> Writes {
        Writes::Elsewhere
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        Ok(Arc::clone(&self.0))
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        Err(ShelfError::Unavailable(entry.name().clone()))
    }

    async fn submit(
        &self,
        _: &vault_format::draft::Submitter,
        _: Change,
    ) -> Result<Submitted, ShelfError> {
        Err(ShelfError::LibraryElsewhere)
    }

    async fn drift(&self, _: &[&Entry], _: bool) -> Result<Vec<Drift>, ShelfError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn the_list_says_why_an_agent_does_not_get_a_skill() {
    let desk = empty_desk().await;
    let entry = |name: &str, agents: &[&str]| Entry {
        texts: IndexEntry {
            name: name.parse().unwrap(),
            bundle_hash: Digest::of(name.as_bytes()),
            description: String::new(),
            tags: Vec::new(),
            categories: Vec::new(),
            when_to_use: String::new(),
            agents: agents.iter().map(|agent| agent.parse().unwrap()).collect(),
            actions: Vec::new(),
        },
        version: 1,
        size: 1,
        vault: None,
    };
    let entries = [entry("for-all", &[]), entry("for-some", &["codex"])];
    let shelf = Listing(Arc::new(Snapshot::new(entries)));
    let (app, cookie) = over(&desk, Arc::new(shelf)).await;
    let mut ada = visitor(&app, cookie);
    let hidden = ("not shown", "It is only meant for codex.");
    let everybody = ("shown", "The policy does not apply.");
    for (query, chosen, standing) in [
        ("", "Any agent", everybody),
        ("&agent=codex", "codex", everybody),
        // What no skill names can be chosen as well: the list would not offer it by its id.
        ("&agent=*", "Another agent", hidden),
        ("&agent=claude-code", "Another agent", hidden),
    ] {
        let page = ada.get(&format!("{LIST}?who=machine{query}")).await;
        let (mark, reason) = standing;
        let (mark_of_all, reason_of_all) = everybody;
        assert_eq!(
            rows(&page),
            [
                row("for-all", mark_of_all, reason_of_all),
                row("for-some", mark, reason)
            ],
            "{query}"
        );
        let offers = page.body.split("id=\"agent\"").nth(1).unwrap();
        let offers = offers.split("</select>").next().unwrap();
        assert_eq!(offers.matches("<option").count(), 3, "{query}");
        let selected = offers.split(" selected>").nth(1).unwrap_or_default();
        assert_eq!(selected.split('<').next(), Some(chosen), "{query}");
    }
}

#[tokio::test]
async fn ten_thousand_skills_are_listed_in_small_pages() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::READ).await;
    let entries = (0..10_000_u32).map(|n| Entry {
        texts: IndexEntry {
            name: format!("skill-{n:04}-{}", "w".repeat(53)).parse().unwrap(),
            bundle_hash: Digest::of(&n.to_be_bytes()),
            description: format!("<b>{}", "&".repeat(1000)),
            tags: vec![if n % 2 == 0 { "docs" } else { "other" }.to_owned()],
            categories: Vec::new(),
            when_to_use: String::new(),
            agents: Vec::new(),
            actions: Vec::new(),
        },
        version: 1,
        size: 1,
        vault: None,
    });
    let policy = Policy::from_toml(POLICY).unwrap();
    let snapshot = Snapshot::new(entries).with_policy(Some(Arc::new(policy)));
    let (app, cookie) = over(&desk, Arc::new(Listing(Arc::new(snapshot)))).await;
    let mut ada = visitor(&app, cookie);
    for query in [
        String::new(),
        format!("?who={}&ask=an+outage", bob.id),
        format!("?who={}&search=skill&page=77", bob.id),
    ] {
        let page = ada.get(&format!("{LIST}{query}")).await;
        assert_eq!(rows(&page).len(), 50, "{query}");
        assert!(
            page.body.len() < MAX_PAGE_BYTES,
            "{query}: {}",
            page.body.len()
        );
        assert!(page.body.contains("of 10000 skills"));
    }
    let shown = ada.get(&format!("{LIST}?who={}&show=shown", bob.id)).await;
    assert!(shown.body.contains("1–50 of 5000 skills"));
}

#[tokio::test]
async fn a_skill_is_shown_as_text_with_its_signer_and_history() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let body = "<script>alert(1)</script> & <b>bold</b> \"'";
    let first = team.skill("code-review", "Read it.");
    team.publish(&desk.world, &[first]).await;
    let second = team.skill("code-review", body);
    let other = team.skill("notes", "Take notes.");
    team.publish(&desk.world, &[second.clone(), other.clone()])
        .await;
    team.publish(&desk.world, &[second, other]).await;
    let path = format!("{LIST}/code-review");
    let (mut ada, page) = at(&desk, ADA, &path).await;
    assert_eq!(page.page(), "200 code-review", "{}", page.body);
    assert!(!page.body.contains("<script"));
    assert!(
        page.body
            .contains("&#60;script&#62;alert(1)&#60;/script&#62;")
    );
    let key = team.key(0).public();
    let fingerprint = vault_format::root::KeyFingerprint::publisher(&key).to_string();
    assert!(page.body.contains(&fingerprint), "{}", page.body);
    let name = vault_format::root::KeyName::default_for(&key);
    assert!(page.body.contains(name.as_str()));
    assert!(page.body.contains("Release 2 ("), "{}", page.body);
    assert!(
        !page.body.contains("Release 3 ("),
        "it did not change again"
    );
    let file = ada.get(&format!("{path}?file=SKILL.md")).await;
    assert_eq!(file.status, 200);
    for below in [
        "/code-review?file=nothing.txt",
        "/code-review?file=../SKILL.md",
        "/nothing",
        "/Not-A-Name!",
    ] {
        let page = ada.get(&format!("{LIST}{below}")).await;
        assert_eq!(page.status, 404, "{below}");
    }
}

/// The rows about agents on the page of a skill: agent, what it gets, SHA-256.
fn agent_rows(page: &Reply) -> Vec<[String; 3]> {
    let table = page.body.split("what they get of this skill").nth(1);
    let table = table.unwrap_or_else(|| panic!("{}", page.body));
    let rows = table.split("</table>").next().unwrap();
    let rows = rows.split("scope=\"row\">").skip(1);
    rows.map(|row| {
        let mut cells = row.split('>').filter_map(|cell| cell.split_once("</t"));
        [(); 3].map(|()| cells.next().unwrap().0.to_owned())
    })
    .collect()
}

#[tokio::test]
async fn the_page_of_a_skill_says_what_each_agent_gets() {
    let plain = "f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703";
    let variant = "92799e0874198a739b8c8b89de79709191cd65e8e2457f99b8414d38a74e2cec";
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    desk.world.clock.advance(3600);
    let bytes = vector("catalog-43-rotated.json");
    desk.world.publish("acme", bytes).await.unwrap();
    let (mut ada, page) = at(&desk, ADA, &format!("{LIST}/code-review")).await;
    assert_eq!(page.page(), "200 code-review", "{}", page.body);
    let row = |agent: &str, gets: &str, hash: &str| [agent, gets, hash].map(str::to_owned);
    let expected = [
        row("claude-code", "a variant", variant),
        row("every other agent", "the skill as it is", plain),
    ];
    assert_eq!(agent_rows(&page), expected);
    // The next release has a profile that leaves out the skill.
    let bytes = vector("catalog-43-rotated.json");
    let (catalog, chain) = read_file(&bytes);
    let payload_sha256 = SignedCatalog::parse(&bytes).unwrap().payload_sha256();
    let profile = Profile {
        name: "next".to_owned(),
        agent: "codex".parse().unwrap(),
        skills: Vec::new(),
    };
    let size = profile.to_object().len() as u64;
    let put = desk
        .world
        .put_object(&desk.acme, Class::Bundles, profile.to_object());
    let bundle_hash = put.await;
    let next = Catalog {
        release: 44,
        previous: Some(ReleaseRef {
            release: 43,
            payload_sha256,
        }),
        profiles: vec![ProfileEntry {
            name: profile.name,
            agent: profile.agent,
            bundle_hash,
            size,
        }],
        ..catalog.clone()
    };
    let bytes = file_of(&next, &chain, &vector_key("release 1"));
    desk.world.publish("acme", bytes).await.unwrap();
    let page = ada.get(&format!("{LIST}/code-review")).await;
    let expected = [
        row("codex", "not this skill", ""),
        row("every other agent", "the skill as it is", plain),
    ];
    assert_eq!(agent_rows(&page), expected);
    // Without its profiles, nothing is said about the release.
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    desk.world.clock.advance(3600);
    let bytes = vector("catalog-43-rotated.json");
    desk.world.publish("acme", bytes).await.unwrap();
    let profile = catalog.profiles[0].bundle_hash;
    let key = desk.acme.object_key(Class::Bundles, profile);
    desk.world.memory.delete_object(&key).await.unwrap();
    let (_, page) = at(&desk, ADA, &format!("{LIST}/code-review")).await;
    assert!(page.body.contains("profiles of this release are damaged"));
    assert!(!page.body.contains("every other agent"));
    // A vault without profiles.
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let skill = team.skill("notes", "Take notes.");
    team.publish(&desk.world, &[skill]).await;
    let (_, page) = at(&desk, ADA, &format!("{LIST}/notes")).await;
    let [only] = &agent_rows(&page)[..] else {
        panic!("{}", page.body)
    };
    assert_eq!(only[..2], ["every agent", "the skill as it is"]);
}

#[tokio::test]
async fn a_skill_with_very_many_agents_still_says_what_all_others_get() {
    let desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    desk.world.clock.advance(3600);
    let bytes = vector("catalog-43-rotated.json");
    let (catalog, chain) = read_file(&bytes);
    let mut profiles = Vec::new();
    for number in 0..203 {
        let profile = Profile {
            name: format!("p{number}"),
            agent: format!("agent-{number:03}").parse().unwrap(),
            skills: Vec::new(),
        };
        let object = profile.to_object();
        let size = object.len() as u64;
        let put = desk.world.put_object(&desk.acme, Class::Bundles, object);
        profiles.push(ProfileEntry {
            name: profile.name,
            agent: profile.agent,
            bundle_hash: put.await,
            size,
        });
    }
    profiles.sort_by(|a, b| a.agent.cmp(&b.agent));
    let many = Catalog {
        profiles,
        ..catalog
    };
    let bytes = file_of(&many, &chain, &vector_key("release 1"));
    desk.world.publish("acme", bytes).await.unwrap();
    let (_, page) = at(&desk, ADA, &format!("{LIST}/code-review")).await;
    let rows = agent_rows(&page);
    assert_eq!(rows.len(), 201);
    assert_eq!(rows[199][..2], ["agent-199", "not this skill"]);
    assert_eq!(rows[200][..2], ["every other agent", "the skill as it is"]);
    assert!(page.body.contains("3 more agents"), "{}", page.body);
}

#[tokio::test]
async fn the_agents_of_a_version_in_the_library_are_not_said_of_the_release() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let skill = team.skill("notes", "Take notes.");
    team.publish(&desk.world, &[skill]).await;
    // The library has a later version, which is for one agent.
    let shelf = MemoryShelf::new("acme", Writes::Signed);
    let text =
        "---\nname: notes\ndescription: Takes notes for whoever asks\nagents: [codex]\n---\nNew.\n";
    let file = RawFile {
        path: "SKILL.md".to_owned(),
        mode: Mode::Plain,
        bytes: text.into(),
    };
    let entry = shelf.put(vec![file], &"local:notes".parse().unwrap());
    assert_eq!(entry.unwrap().texts.agents.len(), 1);
    let (app, cookie) = over(&desk, Arc::new(shelf)).await;
    let page = visitor(&app, cookie).get(&format!("{LIST}/notes")).await;
    let [only] = &agent_rows(&page)[..] else {
        panic!("{}", page.body)
    };
    assert_eq!(only[..2], ["every agent", "the skill as it is"]);
}

/// Lets each read of this object fail.
struct Unreadable(ObjectKey);

#[async_trait::async_trait]
impl Hook for Unreadable {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        match call {
            Call::Get(key) if *key == self.0 => Err(StoreError::Unavailable("test".into())),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn profiles_that_cannot_be_read_leave_the_rest_of_the_page() {
    let mut desk = empty_desk().await;
    desk.world.put_vectors(&desk.acme).await;
    desk.world.clock.advance(3600);
    let bytes = vector("catalog-43-rotated.json");
    let profile = read_file(&bytes).0.profiles[0].bundle_hash;
    desk.world.publish("acme", bytes).await.unwrap();
    let hook = Unreadable(desk.acme.object_key(Class::Bundles, profile));
    desk.world.app.ports.objects = Hooked::new(&desk.world.memory, Arc::new(hook));
    let (_, page) = at(&desk, ADA, &format!("{LIST}/code-review")).await;
    assert_eq!(page.page(), "200 code-review", "{}", page.body);
    let problem = "profiles of this release cannot be read at the moment";
    assert!(page.body.contains(problem), "{}", page.body);
    assert!(page.body.contains("<dt>Signed by</dt>"), "{}", page.body);
    assert!(!page.body.contains("every other agent"));
}

#[tokio::test]
async fn before_the_first_release_the_pages_say_what_to_do() {
    let desk = empty_desk().await;
    let (mut ada, page) = at(&desk, ADA, LIST).await;
    assert!(page.body.contains("vault sync"), "{}", page.body);
    let overview = ada.get("/console/acme").await;
    assert!(overview.body.contains("Nothing is published yet."));
    let connect = "vault cloud connect https://vault.example/v/acme";
    assert!(overview.body.contains(connect), "{}", overview.body);
    let machines = ada.get("/console/acme/machines").await;
    assert!(
        machines
            .body
            .contains("vault link https://vault.example/v/acme")
    );
}

#[tokio::test]
async fn the_overview_says_what_waits_and_until_when_the_release_is_good() {
    let desk = desk().await;
    let (mut ada, page) = at(&desk, ADA, "/console/acme").await;
    assert!(page.body.contains("<strong>42</strong>"), "{}", page.body);
    assert!(page.body.contains("Nothing is waiting."));
    assert!(page.body.contains("days left"));
    desk.world
        .device(
            "acme",
            7,
            vault_service::model::device::DeviceStatus::Pending,
        )
        .await;
    let answer = crate::team::propose_skill(&desk.world, &desk.owner, "acme", "new-skill").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let page = ada.get("/console/acme").await;
    for text in ["1 machine asks for access", "1 draft of a skill"] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
}
