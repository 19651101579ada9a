//! People, apps and the log of a vault, by the commands that owners type, on SQLite and on
//! PostgreSQL.

use reqwest::StatusCode;
use serde_json::{Value, json};
use vault_tests::browser::Browser;
use vault_tests::home::{Home, vault_binary};
use vault_tests::person::{Answer, Person};
use vault_tests::place;
use vault_tests::server::{Database, OWNER_EMAIL, Server};
use vault_tests::terminal::Terminal;

use crate::support::{self, SLUG, address, block_on, text};

const ANN: &str = "ann@example.com";
/// What every invited person chooses.
pub const PASSWORD: &str = "a password that ann chose";

/// With a server of the test's own: invitations and passwords belong to accounts, which all tests
/// of one deployment share.
fn on_sqlite(test: impl FnOnce(&Database)) {
    if !place::leaves_out("", "its people are accounts, which all tests there share") {
        test(&Database::Sqlite);
    }
}

/// A server whose vault `team` belongs to the first owner, connected in a home.
fn team(database: &Database) -> (Server, Home) {
    let server = Server::start(database);
    let desk = Home::new();
    support::connect(&server, &desk, SLUG);
    (server, desk)
}

/// Sets [`PASSWORD`] at the link that an operator gave.
#[track_caller]
pub fn accept_account(link: &str) {
    let accepted = block_on(Browser::new().accept_invitation(link, PASSWORD));
    assert_eq!(accepted, StatusCode::OK);
}

/// Invites somebody, who accepts and connects in a home of their own.
pub fn join(server: &Server, desk: &Home, email: &str, role: &str, scopes: &[&str]) -> Home {
    let words = scopes.join(",");
    desk.json(&format!(
        "users invite {email} --role {role} --scopes {words}"
    ));
    let account = ["operator", "--url", &server.url, "account", "invite", email];
    let link = text(&desk.json(&account)["invite_url"]);
    accept_account(&link);
    let home = Home::new();
    let vault = address(server, SLUG);
    let person = Person {
        email,
        password: PASSWORD,
        scopes,
    };
    let connect = ["cloud", "connect", &vault, "--json"];
    home.sign_in(&connect, person, Answer::Pasted).data();
    home
}

/// The user with this address, as an owner sees them. Lists are ordered to the second, then by
/// chance.
fn user(desk: &Home, email: &str) -> Value {
    let users = desk.json("users list");
    let found = users
        .as_array()
        .unwrap()
        .iter()
        .find(|user| user["email"] == email);
    found.unwrap().clone()
}

#[test]
fn an_owner_administers_a_vault_on_sqlite() {
    on_sqlite(administers);
}

#[test]
fn an_owner_administers_a_vault_on_postgresql() {
    support::on_postgres(administers);
}

fn administers(database: &Database) {
    let (server, desk) = team(database);
    let anns = join(&server, &desk, ANN, "owner", &["read", "write"]);
    desk.fails(&format!("users invite {ANN}"), 1, "user_exists");

    let users = desk.json("users list");
    assert_eq!(users.as_array().unwrap().len(), 2);
    let ann = user(&desk, ANN);
    assert_eq!(ann["role"], "role:owner");
    let ann = text(&ann["id"]);

    // What the other owner may do changes under her hands.
    assert!(anns.json("users list").is_array());
    let changed = desk.json(&format!("users scopes {ANN} --revoke write"));
    assert_eq!(changed["scopes"], json!(["read"]));
    anns.fails(
        &format!("users profile {OWNER_EMAIL} restricted"),
        4,
        "insufficient_scope",
    );
    desk.json(&format!("users scopes {ANN} --grant write"));
    let bound = anns.json(&format!("users profile {OWNER_EMAIL} restricted"));
    assert_eq!(bound["profile"], "restricted");
    let free = anns.json(&format!("users profile {OWNER_EMAIL} --none"));
    assert_eq!(free["profile"], Value::Null);
    desk.json(&format!("users role {ann} member"));
    anns.fails("users list", 4, "owner_required");
    desk.fails(&format!("users role {OWNER_EMAIL} member"), 1, "last_owner");
    let unknown = desk.fails("users remove an@example.com --yes", 1, "user_not_found");
    assert_eq!(unknown.hint.unwrap(), "vault users list shows them all");

    // The app that ann uses is ended; then she is.
    let apps = desk.json("clients list");
    assert_eq!(apps.as_array().unwrap().len(), 2, "{apps}");
    let tokens = std::fs::read(anns.token_file(&server.url, SLUG)).unwrap();
    let tokens: Value = serde_json::from_slice(&tokens).unwrap();
    let app = text(&tokens["client_id"]);
    assert!(apps.to_string().contains(&app), "{apps}");
    let ended = desk.json(&format!("clients revoke {app} --yes"));
    assert_eq!(ended, json!({"client_id": app, "revoked_tokens": 2}));
    anns.fails("users list", 4, "signed_out");
    desk.fails(
        &format!("clients revoke {app} --yes"),
        1,
        "client_not_found",
    );
    let removed = desk.json(&format!("users remove {ANN} --yes"));
    assert_eq!(removed["email"], ANN);

    let log = desk.json("audit-log --action user");
    let done: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{} {}", text(&entry["action"]), text(&entry["outcome"])))
        .collect();
    assert_eq!(
        done,
        [
            "user.create confirmation_needed",
            "user.create done",
            "user.create user_exists",
            "user.scopes done",
            "user.profile insufficient_scope",
            "user.scopes done",
            "user.profile done",
            "user.profile done",
            "user.role confirmation_needed",
            "user.role done",
            "user.list owner_required",
            "user.role last_owner",
            "user.remove confirmation_needed",
            "user.remove done",
        ]
    );
    let mine = desk.json(&format!(
        "audit-log --actor {OWNER_EMAIL} --action user.role"
    ));
    assert_eq!(mine.as_array().unwrap().len(), 3);
    let hers = desk.json(&format!("audit-log --actor {ann} --since 1h"));
    assert!(!hers.as_array().unwrap().is_empty());
    assert!(
        hers.as_array()
            .unwrap()
            .iter()
            .all(|entry| entry["actor"] == ann.as_str())
    );
    let ended = desk.json("audit-log --action client.revoke");
    assert_eq!(ended[0]["target"], app.as_str());
    let none = desk.json("audit-log --since 2030-01-01T00:00:00Z");
    assert_eq!(none, json!([]));
    for (verb, status) in [("suspend", "suspended"), ("resume", "active")] {
        let set = desk.json(&format!("operator namespace {verb} {SLUG}"));
        assert_eq!(set["status"], status);
        // Only an operator's own token passes a suspended vault, and the first owner is one.
        assert!(desk.json("users list").is_array());
    }
    desk.fails("operator namespace suspend nobody", 1, "vault_not_found");
    for table in [
        &["users", "list"][..],
        &["clients", "list"],
        &["audit-log", "--since", "7d"],
    ] {
        let shown = desk.run(table).ok().stdout;
        assert!(shown.lines().count() > 1, "{shown}");
    }
}

#[test]
fn a_member_hears_who_publishes_before_any_question_on_sqlite() {
    on_sqlite(|database| {
        let (server, desk) = team(database);
        let ann = join(&server, &desk, ANN, "member", &["read", "write"]);
        let line = format!("{} sync", vault_binary().display());
        let Some(terminal) = Terminal::start(ann.path(), &line) else {
            return;
        };
        let (screen, code) = terminal.finish();
        assert_eq!(code, 4, "{screen}");
        assert!(
            screen.contains("only an owner or a publisher may"),
            "{screen}"
        );
        assert!(!screen.contains("recovery key"), "{screen}");
    });
}

#[test]
fn a_member_sees_a_status_without_warnings_and_a_removed_one_is_not_signed_in_on_sqlite() {
    on_sqlite(|database| {
        let (server, desk) = team(database);
        let ann = join(&server, &desk, ANN, "member", &["read", "write"]);
        let shown = ann.run(&["status"]).ok();
        assert_eq!(shown.stderr, "");
        assert!(
            shown.stdout.contains("your role     member"),
            "{}",
            shown.stdout
        );
        assert!(!shown.stdout.contains("vault sync"), "{}", shown.stdout);
        desk.run(&format!("users remove {ANN} --yes")).ok();
        let shown = ann.run(&["status"]).expect_code(4);
        assert!(
            shown.stdout.contains("signed in     no"),
            "{}",
            shown.stdout
        );
    });
}

#[test]
fn who_runs_the_server_resets_its_operator_on_sqlite() {
    on_sqlite(resets);
}

#[test]
fn who_runs_the_server_resets_its_operator_on_postgresql() {
    support::on_postgres(resets);
}

/// The sole operator has forgotten the password: the way back is the database, while the service
/// runs.
fn resets(database: &Database) {
    let (server, desk) = team(database);
    let reset = |email| {
        [
            [
                "operator",
                "--database",
                server.database(),
                "--url",
                &server.url,
            ],
            ["account", "reset", email, "--yes", "--json"],
        ]
        .concat()
    };
    let nobody = desk.run(&reset("nobody@example.com")[..]);
    nobody.fails(1, "account_not_found");
    // Without an answer to its question it changes nothing.
    let asked = &reset(OWNER_EMAIL)[..8];
    desk.run(asked).expect_code(2);
    assert!(desk.json("operator account list").is_array());

    let done = desk.run(&reset(OWNER_EMAIL)[..]).data();
    desk.fails("operator account list", 4, "signed_out");
    desk.fails("users list", 4, "signed_out");
    let link = text(&done["invite_url"]);
    assert!(link.starts_with(&server.url), "{link}");
    accept_account(&link);
    let owner = Person {
        email: OWNER_EMAIL,
        password: PASSWORD,
        scopes: &["read", "write"],
    };
    let list = [
        "operator",
        "--url",
        &server.url,
        "account",
        "list",
        "--json",
    ];
    let accounts = desk.sign_in(&list[..], owner, Answer::Pasted).data();
    assert_eq!(accounts[0]["operator"], true);
    let log = desk.json("operator audit-log --action account.reset");
    assert_eq!(log[0]["actor"], "server");
    let mine = desk.json(&format!(
        "operator audit-log --actor {OWNER_EMAIL} --since 1h"
    ));
    assert!(!mine.as_array().unwrap().is_empty());
}

#[test]
fn one_confirmation_serves_a_command_about_several_people() {
    on_sqlite(|database| {
        let (_server, desk) = team(database);
        let people = "carl@example.com dora@example.com";
        let invite = format!("users invite {people} --role owner --json");
        let asked = desk.run_once(&invite);
        assert!(desk.confirm_wanted(&asked), "{}", asked.stderr);
        // Run again, it asks for nothing more.
        let invited = desk.run_once(&invite).data();
        let emails = |users: &Value| -> Vec<String> {
            let users = users.as_array().expect("a list for several people");
            users.iter().map(|user| text(&user["email"])).collect()
        };
        assert_eq!(emails(&invited).join(" "), people);
        assert_eq!(user(&desk, "dora@example.com")["role"], "role:owner");
        // Who has not accepted yet is withdrawn, which needs no confirmation.
        let withdrawn = desk.run_once(&format!("users remove {people} --yes"));
        assert_eq!(withdrawn.code, 0, "{}", withdrawn.stderr);
        let told = format!("{}{}", withdrawn.stdout, withdrawn.stderr);
        assert!(told.contains("withdrew the invitation of carl@"), "{told}");
        assert_eq!(emails(&desk.json("users list")), [OWNER_EMAIL]);
    });
}
