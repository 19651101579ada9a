//! Several servers over one PostgreSQL behind one address: each request may meet another of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use vault_tests::browser;
use vault_tests::home::Home;
use vault_tests::relay::{bad_gateway, carry};
use vault_tests::server::{Database, Server, free_port};

use crate::support::{self, SLUG, pulled};

/// A balancer on loopback that sends every request to the next server in turn, whatever connection
/// it came on.
struct Balancer {
    url: String,
    turns: Arc<[AtomicUsize; 2]>,
    /// Ends with the test.
    _runtime: tokio::runtime::Runtime,
}

impl Balancer {
    fn start(port: u16, servers: [String; 2]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let turns: Arc<[AtomicUsize; 2]> = Arc::default();
        let counted = Arc::clone(&turns);
        let next = Arc::new(AtomicUsize::new(0));
        let client = browser::client();
        let servers = Arc::new(servers);
        let router = axum::Router::new().fallback(move |request: Request| {
            let turn = next.fetch_add(1, Ordering::Relaxed) % 2;
            let (client, servers, counted) =
                (client.clone(), Arc::clone(&servers), Arc::clone(&counted));
            async move {
                let (answer, served) = forward(&client, &servers, turn, request).await;
                counted[served].fetch_add(1, Ordering::Relaxed);
                answer
            }
        });
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", port)))
            .unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            url: format!("http://127.0.0.1:{port}"),
            turns,
            _runtime: runtime,
        }
    }

    /// How many requests each server has answered.
    fn turns(&self) -> [usize; 2] {
        [0, 1].map(|server: usize| self.turns[server].load(Ordering::Relaxed))
    }
}

/// Sends a request to the server whose turn it is, and to the other one where nobody listens.
async fn forward(
    client: &reqwest::Client,
    servers: &[String; 2],
    turn: usize,
    request: Request,
) -> (Response, usize) {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 8 << 20).await.unwrap();
    for served in [turn, 1 - turn] {
        let request = Request::from_parts(parts.clone(), Body::from(body.clone()));
        if let Some((answer, body)) = carry(client, &servers[served], request).await {
            return (answer.map(|()| Body::from(body)), served);
        }
    }
    (bad_gateway(), turn)
}

#[test]
fn what_is_begun_at_one_server_goes_on_at_the_other_on_postgresql() {
    support::on_postgres(|database: &Database| {
        let port = free_port();
        let public = format!("http://127.0.0.1:{port}");
        let mut first = Server::start_with(database, &[("VAULT_PUBLIC_URL", &public)]);
        let second = first.replica();
        let balancer = Balancer::start(port, [first.listens_at(), second.listens_at()]);
        assert_eq!(balancer.url, first.url);

        // Registration, sign-in, consent, code and token: six requests of one walk, which
        // alternate.
        let (owner, machine) = (Home::new(), Home::new());
        owner.add("alpha", "One.").ok();
        support::connect(&first, &owner, SLUG);
        owner.json("sync --cloud");
        support::link(&first, &owner, &machine, SLUG);
        machine.json("cloud pull");
        assert_eq!(pulled(&machine).len(), 1);
        let turns = balancer.turns();
        assert!(
            turns[0] > 10 && turns[0].abs_diff(turns[1]) <= 1,
            "each of them had every second request: {turns:?}"
        );

        // One is gone: what it began goes on, refreshed tokens and the next release included.
        first.kill();
        owner.add("beta", "Two.").ok();
        owner.json("sync --cloud");
        machine.json("cloud pull");
        assert_eq!(pulled(&machine).len(), 2);
        let devices = owner.json("devices list");
        assert_eq!(devices.as_array().unwrap().len(), 1);
    });
}
