//! Measures the functions: starts each many times beside an empty one, sends it many events, and
//! writes the figures to standard output as JSON.
//!
//! `tests/bench/run` builds this program and makes a table of the figures. The functions are
//! expected beside the folder of this program.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use harness::Running;
use harness::stores::{self, Heard, Stores, catalog_request};
use serde_json::{Value, json};
use vault_format::keys::SecretKey;

/// Number of starts of each function. The functions take turns, so that other load on the machine
/// affects all of them.
const STARTS: usize = 31;
/// Number of events that one process gets.
const CALLS: usize = 400;
/// Size of the measured catalog, in bytes: about that of 1,000 skills.
const CATALOG_BYTES: usize = 330 * 1024;
const FUNCTIONS: [&str; 6] = ["empty", "oauth", "mcp", "admin", "devices", "catalog"];

fn main() {
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().unwrap();
    let path = |name: &str| -> PathBuf {
        if name == "empty" {
            folder.join(name)
        } else {
            folder.parent().unwrap().join(name)
        }
    };
    // Use no address of an emulator, as on AWS. A function sends the stores no request before its
    // first event.
    let on_aws = stores::variables("");
    let mut inits = FUNCTIONS.map(|_| Vec::new());
    for _ in 0..STARTS {
        for (name, inits) in FUNCTIONS.iter().zip(&mut inits) {
            let mut running = Running::start(&path(name), &on_aws);
            inits.push(running.ready().as_secs_f64() * 1e3);
        }
    }
    let mut functions = Vec::new();
    for (name, inits) in FUNCTIONS.into_iter().zip(inits) {
        let mut running = Running::start(&path(name), &on_aws);
        running.ready();
        let (warm_ms, _) = warm(&mut running, &unsigned());
        functions.push(json!({
            "name": name, "init_ms": median(inits), "warm_ms": warm_ms, "resident_kib": running.memory("VmRSS:"),
            "bytes": std::fs::metadata(path(name)).unwrap().len(),
        }));
    }
    let figures = json!({ "functions": functions, "catalog": catalog(&path("catalog")) });
    let mut out = std::io::stdout();
    out.write_all(format!("{figures}\n").as_bytes()).unwrap();
}

/// Measures repeated signed reads of a large catalog by one process.
fn catalog(path: &Path) -> Value {
    let (stores, device) = (Stores::start(), SecretKey::from_seed([7; 32]));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let words = b"{\"name\":\"skill-00001\",\"bundle_hash\":\"152f1c1a\"}";
    let bytes: Vec<u8> = words.iter().copied().cycle().take(CATALOG_BYTES).collect();
    runtime.block_on(stores.publish(bytes, &device));
    let mut running = Running::start(path, &stores::variables(&stores.endpoint));
    running.ready();
    let event = catalog_request(&device);
    let (first, first_took) = running.call(&event);
    assert_eq!(first["statusCode"], 200, "{first}");
    stores.heard();
    let (warm_ms, answer_bytes) = warm(&mut running, &event);
    let heard = stores.heard();
    let objects = heard
        .iter()
        .filter(|heard| **heard == Heard::Object)
        .count();
    let records: usize = heard
        .iter()
        .map(|heard| match heard {
            Heard::Records(keys) => *keys,
            Heard::Object => 0,
        })
        .sum();
    json!({
        "first_ms": first_took.as_secs_f64() * 1e3, "warm_ms": warm_ms, "answer_bytes": answer_bytes,
        "resident_kib": running.memory("VmRSS:"), "calls": CALLS, "record_reads": records, "requests": heard.len() - objects,
        "object_reads": objects,
    })
}

/// Returns the median time of many calls, in milliseconds, and the length of an answer.
fn warm(running: &mut Running, event: &Value) -> (f64, usize) {
    let mut length = 0;
    let times = (0..CALLS).map(|_| {
        let (answer, took) = running.call(event);
        length = answer.to_string().len();
        took.as_secs_f64() * 1e3
    });
    let middle = median(times.collect());
    (middle, length)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the event of an unsigned request, which the function answers without a store.
fn unsigned() -> Value {
    let mut event: Value = serde_json::from_str(harness::EVENT).unwrap();
    event["rawPath"] = "/v/acme/catalog.json".into();
    event
}
