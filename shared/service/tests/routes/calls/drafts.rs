//! Rows about drafts, in a namespace of their own whose releases two publishers sign.

use serde_json::json;
use vault_format::keys::SecretKey;
use vault_service::model::namespace::{self, Kind};
use vault_service::model::user::{Role, Scopes};

use crate::admin::{ADA, reference, token};
use crate::common;
use crate::team::{Team, drafts, hand_in, id_of, propose_skill};

use super::scene::Scene;

const SLUG: &str = "team";

/// Asks for a row's route, the last request counted alone; its status.
pub(super) async fn ask_drafts(scene: &Scene, name: &str, case: &str) -> u16 {
    let world = &scene.world;
    let slug = SLUG.parse().unwrap();
    let team = Team::new(SLUG, 2, 2);
    if namespace::find_namespace(&world.app, &slug)
        .await
        .unwrap()
        .is_none()
    {
        let home = reference(&world.namespace(SLUG, Kind::Hosted).await);
        common::member(&world.app, ADA, &home, Role::Owner, Scopes::ALL).await;
        team.publish(world, &[]).await;
    }
    let owner = token(world, ADA, SLUG, Scopes::ALL).await;
    // Seen a moment ago, so that this is not counted.
    scene.ask(&owner, "GET", "/admin/vaults").await;
    let path = drafts(SLUG);
    if name == "draft.create" {
        let bytes = match case {
            "a release" => {
                let skills: Vec<_> = (0..scene.n)
                    .map(|at| team.skill(&format!("skill-{at}"), "one"))
                    .collect();
                let catalog = team.next(world, 0, &skills).await;
                team.file(&catalog, &[0])
            }
            _ => team.request(world, &SecretKey::from_seed([90; 32]), "bob"),
        };
        scene.counting.take();
        let answer = match case {
            "a skill" => propose_skill(world, &owner, SLUG, "costs").await,
            "a key" => hand_in(world, &owner, SLUG, "key_request", bytes).await,
            _ => hand_in(world, &owner, SLUG, "release", bytes).await,
        };
        return answer.status.as_u16();
    }
    let mut id = String::new();
    for at in 0..scene.n.min(3) {
        id = id_of(&propose_skill(world, &owner, SLUG, &format!("more-{at}")).await);
    }
    match name {
        "draft.list" => scene.ask(&owner, "GET", &format!("{path}?{case}")).await,
        "draft.read" => scene.ask(&owner, "GET", &format!("{path}/{id}")).await,
        "draft.withdraw" => scene.ask(&owner, "DELETE", &format!("{path}/{id}")).await,
        "draft.accept" => {
            let body = json!({ "release": 1 });
            let path = format!("{path}/{id}/accepted");
            scene.post(&owner, &path, &body).await.0
        }
        _ => {
            let body = json!({ "reason": "We have this skill already." });
            let path = format!("{path}/{id}/declined");
            scene.post(&owner, &path, &body).await.0
        }
    }
}
