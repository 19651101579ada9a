use secrecy::SecretString;
use vault_service::model::namespace::Kind;
use vault_service::model::user::Scopes;
use vault_service::oauth::bootstrap::{BootstrapError, FirstStart, first_owner};

use super::{owned, place};
use crate::common::{OWNER, OWNER_PASSWORD, sign_in};

#[tokio::test]
async fn a_second_start_changes_nothing() {
    let place = owned().await;
    let other = SecretString::from("another password of 24 or more");
    let again = first_owner(
        &place.app,
        Kind::Hosted,
        Some("other@example.org"),
        Some(&other),
    )
    .await
    .unwrap();
    assert_eq!(again, FirstStart::AlreadyThere(OWNER.parse().unwrap()));
    let silent = first_owner(&place.app, Kind::Hosted, None, None)
        .await
        .unwrap();
    assert_eq!(silent, FirstStart::AlreadyThere(OWNER.parse().unwrap()));
    sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
}

#[tokio::test]
async fn a_bad_owner_is_refused_before_anything_is_written() {
    let place = place();
    let (short, good) = (
        SecretString::from("only 23 characters long"),
        SecretString::from(OWNER_PASSWORD),
    );
    let make = |email, password| first_owner(&place.app, Kind::SelfSigned, email, password);
    assert!(matches!(
        make(Some(OWNER), None).await,
        Err(BootstrapError::Missing)
    ));
    assert!(matches!(
        make(None, Some(&good)).await,
        Err(BootstrapError::Missing)
    ));
    assert!(matches!(
        make(Some("nobody"), Some(&good)).await,
        Err(BootstrapError::Email(_))
    ));
    assert!(matches!(
        make(Some(OWNER), Some(&short)).await,
        Err(BootstrapError::Password(_))
    ));
    for partition in [
        "service",
        "acct/owner@example.org",
        "ns/default",
        "namespaces",
    ] {
        assert!(
            place
                .app
                .records
                .list(partition, "", None, 10)
                .await
                .unwrap()
                .is_empty(),
            "{partition}"
        );
    }
    assert_eq!(
        make(Some(" Owner@Example.org"), Some(&good)).await.unwrap(),
        FirstStart::Created(OWNER.parse().unwrap())
    );
}

#[tokio::test]
async fn of_many_first_starts_one_makes_the_owner() {
    let place = place();
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..8 {
        let app = place.app.clone();
        starts.spawn(async move {
            let password = SecretString::from(OWNER_PASSWORD);
            let email = format!("owner{n}@example.org");
            first_owner(&app, Kind::Hosted, Some(&email), Some(&password))
                .await
                .unwrap()
        });
    }
    let outcomes = starts.join_all().await;
    let created: Vec<_> = outcomes
        .iter()
        .filter(|start| matches!(start, FirstStart::Created(_)))
        .collect();
    let [FirstStart::Created(owner)] = created[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(
        outcomes
            .iter()
            .filter(|start| **start == FirstStart::AlreadyThere(owner.clone()))
            .count(),
        7
    );
    assert_eq!(
        place
            .app
            .records
            .list("namespaces", "", None, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}
