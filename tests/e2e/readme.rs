//! The three chapters of README.md (you, your team, your service), line by line.

use std::fs;
use std::path::Path;

use vault_tests::home::Home;
use vault_tests::person::Person;
use vault_tests::server::free_port;
use vault_tests::{place, tree};

use crate::page::{Serving, Walk, chapters};

#[test]
fn every_chapter_of_the_readme_works_word_for_word() {
    if place::leaves_out("", "the README starts a server of its own") {
        return;
    }
    let mut chapters = chapters("README.md");
    let mut lines = |name: &str| {
        let at = chapters.iter().position(|(chapter, _)| chapter == name);
        chapters
            .remove(at.unwrap_or_else(|| panic!("README has no chapter {name}")))
            .1
    };
    let (you, team, service) = (lines("You"), lines("Your team"), lines("Your service"));

    let port = free_port();
    let starter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/service/starter");
    let real = [
        ("~/.local/share/vault/skills", starter.to_str().unwrap()),
        ("127.0.0.1:8080", &format!("127.0.0.1:{port}")),
    ];
    let person = Person {
        email: "you@example.com",
        password: "choose-24-characters-or-more",
        scopes: &["read", "write"],
    };
    let mut walk = Walk::new(person, &real);
    for machine in ["", "laptop"] {
        let home = Home::new();
        fs::create_dir(home.path().join(".claude")).unwrap();
        walk.machines.insert(machine.to_owned(), home);
    }

    for line in &you {
        walk.run("You", line);
    }
    // The chapter about the team needs a service: the one of the chapter after it.
    let (serve, operator) = service.split_first().unwrap();
    assert_eq!(serve.arguments[0], "serve");
    let arguments: Vec<_> = serve.arguments.iter().map(|word| walk.word(word)).collect();
    let server = Home::new();
    let _serving = Serving::start(&server, &arguments, &serve.variables, port);
    for line in operator {
        walk.run("Your service", line);
    }
    for line in &team {
        walk.run("Your team", line);
    }

    // Once as the operator, once to connect.
    assert_eq!(walk.sign_ins, 2);
    let signed = tree::files(&starter.join("code-review"));
    for machine in ["", "laptop"] {
        let skills = walk.machines[machine].path().join(".claude/skills");
        assert_eq!(
            tree::files(&skills.join("code-review")),
            signed,
            "{machine}"
        );
    }
}
