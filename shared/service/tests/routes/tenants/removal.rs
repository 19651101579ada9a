//! Deleting a vault: everything reads as unknown at once, and background work removes what is in
//! it, wherever it is cut off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use vault_service::maintenance;
use vault_service::model::namespace::{self, Kind, Namespace, Status};
use vault_service::model::removal::{REMOVALS, WAIT_SECONDS};
use vault_service::model::user::Scopes;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::{Document, RecordKey, Records, When, Write};
use vault_testing::memory::Memory;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use super::there::{FAY, Other, THERE, other, records_of};
use crate::admin::{Desk, desk};
use crate::common::partitions::run_work;
use crate::common::{self, PASSWORD};
use crate::support::world;

/// Deletes the other tenant with its owner's token.
async fn delete(desk: &Desk) -> u16 {
    let tokens = common::tokens(&desk.world.app, (FAY, PASSWORD), THERE, Scopes::ALL).await;
    let path = format!("/admin/vaults/{THERE}");
    let body = json!({ "slug": THERE });
    let answer = desk.ask(&tokens.access, "DELETE", &path, Some(&body)).await;
    answer.status.as_u16()
}

/// Everything of the other tenant, but what is its people's own: their accounts, browsers and
/// sign-ins.
async fn left(desk: &Desk, other: &Other) -> Vec<String> {
    let own = |key: &str| {
        let is_entry = key.contains(" | ns/") || key.contains(" | grant/");
        key.starts_with("session/") || (key.starts_with("acct/") && !is_entry)
    };
    let records: BTreeMap<String, u64> = records_of(&desk.world, other).await;
    let mut left: Vec<_> = records.into_keys().filter(|key| !own(key)).collect();
    let id = &other.namespace.id;
    for class in Class::ALL {
        let found = desk
            .world
            .app
            .objects
            .list_objects(id, class, None, 1000)
            .await;
        left.extend(
            found
                .unwrap()
                .iter()
                .map(|(digest, _)| format!("{class} {digest}")),
        );
    }
    left
}

async fn tombstone(desk: &Desk) -> Namespace {
    let key = namespace::namespace_key(&THERE.parse().unwrap());
    let record = desk.world.app.records.get_one(&key).await.unwrap();
    record.unwrap().read().unwrap()
}

#[tokio::test]
async fn a_deleted_vault_reads_as_unknown_at_once() {
    let desk = desk().await;
    let other = other(&desk).await;
    let device = crate::support::key(51);
    let path = format!("/v/{THERE}/devices/current");
    assert_eq!(desk.world.ask(&device, "GET", &path).await.status, 200);
    assert_eq!(delete(&desk).await, 200);

    let shown = desk
        .ask(&other.tokens.access, "GET", "/admin/vaults", None)
        .await;
    assert_eq!(shown.short(), "401 token_invalid");
    for path in [path, format!("/v/{THERE}/catalog.json")] {
        let (gone, never) = (
            desk.world.ask(&device, "GET", &path).await,
            desk.world
                .ask(&device, "GET", &path.replace(THERE, "tenant-x"))
                .await,
        );
        assert_eq!(
            (gone.short(), gone.status),
            (never.short(), never.status),
            "{path}"
        );
    }
    let operator = desk.operator().await;
    let wanted = json!({ "slug": THERE, "owner": "new@example.org" });
    let taken = desk.ask(
        &operator,
        "POST",
        "/admin/operator/namespaces",
        Some(&wanted),
    );
    assert_eq!(taken.await.short(), "409 slug_taken");
    let log = desk
        .ask(
            &operator,
            "GET",
            "/admin/operator/audit?action=vault.delete",
            None,
        )
        .await;
    let log = log.json();
    assert_eq!(log["items"][0]["target"], THERE, "{log}");
    assert_eq!(log["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn only_an_owner_who_types_the_name_and_confirms_deletes() {
    let desk = desk().await;
    let delete = async |token: &str, slug: &str, typed: &str| {
        let body = json!({ "slug": typed });
        let path = format!("/admin/vaults/{slug}");
        desk.ask_once(token, "DELETE", &path, Some(&body))
            .await
            .short()
    };
    let owner = desk.owner.clone();
    assert_eq!(
        delete(&owner, "acme", "acm").await,
        "422 confirmation_mismatch"
    );
    assert_eq!(delete(&owner, "other", "other").await, "404 not_found");
    assert_eq!(
        delete(&owner, "acme", "acme").await,
        "403 confirmation_needed"
    );
    assert_eq!(
        desk.world.read_namespace("acme").await.status,
        Status::Active
    );
}

#[tokio::test]
async fn nothing_of_a_deleted_vault_is_left_but_its_name() {
    let desk = desk().await;
    let other = other(&desk).await;
    let acme = desk
        .world
        .app
        .objects
        .list_objects(&desk.acme.id, Class::Bundles, None, 1000)
        .await
        .unwrap();
    assert_eq!(delete(&desk).await, 200);
    // Requests that began before the deletion end before the removal begins.
    let early = run_work(&desk.world.app).await;
    assert_eq!((early.removed_records, early.removed_vaults), (0, 0));
    desk.world.clock.advance(WAIT_SECONDS);
    let report = run_work(&desk.world.app).await;
    assert_eq!(report.removed_vaults, 1, "{report:?}");
    assert_eq!(left(&desk, &other).await, [format!("ns/{THERE} | ns")]);
    let tombstone = tombstone(&desk).await;
    assert_eq!(
        (tombstone.status, tombstone.owner.as_str()),
        (Status::Deleted, "")
    );
    assert_eq!(tombstone.current, None);
    let marks = desk
        .world
        .app
        .records
        .list_page(REMOVALS, "", None, 10)
        .await;
    assert!(marks.unwrap().is_empty());
    // The neighbour has what it had.
    let still = desk
        .world
        .app
        .objects
        .list_objects(&desk.acme.id, Class::Bundles, None, 1000)
        .await
        .unwrap();
    assert_eq!(acme, still);
    assert_eq!(desk.get("/admin/vaults/acme").await.status, 200);
    assert_eq!(run_work(&desk.world.app).await.removed_vaults, 0);
}

/// Lets so many changes of the stores through, and fails all that follow.
struct Cut(AtomicUsize);

#[async_trait]
impl Hook for Cut {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if !matches!(call, Call::Commit(_) | Call::Delete(_)) {
            return Ok(());
        }
        let less = |left: usize| left.checked_sub(1);
        match self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::unavailable("the process ends here")),
        }
    }
}

#[tokio::test]
async fn a_removal_that_is_cut_off_after_any_change_is_finished_by_the_next_run() {
    for cut in 0.. {
        let desk = desk().await;
        let other = other(&desk).await;
        assert_eq!(delete(&desk).await, 200);
        desk.world.clock.advance(WAIT_SECONDS);
        let hooked = Hooked::new(&desk.world.memory, Arc::new(Cut(AtomicUsize::new(cut))));
        let mut app = desk.world.app.clone();
        (app.ports.records, app.ports.objects) = (hooked.clone(), hooked);
        // It fails wherever a change failed; what counts is what the next run makes of it.
        let _ = maintenance::run_once(&app).await;
        let marks = desk
            .world
            .app
            .records
            .list_page(REMOVALS, "", None, 10)
            .await;
        let whole = marks.unwrap().is_empty();
        if !whole {
            let report = run_work(&desk.world.app).await;
            assert_eq!(report.removed_vaults, 1, "cut after {cut}: {report:?}");
        }
        assert_eq!(
            left(&desk, &other).await,
            [format!("ns/{THERE} | ns")],
            "cut after {cut}"
        );
        if whole {
            assert!(cut > 20, "{cut} changes are too few to be all");
            return;
        }
    }
}

/// Puts back whatever is removed from a partition, so that its removal takes all the time that it gets.
struct Endless {
    memory: Arc<Memory>,
    partition: String,
}

#[async_trait]
impl Hook for Endless {
    async fn before(&self, _: Call<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn after(&self, call: Call<'_>, _: bool) {
        let Call::Commit(writes) = call else { return };
        let gone = writes
            .iter()
            .filter(|write| write.key().partition == self.partition);
        for write in gone {
            let document = Document::from_value(&json!({})).unwrap();
            let again = Write::put(write.key().clone(), document, When::Any);
            assert!(
                self.memory
                    .commit_writes(vec![again])
                    .await
                    .unwrap()
                    .is_done()
            );
        }
    }
}

#[tokio::test]
async fn a_removal_without_an_end_leaves_time_to_the_others() {
    let mut world = world();
    let mut partitions = Vec::new();
    for slug in ["acme", "other"] {
        let id = world.namespace(slug, Kind::Hosted).await.id;
        let found = namespace::find_namespace(&world.app, &slug.parse().unwrap()).await;
        let (namespace, revision) = found.unwrap().unwrap();
        let deletion = namespace.deletion_writes(revision, world.now()).unwrap();
        common::commit(&world.app, deletion).await;
        let partition = format!("rel/{id}");
        common::put(
            &world.app,
            RecordKey::new(partition.clone(), "1"),
            &json!({}),
        )
        .await;
        partitions.push(partition);
    }
    world.clock.advance(WAIT_SECONDS);
    let endless = Endless {
        memory: Arc::clone(&world.memory),
        partition: partitions.swap_remove(0),
    };
    world.app.ports.records = Hooked::new(&world.memory, Arc::new(endless));
    // The first has one of two seconds.
    let report = maintenance::run_within(&world.app, Duration::from_secs(2)).await;
    assert_eq!(report.unwrap().removed_vaults, 1);
    let removals = world.app.records.list_page(REMOVALS, "", None, 10).await;
    let removals: Vec<_> = removals
        .unwrap()
        .into_iter()
        .map(|mark| mark.key.key)
        .collect();
    assert_eq!(removals, ["acme"]);
}
