//! `kill -9` of `vault serve`, and a database that goes away, while requests are under way.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::StatusCode;
use vault_format::request;
use vault_library::subscribe;
use vault_store::clock::{Clock as _, SystemClock};
use vault_testing::postgres::Cluster;
use vault_testing::servers::or_say_why;
use vault_tests::browser;
use vault_tests::home::Home;
use vault_tests::server::{Database, Server};
use vault_tests::sweep::{self, Fault};
use vault_tests::team::{SLUG, Team};

use crate::proxy::{Proxy, When};
use crate::remote::{change, machine, pull, same_as_owner, team};
use crate::state;

/// Ends a process as `kill -9` does, by its number.
fn kill(process: u32) {
    let _ = Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .status();
}

#[test]
fn a_push_resumes_after_the_server_was_killed_at_any_request() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let public = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::start_with(
        &Database::Sqlite,
        &[
            ("VAULT_PUBLIC_URL", &public),
            ("VAULT_LIMIT_CATALOG", "0"),
            ("VAULT_LIMIT_BUNDLES", "0"),
        ],
    );
    let proxy = Proxy::start(listener, server.port());
    let owner = Home::new();
    owner.add("witness", "stays").ok();
    let mut team = Team::new(server, owner);
    change(&team, 1);
    assert_eq!(team.sync()["release"], 1);
    let reader = machine(&team, "reader");
    assert_eq!(pull(&reader), 1);

    // How many requests a push makes: plan, ask, upload, ask, upload, catalog.
    change(&team, 2);
    proxy.arm(None, || {});
    assert_eq!(team.sync()["release"], 2);
    let mut heads = proxy.heads();
    let commit = heads
        .iter()
        .position(|head| head.starts_with("PUT /admin/vaults/team/catalog"));
    // What is asked after the commit fails no push.
    heads.truncate(commit.expect("a commit") + 1);
    assert!(heads.len() >= 4, "{heads:?}");
    assert_eq!(pull(&reader), 2);
    let mut release = 2;
    let mut answered_and_lost = 0;
    let moments = (1..=heads.len()).flat_map(|n| [When::Before(n), When::Answered(n)]);
    for (round, moment) in moments.enumerate() {
        change(&team, round + 3);
        let before = state::seen(&reader);
        let process = team.server.pid();
        proxy.arm(Some(moment), move || kill(process));
        let broken = team.owner.run("--json sync --cloud");
        let said = broken.json();
        assert_eq!(broken.code, 7, "{moment:?}: {said}");
        let code = said["error"]["code"].as_str().unwrap();
        assert!(["broken_off", "unreachable"].contains(&code), "{said}");
        proxy.arm(None, || {});
        team.server.wait();
        team.server.resume();
        // What the machine gets in between is the old release or, where only the answer was lost,
        // the new one.
        let shown = pull(&reader);
        if shown == release {
            assert_eq!(state::seen(&reader), before, "{moment:?}");
        } else {
            assert_eq!(
                moment,
                When::Answered(heads.len()),
                "only the commit shows it"
            );
            same_as_owner(&team, &reader);
            answered_and_lost += 1;
        }
        let again = team.sync();
        release += 1;
        assert_eq!(again["release"], release, "{moment:?}: {again}");
        assert_eq!(pull(&reader), release);
        same_as_owner(&team, &reader);
        state::swept(&team.owner);
    }
    eprintln!(
        "server killed at {} moments of a push of {} requests",
        heads.len() * 2,
        heads.len()
    );
    assert_eq!(answered_and_lost, 1);
}

#[test]
fn the_database_is_whole_after_a_kill_at_any_write_of_it() {
    if !sweep::is_ready() {
        return;
    }
    let mut team = team();
    let reader = machine(&team, "reader");
    assert_eq!(pull(&reader), 1);
    team.server.stop().ok();
    let trace = tempfile::NamedTempFile::new().unwrap();
    // What comes before it listens is counted, and is not what a push does.
    let options = sweep::trace_options(&trace.path().to_string_lossy())
        .map(|option| option.replace("trace=", "trace=listen,"));
    assert!(team.server.resume_traced(&options));
    change(&team, 2);
    assert_eq!(team.sync()["release"], 2);
    team.server.stop();
    // Of the calls after the server listens those that change the database file or its log.
    let all: Vec<_> = sweep::read_points(trace.path(), "listen(")
        .into_iter()
        .filter(|point| ["pwrite64", "fsync", "fdatasync", "ftruncate"].contains(&&*point.call))
        .collect();
    assert!(!all.is_empty());
    team.server.resume();
    assert_eq!(pull(&reader), 2);
    let step = all.len().div_ceil(18);
    let tried: Vec<_> = all.iter().step_by(step).chain(all.last()).collect();
    let mut release = 2;
    let mut struck = 0;
    for (round, point) in tried.iter().enumerate() {
        change(&team, round + 3);
        let before = state::seen(&reader);
        team.server.stop().ok();
        let [traced, inject] = sweep::fault_options(point, Fault::Kill);
        let options = ["-f", "-qq", "-o", "/dev/null", "-e", &traced, "-e", &inject];
        let options = options.map(str::to_owned);
        let listened = team.server.resume_traced(&options);
        let pushed = team.owner.run("--json sync --cloud");
        if pushed.code == 0 {
            assert!(listened);
            assert_eq!(pushed.json()["data"]["release"], release + 1);
            // The call did not come to that number this time: no fault, no question.
            team.server.stop();
        } else {
            assert_eq!(pushed.code, 7, "{point:?}: {pushed:?}");
            team.server.wait();
            struck += 1;
        }
        team.server.resume();
        let shown = pull(&reader);
        if shown == release {
            assert_eq!(state::seen(&reader), before, "{point:?}");
        } else {
            assert_eq!(shown, release + 1, "{point:?}");
            same_as_owner(&team, &reader);
        }
        let again = team.sync();
        release += 1;
        assert_eq!(again["release"], release, "{point:?}: {again}");
        assert_eq!(pull(&reader), release);
        same_as_owner(&team, &reader);
    }
    eprintln!(
        "server killed at {struck} of {} tried, of {} database calls of a push",
        tried.len(),
        all.len()
    );
    assert!(struck * 2 >= tried.len());
}

/// What a client that is not ours would see of one request, again and again until told to stop.
async fn ask_all_along(
    stop: Arc<AtomicBool>,
    ask: impl Fn() -> reqwest::RequestBuilder,
) -> Vec<(StatusCode, bool)> {
    let mut answers = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        // A connection that breaks would be an error: the server itself stays up.
        let answer = ask().send().await.expect("an answer");
        let retry = answer.headers().contains_key("retry-after");
        answers.push((answer.status(), retry));
    }
    answers
}

#[test]
fn a_database_that_goes_away_is_unavailable_and_nothing_else() {
    let Some(cluster) = or_say_why(Cluster::start()) else {
        return;
    };
    let database = cluster.database().unwrap();
    let server = Server::start_with(
        &Database::Postgres(database.url()),
        &[("VAULT_LIMIT_CATALOG", "0"), ("VAULT_LIMIT_BUNDLES", "0")],
    );
    let owner = Home::new();
    owner.add("witness", "stays").ok();
    let team = Team::new(server, owner);
    assert_eq!(team.sync()["release"], 1);
    let reader = machine(&team, "reader");
    assert_eq!(pull(&reader), 1);

    let vault = state::open(&reader);
    let link = subscribe::list_links(&vault).unwrap().remove(0);
    let device = link.device_key(&vault).unwrap();
    let url = team.server.url.clone();
    let signed = {
        let (client, url) = (browser::client(), url.clone());
        move |path: String| {
            let proof = request::sign_request(&device, "GET", &path, SystemClock.now());
            client
                .get(format!("{url}{path}"))
                .header("X-Vault-Device", proof.device)
                .header("X-Vault-Timestamp", proof.timestamp)
                .header("X-Vault-Signature", proof.signature)
        }
    };
    let bearer = {
        let client = browser::client();
        let token = access_token(&team.owner);
        let address = format!("{url}/admin/vaults/{SLUG}");
        move || client.get(&address).bearer_auth(&token)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let asking = [
        runtime.spawn(ask_all_along(Arc::clone(&stop), {
            let signed = signed.clone();
            move || signed(format!("/v/{SLUG}/catalog.json"))
        })),
        runtime.spawn(ask_all_along(Arc::clone(&stop), {
            let signed = signed.clone();
            move || signed(format!("/v/{SLUG}/devices/current"))
        })),
        runtime.spawn(ask_all_along(Arc::clone(&stop), bearer)),
    ];
    for _ in 0..3 {
        cluster.crash().unwrap();
        // In the gap the commands say that it is the service, and change nothing.
        change(&team, 9);
        for (home, arguments) in [
            (&team.owner, &["--json", "sync", "--cloud"][..]),
            (&reader, &["--json", "cloud", "pull"]),
        ] {
            let refused = home.run(arguments);
            assert_eq!(refused.code, 7, "{refused:?}");
            assert_eq!(
                refused.json()["error"]["code"],
                "unavailable",
                "{refused:?}"
            );
        }
        cluster.restart().unwrap();
        let served = team.owner.run("--json devices list");
        assert_eq!(
            served.code, 0,
            "the first request after the restart: {served:?}"
        );
        team.sync();
        pull(&reader);
        same_as_owner(&team, &reader);
    }
    stop.store(true, Ordering::SeqCst);
    let mut counts = std::collections::BTreeMap::<u16, usize>::new();
    for answers in asking {
        for (status, retry) in runtime.block_on(answers).unwrap() {
            *counts.entry(status.as_u16()).or_default() += 1;
            assert_eq!(
                retry,
                status == StatusCode::SERVICE_UNAVAILABLE,
                "{status} and Retry-After"
            );
        }
    }
    eprintln!("answers while PostgreSQL was stopped and started: {counts:?}");
    assert!(
        counts.keys().all(|status| [200, 503].contains(status)),
        "{counts:?}"
    );
    assert!(counts.contains_key(&200) && counts.contains_key(&503));
}

fn access_token(home: &Home) -> String {
    let path = crate::remote::token_files(home).remove(0);
    let tokens: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    tokens["access_token"].as_str().unwrap().to_owned()
}
