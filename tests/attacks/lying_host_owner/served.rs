//! A vault that its server signs: an owner reviews what a source has, and the source has something
//! else when the server asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use vault_tests::app::App;
use vault_tests::browser::Browser;
use vault_tests::home::Home;
use vault_tests::host::{Answer, Host};
use vault_tests::person::{Answer as SignIn, OWNER, Person};
use vault_tests::place;
use vault_tests::server::{Database, Server};
use vault_tests::skills::skill_md;

use super::{ten, text};
use crate::support::{Dice, word};

const BOB: Person<'static> = Person {
    email: "bob@example.com",
    password: "correct horse battery staple 43",
    scopes: &["read", "write"],
};

struct Scene {
    server: Server,
    site: Host,
    owner: Home,
    app: App,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let site = Host::start();
        let settings = [
            ("VAULT_SOURCES_ALLOW_LOOPBACK", "true"),
            ("VAULT_REGISTRY_URL", &*site.url),
        ];
        let server = Server::start_with(&Database::Sqlite, &settings);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let owner = Home::new();
        std::fs::create_dir_all(owner.config()).unwrap();
        let settings = format!(
            "sources_allow_loopback = true\nregistry_url = \"{}\"\n",
            site.url
        );
        std::fs::write(owner.config().join("config.toml"), settings).unwrap();
        let connect = format!("cloud connect {}/v/default --json", server.url);
        owner.sign_in(&connect, OWNER, SignIn::Pasted).data();
        owner.json(&format!("users invite {} --scopes read,write", BOB.email));
        let invite = format!(
            "operator --url {} account invite {} --json",
            server.url, BOB.email
        );
        let link = text(&owner.sign_in(&invite, OWNER, SignIn::Pasted).data()["invite_url"]);
        let accepted = runtime.block_on(Browser::new().accept_invitation(&link, BOB.password));
        assert!(accepted.is_success());
        let app = runtime.block_on(App::sign_in(&server.url, BOB));
        Self {
            server,
            site,
            owner,
            app,
            runtime,
        }
    }

    fn call(&self, app: &App, tool: &str, arguments: &Value) -> Value {
        self.runtime.block_on(app.call(tool, arguments))
    }

    /// From now on the site has the first text for as many fetches, and then the other one.
    fn serves(&self, name: &str, texts: [&str; 2], fetches: usize) {
        let path = format!("/skills/{name}/SKILL.md");
        let texts = texts.map(|text| skill_md(name, text));
        let seen = Arc::new(AtomicUsize::new(0));
        self.site.attack(move |request| {
            (request.path == path && request.method == "GET").then(|| {
                let at = usize::from(seen.fetch_add(1, Ordering::Relaxed) >= fetches);
                Answer::new(200, texts[at].clone())
            })
        });
    }

    /// The text that the server has signed.
    fn signed(&self, owner: &App, name: &str) -> String {
        self.call(
            owner,
            "skill_fetch",
            &json!({ "id": format!("default/{name}") }),
        )
        .to_string()
    }
}

#[test]
fn a_server_signs_the_draft_that_its_owner_read() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let scene = Scene::new();
    let owner = scene
        .runtime
        .block_on(App::sign_in(&scene.server.url, OWNER));
    ten(41, |seed| {
        let mut dice = Dice::new(seed);
        let name = format!("made-{seed}");
        scene.serves(&name, ["Benign text.", "never"], usize::MAX);
        let asked =
            json!({ "source": "registry", "identifier": format!("registry:127.0.0.1/{name}") });
        let drafted = scene.call(&scene.app, "add_skill", &asked);
        assert_eq!(drafted["status"], "drafted", "{drafted}");
        let id = text(&drafted["draft_id"]);
        let shown = scene.owner.json(&format!("drafts show {id}"));
        assert!(shown.to_string().contains("Benign text."), "{shown}");
        let hash = text(&shown["bundle"]);
        // The source changes before the owner's machine asks again, or between that and the server.
        let fetches = dice.below(2);
        scene.serves(
            &name,
            ["Benign text.", "OTHER TEXT that nobody read."],
            fetches,
        );
        let accept = format!("drafts accept {id} --yes --json --bundle {hash}");
        let ran = scene.owner.run(&accept);
        assert_ne!(ran.code, 0, "{ran:?}");
        let words = ["review_needed", "draft_changed"];
        assert_eq!(word(&ran), words[fetches], "{ran:?}");
        let listed = scene.call(&owner, "skill_list", &json!({})).to_string();
        assert!(!listed.contains(&name), "{listed}");
        // Once the source has again what was read, that is signed.
        scene.serves(&name, ["Benign text.", "never"], usize::MAX);
        let ran = scene.owner.run(&accept);
        assert_eq!(ran.code, 0, "{ran:?}");
        let signed = scene.signed(&owner, &name);
        assert!(signed.contains("Benign text."), "{signed}");
    });
}
