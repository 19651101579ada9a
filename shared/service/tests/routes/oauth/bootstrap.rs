use secrecy::SecretString;
use vault_service::accounts::bootstrap::{BootstrapError, FirstStart, ensure_first_owner};
use vault_service::model::namespace::Kind;
use vault_service::model::user::Scopes;

use super::owned;
use crate::common::{self, OWNER, OWNER_PASSWORD, sign_in};
use crate::support::{bearer, world};

#[tokio::test]
async fn a_second_start_changes_nothing() {
    let place = owned().await;
    let other = SecretString::from("another password of 24 or more");
    for (email, password) in [(Some("other@example.org"), Some(&other)), (None, None)] {
        let again = ensure_first_owner(&place.app, Some(Kind::Hosted), email, password).await;
        let there = FirstStart::AlreadyThere(OWNER.parse().unwrap());
        assert_eq!(again.unwrap(), there);
    }
    sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
}

#[tokio::test]
async fn a_bad_owner_is_refused_before_anything_is_written() {
    let place = world();
    let short = SecretString::from("only 23 characters long");
    let good = SecretString::from(OWNER_PASSWORD);
    let make =
        |email, password| ensure_first_owner(&place.app, Some(Kind::SelfSigned), email, password);
    let refused = make(Some(OWNER), None).await;
    assert!(matches!(refused, Err(BootstrapError::Missing)));
    let refused = make(None, Some(&good)).await;
    assert!(matches!(refused, Err(BootstrapError::Missing)));
    let refused = make(Some("nobody"), Some(&good)).await;
    assert!(matches!(refused, Err(BootstrapError::Email(_))));
    let refused = make(Some(OWNER), Some(&short)).await;
    assert!(matches!(refused, Err(BootstrapError::Password(_))));
    let records = &place.app.records;
    for partition in ["service", "accounts", "ns/default", "namespaces"] {
        let written = records.list_page(partition, "", None, 10).await.unwrap();
        assert_eq!(written, [], "{partition}");
    }
    let made = make(Some(" Owner@Example.org"), Some(&good)).await.unwrap();
    assert_eq!(made, FirstStart::Created(OWNER.parse().unwrap()));
}

/// As on AWS, where the operator creates every namespace.
#[tokio::test]
async fn the_first_owner_of_a_service_without_a_vault_of_its_own_is_its_operator() {
    let place = world();
    let password = SecretString::from(OWNER_PASSWORD);
    let made = ensure_first_owner(&place.app, None, Some(OWNER), Some(&password)).await;
    assert_eq!(made.unwrap(), FirstStart::Created(OWNER.parse().unwrap()));
    let listed = place.app.records.list_page("namespaces", "", None, 10);
    assert_eq!(listed.await.unwrap(), []);
    let who = (OWNER, OWNER_PASSWORD);
    let token = common::operator_token_of(&place.app, who, Scopes::ALL).await;
    let asked = bearer(&token, "GET", "/admin/operator/namespaces", None, &[]);
    assert_eq!(place.send(asked).await.status, 200);
}

#[tokio::test]
async fn of_many_first_starts_one_makes_the_owner() {
    let place = world();
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..8 {
        let app = place.app.clone();
        starts.spawn(async move {
            let password = SecretString::from(OWNER_PASSWORD);
            let email = format!("owner{n}@example.org");
            ensure_first_owner(&app, Some(Kind::Hosted), Some(&email), Some(&password))
                .await
                .unwrap()
        });
    }
    let outcomes = starts.join_all().await;
    let (created, others): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|start| matches!(start, FirstStart::Created(_)));
    let [FirstStart::Created(owner)] = &created[..] else {
        panic!("{created:?}")
    };
    assert_eq!(others, vec![FirstStart::AlreadyThere(owner.clone()); 7]);
    let listed = place
        .app
        .records
        .list_page("namespaces", "", None, 10)
        .await;
    assert_eq!(listed.unwrap().len(), 1);
}
