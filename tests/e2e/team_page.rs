//! `docs/team.md`, line by line: from one owner to three publishers who sign together.

use std::fs;

use serde_json::json;
use vault_tests::app::App;
use vault_tests::person::{Answer, OWNER, Person};
use vault_tests::server::{Database, OWNER_EMAIL, Server};

use crate::page::{Walk, chapters};
use crate::people::{PASSWORD, accept_account};
use crate::support::{self, SLUG, block_on, text};

#[test]
fn every_line_of_the_page_about_teams_works() {
    every_line(&Database::Sqlite);
}

#[test]
fn every_line_of_the_page_about_teams_works_on_postgresql() {
    support::on_postgres(every_line);
}

fn every_line(database: &Database) {
    let server = Server::start(database);
    let stick = tempfile::tempdir().unwrap();
    let (address, media) = (
        support::address(&server, SLUG),
        stick.path().display().to_string(),
    );
    let slug = server.named(SLUG);
    // Tests of one deployment share their accounts.
    let [bob, carol] =
        ["bob", "carol"].map(|name| format!("{name}-{slug}@example.com").leak() as &str);
    let real = [
        ("https://vault.example/v/team", &address[..]),
        ("https://vault.example", &server.url),
        ("/media/stick", &media),
        ("bob@example.com", bob),
        ("carol@example.com", carol),
    ];
    let mut walk = Walk::new(OWNER, &real);
    for (machine, email) in [("bob", bob), ("carol", carol)] {
        let person = Person {
            email,
            password: PASSWORD,
            scopes: &["read", "write"],
        };
        walk.people.insert(machine, person);
    }
    for (machine, skill) in [("anna", "tool"), ("anna", "review"), ("bob", "report")] {
        let home = walk.machines.entry(machine.to_owned()).or_default();
        fs::create_dir_all(home.path().join("work")).unwrap();
        home.plain_skill(skill, "A skill of the team.");
    }
    let create = [
        "operator",
        "--url",
        &server.url,
        "namespace",
        "create",
        &slug,
    ];
    let create = [&create[..], &["--owner", OWNER_EMAIL, "--json"]].concat();
    let anna = &walk.machines["anna"];
    anna.sign_in(&create, OWNER, Answer::Pasted).data();

    for (chapter, lines) in &chapters("docs/team.md") {
        for line in lines {
            let shown = walk.run(chapter, line);
            let Some(link) = shown["invite_url"].as_str() else {
                continue;
            };
            accept_account(link);
            if shown["email"] == carol {
                // What the page says that Carol's agent does.
                let skill =
                    "---\nname: carols\ndescription: A skill of Carol's.\n---\n\nRead it.\n";
                let answer = block_on(async {
                    let app = App::sign_in(&server.url, walk.people["carol"]).await;
                    app.call("skill_publish", &json!({ "skill_md": skill }))
                        .await
                });
                assert_eq!(text(&answer["status"]), "drafted", "{answer}");
            }
        }
    }
    let files = support::pulled(&walk.machines["laptop"]);
    let names: Vec<_> = files.keys().collect();
    assert_eq!(names, ["carols", "report", "review", "tool"]);
    let listed = walk.machines["anna"].json("publishers list");
    let keys = listed["keys"].as_array().unwrap();
    let publishers = keys.iter().filter(|key| key["publishes"] == true);
    assert_eq!(publishers.count(), 2, "{listed}");
}
