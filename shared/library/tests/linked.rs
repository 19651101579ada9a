//! Tests of linked vaults: pins, selections, all-or-nothing installs, withdrawals.

use crate::support::host::{BASE, Host, planned};
use crate::support::pair::Pair;
use crate::support::{self, Home, durable, mode, name, snapshot};
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillRef};
use vault_format::root::VaultFingerprint;
use vault_library::add_folder;
use vault_library::admit::{Options, history, remove};
use vault_library::clock::{self, TimeAhead};
use vault_library::subscribe::{
    self, AcceptOptions, Link, LinkError, Selection, StagedBundles, WithdrawnSkill,
};
use vault_library::{Origin, Vault, integrity, run, shelf};

const DAY: i64 = 86_400;

fn pair() -> Pair {
    Pair::new(&["alpha", "beta", "gamma"], "one")
}

fn only(names: &[&str]) -> Selection {
    Selection {
        skills: names.iter().map(|text| name(text)).collect(),
        ..Selection::default()
    }
}

fn tagged(tag: &str) -> Selection {
    Selection {
        tag: Some(tag.to_owned()),
        ..Selection::default()
    }
}

fn for_agent(agent: &str) -> Selection {
    Selection {
        agent: Some(agent.parse().unwrap()),
        ..Selection::default()
    }
}

#[test]
fn a_link_has_a_key_of_its_own_and_the_same_one_each_time() {
    let device = Home::new(2);
    let slug = "acme".parse().unwrap();
    let one = subscribe::link_vault(&device.vault, BASE, &slug).unwrap();
    let same = subscribe::link_vault(&device.vault, BASE, &slug).unwrap();
    let other = subscribe::link_vault(&device.vault, "https://other.example", &slug).unwrap();
    let key = |link: &Link| link.device_key(&device.vault).unwrap().public();
    assert_eq!((one.id(), key(&one)), (same.id(), key(&same)));
    assert_ne!(one.id(), other.id());
    assert_ne!(key(&one), key(&other));
    assert_eq!(subscribe::list_links(&device.vault).unwrap().len(), 2);
    assert_eq!(one.pin().vault_id, None);
    let folder = device.path("config/links").join(one.id().as_str());
    assert_eq!(mode(&folder.join("pin.json")), 0o600);
    assert_eq!(mode(&folder.join("device.key")), 0o600);
    assert_eq!(mode(&folder), 0o700);
    assert!(
        subscribe::unlink_vault(&device.vault, one.id())
            .unwrap()
            .is_some()
    );
    assert!(
        subscribe::unlink_vault(&device.vault, one.id())
            .unwrap()
            .is_none()
    );
    assert!(
        subscribe::find_link_by_id(&device.vault, one.id())
            .unwrap()
            .is_none()
    );
    let fresh = subscribe::link_vault(&device.vault, BASE, &slug).unwrap();
    assert_ne!(key(&fresh), key(&other));
}

#[test]
fn another_device_key_takes_the_place_of_the_first_and_the_rest_of_the_link_stays() {
    let device = Home::new(2);
    let vault = &device.vault;
    let link = subscribe::link_vault(vault, BASE, &"acme".parse().unwrap()).unwrap();
    let key = |link: &Link| link.device_key(vault).unwrap().public();
    let found = || {
        let link = subscribe::find_link_by_id(vault, link.id()).unwrap();
        link.unwrap()
    };
    let first = key(&link);

    // A prepared key changes nothing, and the next call returns the same one.
    let prepared = subscribe::prepare_device_key(vault, link.id()).unwrap();
    assert_ne!(prepared.public(), first);
    assert_eq!(key(&found()), first);
    let again = subscribe::prepare_device_key(vault, link.id()).unwrap();
    assert_eq!(again.public(), prepared.public());
    subscribe::discard_device_key(vault, link.id()).unwrap();
    let other = subscribe::prepare_device_key(vault, link.id()).unwrap();
    assert_ne!(other.public(), prepared.public());
    assert!(
        subscribe::replace_device_key(vault, link.id(), &prepared).is_err(),
        "it was discarded"
    );
    assert_eq!(key(&found()), first);

    let replaced = subscribe::replace_device_key(vault, link.id(), &other).unwrap();
    assert_eq!(key(&replaced), other.public());
    assert_eq!(key(&found()), other.public());
    let mut pin = found().pin().clone();
    pin.device_key_id = link.pin().device_key_id;
    assert_eq!(&pin, link.pin());

    // Killed after the pin was written and before the file had its name: the new key counts, is
    // never discarded, and the next call finishes the change.
    let folder = device.path("config/links").join(link.id().as_str());
    let (current, next) = (folder.join("device.key"), folder.join("device.next"));
    std::fs::rename(&current, &next).unwrap();
    assert_eq!(key(&found()), other.public());
    subscribe::discard_device_key(vault, link.id()).unwrap();
    assert_eq!(key(&found()), other.public());
    let third = subscribe::prepare_device_key(vault, link.id()).unwrap();
    assert_ne!(third.public(), other.public());
    assert_eq!(key(&found()), other.public());
    assert_eq!(mode(&next), 0o600);
}

#[test]
fn a_pull_installs_verifies_and_then_only_what_changed() {
    let mut pair = pair();
    let report = pair.pull_all();
    assert_eq!(
        (report.release, report.installed.len(), report.unchanged),
        (1, 3, 0)
    );
    assert_eq!(pair.installed(), ["alpha", "beta", "gamma"]);
    for skill in ["alpha", "beta", "gamma"] {
        let theirs = snapshot(&pair.owner.path("vault/skills").join(skill).join("."));
        let ours = snapshot(&pair.folder().join("skills").join(skill).join("."));
        assert_eq!(theirs, ours);
    }
    let link = pair.current_link();
    let device = &pair.device.vault;
    let own = pair.owner.vault.trust().unwrap().unwrap();
    assert_eq!(link.trust(device).unwrap().unwrap().roots(), own.roots());
    assert_eq!(link.pin().vault_id, Some(*pair.owner.vault.id()));
    assert_eq!(link.catalog_bytes(device).unwrap(), pair.host.current);
    assert!(pair.is_clean());

    let report = pair.pull_all();
    assert_eq!(
        (
            report.installed.len(),
            report.updated.len(),
            report.unchanged
        ),
        (0, 0, 3)
    );
    pair.owner.add("beta", "two");
    pair.owner.add("delta", "one");
    pair.owner.remove("gamma", None);
    pair.publish();
    let report = pair.pull_all();
    assert_eq!(report.installed, [name("delta")]);
    assert_eq!(report.updated, [name("beta")]);
    assert_eq!(report.removed, [name("gamma")]);
    assert_eq!(report.unchanged, 1);
    assert_eq!(pair.installed(), ["alpha", "beta", "delta"]);
    assert_eq!(
        std::fs::read_dir(pair.device.path("vault/store"))
            .unwrap()
            .count(),
        3
    );
    // Actions and texts of linked skills are found like those of own skills.
    let listing = shelf::list_installed(&pair.device.vault).unwrap();
    assert!(
        listing
            .skills
            .iter()
            .all(|skill| skill.origin == Origin::Linked(pair.link.id().clone()))
    );
    assert_eq!(
        shelf::search_installed(&pair.device.vault, "delta", 5)
            .unwrap()
            .len(),
        1
    );
    assert!(run::locate_skill(&pair.device.vault, name("alpha")).is_ok());
    // A linked skill is never published as an own skill.
    let mut other = Host::new("mine");
    assert_eq!(
        other
            .sync(&pair.device.vault, pair.device.now())
            .unwrap()
            .skills,
        0
    );
}

#[test]
fn a_damaged_linked_skill_is_noticed_and_the_next_pull_heals_it() {
    let pair = pair();
    pair.pull_all();
    let file = pair.folder().join("skills/alpha/notes.txt");
    std::fs::write(&file, "other\n").unwrap();
    let report = integrity::verify_all_installed(&pair.device.vault).unwrap();
    let bad: Vec<_> = report
        .skills
        .iter()
        .filter(|skill| skill.damage.is_some())
        .map(|skill| skill.name.as_str())
        .collect();
    assert_eq!(bad, ["alpha"]);
    let report = pair.pull_all();
    assert_eq!(report.unchanged, 3);
    assert!(pair.is_clean());
    // The bundle is correctly signed but is not the one in the catalog: another encoding of the
    // same manifest.
    let manifest = std::fs::canonicalize(pair.folder().join("skills/alpha"))
        .unwrap()
        .with_file_name("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen('{', "{ ", 1)).unwrap();
    let report = integrity::verify_all_installed(&pair.device.vault).unwrap();
    assert!(
        matches!(
            report.skills[0].damage,
            Some(vault_library::Damage::Bundle { .. })
        ),
        "{:?}",
        report.skills[0]
    );
    pair.pull_all();
    assert!(pair.is_clean());
}

#[test]
fn any_wrong_bundle_stops_the_whole_pull() {
    let mut pair = pair();
    pair.pull_all();
    pair.owner.add("alpha", "two");
    pair.owner.add("beta", "two");
    pair.publish();
    let catalog = pair.host.catalog();
    let hash = |skill: &str| catalog.skill(&name(skill)).unwrap().bundle_hash;
    let (alpha, beta) = (hash("alpha"), hash("beta"));
    let good = pair.host.objects.clone();
    let mut flipped = good[&beta].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let wrong: [Option<Vec<u8>>; 6] = [
        None,
        Some(flipped),
        Some(good[&alpha].clone()),
        Some(good[&beta][..100].to_vec()),
        Some([good[&beta].as_slice(), b"\n"].concat()),
        Some(good[&catalog.index[0].bundle_hash].clone()),
    ];
    let before = durable(&pair.device.vault);
    for bytes in wrong {
        pair.host.objects = good.clone();
        match bytes {
            Some(bytes) => pair.host.objects.insert(beta, bytes),
            None => pair.host.objects.remove(&beta),
        };
        let refused = pair.pull(&Selection::default());
        assert!(
            matches!(refused, Err(LinkError::Bundle { .. })),
            "{refused:?}"
        );
        assert_eq!(durable(&pair.device.vault), before);
    }
    pair.host.objects = good;
    // If one bundle is not staged, the whole install is rejected.
    let offer = pair.accept();
    let chosen = offer
        .resolve_selection(&Selection::default(), &|_| None)
        .unwrap();
    let mut staged = StagedBundles::new(&pair.device.vault).unwrap();
    let missing = offer.missing_bundles(&pair.device.vault, &chosen);
    assert_eq!(missing.len(), 2);
    pair.host.stage(&mut staged, &offer, &missing[0]).unwrap();
    let refused = subscribe::install_selection(
        &pair.device.vault,
        &offer,
        &Selection::default(),
        &chosen,
        staged,
    );
    assert!(
        matches!(refused, Err(LinkError::NotStaged(_))),
        "{refused:?}"
    );
    assert_eq!(durable(&pair.device.vault), before);
    assert_eq!(pair.pull_all().updated.len(), 2);
}

#[test]
fn a_catalog_that_is_not_to_be_believed_changes_nothing() {
    let mut pair = pair();
    pair.pull_all();
    let old = pair.host.current.clone().unwrap();
    pair.owner.add("alpha", "two");
    pair.publish();
    pair.pull_all();
    let before = durable(&pair.device.vault);
    let current = pair.host.current.clone().unwrap();
    let mut changed = current.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let stranger = Home::new(9);
    let mut foreign = Host::new("acme");
    stranger.add("alpha", "evil");
    foreign.sync(&stranger.vault, stranger.now()).unwrap();
    let mut elsewhere = Host::new("elsewhere");
    elsewhere.sync(&pair.owner.vault, pair.owner.now()).unwrap();
    for (bytes, word) in [
        (old, "catalog_release"),
        (changed, ""),
        (foreign.current.clone().unwrap(), "vault_changed"),
        (elsewhere.current.clone().unwrap(), "catalog_slug"),
        (b"{}".to_vec(), "catalog_schema"),
    ] {
        let refused = pair.host.pull_bytes(
            &pair.device.vault,
            &pair.link,
            &Selection::default(),
            &bytes,
        );
        let Err(LinkError::Catalog { cause: reason, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(word.is_empty() || reason.error_code() == word, "{reason}");
        assert_eq!(durable(&pair.device.vault), before);
    }
    // With an expired catalog nothing new is installed, and installed skills keep working.
    pair.device.clock.advance(91 * DAY);
    let refused = pair.pull(&Selection::default());
    assert!(
        matches!(&refused, Err(LinkError::Catalog { cause, .. }) if cause.error_code() == "release_expired"),
        "{refused:?}"
    );
    assert_eq!(durable(&pair.device.vault), before);
    assert!(run::locate_skill(&pair.device.vault, name("alpha")).is_ok());
}

fn expecting(vault: &Vault) -> AcceptOptions {
    AcceptOptions {
        expected: Some(fingerprint(vault)),
        ..AcceptOptions::default()
    }
}

fn fingerprint(vault: &Vault) -> VaultFingerprint {
    vault.trust().unwrap().unwrap().fingerprint()
}

/// The word of a refused catalog.
fn word<T>(refused: Result<T, LinkError>) -> &'static str {
    match refused {
        Err(LinkError::Catalog { cause, .. }) => cause.error_code(),
        Err(other) => panic!("{other}"),
        Ok(_) => "accepted",
    }
}

const REPIN: AcceptOptions = AcceptOptions {
    expected: None,
    repin: true,
    accept_fork: false,
    lenient: false,
};

#[test]
fn the_vault_may_be_expected_and_pinned_anew() {
    let pair = pair();
    let bytes = pair.host.current.clone().unwrap();
    let device = &pair.device.vault;
    let stranger = Home::new(9);
    let refused = pair
        .link
        .accept_catalog(device, &bytes, &expecting(&stranger.vault));
    assert_eq!(word(refused), "vault_changed");
    let offer = pair
        .link
        .accept_catalog(device, &bytes, &expecting(&pair.owner.vault))
        .unwrap();
    assert!(offer.is_first());
    // A device that is not approved yet pins the catalog and installs nothing.
    let report = subscribe::pin_only(device, &offer).unwrap();
    assert_eq!((report.release, report.installed.len()), (1, 0));
    assert!(pair.installed().is_empty());
    pair.pull_all();
    assert_eq!(pair.installed().len(), 3);

    let mut moved = Host::new("acme");
    moved.sync(&stranger.vault, stranger.now()).unwrap();
    let link = pair.current_link();
    let other = moved.current.clone().unwrap();
    let refused = link.accept_catalog(device, &other, &AcceptOptions::default());
    assert_eq!(word(refused), "vault_changed");
    // The same vault again keeps what is pinned; another one drops what is installed.
    let offer = link.accept_catalog(device, &bytes, &REPIN).unwrap();
    assert!(!offer.is_first());
    let offer = link.accept_catalog(device, &other, &REPIN).unwrap();
    assert!(offer.is_first());
    subscribe::pin_only(device, &offer).unwrap();
    let link = pair.current_link();
    assert_eq!(link.pin().vault_id, Some(*stranger.vault.id()));
    assert!(pair.installed().is_empty());
    assert!(pair.is_clean());
}

/// A service that does not serve a device its skills any more can't make the installed ones
/// unusable.
#[test]
fn installed_skills_stay_usable_while_newer_catalogs_are_only_pinned() {
    let mut pair = pair();
    pair.pull_all();
    let device = pair.device.again();
    for number in 0..3 {
        pair.owner.add("alpha", &format!("newer {number}"));
        pair.owner.add(&format!("more{number}"), "new");
        pair.publish();
        subscribe::pin_only(&device, &pair.accept()).unwrap();
        assert_eq!(pair.installed(), ["alpha", "beta", "gamma"]);
        assert!(pair.is_clean(), "release {number}");
        vault_library::run::locate_skill(&device, name("alpha")).unwrap();
    }
    // What is withdrawn goes all the same, and the rest stays.
    pair.owner.remove("beta", Some("harmful"));
    pair.publish();
    subscribe::pin_only(&device, &pair.accept()).unwrap();
    assert_eq!(pair.installed(), ["alpha", "gamma"]);
    assert!(pair.is_clean());
    vault_library::run::locate_skill(&device, name("alpha")).unwrap();
    // The next pull needs the earlier catalog no more.
    let report = pair.pull_all();
    assert_eq!(report.updated, [name("alpha")]);
    assert!(pair.is_clean());
    let catalogs = |link: &subscribe::Link| {
        let folder = pair.device.path("config/links").join(link.id().as_str());
        let names = support::file_names(&folder).into_iter();
        names.filter(|name| name.ends_with(".catalog.json")).count()
    };
    pair.pull_all();
    assert!(catalogs(&pair.current_link()) <= 2);
}

#[test]
fn a_noted_expectation_holds_until_a_vault_is_pinned() {
    let pair = pair();
    let device = &pair.device.vault;
    let bytes = pair.host.current.clone().unwrap();
    let id = pair.link.id();
    let (good, wrong) = (
        fingerprint(&pair.owner.vault),
        fingerprint(&Home::new(9).vault),
    );
    let link = || subscribe::find_link_by_id(device, id).unwrap().unwrap();
    let plain = AcceptOptions::default();
    subscribe::expect_fingerprint(device, id, &wrong).unwrap();
    assert_eq!(
        word(link().accept_catalog(device, &bytes, &plain)),
        "vault_changed"
    );
    // A fingerprint in the call takes precedence; `repin` ignores the recorded one.
    let given = expecting(&pair.owner.vault);
    link().accept_catalog(device, &bytes, &given).unwrap();
    link().accept_catalog(device, &bytes, &REPIN).unwrap();
    subscribe::expect_fingerprint(device, id, &good).unwrap();
    let offer = link().accept_catalog(device, &bytes, &plain).unwrap();
    // A recorded fingerprint also applies to a catalog that was accepted before.
    subscribe::expect_fingerprint(device, id, &wrong).unwrap();
    assert_eq!(word(subscribe::pin_only(device, &offer)), "vault_changed");
    subscribe::expect_fingerprint(device, id, &good).unwrap();
    subscribe::pin_only(device, &offer).unwrap();
    assert_eq!(link().pin().expected, None);
    subscribe::expect_fingerprint(device, id, &wrong).unwrap();
    assert_eq!(link().pin().expected, None);
}

/// Nothing of a first link is stored by a catalog that does not count, unless the vault was
/// expected.
#[test]
fn a_first_link_stores_root_versions_only_with_a_catalog_that_counts() {
    let pair = pair();
    let device = &pair.device.vault;
    let bytes = pair.host.current.clone().unwrap();
    let owner = pair.owner.vault.id();
    pair.device.clock.advance(91 * DAY);
    let plain = AcceptOptions::default();
    let refused = pair.link.accept_catalog(device, &bytes, &plain);
    assert_eq!(word(refused), "release_expired");
    assert_eq!(device.trust_of(owner).unwrap(), None);
    let refused = pair
        .link
        .accept_catalog(device, &bytes, &expecting(&pair.owner.vault));
    assert_eq!(word(refused), "release_expired");
    assert!(device.trust_of(owner).unwrap().is_some());
}

#[test]
fn a_time_that_the_clock_showed_by_mistake_is_named_and_can_be_lowered() {
    let pair = pair();
    let device = &pair.device.vault;
    pair.device.clock.advance(80 * DAY);
    pair.pull_all();
    assert_eq!(clock::times_ahead(device).unwrap(), []);
    let seen_at = pair.device.now();
    pair.device.clock.advance(-80 * DAY);
    let ahead = clock::times_ahead(device).unwrap();
    let vault = *pair.owner.vault.id();
    assert_eq!(ahead, [TimeAhead { vault, seen_at }]);
    let before = device.trust_of(&vault).unwrap().unwrap();
    clock::reset_times(device, &ahead).unwrap();
    assert_eq!(clock::times_ahead(device).unwrap(), []);
    let after = device.trust_of(&vault).unwrap().unwrap();
    assert_eq!(after.latest_seen_at(), Some(pair.device.now()));
    assert_eq!(after.roots(), before.roots());
    pair.pull_all();
}

/// A vault folder that was copied without its trust folder is listed as untrusted and never run.
#[test]
fn without_the_trust_folder_nothing_counts() {
    let pair = pair();
    pair.pull_all();
    pair.device.add("mine", "x");
    std::fs::remove_dir_all(pair.device.path("config")).unwrap();
    let device = pair.device.again();
    let listing = shelf::list_installed(&device).unwrap();
    assert!(listing.skills.is_empty());
    let damaged: Vec<_> = listing.damaged.iter().map(|(name, ..)| name).collect();
    assert_eq!(
        damaged,
        [&name("mine")],
        "the links are gone with their pins"
    );
    assert!(run::locate_skill(&device, name("mine")).is_err());
    assert!(run::locate_skill(&device, name("alpha")).is_err());
    assert!(Host::new("mine").plan(&device).is_err());
    let folder = pair.device.source("more", "x", &[]);
    assert!(add_folder(&device, &folder, &Options::default()).is_err());
}

#[test]
fn selections_take_what_they_say() {
    let mut pair = pair();
    let folder = pair.owner.source("tagged", "x", &[]);
    std::fs::write(
        folder.join("SKILL.md"),
        support::skill_md("tagged", "tags: [git]\n", "x"),
    )
    .unwrap();
    let request = Options {
        agents: vec!["codex".parse().unwrap()],
        ..Options::default()
    };
    add_folder(&pair.owner.vault, &folder, &request).unwrap();
    pair.publish();
    let git = tagged("git");
    for (selection, expected) in [
        (only(&["beta"]), vec!["beta"]),
        (git.clone(), vec!["tagged"]),
        (for_agent("codex"), vec!["alpha", "beta", "gamma", "tagged"]),
        (for_agent("claude-code"), vec!["alpha", "beta", "gamma"]),
        (
            Selection {
                tag: git.tag.clone(),
                ..for_agent("claude-code")
            },
            vec![],
        ),
        (
            Selection {
                skills: vec![name("beta"), name("tagged")],
                ..git
            },
            vec!["tagged"],
        ),
        (
            Selection::default(),
            vec!["alpha", "beta", "gamma", "tagged"],
        ),
    ] {
        pair.pull(&selection).unwrap();
        assert_eq!(pair.installed(), expected, "{selection:?}");
        let link = pair.current_link();
        assert_eq!(link.selection(), selection);
    }
}

#[test]
fn what_a_selection_names_is_published_or_known() {
    let mut pair = pair();
    let folder = pair.owner.source("tagged", "x", &[]);
    let document = support::skill_md("tagged", "tags: [git]\n", "x");
    std::fs::write(folder.join("SKILL.md"), document).unwrap();
    let request = Options {
        agents: vec!["their-agent".parse().unwrap()],
        ..Options::default()
    };
    add_folder(&pair.owner.vault, &folder, &request).unwrap();
    pair.publish();
    let offer = pair.accept();
    let object = |hash: &Digest| pair.host.objects.get(hash).cloned();
    let check = |selection: &Selection| {
        let is_known = |agent: &AgentId| agent.as_str() == "cursor";
        offer.check_selection(selection, &is_known, &object)
    };
    for good in [
        Selection::default(),
        only(&["alpha"]),
        tagged("git"),
        for_agent("cursor"),
        for_agent("their-agent"),
    ] {
        check(&good).unwrap();
    }
    let published = |result| match result {
        Err(LinkError::NotInCatalog { published, .. }) => {
            published.iter().map(ToString::to_string).collect()
        }
        Err(LinkError::TagUnknown { published, .. }) => published,
        Err(LinkError::AgentUnknown { published, .. }) => {
            published.iter().map(ToString::to_string).collect()
        }
        other => panic!("{other:?}"),
    };
    let wrong = published(check(&only(&["alpha", "nobody"])));
    assert_eq!(wrong, ["alpha", "beta", "gamma", "tagged"]);
    assert_eq!(published(check(&tagged("gti"))), ["git"]);
    assert_eq!(published(check(&for_agent("cursr"))), ["their-agent"]);
}

#[test]
fn a_kept_selection_outlives_what_it_names() {
    let mut pair = pair();
    pair.pull(&only(&["alpha"])).unwrap();
    pair.owner.remove("alpha", None);
    pair.publish();
    let report = pair.pull(&pair.current_link().selection()).unwrap();
    assert_eq!(report.removed, [name("alpha")]);
    assert!(pair.installed().is_empty());
}

#[test]
fn skills_that_a_selection_leaves_out_are_named_before_they_go() {
    let mut pair = pair();
    pair.pull_all();
    let left_out = |pair: &Pair, selection: &Selection| {
        let offer = pair.accept();
        let chosen = offer.resolve_selection(selection, &|_| None).unwrap();
        offer.left_out(&pair.current_link(), &chosen)
    };
    assert_eq!(
        left_out(&pair, &only(&["beta"])),
        [name("alpha"), name("gamma")]
    );
    assert!(left_out(&pair, &Selection::default()).is_empty());
    // What the owner removed is not what the selection leaves out.
    pair.owner.remove("gamma", None);
    pair.publish();
    assert_eq!(left_out(&pair, &only(&["beta"])), [name("alpha")]);
}

#[test]
fn an_own_skill_wins_and_another_name_helps() {
    let pair = pair();
    pair.device.add("alpha", "my own");
    let report = pair.pull_all();
    assert_eq!(report.shadowed, [name("alpha")]);
    let found = run::locate_skill(&pair.device.vault, name("alpha")).unwrap();
    assert_eq!(found.origin, Origin::Local);
    let renamed = Selection {
        install_as: Some(name("their-alpha")),
        ..only(&["alpha"])
    };
    let report = pair.pull(&renamed).unwrap();
    assert!(report.shadowed.is_empty());
    assert_eq!(pair.installed(), ["their-alpha"]);
    let found = run::locate_skill(&pair.device.vault, name("their-alpha")).unwrap();
    assert_eq!(
        (found.manifest.name.as_str(), found.origin),
        ("alpha", Origin::Linked(pair.link.id().clone()))
    );
    assert!(pair.is_clean());
    let twice = Selection {
        install_as: Some(name("x")),
        ..only(&["alpha", "beta"])
    };
    assert!(matches!(pair.pull(&twice), Err(LinkError::OneNameOnly)));
    // After the own skill is removed, nothing takes its name unasked.
    pair.pull_all();
    pair.device.remove("alpha", None);
    assert!(run::locate_skill(&pair.device.vault, name("alpha")).is_err());
    let theirs = SkillRef::qualified(pair.host.slug.clone(), name("alpha"));
    run::locate_skill(&pair.device.vault, &theirs).unwrap();
    subscribe::prefer_skill(&pair.device.vault, &theirs).unwrap();
    assert!(matches!(
        run::locate_skill(&pair.device.vault, name("alpha"))
            .unwrap()
            .origin,
        Origin::Linked(_)
    ));
}

#[test]
fn a_withdrawal_removes_what_its_link_installed_and_no_more() {
    let mut pair = pair();
    let elsewhere = subscribe::link_vault(
        &pair.device.vault,
        "https://mirror.example",
        &pair.host.slug,
    )
    .unwrap();
    // The same vault through a second address: its catalog lists both.
    let also = ["https://mirror.example".to_owned()];
    let publish = |pair: &mut Pair| {
        let request = vault_library::publish::PlanRequest {
            also_served_from: &also,
            ..pair.host.request()
        };
        let plan = planned(&pair.owner.vault, &request);
        pair.host.take(&pair.owner.vault, &plan, pair.owner.now());
    };
    publish(&mut pair);
    pair.pull_all();
    pair.host
        .pull(&pair.device.vault, &elsewhere, &Selection::default())
        .unwrap();
    let bad = pair
        .host
        .catalog()
        .skill(&name("beta"))
        .unwrap()
        .bundle_hash;
    assert!(
        pair.device
            .path("vault/store")
            .join(bad.to_string())
            .exists()
    );

    pair.owner.remove("beta", Some("harmful"));
    publish(&mut pair);
    // Even a device that only pins the catalog removes them.
    let offer = pair.accept();
    let report = subscribe::pin_only(&pair.device.vault, &offer).unwrap();
    assert_eq!(report.removed, [name("beta")]);
    assert_eq!(pair.installed(), ["alpha", "gamma"]);
    // The other service has not said so yet.
    assert_eq!(report.kept, [name("beta")]);
    assert!(pair.device.stored(&bad).exists());
    assert!(pair.is_clean());
    let report = pair
        .host
        .pull(&pair.device.vault, &elsewhere, &Selection::default())
        .unwrap();
    let withdrawn = WithdrawnSkill {
        name: name("beta"),
        reason: "harmful".to_owned(),
    };
    assert_eq!(report.withdrawn, [withdrawn]);
    assert!(!pair.device.stored(&bad).exists());
    assert!(pair.is_clean());
}

/// What one vault withdraws says nothing about other vaults' skills or the own history.
#[test]
fn a_withdrawal_touches_no_other_vault() {
    let pair = pair();
    pair.pull_all();
    let device = &pair.device;
    let earlier = device.add("mine", "one").bundle;
    device.add("mine", "two");
    let theirs = pair
        .host
        .catalog()
        .skill(&name("alpha"))
        .unwrap()
        .bundle_hash;
    let other = Home::new(9);
    other.add("unrelated", "x");
    let mut host = Host::new("other");
    for (skill, bundle) in [("alpha", theirs), ("mine", earlier)] {
        remove::withdraw_version(&other.vault, &name(skill), bundle, "harmful").unwrap();
    }
    host.sync(&other.vault, other.now()).unwrap();
    let link = subscribe::link_vault(&device.vault, BASE, &host.slug).unwrap();
    let report = host
        .pull(&device.vault, &link, &Selection::default())
        .unwrap();
    assert!(report.withdrawn.is_empty() && report.kept.is_empty());
    assert!(pair.is_clean());
    assert_eq!(pair.installed(), ["alpha", "beta", "gamma"]);
    history::roll_back(&device.vault, &name("mine"), None, true).unwrap();
}

#[test]
fn readers_see_the_old_set_or_the_new_one() {
    let mut pair = pair();
    pair.pull_all();
    let done = std::sync::atomic::AtomicBool::new(false);
    let device = &pair.device;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let listing = shelf::list_installed(&device.again()).unwrap();
                assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
                let versions: std::collections::BTreeSet<_> =
                    listing.skills.iter().map(|skill| skill.version).collect();
                assert!(versions.len() <= 1, "a mixture of {versions:?}");
                assert_eq!(listing.skills.len(), 3);
            }
        });
        for round in 0..12 {
            for skill in ["alpha", "beta", "gamma"] {
                pair.owner.add(skill, &format!("round {round}"));
            }
            pair.host.sync(&pair.owner.vault, pair.owner.now()).unwrap();
            pair.host
                .pull(&device.vault, &pair.link, &Selection::default())
                .unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn the_latest_time_seen_is_kept_so_that_a_clock_set_back_helps_nobody() {
    let pair = pair();
    pair.pull_all();
    pair.device.clock.advance(80 * DAY);
    pair.pull_all();
    pair.device.clock.advance(-80 * DAY);
    let link = pair.current_link();
    assert!(link.pin().counted.is_some());
    let offer = pair.accept();
    assert_eq!(offer.warnings().len(), 1);
    // The latest time counts for every link to the vault.
    pair.device.clock.advance(-80 * DAY);
    assert_eq!(pair.accept().warnings().len(), 1);
}

#[test]
fn objects_are_checked_against_the_signed_catalog() {
    let mut pair = pair();
    let index = pair.host.catalog().index[0].bundle_hash;
    let offer = pair.accept();
    let git = tagged("git");
    assert_eq!(offer.objects_for(&git).len(), 1);
    assert!(offer.objects_for(&Selection::default()).is_empty());
    let other = pair.host.objects.remove(&index).unwrap();
    let wrong = [None, Some(b"{}".to_vec()), Some(other[1..].to_vec())];
    for bytes in wrong {
        let refused = offer.resolve_selection(&git, &|_: &Digest| bytes.clone());
        assert!(
            matches!(refused, Err(LinkError::Object { .. })),
            "{refused:?}"
        );
    }
}
