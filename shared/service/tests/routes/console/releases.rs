//! The releases of a vault in a browser.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use vault_format::catalog::Withdrawn;
use vault_format::hash::Digest;
use vault_format::root::KeyFingerprint;
use vault_service::model::namespace::Kind;
use vault_service::model::release::{self, Release};
use vault_store::objects::Class;
use vault_store::records::Write;

use super::{lose_catalog, open, signed_in};
use crate::admin::{ADA, Desk, desk, desk_of, empty_desk};
use crate::support::key;
use crate::team::Team;

/// `acme` with three releases: `alpha`; a changed `alpha` and `beta`; `beta`.
async fn three() -> (Desk, Team) {
    let desk = empty_desk().await;
    let team = publish_three(&desk).await;
    (desk, team)
}

async fn publish_three(desk: &Desk) -> Team {
    let team = Team::new("acme", 2, 1);
    let alpha = team.skill("alpha", "one\ntwo\nthree");
    let changed = team.skill("alpha", "one\n<script>x</script>\nthree");
    let beta = team.skill("beta", "b");
    team.publish(&desk.world, &[alpha]).await;
    desk.world.clock.advance(3600);
    team.publish(&desk.world, &[changed, beta.clone()]).await;
    desk.world.clock.advance(3600);
    team.publish(&desk.world, &[beta]).await;
    team
}

/// Which of the signers no longer counts is said where they are named.
#[tokio::test]
async fn a_signer_whose_key_is_revoked_is_marked() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 2, 1);
    let alpha = [team.skill("alpha", "one")];
    let catalog = team.next(&desk.world, 1, &alpha).await;
    let file = team.file(&catalog, &[1]);
    desk.world.publish("acme", file).await.unwrap();
    let lost = team.key(1).public();
    let team = team.changed(|edit| {
        edit.revoke(&lost);
    });
    team.publish(&desk.world, &alpha).await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme/releases").await;
    let marked = |publisher: usize| {
        let fingerprint = KeyFingerprint::publisher(&team.key(publisher).public());
        let mark = format!("{fingerprint}</span> <span class=\"tag stop\">revoked</span>");
        page.body.matches(&mark).count()
    };
    assert_eq!((marked(0), marked(1)), (0, 1), "{}", page.body);
    for (release, count) in [(1, 1), (2, 0)] {
        let address = format!("/console/acme/releases/{release}");
        let page = open(&mut owner, &address).await;
        let found = page.body.matches(">revoked</span>").count();
        assert_eq!(found, count, "{address}: {}", page.body);
    }
    // The page says what changed in the list of keys, as every reader of it does.
    let page = open(&mut owner, "/console/acme/releases/2").await;
    assert!(page.body.contains("key revoked: "), "{}", page.body);
}

#[tokio::test]
async fn releases_are_listed_with_who_signed_them_and_a_timeline() {
    let (desk, team) = three().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme/releases").await;
    let signer = KeyFingerprint::publisher(&team.key(0).public()).to_string();
    assert_eq!(page.body.matches(&signer).count(), 3, "{}", page.body);
    assert_eq!(
        page.body.matches("<rect x=\"").count() - 1,
        3,
        "one is the mark of vault"
    );
    for text in [
        "Release 3</a> <span class=\"tag good\">current",
        "data-label=\"Skill changes\">1 added, 1 changed</td>",
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    let order: Vec<_> = page
        .body
        .split("\">Release ")
        .skip(1)
        .map(|it| &it[..1])
        .collect();
    assert_eq!(order, ["3", "2", "1"]);
}

#[tokio::test]
async fn a_release_is_compared_with_the_one_before_or_with_any_other() {
    let (desk, _) = three().await;
    let mut owner = signed_in(&desk, ADA).await;
    for (path, shown, not_shown) in [
        ("3", &["Removed (1)", "<bdi>alpha</bdi>"][..], "Added"),
        (
            "2",
            &["Added (1)", "<bdi>beta</bdi>", "Changed (1)"],
            "Removed",
        ),
        ("1", &["What changed", "Added (1)"], "Removed"),
        (
            "1?to=3",
            &["from release 1 to release 3", "Added (1)", "Removed (1)"],
            "Changed",
        ),
        (
            "3?to=1",
            &["from release 1 to release 3", "Added (1)", "Removed (1)"],
            "Changed",
        ),
        (
            "1?to=2&skill=alpha",
            &[
                "<del>- two</del>",
                "<ins>+ &#60;script&#62;x&#60;/script&#62;</ins>",
            ],
            "Removed",
        ),
    ] {
        let page = open(&mut owner, &format!("/console/acme/releases/{path}")).await;
        for text in shown {
            assert!(page.body.contains(text), "{path} {text}: {}", page.body);
        }
        assert!(
            !page.body.contains(&format!("<h3>{not_shown}")),
            "{path}: {}",
            page.body
        );
    }
    for path in [
        "4",
        "0",
        "x",
        "3?to=9",
        "3?to=1&skill=gamma",
        "3?to=1&skill=..",
    ] {
        let page = owner.get(&format!("/console/acme/releases/{path}")).await;
        assert_eq!(page.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_changed_skill_leads_to_its_files_under_the_same_release() {
    let (desk, _) = three().await;
    let mut owner = signed_in(&desk, ADA).await;
    for (path, other) in [("2", 1), ("2?to=1", 1), ("1?to=2", 2)] {
        let page = open(&mut owner, &format!("/console/acme/releases/{path}")).await;
        let heading = page.heading().to_owned();
        let link = page.body.split("<bdi>alpha</bdi></a>").next().unwrap();
        let link = link.rsplit("<a href=\"").next().unwrap();
        let link = link.trim_end_matches("\">").replace("&#38;", "&");
        let files = open(&mut owner, &link).await;
        assert_eq!(files.heading(), heading, "{link}");
        for text in ["Files of <bdi>alpha</bdi>", "<del>- two</del>"] {
            assert!(files.body.contains(text), "{text}: {}", files.body);
        }
        // The other lists would not fit beside the files.
        for text in ["Added (1)", "<select"] {
            assert!(!files.body.contains(text), "{text}: {}", files.body);
        }
        let back =
            format!("?root_version=1&#38;to={other}.1\">All changes from release 1 to release 2<");
        assert!(files.body.contains(&back), "{}", files.body);
    }
}

/// After a revocation two releases have one number, under two versions of the key list.
#[tokio::test]
async fn releases_with_one_number_are_compared_with_each_other() {
    let (desk, _) = three().await;
    let records = &desk.world.app.records;
    let shown = desk.get("/admin/vaults/acme/releases/2").await.json();
    let under_first: Release = serde_json::from_value(shown).unwrap();
    let shown = desk.get("/admin/vaults/acme/releases/1").await.json();
    let under_second = Release {
        release: 2,
        root_version: 2,
        ..serde_json::from_value(shown).unwrap()
    };
    let write = release::release_write(&under_second, &desk.acme.id).unwrap();
    assert!(records.commit_writes(vec![write]).await.unwrap().is_done());
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme/releases/2?root_version=2").await;
    for text in [
        "<input type=\"hidden\" name=\"root_version\" value=\"2\">",
        "<option value=\"2.1\"",
        "<option value=\"3.1\"",
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    for (to, payload) in [("2.1", &under_first), ("2.2", &under_second)] {
        let path = format!("/console/acme/releases/3?root_version=1&to={to}");
        let page = open(&mut owner, &path).await;
        let chosen = format!("<option value=\"{to}\" selected>");
        assert!(
            page.body.contains(&chosen),
            "{:?}: {}",
            payload.release,
            page.body
        );
    }
}

#[tokio::test]
async fn the_lists_of_a_release_stay_small() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let name = |kind: &str, number: usize| format!("{kind}{}{number:03}", "x".repeat(60));
    let skills = |kind: &str, body: &str| {
        let skills = (0..150).map(|number| team.skill(&name(kind, number), body));
        skills.collect::<Vec<_>>()
    };
    let first = [skills("a", "one"), skills("b", "one")].concat();
    team.publish(&desk.world, &first).await;
    let second = [skills("b", "two"), skills("c", "one")].concat();
    let mut catalog = team.next(&desk.world, 0, &second).await;
    catalog.withdrawn = (0..150_u8)
        .map(|number| Withdrawn {
            name: name("a", number.into()).parse().unwrap(),
            bundle_hash: Digest::of(&[number]),
            reason: "<".repeat(2000),
            since_release: 2,
        })
        .collect();
    catalog.withdrawn.sort_by_key(|entry| entry.bundle_hash);
    let file = team.file(&catalog, &[0]);
    desk.world.publish("acme", file).await.unwrap();
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme/releases/2").await;
    for text in ["Withdrawn", "more.</p>"] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    // Names of one kind leave room for those of the others.
    for (title, kind) in [("Added", "c"), ("Changed", "b"), ("Removed", "a")] {
        let group = page.body.split(&format!("{title} (150)")).nth(1);
        let group = group.unwrap_or_default().split("</ul>").next();
        let shown = group.is_some_and(|group| group.contains(&name(kind, 0)));
        assert!(shown, "{title}: {}", page.body);
    }
}

#[tokio::test]
async fn a_current_release_that_cannot_be_read_closes_no_page() {
    let (desk, _) = three().await;
    let owner = signed_in(&desk, ADA).await;
    lose_catalog(&desk, 3).await;
    let restarted = desk.world.restarted();
    let mut fresh = crate::common::Visitor::new(&restarted.app);
    fresh.cookie.clone_from(&owner.cookie);
    for path in ["/console/acme", "/console/acme/releases"] {
        let page = open(&mut fresh, path).await;
        let note = "The current release cannot be read at the moment.";
        assert!(page.body.contains(note), "{path}: {}", page.body);
    }
    open(&mut fresh, "/console/acme/releases/2").await;
}

/// What a release changed that is no longer kept is not known.
#[tokio::test]
async fn the_history_of_a_skill_begins_behind_a_gap() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let (first, second) = (team.skill("alpha", "one"), team.skill("alpha", "two"));
    team.publish(&desk.world, &[first]).await;
    team.publish(&desk.world, std::slice::from_ref(&second))
        .await;
    let mut owner = signed_in(&desk, ADA).await;
    let path = "/console/acme/skills/alpha";
    let page = open(&mut owner, path).await;
    assert!(page.body.contains("Release 2 ("), "{}", page.body);
    assert!(!page.body.contains("were not compared"), "{}", page.body);
    team.publish(&desk.world, &[second]).await;
    lose_catalog(&desk, 2).await;
    let restarted = desk.world.restarted();
    let mut fresh = crate::common::Visitor::new(&restarted.app);
    fresh.cookie.clone_from(&owner.cookie);
    let page = open(&mut fresh, path).await;
    let text = "has not changed since release 3, the oldest one that was compared";
    assert!(page.body.contains(text), "{}", page.body);
}

/// Releases from before a change of the vault's keys count too. Of two with one number, the newer
/// root version's counts.
#[tokio::test]
async fn the_history_of_a_skill_goes_on_before_a_change_of_keys() {
    let desk = empty_desk().await;
    let team = Team::new("acme", 1, 1);
    let (alpha, beta) = (team.skill("alpha", "one"), team.skill("beta", "one"));
    team.publish(&desk.world, std::slice::from_ref(&alpha))
        .await;
    team.publish(&desk.world, &[alpha.clone(), beta.clone()])
        .await;
    let changed = team.changed(|edit| {
        edit.add_publisher(crate::team::entry(&key(9))).unwrap();
    });
    changed.publish(&desk.world, &[alpha, beta]).await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme/skills/alpha").await;
    let text = "has not changed since release 1, the oldest one that was compared";
    assert!(page.body.contains(text), "{}", page.body);
    let page = open(&mut owner, "/console/acme/skills/beta").await;
    assert!(page.body.contains("Release 2 ("), "{}", page.body);

    // A thief's release of a number that the owner used again is no part of the history.
    let shown = desk.get("/admin/vaults/acme/releases/1").await.json();
    let thiefs = Release {
        release: 3,
        ..serde_json::from_value(shown).unwrap()
    };
    let write = release::release_write(&thiefs, &desk.acme.id).unwrap();
    let records = &desk.world.app.records;
    assert!(records.commit_writes(vec![write]).await.unwrap().is_done());
    let page = open(&mut owner, "/console/acme/skills/beta").await;
    assert_eq!(page.body.matches("Release 3 (").count(), 0, "{}", page.body);
    assert_eq!(page.body.matches("Release 2 (").count(), 1, "{}", page.body);
}

#[tokio::test]
async fn the_overview_says_whether_the_release_expires_today_or_is_over() {
    let (desk, _) = three().await;
    let mut owner = signed_in(&desk, ADA).await;
    let expires_at = desk.world.now().plus_days(90);
    for (before, text) in [
        (2 * 24 * 3600, "2 days left"),
        (24 * 3600, "1 day left"),
        (1, "expires today"),
        (0, "expired"),
    ] {
        let now = desk.world.now();
        let forward = expires_at.unix() - before - now.unix();
        desk.world.clock.advance(forward);
        let page = owner.get("/console/acme").await;
        let page = if page.heading() == "Sign in" {
            owner = signed_in(&desk, ADA).await;
            owner.get("/console/acme").await
        } else {
            page
        };
        assert!(
            page.body.contains(&format!(">{text}</span>")),
            "{text}: {}",
            page.body
        );
    }
}

#[tokio::test]
async fn a_release_that_is_no_longer_kept_is_said_to_be_gone() {
    let (desk, _) = three().await;
    let mut owner = signed_in(&desk, ADA).await;
    let shown = desk.get("/admin/vaults/acme/releases/1").await.json();
    let sha256: Digest = shown["sha256"].as_str().unwrap().parse().unwrap();
    let key = desk.acme.object_key(Class::Catalogs, sha256);
    desk.world.app.objects.delete_object(&key).await.unwrap();
    // A process that has not read it before.
    let restarted = desk.world.restarted();
    let mut fresh = crate::common::Visitor::new(&restarted.app);
    fresh.cookie.clone_from(&owner.cookie);
    for path in ["1", "2", "3?to=1"] {
        let page = open(&mut fresh, &format!("/console/acme/releases/{path}")).await;
        assert!(
            page.body.contains("is no longer kept"),
            "{path}: {}",
            page.body
        );
    }
    let page = open(&mut owner, "/console/acme/releases").await;
    assert!(page.body.contains("Release 1</a>"));
}

#[tokio::test]
async fn pages_read_the_file_of_a_catalog_once() {
    let desk = desk_of(Kind::Hosted, |config| config.cache_bytes = 0).await;
    publish_three(&desk).await;
    let owner = signed_in(&desk, ADA).await;
    let cookie = owner.cookie.as_deref().unwrap();
    // One process answers all of them.
    let open = async |path: &str| {
        let request = Request::get(path).header(header::COOKIE, cookie);
        let answer = desk.world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        String::from_utf8(answer.body.to_vec()).unwrap()
    };
    let paths = [
        "/console/acme",
        "/console/acme/releases",
        "/console/acme/releases/1",
        "/console/acme/releases/3",
        "/console/acme/releases/1?to=2&skill=alpha",
        "/console/acme/skills/beta",
        "/console/acme/people",
    ];
    for path in paths {
        open(path).await;
    }
    let releases = desk.get("/admin/vaults/acme/releases").await.json();
    for release in releases["items"].as_array().unwrap() {
        let sha256: Digest = release["sha256"].as_str().unwrap().parse().unwrap();
        let key = desk.acme.object_key(Class::Catalogs, sha256);
        desk.world.app.objects.delete_object(&key).await.unwrap();
    }
    for path in paths {
        let page = open(path).await;
        assert!(!page.contains("no longer kept"), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_thousand_releases_fit_on_pages_of_fifty() {
    let desk = desk().await;
    let start = desk.world.now();
    for some in (1000..2000_u64).collect::<Vec<_>>().chunks(100) {
        let write = |number: &u64| -> Write {
            let digest = Digest::of(&number.to_be_bytes());
            let release = Release {
                release: *number,
                root_version: 1,
                sha256: digest,
                payload_sha256: digest,
                published_at: start.plus_seconds(number.cast_signed() * 60),
                by: "usr_gone".to_owned(),
                added: *number % 7,
                changed: 1,
                removed: 0,
                skills: Some(10_000),
                signers: Vec::new(),
            };
            release::release_write(&release, &desk.acme.id).unwrap()
        };
        let writes = some.iter().map(write).collect();
        let records = &desk.world.app.records;
        assert!(records.commit_writes(writes).await.unwrap().is_done());
    }
    let mut owner = signed_in(&desk, ADA).await;
    let first = open(&mut owner, "/console/acme/releases").await;
    assert!(
        first.body.contains("Release 1999</a>") && first.body.contains("1–50 of 1001 releases")
    );
    let last = open(&mut owner, "/console/acme/releases?page=21").await;
    assert!(last.body.contains("Release 42</a>"), "{}", last.body);
    assert_eq!(last.body.matches("role=\"rowheader\"").count(), 1);
}
