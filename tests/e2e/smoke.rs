//! `tests/smoke-remote` against running servers: it passes where all is well, tells the step that
//! is not, and prints no secret.

use std::process::{Command, Stdio};

use vault_tests::home::Ran;
use vault_tests::place;
use vault_tests::server::{Database, OWNER_EMAIL, OWNER_PASSWORD, Server};

fn smoke(variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("vault-smoke"));
    command.env_clear().stdin(Stdio::null());
    let output = command.envs(variables.iter().copied()).output();
    output.expect("the built smoke program").into()
}

fn at(url: &str, password: &str) -> Ran {
    smoke(&[
        ("VAULT_REMOTE_URL", url),
        ("VAULT_ADMIN_EMAIL", OWNER_EMAIL),
        ("VAULT_ADMIN_PASSWORD", password),
    ])
}

/// The names of the steps that are told with this word.
fn steps<'o>(ran: &'o Ran, word: &str) -> Vec<&'o str> {
    let lines = ran.stdout.lines().filter(|line| line.starts_with(word));
    lines
        .filter_map(|line| line.get(10..34))
        .map(str::trim_end)
        .collect()
}

#[test]
fn the_smoke_walk_passes_and_leaves_nothing_behind() {
    if place::leaves_out("", "the walk itself goes there") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    for _ in 0..2 {
        let ran = at(&format!("{}/", server.url), OWNER_PASSWORD).ok();
        assert_eq!(
            steps(&ran, "ok"),
            [
                "discovery",
                "resource metadata",
                "registration",
                "authorize, no challenge",
                "authorize",
                "token",
                "refresh",
                "mcp, initialize",
                "mcp, skill.list",
                "policy, invitation",
                "policy, operator's link",
                "policy, member signs in",
                "policy, skill.publish",
                "member removed",
                "account removed",
                "client removed",
                "token is dead",
            ]
        );
        assert_eq!(steps(&ran, "left out"), ["mcp, skill.fetch"]);
        for secret in [
            OWNER_PASSWORD,
            "vat_",
            "vrt_",
            "vac_",
            "/oauth/invite/",
            "code=",
        ] {
            assert!(!ran.stdout.contains(secret), "{secret}\n{}", ran.stdout);
        }
    }
}

#[test]
fn the_smoke_walk_tells_which_step_is_not_well() {
    if place::leaves_out("", "the walk itself goes there") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let wrong = at(&server.url, "not the password of anybody").expect_code(1);
    assert_eq!(steps(&wrong, "failed"), ["authorize"]);
    assert!(
        wrong.stdout.contains("Wrong email or password"),
        "{}",
        wrong.stdout
    );

    let nobody = smoke(&[("VAULT_REMOTE_URL", &server.url)]).expect_code(1);
    assert!(
        nobody.stdout.contains("set VAULT_ADMIN_EMAIL"),
        "{}",
        nobody.stdout
    );

    // Another name for the same machine is not the issuer that clients were told.
    let other = server.url.replace("127.0.0.1", "localhost");
    let other = at(&other, OWNER_PASSWORD).expect_code(1);
    assert_eq!(steps(&other, "failed"), ["discovery"]);

    let nothing = at("http://127.0.0.1:1", OWNER_PASSWORD).expect_code(1);
    assert_eq!(steps(&nothing, "failed"), ["discovery"]);
    smoke(&[]).expect_code(2);
}
