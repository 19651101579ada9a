//! Dangerous acts: no token does them by itself, and a permit of the person does exactly what its
//! page said, once.

use serde_json::{Value, json};
use vault_service::model::permit::{
    ASKED_SECONDS, CONFIRMED_SECONDS, DECLINED_SECONDS, permits_partition,
};
use vault_service::model::user::{Role, Scopes};
use vault_store::records::{When, Write};

use super::{ADA, BOB, Desk, EVE, desk, empty_desk, reference, token};
use crate::account::second_factor::{code, enter, requiring, turn_on};
use crate::common::{self, OWNER, OWNER_PASSWORD, PASSWORD, Reply, Visitor};
use crate::support::Answer;

const NEW: &str = "new@example.org";
const ACCOUNTS: &str = "/admin/operator/accounts";
const CODES: &str = "/admin/vaults/acme/enrolment-codes";
pub const NEEDED: &str = "403 confirmation_needed";

/// A request that needs a permit.
struct Act<'a> {
    method: &'a str,
    path: String,
    body: Option<Value>,
    /// What the page says.
    says: &'a str,
}

impl<'a> Act<'a> {
    fn new(method: &'a str, path: impl Into<String>, body: Option<Value>, says: &'a str) -> Self {
        Self {
            method,
            path: path.into(),
            body,
            says,
        }
    }

    async fn send(&self, desk: &Desk, token: &str) -> Answer {
        desk.ask_once(token, self.method, &self.path, self.body.as_ref())
            .await
    }
}

/// Status and error code, without the code that a good answer has for machines.
fn brief(answer: &Answer) -> String {
    if answer.status.is_success() {
        answer.status.as_u16().to_string()
    } else {
        answer.short()
    }
}

/// The path of the page that an answer leads to.
fn page_of(desk: &Desk, answer: &Answer) -> String {
    assert_eq!(answer.short(), NEEDED);
    let url = answer.json()["confirmation"]["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let origin = desk.world.app.config.public_url.origin();
    url.strip_prefix(origin).unwrap().to_owned()
}

/// Opens a page in a new browser of this person, who signs in for it.
pub async fn open<'d>(desk: &'d Desk, path: &str, who: (&str, &str)) -> (Visitor<'d>, Reply) {
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get(path).await;
    assert_eq!(page.page(), "200 Sign in", "{}", page.body);
    let reason = "Sign in to see what an app asks you to confirm.";
    assert!(page.body.contains(reason), "{}", page.body);
    let back = visitor.log_in(&page, who.0, who.1).await;
    assert_eq!((back.status, back.header("location")), (303, path));
    let page = visitor.get(path).await;
    (visitor, page)
}

/// Opens the page that an answer leads to, as [`open`] does.
pub async fn open_asked<'d>(
    desk: &'d Desk,
    answer: &Answer,
    who: (&str, &str),
) -> (Visitor<'d>, Reply) {
    open(desk, &page_of(desk, answer), who).await
}

/// Decides on a page, with its box ticked.
pub async fn decide(visitor: &mut Visitor<'_>, page: &Reply, decision: &str) -> String {
    let fields = [("decision", decision), ("sure", "yes")];
    let done = visitor.fill(page, "/account/confirm", &fields).await;
    done.page()
}

/// The person of an app confirms what it asked for.
pub async fn confirm(desk: &Desk, answer: &Answer, who: (&str, &str)) {
    let (mut visitor, page) = open(desk, &page_of(desk, answer), who).await;
    assert_eq!(
        decide(&mut visitor, &page, "confirm").await,
        "200 Confirmed"
    );
}

/// An address that was cut or mistyped says the same as that of a confirmation that has ended.
#[tokio::test]
async fn a_mistyped_address_is_one_of_an_ended_confirmation() {
    let desk = desk().await;
    let mut visitor = Visitor::new(&desk.world.app);
    for id in ["cnf_short", "x", "cnf_01KD1XQ0R8VMZQ3Y5C7T9W2B4N"] {
        let page = visitor.get(&format!("/account/confirm/{id}")).await;
        assert_eq!(page.page(), "404 There is nothing to confirm here", "{id}");
        assert!(page.body.contains("Check the address."), "{}", page.body);
    }
}

/// F1: an app of an owner who typed the password a moment ago deletes nothing and makes nobody an
/// owner. What the person confirms is done once, and what needs no permit goes on as before.
#[tokio::test]
async fn a_token_with_fresh_credentials_does_no_dangerous_act_by_itself() {
    let desk = desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::READ).await;
    let of_bob = |what: &str| format!("/admin/users/{}{what}", bob.id);
    let slug = || Some(json!({ "slug": "acme" }));
    let new_owner = json!({ "email": NEW, "role": "role:owner" });
    let acts = [
        Act::new(
            "POST",
            "/admin/users",
            Some(new_owner),
            "Invite new@example.org as an owner of acme.",
        ),
        Act::new(
            "PUT",
            of_bob("/role"),
            Some(json!({ "role": "role:publisher" })),
            "Make bob@example.org a publisher of acme.",
        ),
        Act::new(
            "POST",
            CODES,
            Some(json!({ "uses": 21, "name": "ci-*" })),
            "Make an enrolment code for 21 machines of acme.",
        ),
        Act::new(
            "DELETE",
            of_bob(""),
            None,
            "Remove bob@example.org from acme.",
        ),
        Act::new(
            "POST",
            "/admin/vaults/acme/pin/reset",
            slug(),
            "Reset the pin of the vault acme.",
        ),
        Act::new(
            "DELETE",
            "/admin/vaults/acme",
            slug(),
            "Delete the vault acme.",
        ),
    ];
    for act in &acts {
        let asked = act.send(&desk, &desk.owner).await;
        // The same request again gets the same page, not another one.
        let again = act.send(&desk, &desk.owner).await;
        assert_eq!(page_of(&desk, &again), page_of(&desk, &asked));
        let (mut visitor, page) = open(&desk, &page_of(&desk, &asked), (ADA, PASSWORD)).await;
        for text in [
            act.says,
            "<strong>acme</strong>",
            "the app ",
            "asked on ",
            ADA,
        ] {
            assert!(page.body.contains(text), "{text}: {}", page.body);
        }
        assert!(!page.body.contains("<script"), "{}", page.body);
        assert_eq!(act.send(&desk, &desk.owner).await.short(), NEEDED);
        assert_eq!(
            decide(&mut visitor, &page, "confirm").await,
            "200 Confirmed"
        );
        let done = act.send(&desk, &desk.owner).await;
        assert!(
            matches!(done.status.as_u16(), 200 | 201),
            "{} {done:?}",
            act.path
        );
        if act.path.ends_with("/role") || act.path == CODES {
            let twice = act.send(&desk, &desk.owner).await;
            assert_eq!(twice.short(), NEEDED, "{}", act.path);
        }
        // The page is gone with its permit.
        let gone = visitor.get(&page_of(&desk, &asked)).await;
        assert_eq!(gone.page(), "404 There is nothing to confirm here");
    }
}

/// Honest controls: what an owner's app does without a person.
#[tokio::test]
async fn what_gives_little_power_needs_no_confirmation() {
    let desk = empty_desk().await;
    let home = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &home, Role::Member, Scopes::READ).await;
    desk.world.clock.advance(300);
    let of_bob = |what: &str| format!("/admin/users/{}{what}", bob.id);
    let invited = desk
        .post("/admin/users", &json!({ "email": "waits@example.org" }))
        .await;
    let waits = format!("/admin/users/{}", invited.json()["id"].as_str().unwrap());
    let unknown_app = format!("/admin/clients/cli_{}", "0".repeat(26));
    for (method, path, body, wanted) in [
        ("GET", "/admin/users", None, "200"),
        ("POST", "/admin/users", Some(json!({ "email": NEW })), "201"),
        ("POST", CODES, Some(json!({ "uses": 20 })), "201"),
        (
            "POST",
            &of_bob("/scopes"),
            Some(json!({ "grant": ["write"] })),
            "200",
        ),
        (
            "PUT",
            &of_bob("/profile"),
            Some(json!({ "profile": null })),
            "200",
        ),
        ("DELETE", &waits, None, "200"),
        ("DELETE", &unknown_app, None, "404 client_not_found"),
    ] {
        let done = desk
            .ask_once(&desk.owner, method, path, body.as_ref())
            .await;
        assert_eq!(brief(&done), wanted, "{method} {path}");
    }
}

/// A permit fits its account, app, vault, target and value, and nothing beside them.
#[tokio::test]
async fn a_permit_for_one_thing_is_none_for_another() {
    let desk = empty_desk().await;
    let home = reference(&desk.acme);
    let app = &desk.world.app;
    let bob = common::member(app, BOB, &home, Role::Member, Scopes::READ).await;
    let cy = common::member(app, super::CY, &home, Role::Owner, Scopes::ALL).await;
    common::member(app, ADA, &reference(&desk.other), Role::Owner, Scopes::ALL).await;
    let role = async |token: &str, id: &str, role: &str| {
        let path = format!("/admin/users/{id}/role");
        let body = json!({ "role": role });
        desk.ask_once(token, "PUT", &path, Some(&body)).await
    };
    let asked = role(&desk.owner, &bob.id, "role:publisher").await;
    confirm(&desk, &asked, (ADA, PASSWORD)).await;
    let same_app_elsewhere = token(&desk.world, ADA, "other", Scopes::ALL).await;
    let other_app = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let other_owner = token(&desk.world, super::CY, "acme", Scopes::ALL).await;
    for (token, id, new_role) in [
        (&desk.owner, &bob.id, "role:owner"),
        (&desk.owner, &cy.id, "role:publisher"),
        (&other_app, &bob.id, "role:publisher"),
        (&other_owner, &bob.id, "role:publisher"),
    ] {
        let refused = role(token, id, new_role).await;
        assert_eq!(refused.short(), NEEDED, "{id} {new_role}");
    }
    let body = json!({ "slug": "other" });
    let path = "/admin/vaults/other";
    let refused = desk
        .ask_once(&same_app_elsewhere, "DELETE", path, Some(&body))
        .await;
    assert_eq!(refused.short(), NEEDED);
    // Codes: each of the three values counts.
    let code = json!({ "uses": 100, "expires_in": 3600, "name": "ci-*" });
    let asked = desk.ask_once(&desk.owner, "POST", CODES, Some(&code)).await;
    confirm(&desk, &asked, (ADA, PASSWORD)).await;
    for (member, value) in [
        ("uses", json!(10_000)),
        ("expires_in", json!(7_776_000)),
        ("name", json!("*")),
    ] {
        let mut other = code.clone();
        other[member] = value;
        let refused = desk
            .ask_once(&desk.owner, "POST", CODES, Some(&other))
            .await;
        assert_eq!(refused.short(), NEEDED, "{member}");
    }
    let made = desk.ask_once(&desk.owner, "POST", CODES, Some(&code)).await;
    assert_eq!(made.status, 201);
    let done = role(&desk.owner, &bob.id, "role:publisher").await;
    assert_eq!(done.short(), "200");
}

#[tokio::test]
async fn a_permit_waits_ten_minutes_and_is_good_for_five() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    let asked = ask().await;
    let page = page_of(&desk, &asked);
    desk.world.clock.advance(ASKED_SECONDS - 1);
    let (mut visitor, shown) = open(&desk, &page, (ADA, PASSWORD)).await;
    assert_eq!(shown.page(), "200 Confirm this?");
    desk.world.clock.advance(1);
    assert_eq!(visitor.get(&page).await.status, 404);
    let late = decide(&mut visitor, &shown, "confirm").await;
    assert_eq!(late, "404 There is nothing to confirm here");
    for (wait, wanted) in [(CONFIRMED_SECONDS - 1, "201"), (CONFIRMED_SECONDS, NEEDED)] {
        confirm(&desk, &ask().await, (ADA, PASSWORD)).await;
        desk.world.clock.advance(wait);
        assert_eq!(brief(&ask().await), wanted, "{wait}");
    }
}

/// The record of an app's permits lives as long as the last of them: the ones that ended before it
/// open nothing.
#[tokio::test]
async fn a_permit_ends_beside_one_that_has_not_ended() {
    let desk = empty_desk().await;
    let ask = async |uses: u32| {
        let body = json!({ "uses": uses });
        desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await
    };
    confirm(&desk, &ask(50).await, (ADA, PASSWORD)).await;
    ask(60).await;
    desk.world.clock.advance(CONFIRMED_SECONDS);
    assert_eq!(ask(50).await.short(), NEEDED);
}

/// Whoever declines is not asked again at once, by the same app for the same act.
#[tokio::test]
async fn a_declined_act_is_not_done_and_not_asked_for_again_within_a_minute() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    let asked = ask().await;
    let id = asked.json()["confirmation"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let state = async || {
        let path = format!("/admin/confirmations/{id}");
        desk.get(&path).await.json()["state"].clone()
    };
    assert_eq!(state().await, "asked");
    let (mut visitor, page) = open(&desk, &page_of(&desk, &asked), (ADA, PASSWORD)).await;
    assert_eq!(decide(&mut visitor, &page, "decline").await, "200 Declined");
    assert_eq!(state().await, "declined");
    // A second click changes nothing.
    let again = decide(&mut visitor, &page, "confirm").await;
    assert_eq!(again, "404 There is nothing to confirm here");
    assert_eq!(ask().await.short(), "403 confirmation_declined");
    desk.world.clock.advance(DECLINED_SECONDS);
    assert_eq!(ask().await.short(), NEEDED);
}

/// The page opens for nobody but the person of the account, with credentials of the last five
/// minutes, and takes no form of another site.
#[tokio::test]
async fn only_the_person_with_fresh_credentials_confirms() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::member(app, EVE, &reference(&desk.acme), Role::Owner, Scopes::ALL).await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    let asked = ask().await;
    let page = page_of(&desk, &asked);
    let (mut eve, others) = open(&desk, &page, (EVE, PASSWORD)).await;
    assert_eq!(others.page(), "404 There is nothing to confirm here");
    assert!(others.body.contains(EVE), "{}", others.body);
    // The way on: sign out there, and in with the account that was asked.
    let out = eve.log_out(&others).await;
    assert_eq!((out.status, out.header("location")), (303, page.as_str()));
    assert_eq!(eve.get(&page).await.page(), "200 Sign in");
    let (mut visitor, shown) = open(&desk, &page, (ADA, PASSWORD)).await;
    let forged = visitor
        .post(
            "/account/confirm",
            &[("return_to", &page), ("decision", "confirm"), ("csrf", "x")],
        )
        .await;
    assert_eq!(forged.status, 403);
    // An hour's form would do; the credentials are too old.
    desk.world.clock.advance(301);
    let stale = decide(&mut visitor, &shown, "confirm").await;
    assert_eq!(stale, "200 Sign in");
    let shown = visitor.get(&page).await;
    assert_eq!(shown.page(), "200 Confirm this?", "{}", shown.body);
    assert!(!shown.body.contains("name=\"sure\""), "{}", shown.body);
    let fields = [("decision", "confirm"), ("sure", "yes")];
    let signed_in = visitor.fill(&shown, "/account/confirm", &fields).await;
    assert_eq!(signed_in.page(), "200 Sign in", "{}", signed_in.body);
    assert_eq!(ask().await.short(), NEEDED);
    let back = visitor.log_in(&signed_in, ADA, PASSWORD).await;
    assert_eq!(back.header("location"), page);
    let shown = visitor.get(&page).await;
    assert_eq!(
        decide(&mut visitor, &shown, "confirm").await,
        "200 Confirmed"
    );
    assert_eq!(ask().await.status, 201);
    // An address that no confirmation has is not found before anything is read.
    for path in [
        "/account/confirm/x",
        "/account/confirm/cnf_../../../../../../../x",
    ] {
        assert_eq!(visitor.get(path).await.status, 404, "{path}");
    }
    let id = page.rsplit('/').next().unwrap();
    let elsewhere = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let path = format!("/admin/confirmations/{id}");
    let other_app = desk.ask_once(&elsewhere, "GET", &path, None).await;
    assert_eq!(other_app.short(), "404 not_found");
}

/// Declining takes no credentials: nothing is easier than to keep an app from something.
#[tokio::test]
async fn a_sign_in_from_an_hour_ago_declines() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, ADA, PASSWORD).await;
    desk.world.clock.advance(600);
    let asked = ask().await;
    let page = visitor.get(&page_of(&desk, &asked)).await;
    assert_eq!(page.page(), "200 Confirm this?", "{}", page.body);
    assert!(page.body.contains("Sign in to confirm"), "{}", page.body);
    assert_eq!(decide(&mut visitor, &page, "decline").await, "200 Declined");
    assert_eq!(ask().await.short(), "403 confirmation_declined");
}

/// The second half of a double click on the page before lands on a button and confirms nothing.
#[tokio::test]
async fn a_button_without_the_box_confirms_nothing() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    let (mut visitor, page) = open(&desk, &page_of(&desk, &ask().await), (ADA, PASSWORD)).await;
    let box_of_page = "type=\"checkbox\" name=\"sure\" value=\"yes\" required>";
    assert!(page.body.contains(box_of_page), "{}", page.body);
    for more in [None, Some(("sure", "no")), Some(("sure", ""))] {
        let mut fields = vec![("decision", "confirm")];
        fields.extend(more);
        let again = visitor.fill(&page, "/account/confirm", &fields).await;
        assert_eq!(again.page(), "422 Confirm this?", "{}", again.body);
        assert!(again.body.contains("tick the box first"), "{}", again.body);
        assert_eq!(ask().await.short(), NEEDED);
    }
    // Nor does declining need the box.
    let fields = [("decision", "decline")];
    let done = visitor.fill(&page, "/account/confirm", &fields).await;
    assert_eq!(done.page(), "200 Declined");
}

/// The person who is late gets the whole time with the next request, and clients that know no
/// confirmations show the address.
#[tokio::test]
async fn a_request_that_is_repeated_renews_its_confirmation_and_says_its_address() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    let first = ask().await.json();
    let url = first["confirmation"]["url"].as_str().unwrap();
    assert!(first["detail"].as_str().unwrap().ends_with(url), "{first}");
    desk.world.clock.advance(ASKED_SECONDS - 1);
    let second = ask().await;
    assert_eq!(second.json()["confirmation"]["url"], url);
    desk.world.clock.advance(ASKED_SECONDS - 1);
    confirm(&desk, &second, (ADA, PASSWORD)).await;
    assert_eq!(ask().await.status, 201);
}

/// An invitation of an account that was reset hands it over with its vaults, so it needs what the
/// reset needs, at both routes that make a link.
#[tokio::test]
async fn an_invitation_takes_over_no_account_that_has_vaults() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    let (invite, namespace) = (
        json!({ "email": NEW }),
        json!({ "slug": "fresh", "owner": NEW }),
    );
    let other = json!({ "slug": "fresher", "owner": NEW });
    let homes = "/admin/operator/namespaces";
    let post =
        async |path: &str, body: &Value| desk.ask_once(&operator, "POST", path, Some(body)).await;
    assert_eq!(post(ACCOUNTS, &invite).await.status, 201);
    // It has nothing yet, so this gives nothing away.
    assert_eq!(post(ACCOUNTS, &invite).await.status, 201);
    assert_eq!(post(homes, &namespace).await.status, 201);
    for (path, body) in [(ACCOUNTS, &invite), (homes, &other)] {
        let before = common::account(&desk.world.app, NEW).await;
        let asked = post(path, body).await;
        assert_eq!(asked.short(), NEEDED, "{path}");
        assert_eq!(common::account(&desk.world.app, NEW).await, before);
        let (mut visitor, page) =
            open(&desk, &page_of(&desk, &asked), (OWNER, OWNER_PASSWORD)).await;
        let says = "Reset the account new@example.org.";
        assert!(page.body.contains(says), "{}", page.body);
        assert_eq!(
            decide(&mut visitor, &page, "confirm").await,
            "200 Confirmed"
        );
        assert_eq!(post(path, body).await.status, 201, "{path}");
    }
}

/// An app cannot bury its person, and a full list refuses without making the others' worse.
#[tokio::test]
async fn twenty_confirmations_of_an_app_wait_and_no_more() {
    let desk = empty_desk().await;
    let ask = async |token: &str, uses: u32| {
        let body = json!({ "uses": uses });
        desk.ask_once(token, "POST", CODES, Some(&body)).await
    };
    for uses in 21..41 {
        assert_eq!(ask(&desk.owner, uses).await.short(), NEEDED, "{uses}");
    }
    let full = ask(&desk.owner, 41).await;
    assert_eq!(full.short(), "429 rate_limited");
    assert_eq!(full.header("retry-after"), ASKED_SECONDS.to_string());
    assert_eq!(ask(&desk.owner, 21).await.short(), NEEDED);
    let other_app = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    assert_eq!(ask(&other_app, 41).await.short(), NEEDED);
    desk.world.clock.advance(ASKED_SECONDS);
    assert_eq!(ask(&desk.owner, 41).await.short(), NEEDED);
}

/// Asked, decided and used are in the log, and the use is in the commit of the act.
#[tokio::test]
async fn a_permit_leaves_its_trace_and_goes_with_its_act() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    confirm(&desk, &ask().await, (ADA, PASSWORD)).await;
    desk.commits.clear();
    assert_eq!(ask().await.status, 201);
    let together = desk.commits.partitions().into_iter().find(|partitions| {
        partitions.iter().any(|partition| partition == "permit")
            && partitions.iter().any(|partition| partition == "enrol-code")
    });
    assert!(together.is_some(), "{:?}", desk.commits.partitions());
    for action in ["ask", "confirm", "use"] {
        let entry = format!("confirmation.{action} done");
        assert_eq!(desk.count(&entry).await, 1, "{entry}");
    }
}

/// Two requests at once under one permit: one is done.
#[tokio::test]
async fn a_permit_that_two_requests_use_at_once_counts_for_one() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = || desk.ask_once(&desk.owner, "POST", CODES, Some(&body));
    confirm(&desk, &ask().await, (ADA, PASSWORD)).await;
    let (one, other) = tokio::join!(ask(), ask());
    let mut both = [brief(&one), brief(&other)];
    both.sort();
    assert_eq!(both, ["201", NEEDED]);
}

/// A permit that another request has used is read again, and opens nothing.
#[tokio::test]
async fn a_permit_that_changed_since_it_was_read_is_not_used() {
    let desk = empty_desk().await;
    let body = json!({ "uses": 50 });
    let ask = async || desk.ask_once(&desk.owner, "POST", CODES, Some(&body)).await;
    confirm(&desk, &ask().await, (ADA, PASSWORD)).await;
    let partition = permits_partition(&common::account(&desk.world.app, ADA).await.id);
    let records = &desk.world.app.records;
    let permits = records.list_page(&partition, "", None, 2).await.unwrap();
    assert_eq!(permits.len(), 1);
    let used = Write::delete(permits[0].key.clone(), When::Any);
    desk.commits.write_before_next(vec![used]);
    desk.commits.clear();
    assert_eq!(ask().await.short(), NEEDED);
    let codes = desk.commits.partitions().concat();
    assert!(!codes.contains(&"enrol-code".to_owned()), "{codes:?}");
}

/// Where owners need a second factor, a password alone confirms nothing. To decline takes none.
#[tokio::test]
async fn a_confirmation_takes_the_second_factor_that_the_service_requires() {
    let before = empty_desk().await;
    let body = json!({ "uses": 50 });
    let asked = before
        .ask_once(&before.owner, "POST", CODES, Some(&body))
        .await;
    let path = page_of(&before, &asked);
    let desk = requiring(&before);
    let (mut visitor, page) = open(&desk, &path, (ADA, PASSWORD)).await;
    let refused = decide(&mut visitor, &page, "confirm").await;
    assert_eq!(refused, "200 Set up a second factor");
    let (secret, _) = turn_on(&desk, ADA).await;
    // Setting it up ended the first half of a minute, whose code counts once.
    desk.world.clock.advance(30);
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get(&path).await;
    let half = visitor.log_in(&page, ADA, PASSWORD).await;
    assert_eq!(half.heading(), "Enter a code", "{}", half.body);
    assert_eq!(visitor.get(&path).await.heading(), "Sign in");
    let fresh = code(&secret, desk.world.now().unix());
    assert_eq!(enter(&mut visitor, &half, &fresh).await.status, 303);
    let page = visitor.get(&path).await;
    let done = decide(&mut visitor, &page, "confirm").await;
    assert_eq!(done, "200 Confirmed");
}

/// The rights of an operator last a quarter of an hour; those over accounts and other operators
/// are confirmed one by one.
#[tokio::test]
async fn an_operator_confirms_what_gives_or_takes_an_account() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let operator = desk.operator().await;
    let eves = format!("{ACCOUNTS}/{EVE}");
    let of_eve = |what: &str| format!("{eves}/{what}");
    let acts = [
        Act::new(
            "POST",
            of_eve("grant"),
            None,
            "Make eve@example.org an operator.",
        ),
        Act::new(
            "POST",
            of_eve("revoke"),
            None,
            "Take the rights of an operator from eve@example.org.",
        ),
        Act::new(
            "POST",
            of_eve("reset"),
            None,
            "Reset the account eve@example.org.",
        ),
        Act::new(
            "DELETE",
            eves.clone(),
            None,
            "Delete the account eve@example.org.",
        ),
    ];
    for act in &acts {
        let asked = act.send(&desk, &operator).await;
        let before = common::account(&desk.world.app, EVE).await;
        let (mut visitor, page) =
            open(&desk, &page_of(&desk, &asked), (OWNER, OWNER_PASSWORD)).await;
        assert!(page.body.contains(act.says), "{}", page.body);
        assert!(page.body.contains("the whole service"), "{}", page.body);
        assert_eq!(
            decide(&mut visitor, &page, "confirm").await,
            "200 Confirmed"
        );
        assert_eq!(common::account(&desk.world.app, EVE).await, before);
        let done = act.send(&desk, &operator).await;
        assert_eq!(done.short(), "200", "{}", act.path);
    }
    // What only stops somebody, or makes something new, needs no more than an operator's sign-in.
    let operator = desk.operator().await;
    desk.world.clock.advance(600);
    let (account, namespace) = (
        json!({ "email": NEW }),
        json!({ "slug": "fresh", "owner": NEW }),
    );
    let of_new = |what: &str| format!("{ACCOUNTS}/{NEW}/{what}");
    for (path, body, wanted) in [
        (ACCOUNTS.to_owned(), Some(&account), "201"),
        (
            "/admin/operator/namespaces".to_owned(),
            Some(&namespace),
            "201",
        ),
        (of_new("sign-out"), None, "200"),
        (of_new("disable"), None, "200"),
        (of_new("enable"), None, "200"),
    ] {
        let done = desk.ask_once(&operator, "POST", &path, body).await;
        assert_eq!(brief(&done), wanted, "{path}");
    }
    assert!(common::account(&desk.world.app, OWNER).await.operator);
}
