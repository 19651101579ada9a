//! What goes wrong for a user, through the real binary: the exit code, the stable word, one
//! sentence, and what to do next; the same in the envelope and as text.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::Value;
use vault_tests::browser::{Browser, client, forms};
use vault_tests::home::{Arguments, Home, Ran};
use vault_tests::person::{Answer, OWNER, Person, Refused};
use vault_tests::place;
use vault_tests::server::{Database, OWNER_EMAIL, Server, free_port};

use crate::support::{self, SLUG, address, block_on, text};

/// Runs a command that must fail, for people and for programs, and holds both to the same words and
/// to the rules for them.
#[track_caller]
fn fails(home: &Home, arguments: &(impl Arguments + ?Sized), exit: i32, code: &str) -> Refused {
    let told = home.run(arguments).expect_code(exit);
    let refused = home.refused(arguments, exit);
    is_told(&told, &refused, code);
    refused
}

/// A failure as people see it: the sentence, then the hint, nothing on standard output.
#[track_caller]
fn is_told(told: &Ran, refused: &Refused, code: &str) {
    assert_eq!(refused.code, code, "{refused:?}");
    assert_eq!(told.stdout, "", "standard output is for results");
    // Addresses of pages may stand before; the end is the failure.
    let at = told
        .stderr
        .find("error: ")
        .unwrap_or_else(|| panic!("no error: {told:?}"));
    let mut lines = told.stderr[at..].lines();
    assert_eq!(lines.next(), Some(&*format!("error: {}", refused.message)));
    let hint = refused
        .hint
        .as_ref()
        .unwrap_or_else(|| panic!("no hint: {refused:?}"));
    assert_eq!(
        lines.last(),
        Some(&*format!("hint: {hint}")),
        "{}",
        told.stderr
    );
    for said in [&refused.message, hint] {
        let ends_well = !said.ends_with('.') && !said.ends_with(' ') && !said.contains('\n');
        assert!(ends_well && said.len() < 300, "{said:?}");
    }
}

/// Something that listens and answers every request with these bytes, or hangs up at once where
/// there are none.
fn stranger(answer: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.set_read_timeout(Some(Duration::from_mins(1)));
            let mut head = [0_u8; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    base
}

#[test]
fn an_address_that_is_no_service_is_said_to_be_none() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>Hi</html>";
    let nothing = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 8\r\nConnection: close\r\n\r\n<p>404\r\n";
    let moved = "HTTP/1.1 301 Moved Permanently\r\nLocation: https://elsewhere.example/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let broken = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let down = format!("http://127.0.0.1:{}", free_port());
    for (base, connect, (exit, link)) in [
        (stranger(page), "not_a_service", (7, "answer_unreadable")),
        (stranger(nothing), "not_a_service", (1, "http_404")),
        (stranger(moved), "redirect_refused", (7, "redirect_refused")),
        (stranger(broken), "http_502", (7, "http_502")),
        (stranger(""), "broken_off", (7, "broken_off")),
        (down, "unreachable", (7, "unreachable")),
    ] {
        let home = Home::new();
        let refused = fails(
            &home,
            &format!("cloud connect {base} --no-browser"),
            7,
            connect,
        );
        assert!(!refused.message.contains("expected value"), "{refused:?}");
        fails(&home, &format!("link {base}/v/{SLUG}"), exit, link);
        let operator = [
            "operator",
            "--url",
            &base,
            "--no-browser",
            "namespace",
            "list",
        ];
        fails(&home, &operator, 7, connect);
        // Nothing is kept of an address that was none; where the enrolment may have arrived, its
        // key is.
        if !["http_502", "broken_off", "answer_unreadable"].contains(&link) {
            fails(&home, "status --cloud", 2, "not_connected");
            fails(&home, "cloud pull", 2, "not_linked");
        }
    }
}

#[test]
fn without_a_service_every_command_says_what_is_missing() {
    let home = Home::new();
    let folder = home.plain_skill("plain", "Text.");
    for (arguments, exit, code) in [
        (&["sync", "--cloud"][..], 2, "not_connected"),
        (&["cloud", "rollback", "1"], 2, "not_connected"),
        (&["devices", "list"], 2, "not_connected"),
        (&["devices", "admit", "laptop"], 2, "not_connected"),
        (&["devices", "deny-pending"], 2, "not_connected"),
        (&["status", "--cloud"], 2, "not_connected"),
        (&["cloud", "pull"], 2, "not_linked"),
        (&["link"], 2, "not_connected"),
        (&["link", "https://vault.example"], 2, "slug_missing"),
        (&["operator", "namespace", "list"], 2, "no_service"),
        (
            &["--offline", "link", "https://vault.example/v/team"],
            7,
            "offline",
        ),
        (&["skill", "which", "nothing"], 1, "skill_not_found"),
        (&["key", "rotate"], 2, "no_tty"),
    ] {
        if code == "no_tty" {
            home.json(&format!("add {}", folder.to_str().unwrap()));
        }
        fails(&home, arguments, exit, code);
    }
}

#[test]
fn signing_in_is_asked_for_where_it_is_missing_and_only_there() {
    let server = Server::start(&Database::Sqlite);
    let home = Home::new();
    home.add("plain", "Text.").ok();
    support::connect(&server, &home, SLUG);
    home.json("sync --cloud");
    let file = home.token_file(&server.url, &support::slug(&server));
    let good = fs::read(&file).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut tokens: Value = serde_json::from_slice(&good).unwrap();
        change(&mut tokens);
        fs::write(&file, tokens.to_string()).unwrap();
    };
    let owners: [&[&str]; 4] = [
        &["sync", "--cloud"],
        &["devices", "list"],
        &["cloud", "rollback", "1"],
        &["devices", "revoke", "laptop"],
    ];

    // Nobody signed in; the file was cut; others can read it.
    fs::remove_file(&file).unwrap();
    for command in owners {
        let refused = fails(&home, command, 4, "signed_out");
        assert!(
            refused
                .hint
                .unwrap()
                .starts_with("vault cloud connect http")
        );
    }
    fs::write(&file, &good[..20]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fails(&home, owners[0], 4, "signed_out");
    fs::write(&file, &good).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = fails(&home, owners[0], 4, "token_readable_by_others");
    assert!(refused.hint.unwrap().starts_with("chmod 600 "));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();

    // An access token that ended, by this clock or by the service's, is exchanged without a word.
    with(&|tokens| tokens["expires_at"] = 0.into());
    home.json("sync --cloud");
    assert_ne!(fs::read(&file).unwrap(), good, "a new pair");
    let current: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut ended = current.clone();
    ended["access_token"] = "vat_unknown".into();
    fs::write(&file, ended.to_string()).unwrap();
    home.json("sync --cloud");

    // Ended for good: revoked at the service.
    let current: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    block_on(async {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("token", current["refresh_token"].as_str().unwrap()),
                ("client_id", current["client_id"].as_str().unwrap()),
            ])
            .finish();
        let answer = client()
            .post(current["revocation_endpoint"].as_str().unwrap())
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
    });
    for command in owners {
        fails(&home, command, 4, "signed_out");
    }
    // `status` still tells what it knows, and ends with what was wrong.
    let status = home.run("status --cloud --json").expect_code(4).json();
    assert_eq!(status["data"]["connected"]["last_push"]["release"], 1);
    assert_eq!(status["warnings"][0]["code"], "signed_out");
}

#[test]
fn what_an_account_may_not_do_is_said_with_the_way_out() {
    let server = Server::start(&Database::Sqlite);
    let home = Home::new();
    home.add("plain", "Text.").ok();
    support::connect(&server, &home, SLUG);
    let vault = address(&server, SLUG);

    // Reading was allowed on the page, writing was not.
    let reader = Home::new();
    reader.add("plain", "Text.").ok();
    let read_only = Person {
        scopes: &["read"],
        ..OWNER
    };
    reader
        .sign_in(
            &format!("cloud connect {vault} --json"),
            read_only,
            Answer::Pasted,
        )
        .data();
    reader.json("devices list");
    for command in [&["sync", "--cloud"][..], &["devices", "invite"]] {
        let refused = fails(&reader, command, 4, "insufficient_scope");
        assert!(refused.hint.unwrap().contains("vault cloud connect"));
    }

    // Names of namespaces that cannot be had.
    for (slug, code) in [
        (&*support::slug(&server), "slug_taken"),
        ("admin", "slug_reserved"),
        ("default", "slug_reserved"),
    ] {
        let create = [
            "operator",
            "--url",
            &server.url,
            "namespace",
            "create",
            slug,
            "--owner",
            OWNER_EMAIL,
        ];
        let refused = fails(&home, &create, 1, code);
        assert!(refused.hint.is_some());
    }
    let create = [
        "operator",
        "--url",
        &server.url,
        "namespace",
        "create",
        "others",
        "--owner",
        "no e-mail",
    ];
    fails(&home, &create, 1, "email_invalid");
    let show = [
        "operator",
        "--url",
        &server.url,
        "namespace",
        "show",
        "nobody",
    ];
    fails(&home, &show, 1, "vault_not_found");

    // Another account: invited by an operator, owner of another vault.
    let email = format!("{}@example.com", server.named("eve"));
    let create = [
        "operator",
        "--url",
        &server.url,
        "namespace",
        "create",
        &server.named("others"),
        "--owner",
        &email,
    ];
    let created = home.json(&create);
    let password = "another long password";
    accept_invitation(&text(&created["invite_url"]), password);
    let eve = Person {
        email: &email,
        password,
        ..OWNER
    };
    let hers = Home::new();
    hers.add("plain", "Text.").ok();
    hers.sign_in(
        &format!("cloud connect {} --json", address(&server, "others")),
        eve,
        Answer::Pasted,
    )
    .data();
    hers.json("sync --cloud");
    let list = ["operator", "--url", &server.url, "namespace", "list"];
    let told = hers.sign_in(&list, eve, Answer::Pasted).expect_code(4);
    let list = [&list[..], &["--json"]].concat();
    let refused = hers.sign_in(&list, eve, Answer::Pasted).refused(4);
    is_told(&told, &refused, "operator_required");
    assert_eq!(hers.json("devices list").as_array().unwrap().len(), 0);
}

/// Follows an invitation and sets a password.
fn accept_invitation(invite: &str, password: &str) {
    block_on(async {
        let mut browser = Browser::new();
        let page = browser.get(invite).await;
        assert_eq!(page.status(), 200);
        let form = forms(&page.text().await.unwrap()).remove(0);
        let target = url::Url::parse(invite).unwrap().join(&form.action).unwrap();
        let mut fields = form.hidden;
        fields.push(("password".into(), password.into()));
        let answer = browser.post(target.as_str(), &fields).await;
        assert!(!answer.status().is_client_error(), "{answer:?}");
    });
}

#[test]
fn machines_and_vaults_that_are_not_there_are_named() {
    let server = Server::start(&Database::Sqlite);
    let owner = Home::new();
    owner.add("plain", "Text.").ok();
    support::connect(&server, &owner, SLUG);

    let machine = Home::new();
    let refused = fails(
        &machine,
        &format!("link {}", address(&server, "taem")),
        1,
        "vault_not_found",
    );
    assert!(refused.hint.unwrap().contains("address"));
    fails(&machine, "cloud pull", 2, "not_linked");

    fails(&owner, "devices admit laptop", 1, "device_not_found");
    fails(&owner, "cloud rollback 7", 1, "release_not_found");
    let linked = machine.json(&format!(
        "link {} --hostname laptop",
        address(&server, SLUG)
    ));
    let refused = fails(&owner, "devices admit latpop", 1, "device_not_found");
    assert_eq!(refused.hint.unwrap(), "did you mean `laptop`?");
    let twin = Home::new();
    twin.json(&format!(
        "link {} --hostname laptop",
        address(&server, SLUG)
    ));
    let refused = fails(&owner, "devices admit laptop", 2, "device_ambiguous");
    assert!(refused.message.contains("2 machines"));

    // Refused, a machine cannot be admitted after all.
    let id = text(&linked["device_id"]);
    owner.json(&format!("devices deny {id}"));
    owner.json(&format!("devices deny {id}"));
    fails(&owner, &format!("devices admit {id}"), 1, "device_state");
    fails(&machine, "cloud pull", 4, "device_revoked");
    fails(&twin, "cloud pull --from taem", 2, "not_linked");
    // Before the first release a pull has nothing to do, and says so.
    let nothing = twin.run("cloud pull").ok();
    assert!(
        nothing.stdout.contains("has not published anything yet"),
        "{nothing:?}"
    );

    // Another vault's owner cannot publish here: the first release pinned the key.
    owner.json("sync --cloud");
    let stranger = Home::new();
    stranger.add("plain", "Text.").ok();
    stranger
        .sign_in(
            &format!("cloud connect {} --json", address(&server, SLUG)),
            OWNER,
            Answer::Pasted,
        )
        .data();
    fails(&stranger, "sync --cloud", 6, "vault_changed");
    fails(&twin, "cloud pull --skill nothing", 4, "device_pending");
    owner.json(&format!(
        "devices admit {}",
        text(&twin.json(&format!("link {}", address(&server, SLUG)))["device_id"])
    ));
    fails(
        &twin,
        "cloud pull --skill nothing",
        2,
        "skill_not_in_catalog",
    );
}

#[test]
fn what_was_not_paid_for_or_is_too_much_is_told_as_that() {
    if place::leaves_out("", "it changes the server's database file") {
        return;
    }
    let mut server = Server::start(&Database::Sqlite);
    let owner = Home::new();
    owner.add("plain", "Text.").ok();
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    let machine = Home::new();
    support::link(&server, &owner, &machine, SLUG);
    let late = Home::new();
    let waiting = late.json(&format!("link {}", address(&server, SLUG)));
    let key = support::fingerprint(&owner);
    let link = format!("link {} --expect-key {key}", address(&server, SLUG));
    let mut set = |name: &str, value: &str| {
        server.stop();
        let database = rusqlite::Connection::open(server.home.path().join("vault.db")).unwrap();
        let changed = database
            .execute(
                "update records set document = json_set(document, ?1, json(?2)) where partition = ?3 and key = 'ns'",
                (format!("$.{name}"), value, format!("ns/{SLUG}")),
            )
            .unwrap();
        assert_eq!(changed, 1);
        drop(database);
        server.resume();
    };

    set("subscription", "\"lapsed\"");
    fails(&machine, "cloud pull", 8, "subscription_lapsed");
    fails(
        &owner,
        &format!("devices admit {}", text(&waiting["device_id"])),
        8,
        "subscription_lapsed",
    );
    fails(&owner, "sync --cloud --renew", 8, "subscription_lapsed");
    // Shutting out never needs a subscription.
    owner.json(&format!("devices deny {}", text(&waiting["device_id"])));
    set("subscription", "\"none\"");
    machine.json("cloud pull");
    // With everything installed nothing is refused, and the machine says it all the same.
    set("subscription", "\"lapsed\"");
    let lapsed = machine.run("cloud pull --json");
    assert_eq!(lapsed.code, 8, "{}", lapsed.stdout);
    assert_eq!(lapsed.json()["warnings"][0]["code"], "subscription_lapsed");
    let renewal = owner.refused("sync --cloud --renew", 8);
    assert!(
        renewal
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("renews the subscription at http")),
        "{renewal:?}"
    );
    set("subscription", "\"none\"");

    set("quota", r#"{"bytes": 2000}"#);
    owner.add("large", &"Text. ".repeat(1000)).ok();
    fails(&owner, "sync --cloud", 1, "quota_exceeded");
    owner.json("remove large");

    // Where all places for machines are taken a code admits nobody, and nothing is lost by it.
    set("quota", r#"{"machines": 1}"#);
    let code = text(&owner.json("devices invite --uses 2")["code"]);
    let (waiting, newcomer) = (Home::new(), Home::new());
    let before = waiting.json(&link);
    assert_eq!(before["status"], "pending");
    for home in [&waiting, &newcomer] {
        fails(home, &format!("{link} --code {code}"), 1, "quota_full");
    }
    assert_eq!(waiting.json(&link), before);
    let links = vault_tests::tree::snapshot(&waiting.config().join("links"), &[]);
    assert!(!links.keys().any(|path| path.ends_with("device.next")));
    fails(&newcomer, "status --cloud", 2, "not_connected");
    set("quota", r#"{"machines": 3}"#);
    for home in [&waiting, &newcomer] {
        let admitted = home.json(&format!("{link} --code {code}"));
        assert_eq!(admitted["status"], "active");
    }

    let pull = machine.json("cloud pull");
    assert_eq!(
        (pull["release"].as_u64(), pull["unchanged"].as_u64()),
        (Some(1), Some(1))
    );

    set("status", "\"suspended\"");
    fails(&machine, "cloud pull", 4, "vault_suspended");
}

#[test]
fn a_server_that_cannot_start_says_why_and_ends() {
    if place::leaves_out("", "it is about `vault serve`") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let port = server.listens_at().rsplit(':').next().unwrap().to_owned();
    let other = Home::new();
    let start = |settings: &[(&str, &str)]| -> Ran {
        other
            .command(&["serve"])
            .env("VAULT_PUBLIC_URL", "http://127.0.0.1:9")
            .env("VAULT_ADMIN_EMAIL", OWNER_EMAIL)
            .env("VAULT_ADMIN_PASSWORD", OWNER.password)
            .envs(settings.iter().copied())
            .output()
            .unwrap()
            .into()
    };
    let dead = format!("postgres://nobody@127.0.0.1:{}/nothing", free_port());
    for (settings, exit, code) in [
        (vec![("VAULT_PORT", port.as_str())], 1, "address_in_use"),
        (vec![("VAULT_DATABASE_URL", dead.as_str())], 1, "database"),
        (
            vec![("VAULT_DATABASE_URL", "/proc/nowhere/vault.db")],
            1,
            "database",
        ),
        (
            vec![
                ("VAULT_ADMIN_PASSWORD", "too short"),
                ("VAULT_DATABASE_URL", "fresh.db"),
            ],
            2,
            "admin_password_short",
        ),
        (vec![("VAULT_MODE", "local")], 2, "mode_local"),
        (
            vec![("VAULT_PUBLIC_URL", "http://vault.example")],
            2,
            "setting_invalid",
        ),
    ] {
        let ran = start(&settings).expect_code(exit);
        assert_eq!(ran.stdout, "", "{code}");
        // Every line is one of the log, also before the settings are known to be valid.
        let mut lines = ran.stderr.lines().map(serde_json::from_str);
        let last: serde_json::Value = lines.next_back().unwrap().unwrap();
        assert!(lines.all(|line| line.is_ok()), "{code}: {}", ran.stderr);
        assert_eq!(
            (&last["level"], &last["code"]),
            (&"ERROR".into(), &code.into())
        );
        assert!(last["hint"].is_string(), "{last}");
    }
}
