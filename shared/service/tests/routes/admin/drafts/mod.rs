//! `/admin/vaults/{slug}/drafts`: what people ask owners and publishers for, who sees it, and what
//! becomes of it.

mod collection;
mod content;
mod decisions;
mod key_requests;
mod limits;
mod list;
mod proposals;
mod races;
mod self_signed;

use serde_json::{Value, json};
use vault_format::bundle::files_sha256;
use vault_format::draft::{Draft, DraftContext, Request};
use vault_service::model::user::{Role, Scopes};

use super::{BOB, CY, Desk, empty_desk, reference, token};
use crate::common;
use crate::support::Answer;
use crate::team::{Team, drafts, hand_in, id_of, propose_skill};

/// A second member.
const DAN: &str = "dan@example.org";
/// A second publisher.
const FAY: &str = "fay@example.org";

/// A vault that two of three publishers' keys release, with its people.
struct Place {
    desk: Desk,
    team: Team,
    /// BOB's token: a member's.
    member: String,
    /// CY's token: a publisher's.
    publisher: String,
}

impl Place {
    /// A place whose namespace `acme` has release 1, with one skill, `alpha`.
    async fn new() -> Self {
        let place = Self::unpublished().await;
        let alpha = place.team.skill("alpha", "one");
        place.team.publish(&place.desk.world, &[alpha]).await;
        place
    }

    async fn unpublished() -> Self {
        let desk = empty_desk().await;
        let member = Self::person(&desk, BOB, Role::Member).await;
        let publisher = Self::person(&desk, CY, Role::Publisher).await;
        Self {
            desk,
            team: Team::new("acme", 3, 2),
            member,
            publisher,
        }
    }

    /// The token of a new user of `acme`.
    async fn person(desk: &Desk, email: &str, role: Role) -> String {
        let home = reference(&desk.acme);
        common::member(&desk.world.app, email, &home, role, Scopes::ALL).await;
        token(&desk.world, email, "acme", Scopes::ALL).await
    }

    async fn add(&self, email: &str, role: Role) -> String {
        Self::person(&self.desk, email, role).await
    }

    /// Hands in a skill of this name; the draft's id.
    async fn propose(&self, token: &str, name: &str) -> String {
        id_of(&propose_skill(&self.desk.world, token, "acme", name).await)
    }

    /// Hands in exact bytes.
    async fn hand_in(&self, token: &str, kind: &str, bytes: Vec<u8>) -> Answer {
        hand_in(&self.desk.world, token, "acme", kind, bytes).await
    }

    /// Proposes a release that one publisher's key has signed; the draft's id.
    async fn proposed(&self, token: &str, body: &str) -> String {
        let file = self.file(body, &[0]).await;
        id_of(&self.hand_in(token, "release", file).await)
    }

    /// The file of a next release in which `beta` is this, signed by these publishers' keys.
    async fn file(&self, body: &str, signers: &[usize]) -> Vec<u8> {
        let beta = self.team.skill("beta", body);
        let catalog = self.team.next(&self.desk.world, signers[0], &[beta]).await;
        self.team.file(&catalog, signers)
    }

    /// Hands in a change as JSON.
    async fn change(&self, token: &str, kind: &str, body: &Value) -> Answer {
        let path = format!("{}?kind={kind}", drafts("acme"));
        self.desk.ask(token, "POST", &path, Some(body)).await
    }

    async fn list(&self, token: &str, query: &str) -> Value {
        let path = format!("{}?{query}", drafts("acme"));
        let answer = self.desk.ask(token, "GET", &path, None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The ids that a list shows.
    async fn ids(&self, token: &str, query: &str) -> Vec<String> {
        let listed = self.list(token, query).await;
        let items = listed["items"].as_array().unwrap().iter();
        items
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The draft as the owner sees it.
    async fn draft(&self, id: &str) -> Value {
        let listed = self.list(&self.desk.owner, "state=all").await;
        let mut items = listed["items"].as_array().unwrap().iter();
        items.find(|item| item["id"] == id).unwrap().clone()
    }

    async fn state(&self, id: &str) -> String {
        self.draft(id).await["state"].as_str().unwrap().to_owned()
    }

    async fn read(&self, token: &str, id: &str) -> Answer {
        let path = format!("{}/{id}", drafts("acme"));
        self.desk.ask(token, "GET", &path, None).await
    }

    /// What an owner reviews of a draft, as its acceptance names it.
    async fn reviewed(&self, id: &str) -> Value {
        let item = self.draft(id).await;
        if item["kind"] == "remove" {
            return item["sha256"].clone();
        }
        let bytes = self.read(&self.desk.owner, id).await.body;
        let pinned = serde_json::from_slice::<Value>(&bytes).unwrap()["vault_id"].clone();
        let vault_id = pinned.as_str().map(|id| id.parse().unwrap());
        let slug = "acme".parse().unwrap();
        let context = DraftContext {
            slug: &slug,
            vault_id: vault_id.as_ref(),
        };
        match Draft::parse(&bytes, &context).unwrap().request {
            Request::Propose { files } => json!(files_sha256(&files)),
            other => panic!("{other:?}"),
        }
    }

    async fn accept(&self, token: &str, id: &str, body: Value) -> Answer {
        let path = format!("{}/{id}/accepted", drafts("acme"));
        self.desk.ask(token, "POST", &path, Some(&body)).await
    }

    async fn decline(&self, token: &str, id: &str, reason: &str) -> Answer {
        let path = format!("{}/{id}/declined", drafts("acme"));
        let body = json!({ "reason": reason });
        self.desk.ask(token, "POST", &path, Some(&body)).await
    }

    async fn withdraw(&self, token: &str, id: &str) -> Answer {
        let path = format!("{}/{id}", drafts("acme"));
        self.desk.ask(token, "DELETE", &path, None).await
    }
}
