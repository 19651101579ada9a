//! Memberships: invited, accepted, left; and what an owner of one tenant tried against the people
//! of another.

use serde_json::json;
use vault_service::model::account::Email;
use vault_service::model::namespace::{Kind, Namespace, Status};
use vault_service::model::user::{Role, Scopes, User};

use super::{account_page, invited, vaults};
use crate::admin::{ADA, BOB, EVE, empty_desk, reference, token};
use crate::common::{self, CALLBACK, PASSWORD, Visitor, authorize, register, set_password};

const CFO: &str = "cfo@customer-b.example";

/// The owner of `acme` invites the future owner of `other` first. Neither a link nor a password
/// comes of it, and the invitation of `other` is the person's own to accept.
#[tokio::test]
async fn an_owner_cannot_take_over_the_account_of_another_tenant_s_future_owner() {
    let desk = empty_desk().await;
    let others = desk.stranger().await;
    let by_attacker = invited(&desk, &desk.owner, CFO, "role:member").await;
    assert_eq!(by_attacker.status, 201);
    assert!(
        !by_attacker.blotted().contains("invite_url"),
        "{by_attacker:?}"
    );
    let by_owner = invited(&desk, &others, CFO, "role:owner").await;
    assert_eq!(by_owner.status, 201);
    // Nor does an operator who makes a namespace for the address hand an account to who invited it
    // first.
    let operator = desk.operator().await;
    let body = json!({ "slug": "fresh", "owner": CFO });
    let path = "/admin/operator/namespaces";
    let made = desk.ask(&operator, "POST", path, Some(&body)).await;
    let link = made.json()["invite_url"].as_str().unwrap().to_owned();
    set_password(&desk.world.app, &link).await;

    let app = &desk.world.app;
    common::answer_invitation(app, CFO, "other", "accept").await;
    common::answer_invitation(app, CFO, "acme", "decline").await;
    let cfos = token(&desk.world, CFO, "other", Scopes::ALL).await;
    let owner = "role:owner".to_owned();
    let wanted = [
        ("fresh".to_owned(), owner.clone()),
        ("other".to_owned(), owner),
    ];
    assert_eq!(vaults(&desk, &cfos).await, wanted);
}

/// The owner of `acme` adds the owner of `other`, who is asked first, and whose consent page stays
/// what it was.
#[tokio::test]
async fn nobody_is_put_into_a_vault_unasked() {
    let desk = empty_desk().await;
    desk.stranger().await;
    assert_eq!(
        invited(&desk, &desk.owner, EVE, "role:member").await.status,
        201
    );
    let app = &desk.world.app;
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let page = Visitor::new(app).arrive(&address, EVE, PASSWORD).await;
    let chosen = r#"<input type="hidden" name="namespace" value="other">"#;
    assert!(page.body.contains(chosen), "{}", page.body);
    assert!(!page.body.contains("acme"), "{}", page.body);
    // Whoever names the vault in the address is asked about the invitation, and declining ends
    // there.
    let fixed = authorize(&client, CALLBACK, &[("vault_namespace", "acme")]);
    let mut eve = Visitor::new(app);
    let page = eve.arrive(&fixed, EVE, PASSWORD).await;
    assert_eq!(page.heading(), "Accept an invitation?");
    let back = eve.answer(&page, "acme", "decline").await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, fixed.as_str())
    );
    assert_eq!(eve.get(&fixed).await.status, 403);
}

/// However many invite an address, the one that the person asks for is found, and suspended vaults
/// take nobody's place.
#[tokio::test]
async fn an_invitation_shows_the_owner_who_gave_it_last() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::proven(app, CFO).await;
    common::member(app, BOB, &reference(&desk.acme), Role::Owner, Scopes::ALL).await;
    let bobs = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    for (inviter, email) in [(&desk.owner, ADA), (&bobs, BOB)] {
        let answer = invited(&desk, inviter, CFO, "role:member").await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let (_, page) = account_page(&desk, CFO, PASSWORD).await;
        let shown = format!("Invited by: {email}<br>");
        assert!(page.body.contains(&shown), "{}", page.body);
    }
}

#[tokio::test]
async fn an_invitation_is_found_behind_any_number_of_others() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::proven(app, CFO).await;
    let email: Email = CFO.parse().unwrap();
    let mut slugs: Vec<_> = (0..120).map(|n| format!("more-{n:03}")).collect();
    slugs.push("zeta".to_owned());
    for slug in &slugs {
        let home = reference(&desk.world.namespace(slug, Kind::Hosted).await);
        let (role, scopes) = (Role::Member, Scopes::READ);
        let user = User::new_invited(Email::clone(&email), home, role, scopes, app);
        let user = user.with_inviter(&ADA.parse().unwrap(), None);
        common::commit(app, user.creation_writes().unwrap()).await;
        if slug != "zeta" && slug != "more-119" {
            let suspend = |home: &mut Namespace| home.status = Status::Suspended;
            desk.world.change(slug, suspend).await;
        }
    }
    let (_, page) = account_page(&desk, CFO, PASSWORD).await;
    for slug in ["more-119", "zeta"] {
        let card = format!("<strong>{slug}</strong>");
        assert!(page.body.contains(&card), "{}", page.body);
    }
    // The inviter is shown, not the address that the vault was made for once.
    assert!(
        page.body
            .contains(&format!("Invited by: {ADA}<br>Role: member"))
    );
    assert!(!page.body.contains("owner@example.org"), "{}", page.body);
    for slug in &slugs {
        let resume = |home: &mut Namespace| home.status = Status::Active;
        desk.world.change(slug, resume).await;
    }
    let client = register(app, CALLBACK).await;
    let fixed = authorize(&client, CALLBACK, &[("vault_namespace", "zeta")]);
    let page = Visitor::new(app).arrive(&fixed, CFO, PASSWORD).await;
    assert_eq!(page.heading(), "Accept an invitation?", "{}", page.body);
    assert_eq!(
        page.body.matches("<strong>").count(),
        2,
        "the person and zeta"
    );
}

#[tokio::test]
async fn a_person_with_several_vaults_chooses_and_the_last_used_stands_first() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let app = &desk.world.app;
    let (acme, scopes) = (reference(&desk.acme), Scopes::ALL);
    common::member(app, EVE, &acme, Role::Member, scopes).await;
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    for last in ["other", "acme"] {
        desk.world.clock.advance(120);
        let used = token(&desk.world, EVE, last, scopes).await;
        assert_eq!(
            desk.ask(&used, "GET", "/admin/vaults", None).await.status,
            200
        );
        let page = Visitor::new(app).arrive(&address, EVE, PASSWORD).await;
        let radios = page.body.split(r#"type="radio""#).skip(1);
        let radios: Vec<_> = radios
            .map(|radio| radio.split('>').next().unwrap())
            .collect();
        assert_eq!(radios.len(), 2);
        assert!(
            radios[0].contains(&format!(r#"value="{last}""#)),
            "{}",
            page.body
        );
        assert!(
            !radios.iter().any(|radio| radio.contains("checked")),
            "{}",
            page.body
        );
    }
    // A suspended vault is not offered, and what is left is preselected.
    let operator = desk.operator().await;
    let path = "/admin/operator/namespaces/acme/suspend";
    assert_eq!(desk.ask(&operator, "POST", path, None).await.status, 200);
    let page = Visitor::new(app).arrive(&address, EVE, PASSWORD).await;
    assert!(!page.body.contains("acme"), "{}", page.body);
    let (_, page) = account_page(&desk, EVE, PASSWORD).await;
    assert!(page.body.contains("<strong>other</strong>"));
}

#[tokio::test]
async fn a_person_leaves_a_vault_and_its_last_owner_cannot() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (acme, scopes) = (reference(&desk.acme), Scopes::ALL);
    common::member(app, EVE, &acme, Role::Member, scopes).await;
    let eves = token(&desk.world, EVE, "acme", scopes).await;
    for (email, status) in [(EVE, 303), (ADA, 409)] {
        let (mut visitor, page) = account_page(&desk, email, PASSWORD).await;
        let csrf = page.hidden("/account/vaults", "csrf");
        let fields = [("csrf", csrf.as_str()), ("namespace", "acme")];
        let left = visitor.post("/account/vaults", &fields).await;
        assert_eq!(left.status, status, "{email}: {}", left.body);
    }
    let after = desk.ask(&eves, "GET", "/admin/vaults", None).await;
    assert_eq!(after.short(), "401 token_invalid");
    assert_eq!(desk.count("membership.leave done").await, 1);
    let (_, page) = account_page(&desk, ADA, PASSWORD).await;
    assert!(page.body.contains("acme"), "{}", page.body);
    let people = desk.ask(&desk.owner, "GET", "/admin/users", None).await;
    assert_eq!(people.status, 200);
}
