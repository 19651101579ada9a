//! Clients that are known by the address of a document: requirement 13, and what it asks of the
//! others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use vault_service::documents::{ClientUrl, Documents, FetchError, FetchedDocument};
use vault_service::model::client::{Client, client_key};
use vault_service::oauth::document::{MAX_FRESH_SECONDS, MIN_FRESH_SECONDS, STALE_SECONDS};

use super::{CONSENT, world_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, Tokens, Visitor, audited, authorize, bootstrap, exchange, get,
    post_form, refresh,
};
use crate::support::World;

const URL: &str = "https://app.example/client.json";
const UNRECOGNISED: &str = "400 This app cannot be recognised";
const UNREGISTERED: &str = "400 This app is not registered here";
const UNSAFE: &str = "400 This request is not safe";

/// What stands at the addresses of the tests.
#[derive(Default)]
struct Book {
    pages: Mutex<HashMap<String, FetchedDocument>>,
    inside: Mutex<Vec<String>>,
    asked: Mutex<Vec<String>>,
}

impl Book {
    fn write(&self, url: &str, page: FetchedDocument) {
        self.pages.lock().unwrap().insert(url.to_owned(), page);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl Documents for Book {
    async fn fetch(&self, url: &ClientUrl) -> Result<FetchedDocument, FetchError> {
        self.asked.lock().unwrap().push(url.to_string());
        let inside = self.inside.lock().unwrap();
        if inside.iter().any(|held| held == url.as_str()) {
            return Err(FetchError::NotPublic);
        }
        let page = self.pages.lock().unwrap().get(url.as_str()).cloned();
        page.ok_or_else(|| FetchError::Unreachable("nobody there".into()))
    }
}

fn document(url: &str, redirects: &[&str]) -> Value {
    json!({ "client_id": url, "client_name": "An app with a page", "redirect_uris": redirects })
}

fn page(document: &Value) -> FetchedDocument {
    FetchedDocument {
        status: 200,
        content_type: Some("application/json".into()),
        body: document.to_string().into(),
        ..FetchedDocument::default()
    }
}

async fn place() -> (World, Arc<Book>) {
    limited(0).await
}

async fn limited(register: u32) -> (World, Arc<Book>) {
    let mut place = world_at("https://vault.example", |config| {
        config.limits.register_per_source = register;
    });
    let book = Arc::new(Book::default());
    book.write(URL, page(&document(URL, &[CALLBACK])));
    place.app = place.app.with_documents(book.clone());
    bootstrap(&place.app).await;
    (place, book)
}

/// The walk of a client with a document, to its tokens.
async fn walk(place: &World) -> Tokens {
    let code = place.code(URL).await;
    Tokens::of(URL, &exchange(&place.app, URL, &code).await)
}

fn id() -> String {
    URL.parse::<ClientUrl>().unwrap().id().to_string()
}

#[tokio::test]
async fn requirement_5_documents_are_announced_only_where_they_are_read() {
    let (with, _) = place().await;
    let without = world_at("https://vault.example", |_| {});
    for (app, told) in [(&with.app, Value::from(true)), (&without.app, Value::Null)] {
        for name in ["oauth-authorization-server", "openid-configuration"] {
            let reply = get(app, &format!("/.well-known/{name}")).await;
            assert_eq!(reply.json()["client_id_metadata_document_supported"], told);
        }
    }
    let reply = get(&without.app, &authorize(URL, CALLBACK, &[])).await;
    assert_eq!(reply.page(), UNREGISTERED);
}

#[tokio::test]
async fn requirement_13_a_client_with_a_document_walks_like_any_other() {
    let (place, book) = place().await;
    let app = &place.app;
    let mut visitor = Visitor::new(app);
    let address = authorize(URL, CALLBACK, &[]);
    let consent = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    assert_eq!(consent.page(), CONSENT);
    for said in [
        "<q>An app with a page</q>",
        "name not verified; described by <strong>app.example</strong>",
    ] {
        assert!(consent.body.contains(said), "{}", consent.body);
    }
    let held = walk(&place).await;
    assert!(place.is_good(&held.access).await);
    assert_eq!(book.asked(), 1, "one walk, one look");

    // Its address is its only name.
    let by_id = refresh(app, &id(), &held.refresh).await;
    assert_eq!(by_id.short(), "401 invalid_client");
    let reply = get(app, &authorize(&id(), CALLBACK, &[])).await;
    assert_eq!(reply.page(), UNREGISTERED);
    let next = place.renewed(&held).await;

    // Owners, logs and records know it by its internal id.
    let mut consents = audited(app, "default").await;
    consents.retain(|entry| entry.action == "oauth.consent");
    assert_eq!(consents.len(), 1);
    assert_eq!(consents[0].client, Some(id()));
    assert_eq!(consents[0].after.as_ref().unwrap()["document"], URL);

    for (name, status) in [("https://other.example/c", 401), (URL, 200)] {
        assert!(place.is_good(&next.access).await);
        let fields = [("client_id", name), ("token", &next.refresh)];
        let reply = post_form(app, "/oauth/revoke", &fields).await;
        assert_eq!(reply.status, status, "{name}");
    }
    assert!(!place.is_good(&next.access).await, "by its address");
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
    for (wait, looks) in [(0, 3), (MIN_FRESH_SECONDS - 1, 3), (1, 4)] {
        place.clock.advance(wait);
        assert_eq!(get(app, &address).await.status, 200);
        assert_eq!(book.asked(), looks, "even no-store lasts a walk");
    }
    // That there is none is looked at anew each time, and what was known before is not used in its
    // place.
    let failed = FetchedDocument {
        status: 404,
        ..FetchedDocument::default()
    };
    book.write(URL, failed);
    place.clock.advance(MIN_FRESH_SECONDS);
    for looks in 5..8 {
        assert_eq!(get(app, &address).await.status, 400);
        assert_eq!(book.asked(), looks);
    }
    fetched.cache_control = Some("max-age=31536000".into());
    book.write(URL, fetched);
    assert_eq!(get(app, &address).await.status, 200);
    place.clock.advance(MAX_FRESH_SECONDS - 1);
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
    let redirect = FetchedDocument {
        status: 302,
        ..page(&document(&at("redirects"), &[CALLBACK]))
    };
    let html = FetchedDocument {
        content_type: Some("text/html".into()),
        ..page(&document(&at("html"), &[CALLBACK]))
    };
    let broken = FetchedDocument {
        body: "{".into(),
        ..page(&good)
    };
    let script = with("script", "redirect_uris", json!([CALLBACK, "javascript:x"]));
    book.inside.lock().unwrap().push(at("inside"));
    let mut bodies = Vec::new();
    for (name, held) in [
        ("redirects", Some(redirect)),
        ("of-another", Some(page(&good))),
        ("html", Some(html)),
        ("broken", Some(broken)),
        ("secret", Some(with("secret", "client_secret", json!("x")))),
        (
            "nameless",
            Some(with("nameless", "client_name", Value::Null)),
        ),
        ("script", Some(script)),
        ("inside", None),
        ("nowhere", None),
    ] {
        if let Some(held) = held {
            book.write(&at(name), held);
        }
        let reply = get(app, &authorize(&at(name), CALLBACK, &[])).await;
        assert_eq!(reply.page(), UNRECOGNISED, "{name}");
        assert_eq!(reply.header("location"), "", "{name}");
        let url: ClientUrl = at(name).parse().unwrap();
        let kept = app.records.get_one(&client_key(&url.id())).await.unwrap();
        assert_eq!(kept, None, "{name}: nothing is written");
        bodies.push(reply.body);
    }
    // Equal pages: the reason would tell a stranger which hosts and paths exist.
    assert!(bodies.iter().all(|body| *body == bodies[0]));
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
        assert_eq!(reply.page(), UNREGISTERED, "{name}");
    }
    assert_eq!(book.asked(), asked, "and nobody was asked");
    // A good document, and an address that it does not name.
    let reply = get(app, &authorize(URL, "https://app.example/other", &[])).await;
    assert_eq!(reply.page(), UNSAFE);
}

#[tokio::test]
async fn requirement_13_what_a_document_says_today_counts() {
    let (place, book) = place().await;
    let app = &place.app;
    let held = walk(&place).await;
    book.write(URL, page(&document(URL, &["https://app.example/new"])));
    let address = authorize(URL, CALLBACK, &[]);
    // As long as the old one counts.
    assert_eq!(get(app, &address).await.status, 200);
    place.clock.advance(MAX_FRESH_SECONDS);
    let reply = get(app, &address).await;
    assert_eq!(reply.page(), UNSAFE);
    // A refresh fetches no document.
    place.renewed(&held).await;
    let key = client_key(&id().parse().unwrap());
    let record = app.records.get_one(&key).await.unwrap().unwrap();
    let client: Client = record.read().unwrap();
    assert_eq!(client.redirect_uris[0].as_str(), "https://app.example/new");
    let kept = record.expires_at.unwrap().unix() - app.clock.now().unix();
    assert!(kept > 300 * 24 * 3600, "a client in use is kept: {kept}");
}

#[tokio::test]
async fn requirement_13_a_good_document_serves_for_a_day_while_its_host_fails() {
    let (place, book) = place().await;
    let app = &place.app;
    let address = authorize(URL, CALLBACK, &[]);
    assert_eq!(get(app, &address).await.status, 200);
    let failing = FetchedDocument {
        status: 503,
        ..FetchedDocument::default()
    };
    book.write(URL, failing);
    // It is fresh for an hour; then the host is asked every five minutes.
    for (wait, looks) in [(3600, 2), (MIN_FRESH_SECONDS - 1, 2), (1, 3)] {
        place.clock.advance(wait);
        assert_eq!(get(app, &address).await.status, 200);
        assert_eq!(book.asked(), looks);
    }
    // No answer at all.
    book.pages.lock().unwrap().clear();
    place.clock.advance(STALE_SECONDS - MIN_FRESH_SECONDS - 1);
    assert_eq!(get(app, &address).await.status, 200);
    place.clock.advance(1);
    assert_eq!(
        get(app, &address).await.page(),
        UNRECOGNISED,
        "a day is over"
    );
    book.write(URL, page(&document(URL, &[CALLBACK])));
    assert_eq!(get(app, &address).await.status, 200);
}

#[tokio::test]
async fn requirement_13_made_up_documents_use_up_nobody_else_s_fetches() {
    let (place, book) = limited(200).await;
    let mut visitor = Visitor::new(&place.app);
    for network in 1..=4 {
        for n in 0..22 {
            visitor.source = format!("2001:db8:0:{network}::{n:x}").parse().ok();
            let url = format!("https://app.example/{n}");
            let reply = visitor.get(&authorize(&url, CALLBACK, &[])).await;
            if n < 20 {
                assert_eq!(reply.page(), UNRECOGNISED, "{network} {n}");
            } else {
                assert_eq!(reply.page(), "429 Too many requests", "{network} {n}");
                assert_eq!(reply.header("retry-after"), "3590");
            }
        }
    }
    assert_eq!(book.asked(), 80);
    let other = "https://other.example/client.json";
    // Another host from there; another person and the real document; and then it is known to be
    // good.
    for (url, source, wanted) in [
        (other, "2001:db8:0:1::1", UNRECOGNISED),
        (URL, "203.0.113.5", "200 Sign in"),
        (URL, "2001:db8:0:1::1", "200 Sign in"),
    ] {
        visitor.source = source.parse().ok();
        let reply = visitor.get(&authorize(url, CALLBACK, &[])).await;
        assert_eq!(reply.page(), wanted, "{url} {source}");
    }
}

/// Many hosts are no way around: what one source names in vain counts together too.
#[tokio::test]
async fn requirement_13_one_source_makes_up_so_many_documents_of_all_hosts() {
    let (place, book) = limited(5).await;
    let mut visitor = Visitor::new(&place.app);
    for (n, source, wanted) in [
        (1, "192.0.2.1", UNRECOGNISED),
        (2, "192.0.2.1", UNRECOGNISED),
        (3, "192.0.2.1", UNRECOGNISED),
        (4, "192.0.2.1", UNRECOGNISED),
        (5, "192.0.2.1", UNRECOGNISED),
        (6, "192.0.2.1", "429 Too many requests"),
        (7, "192.0.2.2", UNRECOGNISED),
    ] {
        visitor.source = source.parse().ok();
        let url = format!("https://host-{n}.example/client.json");
        let reply = visitor.get(&authorize(&url, CALLBACK, &[])).await;
        assert_eq!(reply.page(), wanted, "{n}");
    }
    assert_eq!(book.asked(), 6);
    place.clock.advance(3600);
    visitor.source = "192.0.2.1".parse().ok();
    let address = authorize("https://host-6.example/client.json", CALLBACK, &[]);
    assert_eq!(visitor.get(&address).await.page(), UNRECOGNISED);
}

#[tokio::test]
async fn requirement_13_fetches_that_succeed_count_for_nothing() {
    let (place, book) = limited(2).await;
    for n in 0..5 {
        let url = format!("https://app.example/{n}");
        book.write(&url, page(&document(&url, &[CALLBACK])));
        let reply = get(&place.app, &authorize(&url, CALLBACK, &[])).await;
        assert_eq!(reply.status, 200, "{n}");
    }
}

#[tokio::test]
async fn requirement_43_a_client_with_a_document_comes_back_by_a_new_consent_alone() {
    let (place, _) = place().await;
    let app = &place.app;
    let held = walk(&place).await;
    let pending = place.code(URL).await;
    place.end_connection(&id().parse().unwrap()).await;
    // A consent of before the end.
    let refused = exchange(app, URL, &pending).await;
    assert_eq!(refused.short(), "401 invalid_client");
    for _ in 0..2 {
        assert!(!place.is_good(&held.access).await);
        let refused = place.refresh(&held).await;
        assert_eq!(refused.short(), "401 invalid_client");
        // A person decides anew; nothing of before comes back.
        place.clock.advance(1);
        let again = walk(&place).await;
        assert!(place.is_good(&again.access).await);
    }
}

/// Nobody makes the service fail by a host that no name has: that would be a fault of ours in the
/// log.
#[tokio::test]
async fn an_address_with_an_endless_host_is_no_client() {
    let (place, book) = limited(200).await;
    for length in [253, 254, 600, 900] {
        let url = format!("https://{:a>length$}/c", ".example");
        let page = get(&place.app, &authorize(&url, CALLBACK, &[])).await;
        let wanted = if length == 253 {
            UNRECOGNISED
        } else {
            UNREGISTERED
        };
        assert_eq!(page.page(), wanted, "{length}");
    }
    assert_eq!(book.asked(), 1);
}
