//! What happens when the bucket lost an object, an event comes twice, a setting is wrong, and when
//! the schedule calls for the first time.

use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_tests::home::Home;
use vault_tests::person::wait_for;
use vault_tests::server::{Database, Server};
use vault_tests::skills;

use crate::emulator::{Emulator, Invoked};
use crate::support::{self, SLUG, block_on, pulled, text};

/// A namespace of the deployment with one release of one skill.
struct World {
    server: Server,
    owner: Home,
    slug: String,
    id: String,
    emulator: Emulator,
}

/// Takes the time of the last request out of a user's record: a request writes it again after a
/// minute.
fn forget_last_seen(item: &mut Value) {
    let document = item["d"]["S"].as_str().unwrap_or_default();
    let Ok(mut document) = serde_json::from_str::<Value>(document) else {
        return;
    };
    let members = document.as_object_mut();
    if members.is_some_and(|members| members.remove("last_seen_at").is_some()) {
        item["d"]["S"] = document.to_string().into();
        item["r"] = Value::Null;
    }
}

/// The amounts that a namespace stores, without the revision (an upload of what is there is counted
/// and taken back) and without the members that a visit of the garbage collection changes.
fn stored_amounts(item: &Value) -> Value {
    let document = item["d"]["S"].as_str().unwrap();
    let usage: Value = serde_json::from_str(document).unwrap();
    assert!(usage["tally"].is_object(), "{document}");
    json!({"tally": usage["tally"], "beyond": usage["beyond"]})
}

/// The event of the schedule.
fn schedule() -> Value {
    serde_json::from_str(include_str!("../../functions/tests/events/schedule.json")).unwrap()
}

impl World {
    fn new() -> Self {
        let emulator = block_on(Emulator::new());
        let server = Server::start(&Database::Sqlite);
        let owner = Home::new();
        let files = [("SKILL.md", &skills::skill_md("plain", "Text.")[..])];
        owner.json(&["add", owner.skill("plain", &files).to_str().unwrap()]);
        support::connect(&server, &owner, SLUG);
        assert_eq!(owner.json(&["sync", "--cloud"])["release"], 1);
        let slug = support::slug(&server);
        let id = block_on(emulator.namespace_id(&slug));
        Self {
            server,
            owner,
            slug,
            id,
            emulator,
        }
    }

    /// Where an object of the namespace lies in the bucket.
    fn object(&self, class: &str, hash: &Digest) -> String {
        format!("ns/{}/{class}/{hash}", self.id)
    }

    /// The exact bytes of the current catalog, and the bundle that it names.
    fn current(&self) -> (Vec<u8>, Digest) {
        let mut history = block_on(support::history(&self.server, &self.owner, SLUG));
        assert_eq!(history.len(), 1);
        let (bytes, catalog) = history.remove(0);
        (bytes, catalog.skills[0].bundle_hash)
    }

    fn bearer(&self) -> String {
        let token = self.owner.access_token(&self.server.url, &self.slug);
        format!("Bearer {token}")
    }

    /// Everything of this namespace in the table, but for what counts calls, for the notes of
    /// uploads (each upload keeps its objects for seven days from then on), for what the audit
    /// holds of refusals, for sign-ins (the owner's account is that of the other tests too), and
    /// for the state of the garbage collection, which other tests run.
    fn records(&self) -> Value {
        let mut all = block_on(self.emulator.items(&self.slug));
        all.extend(block_on(self.emulator.items(&self.id)));
        all.retain(|(partition, _), item| {
            let is_done = || {
                let document = item["d"]["S"].as_str().unwrap_or_default();
                document.contains("\"outcome\":\"done\"")
                    && !document.contains("\"account.sign-in\"")
            };
            let is_note = partition.starts_with("limit") || partition.starts_with("kept/");
            !is_note && (!partition.starts_with("audit/") || is_done())
        });
        all.into_iter()
            .map(|((partition, key), mut item)| {
                forget_last_seen(&mut item);
                if partition.starts_with("stored/") {
                    item = stored_amounts(&item);
                }
                (format!("{partition} | {key}"), item)
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// Calls as the schedule does until `done` finds something. A step has ten seconds, and other
    /// tests make namespaces all the time, so a round takes some calls.
    fn work_until<T>(&self, done: impl Fn() -> Option<T>) -> T {
        wait_for(|| {
            let report = block_on(self.emulator.invoke("admin", &schedule()));
            assert!(!report.failed, "{report:?}");
            assert!(report.payload["namespaces"].is_u64(), "{report:?}");
            done()
        })
    }

    /// A machine with a key of the test's own that the owner admitted.
    fn admitted(&self, seed: u8) -> SecretKey {
        let device = SecretKey::from_seed([seed; 32]);
        let answer = block_on(self.emulator.invoke("devices", &self.enrolment(&device)));
        assert_eq!(answer.short(), "201");
        self.owner
            .json(&["devices", "admit", &text(&answer.body()["device_id"])]);
        device
    }

    fn enrolment(&self, device: &SecretKey) -> Value {
        let path = format!("/v/{}/devices", self.slug);
        let body = json!({"public_key": device.public(), "hostname": "laptop"}).to_string();
        self.emulator.signed(device, "POST", &path, &body)
    }
}

#[test]
#[ignore = "only ./tests/run --aws deploys the functions"]
fn an_object_that_is_gone_is_503_until_it_is_back() {
    let world = World::new();
    let machine = Home::new();
    support::link(&world.server, &world.owner, &machine, SLUG);
    let (catalog, bundle) = world.current();

    let key = world.object("bundles", &bundle);
    let bytes = block_on(world.emulator.take_object(&key));
    let refused = machine.refused(&["cloud", "pull"], 7);
    assert_eq!(refused.code, "bundle_unavailable", "{refused:?}");
    assert!(pulled(&machine).is_empty(), "nothing is installed by half");
    // The owner is told the same, and is no way around it: the release stands.
    assert_eq!(world.owner.json(&["sync", "--cloud"])["changed"], false);
    block_on(world.emulator.put_object(&key, bytes));

    assert_eq!(machine.json(&["cloud", "pull"])["release"], 1);
    assert_eq!(pulled(&machine).len(), 1);

    // The catalog itself: a machine that holds its bytes asks for no more, so it is asked for here.
    let device = world.admitted(5);
    let path = format!("/v/{}/catalog.json", world.slug);
    let read = || {
        let event = world.emulator.signed(&device, "GET", &path, "");
        block_on(world.emulator.invoke("catalog", &event)).short()
    };
    let key = world.object("catalogs", &Digest::of(&catalog));
    let bytes = block_on(world.emulator.take_object(&key));
    assert_eq!(read(), "503 unavailable", "never: nothing is published");
    block_on(world.emulator.put_object(&key, bytes));
    assert_eq!(read(), "200");
}

#[test]
#[ignore = "only ./tests/run --aws deploys the functions"]
fn an_event_that_comes_twice_changes_nothing_the_second_time() {
    let world = World::new();
    let (catalog, _) = world.current();
    let bearer = world.bearer();
    let path = |rest: &str| format!("/admin/vaults/{}/{rest}", world.slug);
    let exact = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/octet-stream"),
    ];
    let waiting = SecretKey::from_seed([7; 32]);
    let enrolment = world.enrolment(&waiting);
    let id = {
        let answer = block_on(world.emulator.invoke("devices", &enrolment));
        assert_eq!(answer.short(), "201");
        text(&answer.body()["device_id"])
    };
    let object = b"exact bytes\n";
    let object_path = path(&format!("objects/bundles/{}", Digest::of(object)));
    let first = [exact[0], exact[1], ("if-none-match", "*")];
    let plain = [exact[0], ("content-type", "application/json")];
    let event = |method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>| {
        world.emulator.event(method, path, headers, body)
    };
    for (what, group, event, expected) in [
        // Its first delivery is above; that of the catalog was `vault sync`.
        ("enrolment", "devices", enrolment, ["200", "200"]),
        (
            "object",
            "admin",
            event("PUT", &object_path, &exact, Some(object)),
            ["201", "200"],
        ),
        (
            "catalog",
            "admin",
            event("PUT", &path("catalog"), &first, Some(&catalog)),
            // It names the release that is current: its own.
            ["412 release_conflict", "412 release_conflict"],
        ),
        (
            "admission",
            "admin",
            event("POST", &path(&format!("devices/{id}/admit")), &plain, None),
            ["200", "200"],
        ),
        (
            "revocation",
            "admin",
            event("POST", &path(&format!("devices/{id}/revoke")), &plain, None),
            ["200", "200"],
        ),
    ] {
        let once = block_on(world.emulator.invoke(group, &event));
        assert_eq!(once.short(), expected[0], "{what}: {once:?}");
        let before = world.records();
        let twice = block_on(world.emulator.invoke(group, &event));
        assert_eq!(twice.short(), expected[1], "{what}: {twice:?}");
        let said = |invoked: &Invoked| {
            let mut body = invoked.body();
            body.as_object_mut().unwrap().remove("request_id");
            body
        };
        assert_eq!(said(&twice), said(&once), "{what}");
        if what == "catalog" {
            let current = json!(Digest::of(&catalog));
            assert_eq!(said(&twice)["current"]["sha256"], current);
        }
        assert_eq!(world.records(), before, "{what}");
    }
    let devices = world.owner.json(&["devices", "list"]);
    assert_eq!(devices.as_array().unwrap().len(), 1, "{devices}");
    world.current();
}

#[test]
#[ignore = "only ./tests/run --aws deploys the functions"]
fn a_wrong_setting_is_503_or_one_line_and_never_a_refusal_or_a_panic() {
    let world = World::new();
    let (_, bundle) = world.current();
    let device = world.admitted(9);
    let bearer = world.bearer();
    let table = json!({"VAULT_TABLE": "nowhere"});
    let bucket = json!({"VAULT_BUCKET": "nowhere"});
    let stranger = SecretKey::from_seed([11; 32]);
    let read = |rest: &str| {
        let path = format!("/v/{}/{rest}", world.slug);
        world.emulator.signed(&device, "GET", &path, "")
    };
    let owns = |method: &str, rest: &str, body: Option<&[u8]>| {
        let path = format!("/admin/vaults/{}{rest}", world.slug);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/octet-stream"),
        ];
        world.emulator.event(method, &path, &headers, body)
    };
    let object = format!("/objects/bundles/{}", Digest::of(b"x"));
    let rows = [
        (
            "devices",
            &table,
            vec![world.enrolment(&stranger), read("devices/current")],
        ),
        ("catalog", &table, vec![read("catalog.json")]),
        ("admin", &table, vec![owns("GET", "", None)]),
        (
            "catalog",
            &bucket,
            vec![
                read("catalog.json"),
                read(&format!("bundles/{bundle}.json")),
            ],
        ),
        (
            "admin",
            &bucket,
            vec![
                owns("GET", "/catalog", None),
                owns("PUT", &object, Some(b"x")),
            ],
        ),
    ];
    for (at, (group, change, events)) in rows.into_iter().enumerate() {
        let name = world.server.named(&format!("wrong{at}"));
        block_on(async {
            let function = world.emulator.twin(group, &name, change).await;
            for event in events {
                let answer = world.emulator.call(&function, &event).await;
                let what = format!("{group} {change} {}", event["rawPath"]);
                assert_eq!(answer.short(), "503 unavailable", "{what}");
                let wait = answer.payload["headers"]["retry-after"].as_str();
                assert!(
                    wait.is_some_and(|wait| wait.parse::<u32>().is_ok()),
                    "{what}"
                );
            }
        });
    }
    // Health is for whoever operates it: it says which part is wrong.
    let name = world.server.named("health");
    let health = world.emulator.event("GET", "/healthz", &[], None);
    block_on(async {
        let function = world.emulator.twin("admin", &name, &table).await;
        let answer = world.emulator.call(&function, &health).await;
        assert_eq!(answer.payload["statusCode"], 503, "{answer:?}");
    });
    // All at once: the emulator waits for such a function until its time is over.
    let missing = json!({"VAULT_TABLE": null, "VAULT_PUBLIC_URL": "http://vault.example"});
    std::thread::scope(|scope| {
        for group in ["oauth", "mcp", "admin", "devices", "catalog"] {
            let name = world.server.named(&format!("missing-{group}"));
            let (emulator, missing, health) = (&world.emulator, &missing, &health);
            scope.spawn(move || {
                let answer = block_on(async {
                    let function = emulator.twin(group, &name, missing).await;
                    emulator.call(&function, health).await
                });
                assert!(answer.failed, "{group}: {answer:?}");
                let told = answer.payload["errorMessage"].as_str().unwrap();
                let named = "VAULT_TABLE must be set; VAULT_PUBLIC_URL: ";
                assert!(told.contains(named), "{group}: {told}");
                assert_eq!(told.matches("\"level\"").count(), 1, "one line: {told}");
            });
        }
    });
    let log = world.emulator.log();
    assert!(!log.contains("panicked at"), "a panic is in the log");
}

#[test]
#[ignore = "only ./tests/run --aws deploys the functions"]
fn the_first_call_of_the_schedule_does_its_work() {
    let world = World::new();
    let (_, bundle) = world.current();
    let orphan = format!("nothing names this in {}\n", world.slug).into_bytes();
    let hash = Digest::of(&orphan);
    let key = world.object("bundles", &hash);
    block_on(world.emulator.put_object(&key, orphan.into()));
    // As if no call of the schedule had visited this namespace.
    block_on(world.emulator.delete_item("collected", &world.slug));
    let marks = format!("doomed/{}", world.id);
    let marked = world.work_until(|| {
        let marked = block_on(world.emulator.items(&marks));
        (!marked.is_empty()).then_some(marked)
    });
    let mut aged = marked.values().next().unwrap().clone();
    let marked: Vec<_> = marked.into_keys().map(|(_, key)| key).collect();
    assert_eq!(marked, [format!("bundles/{hash}")], "and nothing else");
    assert!(block_on(world.emulator.object(&key)).is_some(), "for a day");
    let kept = world.object("bundles", &bundle);
    assert!(block_on(world.emulator.object(&kept)).is_some());

    // A day later, in a new visit.
    let document = aged["d"]["S"].as_str().unwrap();
    let mut document: Value = serde_json::from_str(document).unwrap();
    assert!(document["doomed_at"].is_string(), "{document}");
    document["doomed_at"] = "2026-01-01T00:00:00Z".into();
    aged["d"]["S"] = document.to_string().into();
    block_on(world.emulator.put_item(aged));
    block_on(world.emulator.delete_item("collected", &world.slug));
    world.work_until(|| {
        block_on(world.emulator.object(&key))
            .is_none()
            .then_some(())
    });
    assert!(block_on(world.emulator.object(&kept)).is_some());

    // Nobody but the schedule has work done, and only by `admin`.
    for (group, event) in [
        ("devices", &schedule()),
        ("admin", &json!({"source": "aws.s3"})),
    ] {
        let answer = block_on(world.emulator.invoke(group, event));
        assert!(answer.failed, "{group}: {answer:?}");
    }
}

#[test]
#[ignore = "only ./tests/run --aws deploys the functions"]
fn the_schedule_mails_the_owners() {
    let world = World::new();
    world.owner.run("notices mail on").ok();
    let asked = world.enrolment(&SecretKey::from_seed([77; 32]));
    assert_eq!(
        block_on(world.emulator.invoke("devices", &asked)).short(),
        "201"
    );
    let is_ours = |mail: &String| mail.contains(&world.slug);
    let mail = world.work_until(|| world.emulator.mails().into_iter().find(is_ours));
    let begins = "X-From: vault@vault.example\r\nX-To: ";
    assert!(mail.starts_with(begins), "{mail}");
}
