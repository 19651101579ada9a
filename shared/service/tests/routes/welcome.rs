//! The page for people who open an address in a browser.

use axum::body::Body;
use axum::http::Request;

use crate::common::{self, OWNER, OWNER_PASSWORD, Visitor};
use crate::support::{Answer, get, world, world_with};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn opened(path: &str) -> Request<Body> {
    let mut request = get(path);
    let headers = request.headers_mut();
    headers.insert("accept", BROWSER.parse().unwrap());
    headers.insert("host", "vault.example".parse().unwrap());
    request
}

fn text(page: &Answer) -> String {
    String::from_utf8(page.body.to_vec()).unwrap()
}

#[tokio::test]
async fn the_front_page_says_which_command_connects() {
    for (public, path) in [
        ("https://vault.example", "/"),
        ("https://vault.example/base", "/base"),
        ("https://vault.example/base", "/base/"),
    ] {
        let world = world_with(|config| config.public_url = public.parse().unwrap());
        let page = world.send(opened(path)).await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert!(
            page.header("content-security-policy")
                .contains("default-src 'none'")
        );
        let shown = text(&page);
        for command in [
            format!("vault link {public}/v/NAME"),
            format!("vault cloud connect {public}/v/NAME"),
            format!("{public}/mcp"),
        ] {
            assert!(shown.contains(&command), "{command}: {shown}");
        }
    }
    // Programs get the answer of a path that does not exist.
    let world = world();
    assert_eq!(world.send(get("/")).await.short(), "404 not_found");
    let mut posted = opened("/");
    *posted.method_mut() = "POST".parse().unwrap();
    assert_eq!(world.send(posted).await.short(), "404 not_found");
    let mut posted = opened("/nowhere");
    *posted.method_mut() = "POST".parse().unwrap();
    for request in [get("/nowhere"), posted] {
        assert_eq!(world.send(request).await.short(), "404 not_found");
    }
}

#[tokio::test]
async fn a_browser_gets_a_page_for_a_path_that_does_not_exist() {
    let page = world().send(opened("/nowhere")).await;
    assert_eq!(page.status, 404);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(text(&page).contains("This page does not exist"));
}

#[tokio::test]
async fn an_address_for_programs_explains_itself_to_a_browser() {
    let world = world();
    world.acme().await;
    let reference = world.send(opened("/v/acme")).await;
    assert_eq!(reference.status, 401);
    assert_eq!(reference.header("www-authenticate"), "VaultDevice");
    assert_eq!(reference.header("cache-control"), "private, no-store");
    assert!(text(&reference).contains("vault link https://vault.example/v/NAME"));
    assert!(!text(&reference).contains("acme"));
    // No path or vault makes a difference.
    for path in [
        "/v/",
        "/v/nobody",
        "/v/acme/catalog.json",
        "/v/%61cme/devices/current",
    ] {
        let page = world.send(opened(path)).await;
        assert_eq!(
            (page.status, &page.headers),
            (reference.status, &reference.headers),
            "{path}"
        );
        assert_eq!(text(&page), text(&reference), "{path}");
    }
    let page = world.send(opened("/mcp")).await;
    assert_eq!((page.status.as_u16(), page.header("allow")), (405, "POST"));
    assert_eq!(text(&page), text(&reference));
}

#[tokio::test]
async fn the_public_url_opens_the_page_of_a_signed_in_person_with_and_without_a_slash() {
    let world = crate::oauth::world_at("https://vault.example/base", |_| {});
    common::bootstrap(&world.app).await;
    let mut owner = Visitor::new(&world.app);
    let page = owner.get("/base/account").await;
    let account = [("email", OWNER), ("password", OWNER_PASSWORD)];
    let signed_in = owner.fill(&page, "/base/oauth/login", &account).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.body);
    for path in ["/base", "/base/"] {
        let page = owner.send(opened(path)).await;
        assert_eq!(page.page(), "200 Your vaults", "{path}");
        assert!(page.body.contains(OWNER), "{path}: {}", page.body);
    }
}
