//! Which account a person of the provider is, and how that begins and ends.

use serde_json::{Value, json};
use vault_service::model::account::{self, AccountId};
use vault_service::model::session::FRESH_SECONDS;
use vault_service::model::subject::{SubjectEntry, subject_digest, subject_key};
use vault_service::model::user::{Role, Scopes, User};

use super::double::{SUBJECT, parameter};
use super::{ACCOUNT, CONNECT, EXPIRED, Place, SIGN_IN, START, sent};
use crate::admin::Commits;
use crate::common::{
    OWNER, PASSWORD, Reply, Visitor, commit, entries_of, invite, namespace, proven,
};

const ADA: &str = "ada@example.org";
const CONNECT_PATH: &str = "/oauth/oidc/connect";
const DISCONNECT_PATH: &str = "/account/sign-ins";

/// Ends a connected sign-in on the account page.
async fn disconnect(visitor: &mut Visitor<'_>, page: &Reply, sign_in: &str) -> Reply {
    let csrf = page.hidden("/account/sign-out", "csrf");
    let fields = [("csrf", csrf.as_str()), ("sign_in", sign_in)];
    visitor.post(DISCONNECT_PATH, &fields).await
}

impl Place {
    fn subject(&self) -> vault_format::hash::Digest {
        subject_digest(self.provider.issuer(), SUBJECT)
    }

    async fn connected(&self) -> Option<AccountId> {
        let record = self
            .app()
            .records
            .get_one(&subject_key(&self.subject()))
            .await;
        let record = record.unwrap()?;
        Some(record.read::<SubjectEntry>().unwrap().account)
    }

    async fn connect_ada(&self) -> Visitor<'_> {
        let (mut visitor, page) = self.back(|_| {}).await;
        assert_eq!(page.page(), CONNECT, "{}", page.body);
        let done = visitor
            .fill(&page, CONNECT_PATH, &[("password", PASSWORD)])
            .await;
        assert_eq!((done.status, done.header("location")), (303, "/account"));
        visitor
    }
}

#[tokio::test]
async fn a_verified_address_proves_an_account_that_an_operator_invited() {
    let place = Place::new().await;
    let link = invite(place.app(), ADA).await.unwrap();
    let before = place.account(ADA).await;
    let (_, page) = place.signed_in(|_| {}).await;
    assert!(page.body.contains(place.provider.issuer()), "{}", page.body);
    let account = place.account(ADA).await;
    assert_eq!((account.id.clone(), account.proofs.len()), (before.id, 1));
    assert_eq!(
        account.epoch,
        before.epoch + 1,
        "nothing from before goes on"
    );
    assert_eq!(place.connected().await, Some(account.id));
    // The link that sets a password has ended with it.
    let mut visitor = Visitor::new(place.app());
    assert_eq!(visitor.get(&link).await.status, 404);
    let log = entries_of(place.app(), None).await;
    let actions: Vec<_> = log.iter().map(|entry| entry.action.as_str()).collect();
    assert!(actions.contains(&"account.connect"), "{actions:?}");
    place.signed_in(|_| {}).await;
    let log = entries_of(place.app(), None).await;
    assert!(log.iter().any(|entry| entry.action == "account.sign-in"));
}

#[tokio::test]
async fn the_way_on_is_kept_through_the_provider() {
    let place = Place::new().await;
    let acme = namespace(place.app(), "acme").await;
    let email = ADA.parse().unwrap();
    let invited = account::prepare_invitation(
        place.app(),
        &email,
        "https://vault.example",
        place.world.now(),
    );
    let invited = invited.await.unwrap();
    let (role, scopes) = (Role::Member, Scopes::READ);
    let user = User::new_active(&invited.account, acme, role, scopes, place.app());
    let writes = [invited.writes, user.creation_writes().unwrap()].concat();
    commit(place.app(), writes).await;
    let authorize = place.authorize(&[]).await;
    let (mut visitor, address) = place.at_provider(&authorize).await;
    let back = visitor.get(&place.provider.answer(&address, |_| {})).await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, authorize.as_str())
    );
    let page = visitor.get(&authorize).await;
    assert_eq!(page.page(), super::super::CONSENT, "{}", page.body);
}

#[tokio::test]
async fn an_address_alone_takes_no_account_over() {
    let place = Place::new().await;
    proven(place.app(), ADA).await;
    let (mut visitor, page) = place.back(|_| {}).await;
    assert_eq!(page.page(), CONNECT, "{}", page.body);
    assert_eq!(visitor.get("/account").await.page(), SIGN_IN);
    for password in ["", "not the password"] {
        let again = visitor
            .fill(&page, CONNECT_PATH, &[("password", password)])
            .await;
        assert_eq!(
            (again.status, again.heading()),
            (422, "Connect your sign-in")
        );
    }
    assert_eq!(place.account(ADA).await.proofs.len(), 1);
    // The form is for the browser that came back.
    let mut other = Visitor::new(place.app());
    other.get("/account").await;
    let stolen = other
        .fill(&page, CONNECT_PATH, &[("password", PASSWORD)])
        .await;
    assert_eq!(stolen.status, 403);

    let done = visitor
        .fill(&page, CONNECT_PATH, &[("password", PASSWORD)])
        .await;
    assert_eq!((done.status, done.header("location")), (303, "/account"));
    assert_eq!(visitor.get("/account").await.page(), ACCOUNT);
    assert_eq!(place.account(ADA).await.proofs.len(), 2);
    let again = visitor
        .fill(&page, CONNECT_PATH, &[("password", PASSWORD)])
        .await;
    assert_eq!(again.status, 403, "the form was used");
    place.signed_in(|_| {}).await;
    // The password still signs in.
    let mut visitor = Visitor::new(place.app());
    let page = visitor.get("/account").await;
    assert_eq!(visitor.log_in(&page, ADA, PASSWORD).await.status, 303);
}

#[tokio::test]
async fn a_pending_connection_ends_after_ten_minutes() {
    let place = Place::new().await;
    proven(place.app(), ADA).await;
    let (mut visitor, page) = place.back(|_| {}).await;
    place.world.clock.advance(600);
    let late = visitor
        .fill(&page, CONNECT_PATH, &[("password", PASSWORD)])
        .await;
    assert_eq!(late.page(), EXPIRED);
    assert_eq!(place.account(ADA).await.proofs.len(), 1);
}

#[tokio::test]
async fn a_connected_person_keeps_the_account_whatever_the_address_becomes() {
    let place = Place::new().await;
    proven(place.app(), ADA).await;
    proven(place.app(), "bob@example.org").await;
    place.connect_ada().await;
    for (address, verified) in [
        (json!("bob@example.org"), true),
        (json!("<b>@example.org"), false),
    ] {
        let change = |c: &mut Value| {
            c["email"] = address.clone();
            c["email_verified"] = json!(verified);
        };
        let (_, page) = place.signed_in(change).await;
        assert!(
            page.body.contains("<strong>ada@example.org</strong>"),
            "{}",
            page.body
        );
        assert!(
            page.body.contains("This account keeps ada@example.org."),
            "{}",
            page.body
        );
        assert!(!page.body.contains("<b>"), "{}", page.body);
    }
    let (_, page) = place.signed_in(|c| c["email"] = json!(null)).await;
    assert!(!page.body.contains("This account keeps"), "{}", page.body);
    assert_eq!(place.account("bob@example.org").await.proofs.len(), 1);
    // Another person of the provider with Ada's address is not Ada.
    let (_, page) = place.back(|c| c["sub"] = json!("another")).await;
    assert_eq!(page.page(), CONNECT);
}

#[tokio::test]
async fn the_subject_of_another_issuer_is_another_person() {
    let issuers = [
        "https://id.example",
        "https://id.example/",
        "https://other.example",
    ];
    let names = issuers.map(|issuer| subject_digest(issuer, SUBJECT));
    assert!(names[0] != names[1] && names[0] != names[2]);
    assert_ne!(
        subject_digest("https://id.example", "a"),
        subject_digest("https://id.example", "b")
    );
    // Two services that share a store: what one provider's people are says nothing of the other's.
    let (place, other) = (Place::new().await, Place::new().await);
    proven(place.app(), ADA).await;
    place.connect_ada().await;
    assert_ne!(place.subject(), other.subject());
}

#[tokio::test]
async fn an_account_is_made_for_who_is_invited_or_for_everybody() {
    const NOT_INVITED: &str = "403 Your address has no account here";
    let place = Place::new().await;
    let (_, reply) = place.back(|_| {}).await;
    assert_eq!(reply.page(), NOT_INVITED);
    let acme = namespace(place.app(), "acme").await;
    let email = ADA.parse().unwrap();
    let user = User::new_invited(email, acme, Role::Member, Scopes::READ, place.app());
    commit(place.app(), user.creation_writes().unwrap()).await;
    let (_, page) = place.signed_in(|_| {}).await;
    assert!(
        page.body.contains("acme"),
        "the invitation waits: {}",
        page.body
    );
    assert_eq!(place.connected().await, Some(place.account(ADA).await.id));
    let (_, reply) = place
        .back(|c| {
            c["sub"] = json!("bob");
            c["email"] = json!("bob@example.org");
        })
        .await;
    assert_eq!(reply.page(), NOT_INVITED, "another person");

    let open = Place::with(&[("VAULT_SIGN_UP", "open")], |_| {}).await;
    open.signed_in(|_| {}).await;
    let account = open.account(ADA).await;
    assert!(!account.operator && account.proofs.len() == 1);
    let log = entries_of(open.app(), None).await;
    assert!(log.iter().any(|entry| entry.action == "account.sign-up"));
}

#[tokio::test]
async fn a_disabled_account_stays_out() {
    const DISABLED: &str = "403 This account is disabled";
    let place = Place::new().await;
    proven(place.app(), ADA).await;
    let disable = async |disabled| {
        let email = ADA.parse().unwrap();
        let found = account::find_account(place.app(), &email).await;
        let mut found = found.unwrap().unwrap();
        found.value.disabled = disabled;
        commit(
            place.app(),
            vec![found.value.update_write(found.revision).unwrap()],
        )
        .await;
    };
    disable(true).await;
    assert_eq!(place.back(|_| {}).await.1.page(), DISABLED, "not connected");
    disable(false).await;
    place.connect_ada().await;
    disable(true).await;
    let (mut visitor, reply) = place.back(|_| {}).await;
    assert_eq!(reply.page(), DISABLED, "connected");
    assert_eq!(visitor.get("/account").await.page(), SIGN_IN);
}

#[tokio::test]
async fn an_account_that_was_reset_has_lost_its_connections() {
    let place = Place::new().await;
    proven(place.app(), ADA).await;
    let mut visitor = place.connect_ada().await;
    let (email, now) = (ADA.parse().unwrap(), place.world.now());
    let reset = account::prepare_reset(place.app(), &email, "https://vault.example", now).await;
    commit(place.app(), reset.unwrap().unwrap().writes).await;
    assert_eq!(place.connected().await, None);
    assert_eq!(visitor.get("/account").await.page(), SIGN_IN);
    // Nobody has proven the address now, so the provider's word does.
    place.signed_in(|_| {}).await;
}

#[tokio::test]
async fn the_last_way_to_sign_in_stays() {
    let place = Place::new().await;
    invite(place.app(), ADA).await;
    let (mut visitor, page) = place.signed_in(|_| {}).await;
    assert!(!page.body.contains("Disconnect"), "{}", page.body);
    let subject = place.subject().to_string();
    // The provider was not asked for credentials, so a form asks to sign in again.
    let asked = disconnect(&mut visitor, &page, &subject).await;
    assert_eq!(asked.page(), SIGN_IN);
    let leaving = visitor.fill(&asked, START, &[]).await;
    let address = leaving.header("refresh").replace("0;url=", "");
    assert_eq!(parameter(&address, "prompt"), "login");
    assert_eq!(
        visitor
            .get(&place.provider.answer(&address, |_| {}))
            .await
            .status,
        303
    );
    let page = visitor.get("/account").await;
    let refused = disconnect(&mut visitor, &page, &subject).await;
    assert_eq!(refused.page(), "409 This sign-in cannot be disconnected");
    assert_eq!(place.account(ADA).await.proofs.len(), 1);
}

#[tokio::test]
async fn a_sign_in_and_a_disconnection_whose_commit_loses_a_race_are_carried_out_all_the_same() {
    for skipped in 0.. {
        let mut place = Place::new().await;
        let commits = Commits::watch(&mut place.world);
        proven(place.app(), ADA).await;
        let mut ada = place.connect_ada().await;
        commits.interfere_after(skipped);
        sent(&mut Visitor::new(place.app()), "/account").await;
        let mut has_interfered = commits.has_interfered();
        let page = ada.get("/account").await;
        commits.interfere_after(skipped);
        let done = disconnect(&mut ada, &page, &place.subject().to_string()).await;
        assert_eq!((done.status, done.header("location")), (303, "/account"));
        assert_eq!(place.connected().await, None);
        has_interfered |= commits.has_interfered();
        if !has_interfered {
            assert!(skipped > 0, "no commit");
            break;
        }
    }
}

#[tokio::test]
async fn a_disconnected_person_is_unknown_and_signed_out_elsewhere() {
    let place = Place::new().await;
    proven(place.app(), ADA).await;
    let mut here = place.connect_ada().await;
    let (mut elsewhere, _) = place.signed_in(|_| {}).await;
    let page = here.get("/account").await;
    assert!(page.body.contains("Disconnect"), "{}", page.body);
    let subject = place.subject().to_string();
    for (name, status) in [("x", 400), (&*"0".repeat(64), 409)] {
        assert_eq!(disconnect(&mut here, &page, name).await.status, status);
    }
    place.world.clock.advance(FRESH_SECONDS);
    let late = disconnect(&mut here, &page, &subject).await;
    assert_eq!(
        late.page(),
        SIGN_IN,
        "credentials were entered five minutes ago"
    );
    assert_eq!(here.log_in(&late, ADA, PASSWORD).await.status, 303);
    let page = here.get("/account").await;
    let done = disconnect(&mut here, &page, &subject).await;
    assert_eq!((done.status, done.header("location")), (303, "/account"));
    assert_eq!(here.get("/account").await.page(), ACCOUNT);
    assert_eq!(elsewhere.get("/account").await.page(), SIGN_IN);
    assert_eq!(place.connected().await, None);
    assert_eq!(place.back(|_| {}).await.1.page(), CONNECT);
}

#[tokio::test]
async fn without_passwords_the_provider_is_the_only_way_in() {
    const OFF: &str = "404 This service takes no passwords";
    let place = Place::with(&[("VAULT_SIGN_IN", "oidc")], |_| {}).await;
    let link = invite(place.app(), ADA).await.unwrap();
    let mut visitor = Visitor::new(place.app());
    let page = visitor.get("/account").await;
    assert!(!page.body.contains("type=\"password\""), "{}", page.body);
    let csrf = page.hidden(START, "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("return_to", "/account"),
        ("email", OWNER),
        ("password", crate::common::OWNER_PASSWORD),
        ("step", "sign-in"),
    ];
    assert_eq!(visitor.post("/oauth/login", &fields).await.page(), OFF);
    // A passkey would go around the provider.
    let passkey = visitor.post("/oauth/passkey", &fields).await;
    assert_eq!(passkey.page(), "404 Passkeys do not work here");
    assert_eq!(visitor.get(&link).await.page(), OFF);
    assert_eq!(visitor.get("/account").await.page(), SIGN_IN);
    // An invited person signs in there, and who had a password before proves the account with it
    // once.
    let (_, page) = place.signed_in(|_| {}).await;
    assert!(!page.body.contains("/oauth/password"), "{}", page.body);
    let as_owner = |c: &mut Value| {
        c["sub"] = json!("owner");
        c["email"] = json!(OWNER);
    };
    let (mut owner, page) = place.back(as_owner).await;
    assert_eq!(page.page(), CONNECT);
    let fields = [("password", crate::common::OWNER_PASSWORD)];
    assert_eq!(owner.fill(&page, CONNECT_PATH, &fields).await.status, 303);
}

#[tokio::test]
async fn a_service_without_a_provider_offers_none() {
    let world = crate::support::world();
    let mut visitor = Visitor::new(&world.app);
    let page = visitor.get("/account").await;
    assert!(!page.body.contains(START), "{}", page.body);
    let none = "404 This service has no identity provider";
    assert_eq!(
        visitor.get("/oauth/oidc/callback?state=x").await.page(),
        none
    );
    for path in [START, CONNECT_PATH] {
        let fields = [("csrf", "x"), ("return_to", "/account")];
        assert_eq!(visitor.post(path, &fields).await.page(), none);
    }
}

#[tokio::test]
async fn a_second_factor_is_asked_for_after_the_provider_and_for_a_connection() {
    let place = Place::with(&[], |config| config.limits.sign_in_failures = 3).await;
    proven(place.app(), ADA).await;
    let path = "/account/second-factor";
    let code_now =
        |secret: &str| crate::account::second_factor::code(secret, place.world.now().unix());
    let mut visitor = Visitor::new(place.app());
    let page = visitor.get("/account").await;
    visitor.log_in(&page, ADA, PASSWORD).await;
    let page = visitor.get(path).await;
    let secret = page.hidden(path, "secret");
    let code = code_now(&secret);
    let fields = [
        ("csrf", page.hidden(path, "csrf")),
        ("change", "on".into()),
        ("secret", secret.clone()),
        ("new_code", code),
        ("password", PASSWORD.into()),
    ];
    let fields = fields
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    assert_eq!(visitor.post(path, &fields).await.status, 200);

    place.world.clock.advance(30);
    let (mut visitor, page) = place.back(|_| {}).await;
    let password = ("password", PASSWORD);
    let without = visitor.fill(&page, CONNECT_PATH, &[password]).await;
    assert_eq!(without.status, 422, "the password alone");
    // It was correct each time, so these are no failures of a password.
    for _ in 0..5 {
        let wrong = [password, ("code", "000000")];
        let wrong = visitor.fill(&page, CONNECT_PATH, &wrong).await;
        assert_eq!(wrong.status, 422, "{}", wrong.body);
    }
    assert_eq!(place.account(ADA).await.proofs.len(), 1);
    let code = code_now(&secret);
    let done = visitor
        .fill(&page, CONNECT_PATH, &[password, ("code", &code)])
        .await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(place.account(ADA).await.second_factor.is_some());

    place.world.clock.advance(30);
    let (mut visitor, page) = place.back(|_| {}).await;
    assert_eq!(page.page(), "200 Enter a code", "{}", page.body);
    assert_eq!(
        visitor.get("/account").await.page(),
        SIGN_IN,
        "half signed in"
    );
    let code = code_now(&secret);
    let done = visitor
        .fill(&page, "/oauth/second-factor", &[("code", &code)])
        .await;
    assert_eq!((done.status, done.header("location")), (303, "/account"));
    assert_eq!(visitor.get("/account").await.page(), ACCOUNT);
}

#[tokio::test]
async fn a_person_without_a_password_sets_a_second_factor_up_with_fresh_credentials() {
    let place = Place::new().await;
    invite(place.app(), ADA).await;
    let path = "/account/second-factor";
    for fresh in [false, true] {
        let (mut visitor, page) = place.signed_in(|_| {}).await;
        if fresh {
            let authorize = place.authorize(&[("prompt", "login")]).await;
            let address = sent(&mut visitor, &authorize).await;
            visitor.get(&place.provider.answer(&address, |_| {})).await;
        }
        drop(page);
        let page = visitor.get(path).await;
        assert!(!page.body.contains("type=\"password\""), "{}", page.body);
        let secret = page.hidden(path, "secret");
        let now = place.world.now().unix();
        let code = crate::account::second_factor::code(&secret, now);
        let csrf = page.hidden(path, "csrf");
        let fields = [
            ("csrf", csrf.as_str()),
            ("change", "on"),
            ("secret", &secret),
            ("new_code", &code),
        ];
        let reply = visitor.post(path, &fields).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let is_sign_in = reply.heading() == "Sign in";
        assert_eq!(is_sign_in, !fresh, "{}", reply.body);
        assert_eq!(place.account(ADA).await.second_factor.is_some(), fresh);
    }
}

/// Deleting an account frees the person: a later sign-in is that of somebody unknown.
#[tokio::test]
async fn a_deleted_account_is_found_by_nobody() {
    let place = Place::new().await;
    invite(place.app(), ADA).await;
    let (mut visitor, _) = place.signed_in(|_| {}).await;
    place.delete_account(ADA).await;
    assert_eq!(place.connected().await, None);
    assert_eq!(visitor.get("/account").await.page(), SIGN_IN);
    let (_, reply) = place.back(|_| {}).await;
    assert_eq!(reply.page(), "403 Your address has no account here");
}

impl Place {
    /// Deletes an account as the first owner, who operates the service.
    async fn delete_account(&self, email: &str) {
        let token = crate::common::operator_token(self.app()).await;
        let path = format!("/admin/operator/accounts/{email}");
        let delete = async || {
            let request = axum::http::Request::delete(&path)
                .header("authorization", format!("Bearer {token}"))
                .body(axum::body::Body::empty());
            crate::common::send(self.app(), request.unwrap()).await
        };
        assert_eq!(delete().await.status, 403);
        crate::common::confirm_asked(self.app(), &token).await;
        let reply = delete().await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}
