//! Clients that are known by the address of a document: requirement 13, and what it asks of the others.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use vault_service::App;
use vault_service::documents::{ClientUrl, Documents, FetchError, Fetched};
use vault_service::http::Peer;
use vault_service::model::client::{Client, Connection, client_key, connection_key};
use vault_service::model::user::Scopes;
use vault_service::oauth::document::{LEAST_FRESH, MOST_FRESH};
use vault_store::records::{Document, When, Write};

use super::{Place, place_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Reply, Tokens, VERIFIER, Visitor, audited, authenticate,
    authorize, bootstrap, get, post_form, send,
};

const URL: &str = "https://app.example/client.json";
const ADMIN: (&str, &str) = (OWNER, OWNER_PASSWORD);

/// What stands at the addresses of the tests.
#[derive(Default)]
struct Book {
    pages: Mutex<HashMap<String, Fetched>>,
    inside: Mutex<Vec<String>>,
    asked: Mutex<Vec<String>>,
}

impl Book {
    fn write(&self, url: &str, page: Fetched) {
        self.pages.lock().unwrap().insert(url.to_owned(), page);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl Documents for Book {
    async fn fetch(&self, url: &ClientUrl) -> Result<Fetched, FetchError> {
        self.asked.lock().unwrap().push(url.to_string());
        if self
            .inside
            .lock()
            .unwrap()
            .iter()
            .any(|held| held == url.as_str())
        {
            return Err(FetchError::NotPublic);
        }
        let page = self.pages.lock().unwrap().get(url.as_str()).cloned();
        page.ok_or_else(|| FetchError::Unreachable("nobody there".into()))
    }
}

fn document(url: &str, redirects: &[&str]) -> Value {
    json!({ "client_id": url, "client_name": "An app with a page", "redirect_uris": redirects })
}

fn page(document: &Value) -> Fetched {
    Fetched {
        status: 200,
        content_type: Some("application/json".into()),
        body: document.to_string().into(),
        ..Fetched::default()
    }
}

async fn place() -> (Place, Arc<Book>) {
    limited(0).await
}

async fn limited(register: u32) -> (Place, Arc<Book>) {
    let mut place = place_at("https://vault.example", |config| {
        config.limits.register_per_source = register;
    });
    let book = Arc::new(Book::default());
    book.write(URL, page(&document(URL, &[CALLBACK])));
    place.app = place.app.with_documents(book.clone());
    bootstrap(&place.app).await;
    (place, book)
}

/// The walk of a client with a document, to its tokens.
async fn walk(app: &App) -> Tokens {
    let address = authorize(URL, CALLBACK, &[("scope", "read write")]);
    let answer = Visitor::new(app)
        .approve(&address, ADMIN, "default", Scopes::ALL)
        .await;
    let code = answer.returned("code").unwrap();
    Tokens::of(URL, &exchange(app, URL, &code).await)
}

async fn exchange(app: &App, client: &str, code: &str) -> Reply {
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("code_verifier", VERIFIER),
        ("redirect_uri", CALLBACK),
    ];
    post_form(app, "/oauth/token", &fields).await
}

async fn is_good(app: &App, access: &str) -> bool {
    let mut headers = axum::http::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {access}").parse().unwrap());
    authenticate(app, &headers).await.is_ok()
}

fn id() -> String {
    URL.parse::<ClientUrl>().unwrap().id().to_string()
}

#[tokio::test]
async fn requirement_5_documents_are_announced_only_where_they_are_read() {
    let (with, _) = place().await;
    let without = place_at("https://vault.example", |_| {});
    for (app, told) in [(&with.app, Value::from(true)), (&without.app, Value::Null)] {
        for name in ["oauth-authorization-server", "openid-configuration"] {
            let reply = get(app, &format!("/.well-known/{name}")).await;
            assert_eq!(reply.json()["client_id_metadata_document_supported"], told);
        }
    }
    let reply = get(&without.app, &authorize(URL, CALLBACK, &[])).await;
    assert_eq!(
        (reply.status, reply.heading()),
        (400, "This app is not registered here")
    );
}

#[tokio::test]
async fn requirement_13_a_client_with_a_document_walks_like_any_other() {
    let (place, book) = place().await;
    let app = &place.app;
    let mut visitor = Visitor::new(app);
    let consent = visitor
        .arrive(&authorize(URL, CALLBACK, &[]), OWNER, OWNER_PASSWORD)
        .await;
    assert_eq!(consent.heading(), "Allow this app to use your vault?");
    for said in [
        "<q>An app with a page</q>",
        "name not verified; described by <strong>app.example</strong>",
    ] {
        assert!(consent.body.contains(said), "{}", consent.body);
    }
    let held = walk(app).await;
    assert!(is_good(app, &held.access).await);
    assert_eq!(book.asked(), 1, "one walk, one look");

    // Its address is its only name.
    let by_id = crate::common::refresh(app, &id(), &held.refresh).await;
    assert_eq!(by_id.short(), "401 invalid_client");
    let reply = get(app, &authorize(&id(), CALLBACK, &[])).await;
    assert_eq!(
        (reply.status, reply.heading()),
        (400, "This app is not registered here")
    );
    let next = crate::common::refresh(app, URL, &held.refresh).await;
    assert_eq!(next.status, 200, "{}", next.body);
    let next = Tokens::of(URL, &next);

    // Owners, logs and records know it by its internal id.
    let entries = audited(app, "default").await;
    let consents: Vec<_> = entries
        .iter()
        .filter(|entry| entry.action == "oauth.consent")
        .collect();
    assert_eq!(consents.len(), 1);
    assert_eq!(consents[0].client, Some(id()));
    assert_eq!(consents[0].after.as_ref().unwrap()["document"], URL);

    let revoke = |name: &'static str, token: String| async move {
        let fields = [("client_id", name), ("token", token.as_str())];
        post_form(app, "/oauth/revoke", &fields).await.status
    };
    assert_eq!(
        revoke("https://other.example/c", next.refresh.clone()).await,
        401
    );
    assert!(is_good(app, &next.access).await);
    assert_eq!(revoke(URL, next.refresh.clone()).await, 200);
    assert!(!is_good(app, &next.access).await, "by its address");
}

#[tokio::test]
async fn requirement_13_documents_are_kept_for_a_while_and_errors_never() {
    let (place, book) = place().await;
    let app = &place.app;
    let address = authorize(URL, CALLBACK, &[]);
    let mut fetched = page(&document(URL, &[CALLBACK]));
    fetched.cache_control = Some("max-age=600".into());
    book.write(URL, fetched.clone());
    for (wait, looks) in [(0, 1), (0, 1), (599, 1), (1, 2), (1, 2)] {
        place.clock.advance(wait);
        assert_eq!(get(app, &address).await.status, 200);
        assert_eq!(book.asked(), looks, "after {wait} more seconds");
    }
    fetched.cache_control = Some("no-store".into());
    book.write(URL, fetched.clone());
    place.clock.advance(600);
    for (wait, looks) in [(0, 3), (LEAST_FRESH - 1, 3), (1, 4)] {
        place.clock.advance(wait);
        assert_eq!(get(app, &address).await.status, 200);
        assert_eq!(book.asked(), looks, "even no-store lasts a walk");
    }
    // An error is looked at anew each time, and what was known before is not used in its place.
    book.write(
        URL,
        Fetched {
            status: 500,
            ..Fetched::default()
        },
    );
    place.clock.advance(LEAST_FRESH);
    for looks in 5..8 {
        assert_eq!(get(app, &address).await.status, 400);
        assert_eq!(book.asked(), looks);
    }
    fetched.cache_control = Some("max-age=31536000".into());
    book.write(URL, fetched);
    assert_eq!(get(app, &address).await.status, 200);
    place.clock.advance(MOST_FRESH - 1);
    assert_eq!(get(app, &address).await.status, 200);
    assert_eq!(book.asked(), 8);
    place.clock.advance(1);
    assert_eq!(get(app, &address).await.status, 200);
    assert_eq!(book.asked(), 9, "a day at most");
}

#[tokio::test]
async fn requirement_13_documents_that_redirect_lie_or_point_inside_read_the_same() {
    let (place, book) = place().await;
    let app = &place.app;
    let good = document(URL, &[CALLBACK]);
    let at = |name: &str| format!("https://app.example/{name}");
    let with = |name: &str, key: &str, value: Value| {
        let mut changed = document(&at(name), &[CALLBACK]);
        changed[key] = value;
        page(&changed)
    };
    let redirect = Fetched {
        status: 302,
        ..page(&document(&at("redirects"), &[CALLBACK]))
    };
    let html = Fetched {
        content_type: Some("text/html".into()),
        ..page(&document(&at("html"), &[CALLBACK]))
    };
    let broken = Fetched {
        body: "{".into(),
        ..page(&good)
    };
    for (name, held) in [
        ("redirects", redirect),
        ("of-another", page(&good)),
        ("html", html),
        ("broken", broken),
        ("secret", with("secret", "client_secret", json!("x"))),
        ("nameless", with("nameless", "client_name", Value::Null)),
        (
            "script",
            with("script", "redirect_uris", json!([CALLBACK, "javascript:x"])),
        ),
    ] {
        book.write(&at(name), held);
    }
    book.inside.lock().unwrap().push(at("inside"));
    let mut bodies = Vec::new();
    for name in [
        "redirects",
        "of-another",
        "html",
        "broken",
        "secret",
        "nameless",
        "script",
        "inside",
        "nowhere",
    ] {
        let reply = get(app, &authorize(&at(name), CALLBACK, &[])).await;
        assert_eq!(
            (reply.status, reply.heading(), reply.header("location")),
            (400, "This app cannot be recognised", ""),
            "{name}"
        );
        let url: ClientUrl = at(name).parse().unwrap();
        let kept = app.records.get(&client_key(&url.id())).await.unwrap();
        assert_eq!(kept, None, "{name}: nothing is written");
        bodies.push(reply.body);
    }
    assert!(
        bodies.iter().all(|body| *body == bodies[0]),
        "whoever asks learns nothing about what is where"
    );
    // Not every text that looks like an address is one.
    let asked = book.asked();
    for name in [
        "http://app.example/c",
        "https://app.example",
        "https://app.example/",
        "https://app.example/a/../c",
        "https://user@app.example/c",
        "https://app.example/c#x",
        "https://127.1/c",
    ] {
        let reply = get(app, &authorize(name, CALLBACK, &[])).await;
        assert_eq!(
            (reply.status, reply.heading()),
            (400, "This app is not registered here"),
            "{name}"
        );
    }
    assert_eq!(book.asked(), asked, "and nobody was asked");
    // A good document, and an address that it does not name.
    let reply = get(app, &authorize(URL, "https://app.example/other", &[])).await;
    assert_eq!(
        (reply.status, reply.heading()),
        (400, "This request is not safe")
    );
}

#[tokio::test]
async fn requirement_13_what_a_document_says_today_counts() {
    let (place, book) = place().await;
    let app = &place.app;
    let held = walk(app).await;
    book.write(URL, page(&document(URL, &["https://app.example/new"])));
    let address = authorize(URL, CALLBACK, &[]);
    assert_eq!(
        get(app, &address).await.status,
        200,
        "as long as the old one counts"
    );
    place.clock.advance(MOST_FRESH);
    let reply = get(app, &address).await;
    assert_eq!(
        (reply.status, reply.heading()),
        (400, "This request is not safe")
    );
    let next = crate::common::refresh(app, URL, &held.refresh).await;
    assert_eq!(
        next.status, 200,
        "what was given asks nobody: {}",
        next.body
    );
    let key = client_key(&id().parse().unwrap());
    let record = app.records.get(&key).await.unwrap().unwrap();
    let client: Client = record.read().unwrap();
    assert_eq!(client.redirect_uris[0].as_str(), "https://app.example/new");
    let kept = record.expires_at.unwrap().unix() - app.clock.now().unix();
    assert!(kept > 300 * 24 * 3600, "a client in use is kept: {kept}");
}

#[tokio::test]
async fn requirement_13_fetches_count_as_registrations() {
    let (place, book) = limited(2).await;
    let ask = |n: u32, source: &'static str| {
        let app = place.app.clone();
        async move {
            let url = format!("https://app.example/{n}");
            let mut request = axum::http::Request::get(authorize(&url, CALLBACK, &[]))
                .body(axum::body::Body::empty())
                .unwrap();
            let peer = Peer(SocketAddr::new(source.parse().unwrap(), 1));
            request.extensions_mut().insert(peer);
            send(&app, request).await
        }
    };
    for (n, source, status) in [
        (1, "192.0.2.1", 400),
        (2, "192.0.2.1", 400),
        (3, "192.0.2.1", 429),
        (4, "192.0.2.2", 400),
        (5, "192.0.2.2", 400),
        (6, "192.0.2.3", 400),
        (7, "192.0.2.3", 400),
        (8, "192.0.2.4", 429),
    ] {
        assert_eq!(ask(n, source).await.status, status, "{n}");
    }
    assert_eq!(book.asked(), 6, "one host is not asked without end either");
}

#[tokio::test]
async fn requirement_43_a_client_with_a_document_comes_back_by_a_new_consent_alone() {
    let (place, _) = place().await;
    let app = &place.app;
    let held = walk(app).await;
    let address = authorize(URL, CALLBACK, &[]);
    let answer = Visitor::new(app)
        .approve(&address, ADMIN, "default", Scopes::ALL)
        .await;
    let pending = answer.returned("code").unwrap();
    let slug = "default".parse().unwrap();
    let home = vault_service::model::namespace::find(&*app.records, &slug).await;
    let key = connection_key(&home.unwrap().unwrap().0.id, &id().parse().unwrap());
    let record = app.records.get(&key).await.unwrap().unwrap();
    let mut connection: Connection = record.read().unwrap();
    connection.revoked_at = Some(app.clock.now());
    let write = Write::put(key, Document::of(&connection).unwrap(), When::Any);
    assert!(app.records.commit(vec![write]).await.unwrap().is_done());

    assert!(!is_good(app, &held.access).await);
    let refused = crate::common::refresh(app, URL, &held.refresh).await;
    assert_eq!(refused.short(), "401 invalid_client");
    let refused = exchange(app, URL, &pending).await;
    assert_eq!(
        refused.short(),
        "401 invalid_client",
        "a consent of before the end"
    );

    place.clock.advance(1);
    let again = walk(app).await;
    assert!(is_good(app, &again.access).await, "a person decided anew");
    assert!(
        !is_good(app, &held.access).await,
        "nothing of before comes back"
    );
    let refused = crate::common::refresh(app, URL, &held.refresh).await;
    assert_eq!(refused.short(), "401 invalid_client");
    assert!(is_good(app, &again.access).await);
}
