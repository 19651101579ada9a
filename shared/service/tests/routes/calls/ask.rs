//! One request for each row, with what it needs beforehand.

use serde_json::json;
use vault_format::catalog::Withdrawn;
use vault_format::hash::Digest;
use vault_service::model::user::Scopes;

use crate::admin::ADA;
use crate::common::{self, OWNER, PASSWORD, Visitor};
use crate::support::key;

use super::drafts::ask_drafts;
use super::people::{account_page, confirmation, ending, passkey, password, second_factor, walk};
use super::scene::{Scene, skill};
use super::{HASHES, Row};

/// Asks for a row's route, the last request counted alone; its status.
pub(super) async fn ask(scene: &mut Scene, &(name, case, _): &Row) -> u16 {
    let (owner, operator) = (scene.owner.clone(), scene.operator.clone());
    let of = |path: &str| format!("/admin/vaults/acme{path}");
    let n = scene.n;
    match (name, case) {
        ("device.enrol", case) => {
            let device = match case {
                "known" => scene.devices[0].clone(),
                _ => key(scene.fresh),
            };
            scene.fresh += u8::from(case == "new");
            scene.counting.take();
            let answer = scene.world.enrol(&device, "acme", "machine").await;
            answer.status.as_u16()
        }
        ("catalog.read", case) => {
            scene.restart();
            if case == "warm" {
                scene.read("/v/acme/catalog.json").await;
            }
            scene.read("/v/acme/catalog.json").await
        }
        ("bundle.read", case) => {
            let hash = match case {
                "of no release" => Digest::of(b"nobody"),
                "withdrawn" => skill(0).entry.bundle_hash,
                _ => skill(n - 1).entry.bundle_hash,
            };
            let path = format!("/v/acme/bundles/{hash}.json");
            scene.restart();
            if case == "warm" {
                scene.read(&path).await;
            }
            scene.read(&path).await
        }
        ("object.missing", _) => {
            let asked = if n == 1 { 1 } else { n * HASHES };
            let objects: Vec<_> = (0..asked)
                .map(|at| json!({ "sha256": Digest::of(&at.to_be_bytes()), "size": 8 }))
                .collect();
            let body = json!({ "class": "bundles", "objects": objects });
            scene.post(&owner, &of("/objects/missing"), &body).await.0
        }
        ("object.pack", _) => {
            let one = |at: usize| {
                let bytes = format!("object {at}");
                let hash = Digest::of(bytes.as_bytes());
                format!("{hash} {}\n{bytes}", bytes.len())
            };
            let pack: String = (0..n).map(one).collect();
            let body = Some(("application/vnd.vault.pack", pack.into_bytes()));
            scene
                .send(&owner, "POST", &of("/objects/bundles"), body, &[])
                .await
                .0
        }
        ("object.put", _) => {
            let path = of(&format!("/objects/bundles/{}", Digest::of(b"alone")));
            let body = Some(("application/octet-stream", b"alone".to_vec()));
            scene.send(&owner, "PUT", &path, body, &[]).await.0
        }
        ("object.read", case) => {
            let path = of(&format!("/objects/bundles/{}", Digest::of(b"alone")));
            scene.restart();
            if case == "warm" {
                scene.ask(&owner, "GET", &path).await;
            }
            scene.ask(&owner, "GET", &path).await
        }
        ("catalog.current", _) => {
            scene.restart();
            scene.ask(&owner, "GET", &of("/catalog")).await
        }
        ("catalog.publish", case) => {
            let next = match case {
                "nothing new" => scene.next(0..n).await,
                "new skills" => scene.next(0..2 * n).await,
                _ => {
                    let release = scene.world.current("acme").await.release;
                    let withdrawn = (0..n).map(skill).map(|skill| Withdrawn {
                        name: skill.entry.name,
                        bundle_hash: skill.entry.bundle_hash,
                        reason: "it was wrong".to_owned(),
                        since_release: release + 1,
                    });
                    let withdrawn = withdrawn.collect();
                    scene.next_without(n..2 * n, withdrawn).await
                }
            };
            scene.restart();
            scene.push(next).await
        }
        ("release.catalog", _) => {
            scene.restart();
            scene.ask(&owner, "GET", &of("/releases/1/catalog")).await
        }
        ("audit.delete", _) => {
            let before = scene.world.now().plus_days(-91);
            let path = format!("/admin/audit?before={before}");
            scene.ask(&owner, "DELETE", &path).await
        }
        ("enrolment.invite", _) => {
            let body = json!({ "uses": 3 });
            scene.post(&owner, &of("/enrolment-codes"), &body).await.0
        }
        ("enrolment.list", _) => scene.ask(&owner, "GET", &of("/enrolment-codes")).await,
        ("enrolment.end", _) => {
            let path = of("/enrolment-codes");
            let (_, listed) = scene.send(&owner, "GET", &path, None, &[]).await;
            let id = listed["items"][0]["id"].as_str().unwrap();
            let path = format!("{path}/{id}");
            scene.ask(&owner, "DELETE", &path).await
        }
        ("enrolment.set", _) => {
            let body = json!({ "enrolment": "codes" }).to_string().into_bytes();
            let body = Some(("application/json", body));
            let path = of("/enrolment");
            scene.send(&owner, "PUT", &path, body, &[]).await.0
        }
        ("pin.reset", _) => {
            let body = json!({ "slug": "acme" });
            scene.post(&owner, &of("/pin/reset"), &body).await.0
        }
        ("device.list", "waiting") => {
            scene
                .ask(&owner, "GET", &of("/devices?status=pending"))
                .await
        }
        ("device.admit" | "device.deny", _) => {
            let device = scene.enrolled().await;
            scene.decide(&device, &name["device.".len()..]).await
        }
        ("device.revoke", _) => {
            let device = scene.enrolled().await;
            scene.decide(&device, "admit").await;
            scene.decide(&device, "revoke").await
        }
        ("device.forget", _) => {
            let device = scene.enrolled().await;
            scene.decide(&device, "deny").await;
            scene.decide(&device, "forget").await
        }
        ("namespace.create", case) => {
            let (slug, email) = match case {
                "for an account" => ("tenant-1", ADA),
                _ => ("tenant-2", "new@example.org"),
            };
            let body = json!({ "slug": slug, "owner": email });
            let (status, made) = scene
                .post(&operator, "/admin/operator/namespaces", &body)
                .await;
            if let Some(url) = made["invite_url"].as_str() {
                url["https://vault.example".len()..].clone_into(&mut scene.invitation);
            }
            status
        }
        ("user.create", case) => {
            let email = match case {
                "for an account" => OWNER,
                _ => "guest@example.org",
            };
            let body = json!({ "email": email, "role": "role:owner", "scopes": ["read", "write"] });
            scene.post(&owner, "/admin/users", &body).await.0
        }
        ("user.profile", _) => {
            let path = scene.user(OWNER, "/profile").await;
            let body = Some(("application/json", br#"{"profile":"p"}"#.to_vec()));
            scene.send(&owner, "PUT", &path, body, &[]).await.0
        }
        ("user.role", case) => {
            let stepping_back = case == "stepping back";
            let path = scene
                .user(if stepping_back { ADA } else { OWNER }, "/role")
                .await;
            let role = if stepping_back {
                "role:member"
            } else {
                "role:owner"
            };
            let body = json!({ "role": role }).to_string().into_bytes();
            let body = Some(("application/json", body));
            let status = scene.send(&owner, "PUT", &path, body, &[]).await.0;
            if stepping_back {
                let calls = scene.counting.take();
                scene.promote(ADA).await;
                *scene.counting.0.lock().unwrap() = calls;
            }
            status
        }
        ("user.scopes", _) => {
            let path = scene.user(OWNER, "/scopes").await;
            let body = json!({ "revoke": ["read"] });
            scene.post(&owner, &path, &body).await.0
        }
        ("user.remove", _) => {
            let path = scene.user("guest@example.org", "").await;
            scene.ask(&owner, "DELETE", &path).await
        }
        ("client.revoke", _) => {
            let mut client = String::new();
            for _ in 0..n {
                let who = (ADA, PASSWORD);
                client = common::tokens(&scene.world.app, who, "acme", Scopes::READ)
                    .await
                    .client;
            }
            let path = format!("/admin/clients/{client}");
            scene.ask(&owner, "DELETE", &path).await
        }
        ("audit.list", "filtered") => {
            let query = "action=device.admit&since=2026-01-01T00:00:00Z";
            let path = format!("/admin/audit?{query}");
            scene.ask(&owner, "GET", &path).await
        }
        ("namespace.suspend" | "namespace.resume" | "namespace.lapse" | "namespace.renew", _) => {
            let what = &name["namespace.".len()..];
            let path = format!("/admin/operator/namespaces/acme/{what}");
            scene.ask(&operator, "POST", &path).await
        }
        ("namespace.quota", _) => {
            let path = "/admin/operator/namespaces/acme/quota";
            let body = json!({ "bytes": 5_368_709_120_u64, "objects": "plan" });
            scene.post(&operator, path, &body).await.0
        }
        ("namespace.show", _) => {
            scene
                .ask(&operator, "GET", "/admin/operator/namespaces/acme")
                .await
        }
        ("invite.show", _) => {
            let path = scene.invitation.clone();
            scene.ask("", "GET", &path).await
        }
        ("invite.accept", _) => {
            let app = scene.world.app.clone();
            let mut visitor = Visitor::new(&app);
            let path = scene.invitation.clone();
            let csrf = visitor.get(&path).await.hidden(&path, "csrf");
            scene.counting.take();
            let fields = [("csrf", csrf.as_str()), ("password", PASSWORD)];
            visitor.post(&path, &fields).await.status
        }
        ("account.show" | "membership.answer" | "membership.leave", _) => {
            account_page(scene, name).await
        }
        ("app.end" | "session.end" | "session.end-all" | "sign-in.end", _) => {
            ending(scene, name).await
        }
        ("confirmation.ask", _) => {
            let body = json!({ "acts": [
                { "act": "create_code", "uses": 60 }, { "act": "reset_pin" },
            ] });
            scene.post(&owner, "/admin/confirmations", &body).await.0
        }
        ("confirmation.ask-operator", _) => {
            let body = json!({ "acts": [
                { "act": "grant_operator", "email": ADA }, { "act": "reset_account", "email": ADA },
            ] });
            let path = "/admin/operator/confirmations";
            scene.post(&operator, path, &body).await.0
        }
        ("confirmation.show" | "confirmation.page" | "confirmation.decide", _) => {
            confirmation(scene, name).await
        }
        ("second-factor.show" | "second-factor.change" | "oauth.second-factor", _) => {
            second_factor(scene, name).await
        }
        (
            "passkey.show" | "passkey.new" | "passkey.add" | "passkey.ask" | "passkey.sign-in"
            | "passkey.remove",
            _,
        ) => passkey(scene, name).await,
        ("account.list", _) => {
            let path = "/admin/operator/accounts";
            scene.ask(&operator, "GET", path).await
        }
        ("account.invite", _) => {
            let body = json!({ "email": "more@example.org" });
            scene
                .post(&operator, "/admin/operator/accounts", &body)
                .await
                .0
        }
        ("account.delete", _) => {
            let path = "/admin/operator/accounts/more@example.org";
            scene.ask(&operator, "DELETE", path).await
        }
        ("vault.sign-out" | "namespace.sign-out" | "service.sign-out", _) => {
            let (token, path, body) = match name {
                "vault.sign-out" => (
                    &owner,
                    "/admin/vaults/acme/sign-out",
                    json!({"slug": "acme"}),
                ),
                "service.sign-out" => (
                    &operator,
                    "/admin/operator/sign-out",
                    json!({"confirm": "everybody"}),
                ),
                _ => (
                    &operator,
                    "/admin/operator/namespaces/acme/sign-out",
                    json!({}),
                ),
            };
            let status = scene.post(token, path, &body).await.0;
            scene.sign_in_again().await;
            status
        }
        (name, _) if name.starts_with("account.") => {
            let what = &name["account.".len()..];
            let path = format!("/admin/operator/accounts/more@example.org/{what}");
            scene.ask(&operator, "POST", &path).await
        }
        (name, case) if name.starts_with("draft.") => ask_drafts(scene, name, case).await,
        ("password.show" | "password.change", _) => password(scene, name).await,
        (
            "client.register" | "oauth.authorize" | "oauth.login" | "oauth.consent"
            | "oauth.logout" | "token.grant" | "token.revoke",
            _,
        ) => walk(scene, name, case).await,
        _ => scene.sample(name).await,
    }
}
