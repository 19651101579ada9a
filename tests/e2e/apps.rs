//! Apps of a vault, by the commands that owners type: more scopes for one, and the end of one with
//! what it made.

use serde_json::json;
use vault_tests::browser::{Browser, client};
use vault_tests::home::{Home, vault_binary};
use vault_tests::person::{Answer, OWNER, Person};
use vault_tests::server::{Database, Server};
use vault_tests::terminal::Terminal;

use crate::people::{PASSWORD, accept_account};
use crate::support::{self, SLUG, address, block_on, text};

/// A home whose sign-in may only read.
fn reader(server: &Server) -> Home {
    let home = Home::new();
    let read_only = Person {
        scopes: &["read"],
        ..OWNER
    };
    let connect = format!("cloud connect {} --json", address(server, SLUG));
    home.sign_in(&connect, read_only, Answer::Pasted).data();
    home
}

/// On a terminal a command that lacks a scope asks for it in the browser and goes on; elsewhere it
/// ends with the command that signs in again.
#[test]
fn a_command_that_lacks_a_scope_asks_for_it() {
    let server = Server::start(&Database::Sqlite);
    let owner = Home::new();
    owner.add("plain", "Text.").ok();
    support::connect(&server, &owner, SLUG);
    let reader = reader(&server);
    let refused = reader.fails("devices invite", 4, "insufficient_scope");
    assert!(refused.hint.unwrap().contains("vault cloud connect"));
    let apps = reader.json("clients list").as_array().unwrap().len();
    let old = stored_tokens(&server, &reader);

    for (scopes, code) in [(&["read"][..], 4), (&["read", "write"], 0)] {
        let line = format!("{} devices invite", vault_binary().display());
        let Some(mut terminal) = Terminal::start(reader.path(), &line) else {
            return;
        };
        terminal.wait_for("paste the address");
        let shown = terminal.shown();
        let page = shown
            .split_whitespace()
            .find(|word| word.contains("/oauth/authorize?"))
            .unwrap()
            .to_owned();
        assert!(page.contains("prompt=consent"), "{page}");
        block_on(async {
            let back = Browser::new()
                .approve_scopes(&page, OWNER.email, OWNER.password, scopes)
                .await;
            let answer = client().get(&back).send().await.expect("a loopback answer");
            assert!(answer.status().is_success());
        });
        let (shown, ended) = terminal.finish();
        assert_eq!(ended, code, "{shown}");
        let found = if code == 0 {
            "made a code"
        } else {
            "lacks a scope"
        };
        assert!(shown.contains(found), "{shown}");
    }
    // From then on without a question, and by the app that was there before.
    reader.json("devices invite");
    let now = reader.json("clients list").as_array().unwrap().len();
    assert_eq!(now, apps);
    // The sign-in that lacked the scope has ended.
    let refused = block_on(async {
        let sent = client().post(format!("{}/oauth/token", server.url));
        let sent = sent.header("content-type", "application/x-www-form-urlencoded");
        let (token, id) = (&old["refresh_token"], &old["client_id"]);
        let body = format!(
            "grant_type=refresh_token&refresh_token={}&client_id={}",
            text(token),
            text(id)
        );
        sent.body(body).send().await.expect("an answer").status()
    });
    assert_eq!(refused, 400);
}

/// The stored tokens of a home.
fn stored_tokens(server: &Server, home: &Home) -> serde_json::Value {
    let path = home.token_file(&server.url, &support::slug(server));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The browser may be signed in as somebody else, whose rights must not take the place of those that
/// the command began with.
#[test]
fn another_person_in_the_browser_gives_no_scope() {
    let server = Server::start(&Database::Sqlite);
    let owner = Home::new();
    owner.add("plain", "Text.").ok();
    support::connect(&server, &owner, SLUG);
    let bob = "bob@example.com";
    owner.json(&format!("users invite {bob} --scopes read,write"));
    let account = format!("operator --url {} account invite {bob} --json", server.url);
    let invited = owner.sign_in(&account, OWNER, Answer::Pasted).data();
    accept_account(&text(&invited["invite_url"]));
    let connect = format!("cloud connect {} --json", address(&server, SLUG));
    let member = Person {
        email: bob,
        password: PASSWORD,
        scopes: &["read"],
    };
    // So that the person has accepted the invitation.
    Home::new().sign_in(&connect, member, Answer::Pasted).data();

    let reader = reader(&server);
    let before = stored_tokens(&server, &reader);
    let line = format!("{} devices invite", vault_binary().display());
    let Some(mut terminal) = Terminal::start(reader.path(), &line) else {
        return;
    };
    terminal.wait_for("paste the address");
    let shown = terminal.shown();
    let mut words = shown.split_whitespace();
    let page = words.find(|word| word.contains("/oauth/authorize?"));
    let page = page.unwrap().to_owned();
    block_on(async {
        let back = Browser::new()
            .approve_scopes(&page, bob, PASSWORD, &["read", "write"])
            .await;
        let answer = client().get(&back).send().await.expect("a loopback answer");
        assert!(answer.status().is_success());
    });
    let (shown, ended) = terminal.finish();
    assert_eq!(ended, 4, "{shown}");
    assert!(shown.contains("bob@example.com allowed"), "{shown}");
    assert_eq!(stored_tokens(&server, &reader), before);
}

/// A code ends with the app that made it; what else the app made ends if the owner says so.
#[test]
fn an_app_ends_with_its_codes_and_what_it_admitted() {
    let server = Server::start(&Database::Sqlite);
    let owner = Home::new();
    owner.add("plain", "Text.").ok();
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    let (vault, key) = (address(&server, SLUG), support::fingerprint(&owner));

    // Another machine of the same person, whose sign-in is an app of its own.
    let lost = Home::new();
    let connect = format!("cloud connect {vault} --json");
    lost.sign_in(&connect, OWNER, Answer::Pasted).data();
    let tokens = std::fs::read(lost.token_file(&server.url, &support::slug(&server))).unwrap();
    let tokens: serde_json::Value = serde_json::from_slice(&tokens).unwrap();
    let app = text(&tokens["client_id"]);
    let made = lost.json("devices invite --uses 2");
    assert_eq!(made["client_id"], app.as_str());
    let (code, id) = (text(&made["code"]), text(&made["id"]));
    let ci = Home::new();
    let link = ["link", &vault, "--expect-key", &key, "--code", &code];
    let linked = ci.json(&link);
    ci.json("cloud pull");

    let ended = owner.json(&format!("clients revoke {app} --yes"));
    assert_eq!(ended["ended"], json!({ "codes": [id] }));
    assert_eq!(ended["left"], json!({ "machines": [linked["device_id"]] }));
    let late = Home::new();
    late.fails(&link, 4, "enrolment_code_invalid");
    ci.json("cloud pull");
    let shown = owner.run(&format!("clients revoke {app} --end machines --yes"));
    assert!(
        shown
            .ok()
            .stdout
            .contains("since the app made them: 1 machine")
    );
    ci.fails("cloud pull", 4, "device_revoked");
}
