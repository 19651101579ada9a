//! `GET /admin/vaults` and `GET /admin/vaults/{slug}`.

use serde_json::{Value, json};
use vault_service::model::namespace::{Kind, Namespace, Status, Subscription};
use vault_service::model::user::{Role, Scopes};

use super::{ADA, BOB, desk, empty_desk, reference, token};
use crate::common;
use crate::support::key;

#[tokio::test]
async fn an_account_sees_all_its_namespaces_whichever_its_token_carries() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    common::member(
        app,
        ADA,
        &reference(&desk.other),
        Role::Member,
        Scopes::READ,
    )
    .await;
    let own = world.namespace("own", Kind::SelfSigned).await;
    common::member(app, ADA, &reference(&own), Role::Owner, Scopes::ALL).await;
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    world.change("own", change).await;
    let wanted = json!({
        "items": [
            {"slug": "acme", "role": "role:owner", "kind": "hosted", "release": 42, "subscription": "none", "root_version": 1,
             "fingerprint": "vlt:pfye-furw-566k-tcnd-i5ya-46rq-rjpo-4wzo/1", "vault_id": "vlt_pfyefurw566ktcndi5ya46rqrj"},
            {"slug": "other", "role": "role:member", "kind": "hosted", "release": null, "subscription": "none",
             "root_version": null, "fingerprint": null, "vault_id": null},
            {"slug": "own", "role": "role:owner", "kind": "self_signed", "release": null, "subscription": "lapsed",
             "root_version": null, "fingerprint": null, "vault_id": null},
        ],
        "next": null,
    });
    let elsewhere = token(world, ADA, "other", Scopes::READ).await;
    for token in [&desk.owner, &elsewhere] {
        let mut listed = desk.ask(token, "GET", "/admin/vaults", None).await.json();
        // The person's user in each vault, by which a program tells people apart.
        let mut users = std::collections::BTreeSet::new();
        for item in listed["items"].as_array_mut().unwrap() {
            let item = item.as_object_mut().unwrap();
            assert_eq!(item.remove("email"), Some(json!(ADA)));
            users.insert(item.remove("user_id").unwrap().to_string());
        }
        assert_eq!(users.len(), 3);
        assert_eq!(listed, wanted);
    }
    let page = desk.get("/admin/vaults?limit=2").await.json();
    assert_eq!(
        (page["items"].as_array().unwrap().len(), &page["next"]),
        (2, &json!("other"))
    );
    let page = desk.get("/admin/vaults?limit=2&after=other").await.json();
    assert_eq!(
        (&page["items"][0]["slug"], &page["next"]),
        (&json!("own"), &Value::Null)
    );
    assert_eq!(
        desk.get("/admin/vaults?limit=1000").await.short(),
        "422 parameter_invalid"
    );
    let change = |namespace: &mut Namespace| namespace.status = Status::Deleted;
    world.change("own", change).await;
    let left = desk.get("/admin/vaults").await.json();
    assert_eq!(
        left["items"].as_array().unwrap().len(),
        2,
        "a deleted one is gone"
    );
}

#[tokio::test]
async fn a_vault_is_shown_with_pin_counts_and_last_push() {
    let desk = desk().await;
    desk.world.enrol(&key(1), "acme", "laptop").await;
    let mut shown = desk.get("/admin/vaults/acme").await.json();
    shown["namespace_id"] = "[id]".into();
    insta::assert_json_snapshot!(shown, @r#"
    {
      "counts": {
        "devices_pending": 1,
        "releases": 1,
        "skills": 1
      },
      "created_at": "2026-11-21T02:00:10Z",
      "drafts": {
        "key_requests": 0,
        "pending": 0,
        "proposals": 0
      },
      "enrolment": "open",
      "grace_ends_at": null,
      "kind": "hosted",
      "last_push": "2026-11-21T02:00:10Z",
      "namespace_id": "[id]",
      "next_step": null,
      "owner": "owner@example.org",
      "pin": {
        "fingerprint": "vlt:pfye-furw-566k-tcnd-i5ya-46rq-rjpo-4wzo/1",
        "root_sha256": "797042d236efbca989a347700e7a308a5eee5b2e9efa158a95c03f856cf21fd0",
        "root_version": 1,
        "vault_id": "vlt_pfyefurw566ktcndi5ya46rqrj"
      },
      "pin_reset": null,
      "provisioning": [
        {
          "needed": false,
          "state": "done",
          "step": "starter_skills"
        },
        {
          "needed": false,
          "state": "done",
          "step": "paid_access"
        },
        {
          "needed": true,
          "state": "done",
          "step": "namespace"
        },
        {
          "needed": false,
          "state": "done",
          "step": "cloud_import"
        },
        {
          "needed": true,
          "state": "done",
          "step": "first_sync"
        }
      ],
      "quota": {
        "bytes": 2147483648,
        "drafts": null,
        "machines": null,
        "objects": 200000,
        "people": null
      },
      "release": {
        "payload_sha256": "73a4892d2676c1d39ced7ae2b2a2711610ba57211f0f973f45a34d5985015a4a",
        "published_at": "2026-11-21T02:00:10Z",
        "release": 42,
        "sha256": "f8d2771041d3db1de3e26ce4907066f5e06ca50a1e324145964945dd7f48889e",
        "size": 2877
      },
      "slug": "acme",
      "status": "active",
      "subscription": "none",
      "usage": {
        "bytes": 3232,
        "drafts": null,
        "machines": null,
        "objects": 2,
        "people": null,
        "unnamed_bytes": 0,
        "unnamed_objects": 0
      }
    }
    "#);
    let empty = empty_desk().await.get("/admin/vaults/acme").await.json();
    assert_eq!(empty["next_step"], "first_sync");
    for member in ["pin", "pin_reset", "release", "last_push"] {
        assert_eq!(empty[member], Value::Null, "{member}");
    }
    assert_eq!(
        empty["counts"],
        json!({"devices_pending": 0, "releases": 0, "skills": 0})
    );
}

/// Role and scopes are read live: a change acts on the next request.
#[tokio::test]
async fn a_role_taken_away_acts_at_once() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    let bob = common::member(app, BOB, &reference(&desk.acme), Role::Owner, Scopes::ALL).await;
    let token = token(world, BOB, "acme", Scopes::ALL).await;
    assert_eq!(
        desk.ask(&token, "GET", "/admin/vaults/acme", None)
            .await
            .short(),
        "200"
    );
    for (role, scopes, show, change) in [
        (Role::Owner, Scopes::READ, "200", "403 insufficient_scope"),
        (
            Role::Member,
            Scopes::ALL,
            "403 publisher_required",
            "403 owner_required",
        ),
        (Role::Owner, Scopes::ALL, "200", "200"),
    ] {
        let changed = vault_service::model::user::User {
            role,
            scopes,
            ..bob.clone()
        };
        let document = vault_store::records::Document::from_value(&changed).unwrap();
        let write = vault_store::records::Write::put(
            changed.key(),
            document,
            vault_store::records::When::Any,
        );
        assert!(
            app.records
                .commit_writes(vec![write])
                .await
                .unwrap()
                .is_done()
        );
        assert_eq!(
            desk.ask(&token, "GET", "/admin/vaults/acme", None)
                .await
                .short(),
            show
        );
        let deny = desk
            .ask(
                &token,
                "POST",
                "/admin/vaults/acme/devices/deny-pending",
                Some(&serde_json::json!({})),
            )
            .await;
        assert_eq!(deny.short(), change);
    }
}
