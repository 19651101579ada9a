//! The tools over `/mcp` with a bearer, 1,000 skills, against an empty tool, behind the same layers
//! and bare.

use std::time::Duration;

use serde_json::{Value, json};
use vault_tests::home::Home;

use crate::bare::Bare;
use crate::load::{self, Load};
use crate::meter::{median, resident};
use crate::skills;
use crate::table::{Row, Table, Target, say};
use crate::world::{self, Service};

const SKILLS: usize = 1_000;
const SLUG: &str = "tools";
const CLIENTS: [usize; 3] = [1, 8, 32];
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(1);
const CALLS: usize = 100_000;
const MB: f64 = 1e6;
const QUERY: &str = "review the latency budget before a rollback";

/// Publishes a release of 1,000 skills, then calls `get_skill` over and over: by name, by query.
pub fn measure(table: &mut Table) {
    say("tools over 1,000 skills");
    let service = Service::start();
    let owner = Home::new();
    world::add(&owner, &skills::write(&owner.path().join("work"), SKILLS));
    service.connect(&owner, SLUG);
    world::run(&owner, &["sync", "--cloud"]);
    let bearer = owner.access_token(&service.url, SLUG);
    let name = skills::name(SKILLS / 2);
    let by_name = called(&service, &bearer, &json!({ "name": name }));
    let by_query = called(&service, &bearer, &json!({ "query": QUERY }));
    answers_about(&service, &by_name, &name);
    answers_about(&service, &by_query, "skill-");
    let bare = Bare::tool();

    let layers = Bare::layers(&service.database(), &service.url);
    for clients in CLIENTS {
        let mut loads: [Vec<Load>; 4] = Default::default();
        for _ in 0..ROUNDS {
            let turns = [
                (bare.address, bare.pid(), &by_name),
                (layers.address, layers.pid(), &by_name),
                (service.address, service.pid(), &by_name),
                (service.address, service.pid(), &by_query),
            ];
            for (at, (address, pid, asked)) in turns.into_iter().enumerate() {
                loads[at].push(load::run(address, pid, asked, clients, ROUND));
            }
        }
        let [empty, behind, name, query] =
            loads.map(|loads| median(loads.iter().map(|load| load.per_second).collect()));
        let many = if clients == 1 { "client" } else { "clients" };
        table.row(
            Row::new(
                format!("get_skill by name over /mcp, {clients} {many}"),
                name,
                "calls/s",
            )
            .beside(behind, "empty tool, same layers")
            .target(Target::Least(0.5)),
        );
        table.row(
            Row::new("  the same, beside rmcp without layers", name, "calls/s")
                .beside(empty, "empty rmcp tool"),
        );
        let row = Row::new(
            format!("get_skill by query over /mcp, {clients} {many}"),
            query,
            "calls/s",
        )
        .beside(behind, "empty tool, same layers");
        // One connection waits for each answer: what it reaches says how long a call takes.
        table.row(if clients == 1 {
            row
        } else {
            row.target(Target::Above(5_000.0))
        });
    }
    memory(table, &service, &by_name, &by_query);
}

/// Memory after 10,000 calls, and after 100,000 more.
fn memory(table: &mut Table, service: &Service, by_name: &[u8], by_query: &[u8]) {
    let call = |count| {
        for asked in [by_name, by_query] {
            load::times(service.address, asked, 8, count / 2);
        }
        std::thread::sleep(Duration::from_secs(1));
        resident(service.pid()) / MB
    };
    let before = call(CALLS / 10);
    let after = call(CALLS);
    table.row(
        Row::new("serve, memory after 100,000 calls of tools", after, "MB")
            .beside(before, "after 10,000 calls")
            .target(Target::Most(1.1)),
    );
}

/// A call of `get_skill` as it goes over the wire.
fn called(service: &Service, bearer: &str, arguments: &Value) -> Vec<u8> {
    let body = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": { "name": "get_skill", "arguments": arguments },
    })
    .to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {bearer}\r\naccept: application/json, text/event-stream\r\n\
        content-type: application/json\r\nmcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n{body}",
        service.address,
        body.len()
    )
    .into_bytes()
}

fn answers_about(service: &Service, asked: &[u8], text: &str) {
    let (head, body) = load::ask(service.address, asked);
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = &answer["result"];
    assert!(
        head.starts_with("HTTP/1.1 200")
            && result["isError"] != json!(true)
            && result["content"].to_string().contains(text),
        "{head}{}",
        String::from_utf8_lossy(&body)
    );
}
