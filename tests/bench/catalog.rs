//! The signed catalog of 1,000 skills, warm, from `vault serve` on SQLite, against the bare
//! handler.

use std::time::Duration;

use vault_format::keys::SecretKey;
use vault_format::request;
use vault_format::time::Timestamp;
use vault_store::clock::{Clock as _, SystemClock};
use vault_tests::home::Home;

use crate::bare::Bare;
use crate::load::{self, Load};
use crate::meter::{float, median, resident};
use crate::skills;
use crate::table::{Row, Table, Target, say};
use crate::world::{self, Service};

const SKILLS: usize = 1_000;
const SLUG: &str = "thousand";
const CONNECTIONS: usize = 8;
const ROUNDS: usize = 11;
const ROUND: Duration = Duration::from_millis(1_200);
const MB: f64 = 1e6;

/// Publishes, pulls, then asks for the catalog over and over.
pub fn measure(table: &mut Table) {
    say("catalog of 1,000 skills");
    let mut service = Service::start();
    std::thread::sleep(Duration::from_secs(1));
    let at_rest = resident(service.pid());

    let owner = Home::new();
    let added = world::add(&owner, &skills::write(&owner.path().join("work"), SKILLS));
    service.connect(&owner, SLUG);
    let (_, synced) = world::run(&owner, &["sync", "--cloud"]);
    let pulled = pull(&service, &owner);

    let key = SecretKey::from_seed([7; 32]);
    let now = SystemClock.now();
    enrol(&service, &key, now);
    let path = format!("/v/{SLUG}/catalog.json");
    let asked = signed(&key, "GET", &path, now, "");
    let (head, catalog) = load::ask(service.address, &asked);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let file = owner.path().join("catalog.json");
    std::fs::write(&file, &catalog).expect("a file");
    let after_work = resident(service.pid());
    service.restart();
    for _ in 0..SKILLS {
        load::ask(service.address, &asked);
    }
    std::thread::sleep(Duration::from_secs(1));
    let after_requests = resident(service.pid());

    let bare = Bare::catalog(&file);
    let (_, same) = load::ask(bare.address, &asked);
    assert!(same == catalog, "the baseline answers other bytes");
    let mut loads: [Vec<Load>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (at, (address, pid)) in [(bare.address, bare.pid()), (service.address, service.pid())]
            .into_iter()
            .enumerate()
        {
            loads[at].push(load::run(address, pid, &asked, CONNECTIONS, ROUND));
        }
    }
    let [bare, subject] = &loads;
    let of = |loads: &[Load], what: fn(&Load) -> f64| median(loads.iter().map(what).collect());
    let size = float(catalog.len()) / 1024.0;
    table.row(
        Row::new(
            format!("signed catalog.json of 1,000 skills ({size:.0} KiB), warm"),
            of(subject, |load| load.per_second),
            "answers/s",
        )
        .beside(of(bare, |load| load.per_second), "axum + verify_strict")
        .target(Target::Least(0.7)),
    );
    table.row(
        Row::new(
            "  the same, by CPU of the server",
            1.0 / of(subject, |load| load.server_cpu),
            "answers/CPU-s",
        )
        .beside(
            1.0 / of(bare, |load| load.server_cpu),
            "axum + verify_strict",
        )
        .target(Target::Least(0.7)),
    );
    table.row(
        Row::new("serve at rest, memory after the start", at_rest / MB, "MB")
            .target(Target::Below(25.0)),
    );
    table.row(
        Row::new(
            "serve at rest, memory after 1,000 requests for that catalog",
            after_requests / MB,
            "MB",
        )
        .target(Target::Below(25.0)),
    );
    table.row(Row::new(
        "serve, memory after sign-ins, a push and a pull of 1,000 skills",
        after_work / MB,
        "MB",
    ));
    let rate = |took: Duration| float(SKILLS) / took.as_secs_f64();
    table.row(Row::new("add of 1,000 skills", rate(added), "skills/s"));
    table.row(Row::new(
        "first sync of 1,000 skills",
        rate(synced),
        "skills/s",
    ));
    table.row(Row::new(
        "pull of 1,000 skills on a second home",
        rate(pulled),
        "skills/s",
    ));
}

fn pull(service: &Service, owner: &Home) -> Duration {
    let second = Home::new();
    world::run(
        &second,
        &["link", &service.vault(SLUG), "--hostname", "second"],
    );
    world::run(owner, &["devices", "admit", "second", "--yes"]);
    let (pulled, took) = world::run(&second, &["cloud", "pull"]);
    let installed = std::fs::read_dir(second.vault().join("store"))
        .expect("a store")
        .count();
    assert_eq!(installed, SKILLS, "{pulled}");
    took
}

fn enrol(service: &Service, key: &SecretKey, now: Timestamp) {
    let body = format!(r#"{{"public_key":"{}","hostname":"load"}}"#, key.public());
    let asked = signed(key, "POST", &format!("/v/{SLUG}/devices"), now, &body);
    let (head, body) = load::ask(service.address, &asked);
    assert!(
        head.starts_with("HTTP/1.1 201"),
        "{head}{}",
        String::from_utf8_lossy(&body)
    );
}

/// A signed request as it goes over the wire.
fn signed(key: &SecretKey, method: &str, path: &str, now: Timestamp, body: &str) -> Vec<u8> {
    let headers = request::sign_request(key, method, path, now);
    let content = if body.is_empty() {
        String::new()
    } else {
        format!(
            "content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        )
    };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{}: {}\r\n{}: {}\r\n{}: {}\r\n{content}\r\n{body}",
        request::DEVICE_HEADER,
        headers.device,
        request::TIMESTAMP_HEADER,
        headers.timestamp,
        request::SIGNATURE_HEADER,
        headers.signature,
    )
    .into_bytes()
}
