//! Drafts where the server holds the vault's key: everybody's but an owner's changes wait, and an
//! owner's accept makes the server admit them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use vault_format::bundle::files_sha256;
use vault_gate::GateOptions;
use vault_service::config::MemberWrites;
use vault_service::model::namespace::{Kind, Namespace};
use vault_service::model::user::Role;
use vault_service::shelf::Shelves;
use vault_service::{Accepted, App};
use vault_shelf::{Change, Shelf, ShelfError, Submitted, Writes};
use vault_testing::memory::shelf::MemoryShelf;

use super::{BOB, CY, DAN, Place};
use crate::admin::{Desk, desk_of};
use crate::mcp::{request, rpc};
use crate::support::Answer;
use crate::team::{Team, id_of};

/// A server that holds the library of `acme`: it signs into memory, and counts releases.
struct Server {
    library: Arc<MemoryShelf>,
    releases: AtomicU64,
    is_down: AtomicBool,
    /// How many changes may be signed; each takes one.
    signing: Semaphore,
}

#[async_trait]
impl Shelves for Server {
    fn shelf(&self, _: &App, _: &Namespace, _: Option<IpAddr>) -> Arc<dyn Shelf> {
        self.library.clone()
    }

    async fn sign(
        &self,
        _: &App,
        _: &Namespace,
        accepted: Accepted<'_>,
    ) -> Result<Submitted, ShelfError> {
        self.signing.acquire().await.unwrap().forget();
        if let Change::Take { files, .. } = &accepted.change {
            let verdict = vault_gate::check(files.clone(), &GateOptions::in_service());
            let found = verdict.package.map(|package| files_sha256(&package.files));
            if accepted.reviewed.is_none() || found != accepted.reviewed {
                return Err(ShelfError::NotReviewed("these are other files".to_owned()));
            }
        }
        self.library.submit(accepted.author, accepted.change).await
    }

    async fn publish(&self, _: &App, _: &Namespace) -> Result<Option<u64>, ShelfError> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(ShelfError::Busy);
        }
        Ok(Some(self.releases.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

struct Own {
    place: Place,
    server: Arc<Server>,
}

impl Own {
    async fn new(writes: MemberWrites) -> Self {
        let mut desk = desk_of(Kind::SelfSigned, |config| config.member_writes = writes).await;
        let server = Arc::new(Server {
            library: Arc::new(MemoryShelf::new("acme", Writes::Signed)),
            releases: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            signing: Semaphore::new(1000),
        });
        desk.world.app = desk.world.app.clone().with_shelves(server.clone());
        desk.world.router = vault_service::router(desk.world.app.clone());
        let member = Place::person(&desk, BOB, Role::Member).await;
        let publisher = Place::person(&desk, CY, Role::Publisher).await;
        let place = Place {
            desk,
            team: Team::new("acme", 1, 1),
            member,
            publisher,
        };
        Self { place, server }
    }

    /// Puts a skill into the library, as its owner does.
    fn put(&self, name: &str, body: &str) -> String {
        let entry = self.server.library.put_text(
            name,
            "Does what it is for.",
            &[],
            &[("a.txt", body.as_bytes())],
        );
        entry.unwrap().texts.bundle_hash.to_string()
    }

    async fn names(&self) -> Vec<String> {
        let snapshot = self.server.library.take_snapshot().await.unwrap();
        let entries = snapshot.entries().iter();
        entries
            .map(|entry| format!("{} {}", entry.name(), entry.version))
            .collect()
    }

    /// Calls a tool.
    async fn call(&self, token: &str, tool: &str, arguments: Value) -> Value {
        let message = rpc(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        );
        let sent = request(token, message.to_string());
        let answer = self.place.desk.world.send(sent.body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["result"]["structuredContent"].clone()
    }

    async fn accept(&self, id: &str) -> Answer {
        let owner = &self.place.desk.owner;
        let reviewed = self.place.reviewed(id).await;
        let body = json!({ "reviewed_sha256": reviewed });
        self.place.accept(owner, id, body).await
    }

    /// The files of a skill of the library as JSON, with another text.
    fn change(body: &str) -> Value {
        json!({ "skill_md": document("alpha", body) })
    }
}

fn document(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Does the work of {name} well.\n---\n{body}\n")
}

fn desk(own: &Own) -> &Desk {
    &own.place.desk
}

/// The setting says what becomes of members' and publishers' changes; an owner's are signed either
/// way.
#[tokio::test]
async fn a_member_s_change_waits_for_the_owner_unless_the_server_signs_for_members() {
    for (writes, wanted) in [
        (MemberWrites::Draft, "drafted"),
        (MemberWrites::Sign, "accepted"),
    ] {
        let own = Own::new(writes).await;
        let arguments = |name: &str| json!({ "skill_md": document(name, "Do it.") });
        let owner = desk(&own).owner.clone();
        for (token, name, status) in [
            (&own.place.member, "bobs", wanted),
            (&own.place.publisher, "cys", wanted),
            (&owner, "adas", "accepted"),
        ] {
            for tool in ["propose_skill", "skill_publish"] {
                let name = format!("{name}-{}", tool.replace('_', "-"));
                let outcome = own.call(token, tool, arguments(&name)).await;
                assert_eq!(outcome["status"], status, "{outcome}");
                let drafted = status == "drafted";
                assert_eq!(outcome["draft_id"].is_string(), drafted);
                assert_eq!(outcome["drafts_waiting"].is_u64(), drafted);
            }
        }
        let signed = own.names().await.len();
        assert_eq!(signed, if wanted == "drafted" { 2 } else { 6 });
        // A draft of a member is what they see of their own list.
        let mine = own.place.ids(&own.place.member, "").await.len();
        assert_eq!(mine, if wanted == "drafted" { 2 } else { 0 });
    }
}

#[tokio::test]
async fn an_owner_s_accept_makes_the_server_sign_and_publish() {
    let own = Own::new(MemberWrites::Draft).await;
    let outcome = own
        .call(
            &own.place.member,
            "skill_publish",
            json!({ "skill_md": document("alpha", "Do it.") }),
        )
        .await;
    let id = outcome["draft_id"].as_str().unwrap().to_owned();
    assert_eq!(outcome["drafts_waiting"], 1);
    // Nobody else decides that, and no release is named.
    for token in [&own.place.publisher, &own.place.member] {
        let body = json!({ "reviewed_sha256": own.place.reviewed(&id).await });
        let refused = own.place.accept(token, &id, body).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    let owner = desk(&own).owner.clone();
    // Nothing is signed that nobody has named, and nothing but that.
    let unnamed = own.place.accept(&owner, &id, json!({})).await;
    assert_eq!(unnamed.short(), "422 parameter_invalid");
    let other = json!({ "reviewed_sha256": "0".repeat(64) });
    let other = own.place.accept(&owner, &id, other).await;
    assert_eq!(other.short(), "409 draft_changed");
    assert_eq!(own.place.state(&id).await, "pending");
    let named = own.place.accept(&owner, &id, json!({ "release": 1 })).await;
    assert_eq!(named.short(), "422 parameter_invalid");
    assert!(own.names().await.is_empty());
    let accepted = own.accept(&id).await;
    assert_eq!(accepted.short(), "200", "{accepted:?}");
    assert_eq!(
        (&accepted.json()["state"], &accepted.json()["release"]),
        (&json!("accepted"), &json!(1))
    );
    assert_eq!(own.names().await, ["alpha 1"]);
    // Its author is where it comes from; who accepted it is in the log.
    let author = desk(&own).id_of(BOB).await;
    assert_eq!(own.server.library.submitted()[0].0.user_id, author);
    let entry = desk(&own).last("draft.accept").await;
    assert_eq!(entry.actor, desk(&own).ada().await);
    // Repeated, it changes nothing.
    assert_eq!(own.accept(&id).await.json(), accepted.json());
    assert_eq!(own.server.releases.load(Ordering::SeqCst), 1);
    // A removal, and the same twice.
    let removal = own
        .place
        .change(&owner, "remove", &json!({ "name": "alpha" }))
        .await;
    assert_eq!(removal.status, 201, "{removal:?}");
    let other = json!({ "reviewed_sha256": "0".repeat(64) });
    let other = own.place.accept(&owner, &id_of(&removal), other).await;
    assert_eq!(other.short(), "409 draft_changed");
    assert_eq!(
        own.accept(&id_of(&removal)).await.json()["state"],
        "accepted"
    );
    assert!(own.names().await.is_empty());
}

/// Whatever breaks off between signing and the end, accepting again goes on from there.
#[tokio::test]
async fn an_accept_that_broke_off_is_finished_by_the_next_one() {
    let own = Own::new(MemberWrites::Draft).await;
    let made = own
        .place
        .change(&own.place.member, "propose", &Own::change("Do it."))
        .await;
    let id = id_of(&made);
    own.server.is_down.store(true, Ordering::SeqCst);
    let failed = own.accept(&id).await;
    assert_eq!(failed.short(), "503 library_busy");
    assert_eq!(own.place.state(&id).await, "pending");
    assert_eq!(own.names().await, ["alpha 1"], "it is signed");
    own.server.is_down.store(false, Ordering::SeqCst);
    let accepted = own.accept(&id).await;
    assert_eq!(accepted.json()["state"], "accepted", "{accepted:?}");
    assert_eq!(own.names().await, ["alpha 1"], "and not a second time");
    // Or the owner changes their mind in between: then the draft is what they say.
    let owner = desk(&own).owner.clone();
    let removal = own
        .place
        .change(&owner, "remove", &json!({ "name": "alpha" }))
        .await;
    let removal = id_of(&removal);
    own.server.is_down.store(true, Ordering::SeqCst);
    assert_eq!(own.accept(&removal).await.short(), "503 library_busy");
    let declined = own.place.decline(&owner, &removal, "no").await;
    assert_eq!(declined.json()["state"], "declined");
}

/// Nobody ends a draft while the server signs it, and a server that stopped does not hold it for
/// longer than a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_is_not_withdrawn_while_it_is_signed() {
    let own = Own::new(MemberWrites::Draft).await;
    let id = id_of(
        &own.place
            .change(&own.place.member, "propose", &Own::change("Do it."))
            .await,
    );
    own.server.signing.forget_permits(1000);
    let release_when_claimed = async {
        // The claim is written before anything is signed.
        own.place.until_claimed(&id).await;
        for answer in [
            own.place.withdraw(&own.place.member, &id).await,
            own.place.decline(&desk(&own).owner, &id, "no").await,
            own.accept(&id).await,
        ] {
            assert_eq!(answer.short(), "409 draft_state");
            assert_eq!(answer.json()["state"], "pending");
        }
        own.server.signing.add_permits(1);
    };
    let (accepted, ()) = tokio::join!(own.accept(&id), release_when_claimed);
    assert_eq!(accepted.json()["state"], "accepted");
    // A server that never came back.
    let body = json!({ "skill_md": document("beta", "Do it.") });
    let id = id_of(&own.place.change(&own.place.member, "propose", &body).await);
    tokio::select! {
        accepted = own.accept(&id) => panic!("nothing is signed: {accepted:?}"),
        () = own.place.until_claimed(&id) => {}
    }
    assert_eq!(
        own.place.withdraw(&own.place.member, &id).await.short(),
        "409 draft_state"
    );
    desk(&own).world.clock.advance(60);
    assert_eq!(
        own.place.withdraw(&own.place.member, &id).await.short(),
        "200"
    );
}

impl Place {
    /// Waits until a server is busy with an open draft.
    async fn until_claimed(&self, id: &str) {
        while self.read_claim(id).await.is_none() {
            tokio::task::yield_now().await;
        }
    }

    /// Until when a server is busy with an open draft.
    async fn read_claim(&self, id: &str) -> Option<vault_format::time::Timestamp> {
        use vault_service::model::draft::{self, DraftRecord};
        let key = draft::draft_key(&self.desk.acme.id, &id.parse().unwrap());
        let record: DraftRecord = crate::common::read(&self.desk.world.app, &key).await;
        record.admitting_until
    }
}

/// An owner never replaces unseen what has changed since the author saw it.
#[tokio::test]
async fn a_draft_on_another_base_needs_the_owner_s_word() {
    let own = Own::new(MemberWrites::Draft).await;
    let owner = desk(&own).owner.clone();
    // The member may not see the skill, and so names no base.
    let now = own.put("alpha", "one");
    let id = id_of(
        &own.place
            .change(&own.place.member, "propose", &Own::change("Mine."))
            .await,
    );
    let refused = own.accept(&id).await;
    assert_eq!(refused.short(), "409 draft_base");
    assert_eq!(refused.json()["bundle_hash"], json!(now));
    let reviewed = own.place.reviewed(&id).await;
    let wrong = json!({ "base_bundle_hash": "0".repeat(64), "reviewed_sha256": reviewed });
    let refused = own.place.accept(&owner, &id, wrong).await;
    assert_eq!(refused.short(), "409 draft_base");
    assert_eq!(own.place.state(&id).await, "pending");
    let accepted = own
        .place
        .accept(
            &owner,
            &id,
            json!({ "base_bundle_hash": now, "reviewed_sha256": reviewed }),
        )
        .await;
    assert_eq!(accepted.json()["state"], "accepted", "{accepted:?}");
    assert_eq!(own.names().await, ["alpha 2"]);
    // And a removal of what has changed.
    let removal = own
        .place
        .change(&owner, "remove", &json!({ "name": "alpha" }))
        .await;
    own.put("alpha", "three");
    assert_eq!(own.accept(&id_of(&removal)).await.short(), "409 draft_base");
    assert_eq!(own.names().await, ["alpha 3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_owners_who_accept_at_once_sign_once() {
    let own = Own::new(MemberWrites::Draft).await;
    for round in 0..8 {
        let body = json!({ "skill_md": document(&format!("skill-{round}"), "Do it.") });
        let id = id_of(&own.place.change(&own.place.member, "propose", &body).await);
        let (one, other) = tokio::join!(own.accept(&id), own.accept(&id));
        let mut answers = [one.short(), other.short()];
        answers.sort();
        assert_eq!(answers[0], "200");
        assert!(
            ["200", "409 draft_state"].contains(&answers[1].as_str()),
            "{answers:?}"
        );
        assert_eq!(own.place.state(&id).await, "accepted");
        assert!(own.names().await.contains(&format!("skill-{round} 1")));
    }
}

/// On a server that does not hold the library there is nothing to sign with; the draft waits for
/// one that does.
#[tokio::test]
async fn a_server_without_the_library_accepts_nothing() {
    let own = Own::new(MemberWrites::Draft).await;
    let id = id_of(
        &own.place
            .change(&own.place.member, "propose", &Own::change("Do it."))
            .await,
    );
    let mut place = own.place;
    place.desk.world = place.desk.world.restarted();
    let owner = place.desk.owner.clone();
    let body = json!({ "reviewed_sha256": "0".repeat(64) });
    let refused = place.accept(&owner, &id, body).await;
    assert_eq!(refused.short(), "503 library_elsewhere");
    assert_eq!(place.state(&id).await, "pending");
    assert_eq!(place.ids(&place.member, "").await, [id]);
    let dan = place.add(DAN, Role::Member).await;
    assert!(place.ids(&dan, "state=all").await.is_empty());
}
