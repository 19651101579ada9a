//! The log of a vault in a browser and as files.

use serde_json::{Value, json};
use vault_format::request::device_id;
use vault_service::model::audit::{self, Actor, Change};
use vault_service::model::device::DeviceStatus;
use vault_service::model::user::{Role, Scopes};

use super::{below, open, signed_in};
use crate::admin::{ADA, BOB, Desk, desk, reference};
use crate::common;

const LOG: &str = "/console/acme/audit";

/// Writes an entry of the log of `acme`.
async fn note(desk: &Desk, action: &str, target: &str, outcome: &str) {
    let app = &desk.world.app;
    let actor = Actor {
        user: "server".to_owned(),
        ..Actor::default()
    };
    let change = Change {
        target: Some(target.to_owned()),
        ..Change::default()
    };
    let namespace = Some(&desk.acme.id);
    let entry = app
        .audit_entry(namespace, &actor, action, change, outcome)
        .unwrap();
    common::commit(app, vec![entry]).await;
}

/// The targets on a page, in its order.
fn targets(body: &str) -> Vec<&str> {
    let cells = body.split("data-label=\"About\"><bdi>").skip(1);
    cells
        .map(|cell| cell.split("</bdi>").next().unwrap())
        .collect()
}

fn link<'b>(body: &'b str, text: &str) -> Option<String> {
    let before = body.split(&format!("\">{text}</a>")).next()?;
    if before.len() == body.len() {
        return None;
    }
    let href: &'b str = before.rsplit("href=\"").next()?;
    Some(href.replace("&#38;", "&"))
}

#[tokio::test]
async fn the_log_is_read_newest_first_and_every_entry_once() {
    let desk = desk().await;
    // Many in one second, in one hour, and some long ago.
    for number in 0..120 {
        note(&desk, "test.entry", &format!("t{number:04}"), "done").await;
        let pause = match number {
            0..20 => 8 * 24 * 3600,
            20..40 => 7200,
            40..80 => 1,
            _ => 0,
        };
        desk.world.clock.advance(pause);
    }
    let mut owner = signed_in(&desk, ADA).await;
    let (mut path, mut seen) = (format!("{LOG}?action=test.entry"), Vec::new());
    let mut pages = 0;
    loop {
        let page = open(&mut owner, &path).await;
        let shown = targets(&page.body);
        assert!(shown.len() <= 50, "{path}");
        seen.extend(shown.into_iter().map(str::to_owned));
        pages += 1;
        match link(&page.body, "Older entries") {
            Some(next) => path = next,
            None => break,
        }
        assert!(pages < 30, "{path}");
    }
    assert_eq!(seen.len(), 120, "{pages} pages");
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 120);
    // Within one second the order is by chance.
    let older: Vec<_> = seen.iter().filter(|it| ***it < *"t0080").collect();
    assert!(older.is_sorted_by(|one, other| one > other), "{older:?}");
}

#[tokio::test]
async fn the_newest_page_has_entries_though_a_quiet_time_follows_a_busy_one() {
    let desk = desk().await;
    let app = &desk.world.app;
    let (namespace, actor) = (Some(&desk.acme.id), Actor::server());
    for _ in 0..100 {
        let entry = || app.audit_entry(namespace, &actor, "test.entry", Change::default(), "done");
        common::commit(app, (0..30).map(|_| entry().unwrap()).collect()).await;
        desk.world.clock.advance(1);
    }
    desk.world.clock.advance(150);
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, &format!("{LOG}?action=test.entry")).await;
    assert_eq!(
        page.body.matches("test.entry</").count(),
        50,
        "{}",
        page.body
    );
}

#[tokio::test]
async fn an_entry_shows_what_it_changed_in_words() {
    let desk = desk().await;
    let app = &desk.world.app;
    let change = Change {
        target: Some("t".to_owned()),
        before: Some(json!({ "status": "pending", "quota_bytes": null })),
        after: Some(json!({ "status": "<b>", "quota_bytes": 5 })),
    };
    let (namespace, actor) = (Some(&desk.acme.id), Actor::server());
    let entry = app.audit_entry(namespace, &actor, "test.entry", change, "done");
    common::commit(app, vec![entry.unwrap()]).await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, &format!("{LOG}?action=test.entry")).await;
    let changes = "<small><bdi>quota bytes: none → 5</bdi></small>\
        <small><bdi>status: pending → &#60;b&#62;</bdi></small>";
    assert!(page.body.contains(changes), "{}", page.body);
}

#[tokio::test]
async fn filters_say_who_what_about_what_and_when() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::ALL).await;
    for (action, target, outcome) in [
        ("thing.make", "a", "done"),
        ("thing.end", "b", "owner_required"),
        ("thingy.make", "a", "done"),
    ] {
        note(&desk, action, target, outcome).await;
    }
    let mut owner = signed_in(&desk, ADA).await;
    let today = &desk.world.now().to_string()[..10];
    for (query, found) in [
        ("action=thing".to_owned(), vec!["a", "b"]),
        ("action=thing.end".to_owned(), vec!["b"]),
        ("action=thing&target=a".to_owned(), vec!["a"]),
        ("action=thing&actor=server".to_owned(), vec!["a", "b"]),
        (format!("action=thing&actor={}", bob.id), vec![]),
        (
            format!("action=thing&from={today}&until={today}"),
            vec!["a", "b"],
        ),
        ("action=thing&until=2099-01-01".to_owned(), vec!["a", "b"]),
        ("action=thing&until=2020-01-01".to_owned(), vec![]),
        ("action=thing&from=2099-01-01".to_owned(), vec![]),
    ] {
        let page = open(&mut owner, &format!("{LOG}?{query}")).await;
        let mut shown = targets(&page.body);
        shown.sort_unstable();
        assert_eq!(shown, found, "{query}");
    }
    for (query, note) in [
        ("from=today", "take a day"),
        ("until=2026-13-01", "take a day"),
        ("action=a%20b", "An action is one word"),
        ("actor=Ada%20Lovelace", "takes the e-mail address or the id"),
        (
            "actor=none@example.org",
            "No person of this vault has the e-mail address",
        ),
    ] {
        let page = open(&mut owner, &format!("{LOG}?{query}")).await;
        assert!(page.body.contains(note), "{query}: {}", page.body);
        assert_eq!(targets(&page.body), [""; 0], "{query}");
        let file = owner.get(&format!("/console/acme/audit.csv?{query}")).await;
        assert_eq!(file.status, 400, "{query}");
    }
}

#[tokio::test]
async fn the_log_is_filtered_by_what_it_shows() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::ALL).await;
    let machine = desk.world.device("acme", 7, DeviceStatus::Pending).await;
    let id = device_id(&desk.acme.slug, &machine.public());
    note(&desk, "test.person", &bob.id, "done").await;
    note(&desk, "test.machine", &id, "done").await;
    note(&desk, "test.address", BOB, "done").await;
    let mut owner = signed_in(&desk, ADA).await;
    // The names of the person and the machine lead to their pages.
    let page = open(&mut owner, &format!("{LOG}?action=test")).await;
    for link in [
        format!(
            "<a href=\"/console/acme/people/{}\"><bdi>{BOB}</bdi></a>",
            bob.id
        ),
        format!("<a href=\"/console/acme/machines/{id}\"><bdi>machine 7</bdi></a>"),
    ] {
        assert!(page.body.contains(&link), "{link}: {}", page.body);
    }
    // By address, a person is found under the id as well.
    for (query, rows) in [
        (format!("action=test&target={BOB}"), 2),
        (format!("action=test&target={id}"), 1),
        (format!("action=account.sign-in&actor={ADA}"), 2),
        ("action=test&actor=the%20service".to_owned(), 3),
    ] {
        let page = open(&mut owner, &format!("{LOG}?{query}")).await;
        let found = page.body.matches("scope=\"row\"").count();
        assert_eq!(found, rows, "{query}: {}", page.body);
    }
}

/// An app has its name in the log, beside the person who used it and where it is what was changed.
#[tokio::test]
async fn the_log_names_apps() {
    let desk = desk().await;
    let clients = desk.get("/admin/clients").await.json();
    let id = clients["items"][0]["id"].as_str().unwrap().to_owned();
    let waiting = json!({ "email": "new@example.org" });
    assert_eq!(desk.post("/admin/users", &waiting).await.status, 201);
    note(&desk, "test.app", &id, "done").await;
    let named = format!("<bdi>the app “An app” ({id})</bdi>");
    let mut owner = signed_in(&desk, ADA).await;
    for (action, column) in [("user.create", "Done by"), ("test.app", "About")] {
        let page = open(&mut owner, &format!("{LOG}?action={action}")).await;
        let cells = page.body.split("data-label=").skip(1);
        let mut cells = cells.filter(|cell| cell.starts_with(&format!("\"{column}\"")));
        assert!(cells.any(|cell| cell.contains(&named)), "{}", page.body);
    }
}

#[tokio::test]
async fn a_file_of_few_entries_of_a_long_log_ends_before_the_whole_log_is_read() {
    let desk = desk().await;
    let app = &desk.world.app;
    let (namespace, actor) = (Some(&desk.acme.id), Actor::server());
    for _ in 0..520 {
        let entry = || app.audit_entry(namespace, &actor, "test.entry", Change::default(), "done");
        common::commit(app, (0..100).map(|_| entry().unwrap()).collect()).await;
        desk.world.clock.advance(1);
    }
    note(&desk, "test.rare", "last", "done").await;
    let mut owner = signed_in(&desk, ADA).await;
    let file = owner
        .get("/console/acme/audit.jsonl?action=test.rare")
        .await;
    let line: Value = serde_json::from_str(&file.body).unwrap();
    let next = below(&desk, line["next"].as_str().unwrap());
    assert!(next.starts_with("/console/acme/audit.jsonl?"), "{next}");
    let file = owner.get(next).await;
    let line: Value = serde_json::from_str(&file.body).unwrap();
    assert_eq!(line["target"], "last");
}

#[tokio::test]
async fn files_have_the_same_entries_and_no_cell_is_a_formula() {
    let desk = desk().await;
    let evil = [
        "=HYPERLINK(\"http://x\")",
        "a,\"b\"\r\n=c",
        "<script>x</script>",
    ];
    for target in evil {
        note(&desk, "test.entry", target, "done").await;
    }
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, &format!("{LOG}?action=test.entry")).await;
    let (csv, lines) = (
        link(&page.body, "as a table (CSV)").unwrap(),
        link(&page.body, "as JSON lines").unwrap(),
    );
    let file = owner.get(&lines).await;
    assert_eq!(file.header("content-type"), "application/jsonl");
    assert_eq!(
        file.header("content-disposition"),
        "attachment; filename=\"acme-audit.jsonl\""
    );
    let mut found: Vec<String> = Vec::new();
    for line in file.body.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        found.push(entry["target"].as_str().unwrap().to_owned());
    }
    found.sort();
    let mut wanted: Vec<_> = evil.iter().map(|it| (*it).to_owned()).collect();
    wanted.sort();
    assert_eq!(found, wanted);
    let file = owner.get(&csv).await;
    assert_eq!(file.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    assert!(
        file.body.contains("\"'=HYPERLINK(\"\"http://x\"\")\""),
        "{}",
        file.body
    );
    assert!(file.body.contains("\"a,\"\"b\"\"\r\n=c\""), "{}", file.body);
}

#[tokio::test]
async fn a_file_that_is_too_long_says_where_the_next_part_is() {
    let desk = desk().await;
    let app = &desk.world.app;
    for round in 0..52 {
        let mut writes = Vec::new();
        for number in 0..100 {
            let change = Change {
                target: Some(format!("{round}-{number}")),
                ..Change::default()
            };
            let namespace = Some(&desk.acme.id);
            let actor = Actor::server();
            writes.push(
                app.audit_entry(namespace, &actor, "test.entry", change, "done")
                    .unwrap(),
            );
        }
        common::commit(app, writes).await;
        desk.world.clock.advance(60);
    }
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, LOG).await;
    assert_eq!(targets(&page.body).len(), 50);
    let mut path = "/console/acme/audit.jsonl?action=test.entry".to_owned();
    let (mut seen, mut parts) = (0, 0);
    loop {
        let file = owner.get(&path).await;
        parts += 1;
        let lines: Vec<Value> = file
            .body
            .lines()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        let last = lines.last().unwrap();
        seen += lines.iter().filter(|line| line["id"].is_string()).count();
        match last["next"].as_str() {
            Some(next) => path = below(&desk, next).to_owned(),
            None => break,
        }
        assert!(parts < 9);
    }
    assert_eq!((seen, parts), (5200, 2));
    let stored = app
        .records
        .list_page(&audit::audit_partition(Some(&desk.acme.id)), "", None, 1000)
        .await;
    assert_eq!(stored.unwrap().len(), 1000);
}
