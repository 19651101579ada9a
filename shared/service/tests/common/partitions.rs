//! Holds each request of the tests to the partitions that its function may reach on AWS:
//! `infra/partitions.json`. The tests on the emulator hold the functions themselves to them, but
//! send fewer requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use axum::http::Method;
use vault_service::App;
use vault_service::maintenance::{self, Report};
use vault_testing::memory::touched::Touched;

/// Function -> route keys of the gateway.
type Routes = BTreeMap<String, Vec<String>>;
/// Function -> `read` or `write` -> kinds of partitions.
type Partitions = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../infra/routes.json")).expect("routes")
});
static PARTITIONS: LazyLock<Partitions> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../infra/partitions.json")).expect("partitions")
});

/// Panics if the function that answers a request may not reach what the answer needed.
pub fn check_reach(method: &Method, path: &str, touched: &Touched) {
    if let Some(function) = find_function(method, path) {
        check_function(function, &format!("{method} {path}"), touched);
    }
}

/// Does background work, as the schedule does, and panics if its function may not reach what that
/// needed.
pub async fn run_work(app: &App) -> Report {
    let (report, touched) = Touched::observe(maintenance::run_once(app)).await;
    check_function("admin", "background work", &touched);
    report.unwrap()
}

fn check_function(function: &str, work: &str, touched: &Touched) {
    let listed = &PARTITIONS[function];
    for (right, used) in [("read", &touched.read), ("write", &touched.written)] {
        let missing: Vec<_> = used.difference(&listed[right]).collect();
        assert!(
            missing.is_empty(),
            "{work}: if the function may, add {missing:?} to \"{function}\", \"{right}\" in infra/partitions.json"
        );
    }
}

/// Returns the function of the most specific route, as the gateway chooses it; `None` for a path
/// that no route has, such as that of a service below a path.
fn find_function(method: &Method, path: &str) -> Option<&'static str> {
    let ranked = ROUTES.iter().flat_map(|(function, keys)| {
        keys.iter().filter_map(move |key| {
            let (verb, template) = key.split_once(' ')?;
            let takes_method = verb == "ANY" || verb == method.as_str();
            let rank = takes_method.then(|| rank_match(template, path)).flatten()?;
            Some((rank, function.as_str()))
        })
    });
    ranked.max().map(|(_, function)| function)
}

/// Returns how specific a template is that matches the path: literal segments count more than
/// variables, and a variable more than a greedy one.
fn rank_match(template: &str, path: &str) -> Option<usize> {
    let mut segments = path.split('/');
    let mut rank = 1;
    for part in template.split('/') {
        if part.ends_with("+}") {
            return segments.next().map(|_| rank);
        }
        let segment = segments.next()?;
        if part.starts_with('{') {
            rank += 10;
        } else if part == segment {
            rank += 100;
        } else {
            return None;
        }
    }
    segments.next().is_none().then_some(rank)
}
