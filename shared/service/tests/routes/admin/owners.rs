//! What owners do to each other: one who can sign in and write always stays.

use serde_json::json;
use vault_service::model::user::{Role, Scopes, User};

use super::{BOB, EVE, empty_desk, reference, token};
use crate::common::{self};

use super::users::{NEW, USERS};

#[tokio::test]
async fn an_owner_steps_back_only_while_another_stays() {
    let desk = empty_desk().await;
    let ada = desk.ada().await;
    let of = |what: &str| format!("{USERS}/{ada}{what}");
    let member = json!({"role": "role:member"});
    let owner = json!({"role": "role:owner"});
    let reader = json!({"revoke": ["write"]});
    let nobody_stays = async |why: &str| {
        for answer in [
            desk.delete(&of("")).await,
            desk.replace(&of("/role"), &member).await,
            desk.post(&of("/scopes"), &reader).await,
        ] {
            assert_eq!(answer.short(), "409 last_owner", "{why}");
        }
    };
    nobody_stays("alone").await;
    assert_eq!(desk.count("user.remove last_owner").await, 1);
    // What takes no ownership away goes through.
    let revoked = json!({"revoke": ["read"]});
    assert_eq!(desk.post(&of("/scopes"), &revoked).await.status, 200);
    assert_eq!(desk.replace(&of("/role"), &owner).await.status, 200);

    desk.bob(Role::Member, Scopes::ALL).await;
    nobody_stays("beside a member").await;
    let bobs = format!("{USERS}/{}", desk.id_of(BOB).await);
    desk.replace(&format!("{bobs}/role"), &owner).await;
    desk.post(&format!("{bobs}/scopes"), &reader).await;
    nobody_stays("beside an owner who may not write").await;
    desk.delete(&bobs).await;
    let body = json!({"email": NEW, "role": "role:owner", "scopes": ["read", "write"]});
    common::proven(&desk.world.app, NEW).await;
    assert_eq!(desk.post(USERS, &body).await.status, 201);
    nobody_stays("beside an owner who has not accepted").await;
    common::answer_invitation(&desk.world.app, NEW, "acme", "accept").await;
    let gone = desk.delete(&of("")).await;
    assert_eq!(gone.status, 200, "{gone:?}");
    // One's own tokens are dead too.
    assert_eq!(desk.get(USERS).await.short(), "401 token_invalid");
}

/// 1,050 members between the two owners: the search goes on behind the first page.
#[tokio::test]
async fn another_owner_is_found_behind_many_members() {
    let desk = empty_desk().await;
    let ada = desk.ada().await;
    let app = &desk.world.app;
    for _ in 0..21 {
        let mut writes = Vec::new();
        for _ in 0..50 {
            let number = vault_store::random::new_ulid(&app.clock, &app.random).to_lowercase();
            let email = format!("m{number}@example.org");
            let user = common::listed_user(app, &email, &reference(&desk.acme), Scopes::READ);
            writes.extend(user.creation_writes().unwrap());
        }
        common::commit(app, writes).await;
    }
    desk.world.clock.advance(10);
    desk.bob(Role::Owner, Scopes::ALL).await;
    let gone = desk.delete(&format!("{USERS}/{ada}")).await;
    assert_eq!(gone.status, 200, "{gone:?}");
}

/// Whether they remove each other or step back: both read that the other stays, and the commit of
/// the second does not find it so.
#[tokio::test]
async fn two_owners_who_go_at_once_leave_one() {
    let member = json!({"role": "role:member"});
    for round in 0..40 {
        let desk = empty_desk().await;
        let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
        let ada = format!("{USERS}/{}", desk.ada().await);
        let bob = format!("{USERS}/{}", bob.id);
        desk.commits.interfere(round % 3);
        let remove = round < 20;
        let both = if remove {
            tokio::join!(
                desk.ask(&desk.owner, "DELETE", &bob, None),
                desk.ask(&bobs, "DELETE", &ada, None)
            )
        } else {
            let (ada, bob) = (ada + "/role", bob + "/role");
            tokio::join!(
                desk.ask(&desk.owner, "PUT", &ada, Some(&member)),
                desk.ask(&bobs, "PUT", &bob, Some(&member))
            )
        };
        let mut answers = [both.0.short(), both.1.short()];
        answers.sort();
        let lost = answers[1].as_str();
        let lost = lost == "409 last_owner" || remove && lost == "401 token_invalid";
        assert!(answers[0] == "200" && lost, "{answers:?}");
        let mut left = [
            desk.get(USERS).await.short(),
            desk.ask(&bobs, "GET", USERS, None).await.short(),
        ];
        left.sort();
        let gone = ["403 owner_required", "401 token_invalid"][usize::from(remove)];
        assert_eq!(left, ["200", gone]);
    }
}

/// A right that was taken since the request began is not used: the commit checks it.
#[tokio::test]
async fn who_was_demoted_meanwhile_changes_nothing_any_more() {
    let desk = empty_desk().await;
    let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    let eve = common::member(app, EVE, &home, Role::Member, Scopes::READ).await;
    let eve = format!("{USERS}/{}", eve.id);
    let scopes = format!("{eve}/scopes");
    for (method, path, body) in [
        ("POST", USERS, Some(json!({"email": NEW}))),
        ("POST", &scopes, Some(json!({"grant": ["write"]}))),
        ("DELETE", &eve, None),
    ] {
        let role = format!("{USERS}/{}/role", bob.id);
        desk.replace(&role, &json!({"role": "role:owner"})).await;
        let before = desk.people().await;
        desk.commits.demote_before_next(bob.clone());
        let answer = desk.ask(&bobs, method, path, body.as_ref()).await;
        assert_eq!(answer.short(), "403 owner_required", "{method} {path}");
        assert_eq!(desk.people().await, before);
    }
}

/// The scope is checked at the commit as well, but for the one route that needs the role alone.
#[tokio::test]
async fn who_lost_write_meanwhile_changes_nothing_but_scopes() {
    let desk = empty_desk().await;
    let (bob, bobs) = desk.bob(Role::Owner, Scopes::ALL).await;
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    let eve = common::member(app, EVE, &home, Role::Member, Scopes::READ).await;
    let of_eve = |what: &str| format!("{USERS}/{}{what}", eve.id);
    let lost = "403 insufficient_scope";
    for (method, path, body, wanted) in [
        ("POST", USERS.into(), Some(json!({"email": NEW})), lost),
        (
            "PUT",
            of_eve("/profile"),
            Some(json!({"profile": "a"})),
            lost,
        ),
        (
            "PUT",
            of_eve("/role"),
            Some(json!({"role": "role:owner"})),
            lost,
        ),
        ("DELETE", of_eve(""), None, lost),
        (
            "POST",
            of_eve("/scopes"),
            Some(json!({"grant": ["write"]})),
            "200",
        ),
    ] {
        let write = json!({"grant": ["write"]});
        let scopes = format!("{USERS}/{}/scopes", bob.id);
        assert_eq!(desk.post(&scopes, &write).await.status, 200);
        let before = desk.people().await;
        desk.commits.change_before_next(User {
            scopes: Scopes::READ,
            ..bob.clone()
        });
        let answer = desk.ask(&bobs, method, &path, body.as_ref()).await;
        assert_eq!(answer.short(), wanted, "{method} {path}");
        assert_eq!(desk.people().await, before, "{path}");
    }
}

/// What a user may do, as the model of the test below sees it.
#[derive(Clone, Copy, Debug)]
struct Part {
    owner: bool,
    write: bool,
    there: bool,
}

impl Part {
    const fn administers(self) -> bool {
        self.there && self.owner && self.write
    }
}

/// Any order of changes by anybody: the answers are those of a model of a few lines, and an owner
/// always stays.
#[tokio::test]
async fn whatever_owners_do_to_each_other_one_stays() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let mut people = vec![(desk.ada().await, desk.owner.clone())];
    for name in ["bob", "cyd", "dan", "eli"] {
        let email = format!("{name}@example.org");
        let home = reference(&desk.acme);
        let user = common::member(app, &email, &home, Role::Owner, Scopes::ALL).await;
        people.push((
            user.id,
            token(&desk.world, &email, "acme", Scopes::ALL).await,
        ));
    }
    let all = Part {
        owner: true,
        write: true,
        there: true,
    };
    let mut parts = [all; 5];
    let random = vault_testing::SeededRandom::new(7);
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..400 {
        let [by, on, what, _] = vault_store::random::random_bytes::<4>(&random).map(usize::from);
        let (by, on) = (by % 5, on % 5);
        // Removing is rare, or nobody would be left to go on.
        let what = if step % 10 == 9 { 4 } else { what % 4 };
        let before = parts[on];
        let mut after = before;
        match what {
            0 | 1 => after.owner = what == 1,
            2 | 3 => after.write = what == 3,
            _ => after.there = false,
        }
        let others = (0..5).any(|other| other != on && parts[other].administers());
        let wanted = match parts[by] {
            Part { there: false, .. } => "401 token_invalid",
            Part { owner: false, .. } => "403 owner_required",
            // A change of scopes needs the role alone.
            Part { write: false, .. } if !matches!(what, 2 | 3) => "403 insufficient_scope",
            _ if !before.there => "404 user_not_found",
            _ if before.administers() && !after.administers() && !others => "409 last_owner",
            _ => "200",
        };
        if wanted == "200" {
            parts[on] = after;
        }
        let path = format!("{USERS}/{}", people[on].0);
        let (method, path, body) = match what {
            0 => ("PUT", path + "/role", Some(json!({"role": "role:member"}))),
            1 => ("PUT", path + "/role", Some(json!({"role": "role:owner"}))),
            2 => ("POST", path + "/scopes", Some(json!({"revoke": ["write"]}))),
            3 => ("POST", path + "/scopes", Some(json!({"grant": ["write"]}))),
            _ => ("DELETE", path, None),
        };
        let answer = desk.ask(&people[by].1, method, &path, body.as_ref()).await;
        assert_eq!(
            answer.short(),
            wanted,
            "step {step}: {by} {method} {path} {parts:?}"
        );
        seen.insert(wanted);
        assert!(parts.iter().any(|part| part.administers()), "step {step}");
    }
    assert_eq!(seen.len(), 6, "every answer came: {seen:?}");
}
