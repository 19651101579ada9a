//! What a reader believes over time: releases, clocks and withdrawals that no stored vector covers.

use vault_format::catalog;
use vault_format::catalog::{
    Catalog, CatalogOutcome, CatalogWarning, FormerSkills, MAX_FORMER_SKILLS, MAX_RELEASE_JUMP,
    NewRoots, ReaderKind, ReleaseRef, SignedCatalog, SkillEntry, Withdrawn, judge_catalog,
    judge_proposal,
};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::name::SkillName;
use vault_format::root::RootState;

use crate::make::{
    self, NOW, Pulled, catalog, catalog_of, entry, key, key_entry, known, last, link, next, pull,
    push, reader, sign, sign_under, slug, state, stored,
};

fn word<T>(result: Result<T, catalog::CatalogError>) -> &'static str {
    result.map_or_else(|error| error.error_code(), |_| "counts")
}

#[test]
fn the_same_release_must_be_the_same_payload() {
    let first = sign(&catalog(5, 0), 0);
    let held = last(&first, &[0]);
    assert!(matches!(pull(&first, Some(&held)), Ok(Pulled::Equal)));
    assert!(matches!(push(&first, Some(&held)), Ok(Pulled::Equal)));
    // White space that a host adds is no other catalog.
    let spaced = [first.as_slice(), b"\n"].concat();
    assert!(matches!(pull(&spaced, Some(&held)), Ok(Pulled::Equal)));
    let mut other = catalog(5, 0);
    other.skills.push(entry("other"));
    let error = pull(&sign(&other, 0), Some(&held)).unwrap_err();
    assert_eq!(
        (error.error_code(), error.to_string().as_str()),
        ("catalog_release", "two different catalogs carry release 5")
    );
    let older = sign(&catalog(4, 0), 0);
    assert_eq!(word(pull(&older, Some(&held))), "catalog_release");
}

#[test]
fn a_release_may_jump_a_million_under_one_root_and_no_more() {
    let held = last(&sign(&catalog(10, 0), 0), &[0]);
    let jump = |by| sign(&catalog(10 + by, 0), 0);
    assert_eq!(word(pull(&jump(MAX_RELEASE_JUMP), Some(&held))), "counts");
    let error = word(pull(&jump(MAX_RELEASE_JUMP + 1), Some(&held)));
    assert_eq!(error, "catalog_release");
    // The first catalog may have any number.
    let highest = sign(&catalog((1 << 53) - 1, 0), 0);
    assert_eq!(word(pull(&highest, None)), "counts");
    assert_eq!(word(push(&highest, None)), "counts");
    assert_eq!(word(link(&highest)), "counts");
}

#[test]
fn a_device_may_miss_releases_and_a_service_may_not() {
    let held = last(&sign(&catalog(10, 0), 0), &[0]);
    let missed = sign(&catalog(13, 0), 0);
    assert_eq!(word(pull(&missed, Some(&held))), "counts");
    assert_eq!(word(push(&missed, Some(&held))), "catalog_previous");
    let mut follows = catalog(13, 0);
    follows.previous = Some(held.stored);
    assert_eq!(word(push(&sign(&follows, 0), Some(&held))), "counts");
    follows.previous = Some(ReleaseRef {
        release: 10,
        payload_sha256: stored(9).payload_sha256,
    });
    let rival = sign(&follows, 0);
    assert_eq!(word(push(&rival, Some(&held))), "catalog_previous");
    assert_eq!(word(pull(&rival, Some(&held))), "catalog_previous");
    // A person may accept that the owner has two histories.
    let slug = slug();
    let mut accepting = reader(ReaderKind::Device, &slug, Some(state()), Some(&held));
    accepting.accept_fork = true;
    assert!(judge_catalog(&rival, &accepting).outcome.is_ok());
    follows.previous = None;
    let rootless = sign(&follows, 0);
    assert_eq!(word(pull(&rootless, Some(&held))), "catalog_previous");
}

#[test]
fn clocks() {
    let (slug, bytes) = (slug(), sign(&catalog(1, 0), 0));
    let at = |side, now: i64, seen: Option<i64>| {
        let mut reader = reader(side, &slug, Some(state()), None);
        reader.now = NOW.plus_seconds(now);
        reader.latest_seen_at = seen.map(|seen| NOW.plus_seconds(seen));
        match judge_catalog(&bytes, &reader).outcome {
            Ok(CatalogOutcome::Release(release)) => {
                Ok(release.settle_versions(|_| true).unwrap().warnings)
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.error_code()),
        }
    };
    let end = 90 * 86_400;
    assert_eq!(at(ReaderKind::Device, end, None), Ok(vec![]));
    assert_eq!(
        at(ReaderKind::Device, end + 1, None),
        Err("release_expired")
    );
    // Only by a time that this clock has shown before: the release is not known to be over.
    assert_eq!(
        at(ReaderKind::Device, 0, Some(end + 1)),
        Err("catalog_clock")
    );
    let both = at(ReaderKind::Device, end + 1, Some(end + 2));
    assert_eq!(both, Err("release_expired"));
    let back = CatalogWarning::ClockWentBack;
    assert_eq!(at(ReaderKind::Device, 0, Some(5)), Ok(vec![back]));
    assert_eq!(at(ReaderKind::Device, -300, None), Ok(vec![]));
    let future = CatalogWarning::IssuedInFuture;
    assert_eq!(at(ReaderKind::Device, -301, None), Ok(vec![future]));
    assert_eq!(at(ReaderKind::Service, -300, None), Ok(vec![]));
    assert_eq!(at(ReaderKind::Service, -301, None), Err("catalog_clock"));
    assert_eq!(at(ReaderKind::Service, end, Some(end + 1)), Ok(vec![]));
    assert_eq!(
        at(ReaderKind::Service, end + 1, None),
        Err("release_expired")
    );
}

/// What a reader with these states makes of a file.
fn outcome(
    bytes: &[u8],
    side: ReaderKind,
    own: &RootState,
    held: &catalog::LastCatalog,
) -> Result<bool, &'static str> {
    let slug = slug();
    let judged = judge_catalog(bytes, &reader(side, &slug, Some(own), Some(held)));
    match judged.outcome {
        Ok(CatalogOutcome::Release(release)) => release
            .settle_versions(|_| true)
            .map(|counted| counted.voids_last)
            .map_err(|error| error.error_code()),
        Ok(_) => Err("equal"),
        Err(error) => Err(error.error_code()),
    }
}

#[test]
fn a_thief_cannot_use_the_release_numbers_up() {
    // The thief of key 0 published release 900,000; the owner's last one was 41.
    let thief = last(&sign(&catalog(900_000, 0), 0), &[0]);
    let revoked = next(state().chain(), |edit| {
        edit.revoke(&key(0).public());
    });
    let new = catalog_of(&revoked, 42, 1);
    let bytes = sign_under(&revoked, &new, &[1]);
    assert_eq!(
        outcome(&bytes, ReaderKind::Device, state(), &thief),
        Ok(true)
    );
    assert_eq!(
        outcome(&bytes, ReaderKind::Service, state(), &thief),
        Ok(true)
    );
    // Where the key is retired, its last release still counts.
    let retired = next(state().chain(), |edit| {
        edit.retire(&key(0).public()).unwrap();
    });
    let under_retired = sign_under(&retired, &catalog_of(&retired, 42, 1), &[1]);
    let result = outcome(&under_retired, ReaderKind::Device, state(), &thief);
    assert_eq!(result, Err("catalog_release"));
    // Once a good release counts, numbers are compared again, and the thief's next one is nothing.
    let (own, held) = (known(revoked.clone()), last(&bytes, &[1]));
    let lower = sign_under(&revoked, &catalog_of(&revoked, 41, 1), &[1]);
    assert_eq!(
        outcome(&lower, ReaderKind::Device, &own, &held),
        Err("catalog_release")
    );
    let again = sign(&catalog(900_001, 0), 0);
    assert_eq!(
        outcome(&again, ReaderKind::Device, &own, &held),
        Err("signatures_missing")
    );
}

#[test]
fn a_skill_version_falls_only_where_its_manifest_counts_no_more() {
    let with = |version| {
        let mut catalog = catalog(10 + version, 0);
        catalog.skills = vec![SkillEntry {
            version,
            ..entry("hello")
        }];
        catalog
    };
    let held = last(&sign(&with(7), 0), &[0]);
    let (slug, mut lower) = (slug(), with(6));
    lower.release = 20;
    let judge = |bytes: &[u8]| {
        let outcome = judge_catalog(
            bytes,
            &reader(ReaderKind::Device, &slug, Some(state()), Some(&held)),
        );
        match outcome.outcome.unwrap() {
            CatalogOutcome::Release(release) => release,
            other => panic!("{other:?}"),
        }
    };
    let release = judge(&sign(&lower, 0));
    assert_eq!(release.doubtful_skills(), held.catalog.skills);
    let error = release.clone().settle_versions(|_| true).unwrap_err();
    assert_eq!(error.error_code(), "skill_rolled_back");
    assert!(release.settle_versions(|_| false).is_ok());
    let mut twice = with(7);
    twice.release = 20;
    twice.skills[0].bundle_hash = Digest::of(b"other content");
    let error = judge(&sign(&twice, 0))
        .settle_versions(|_| true)
        .unwrap_err();
    assert_eq!(error.error_code(), "skill_rolled_back");
    let mut far = with(7);
    far.release = 20;
    far.skills[0].version = 7 + MAX_RELEASE_JUMP + 1;
    let error = judge(&sign(&far, 0)).settle_versions(|_| true).unwrap_err();
    assert_eq!(error.error_code(), "catalog_release");
    far.skills[0].version -= 1;
    assert!(judge(&sign(&far, 0)).doubtful_skills().is_empty());
}

#[test]
fn roots_are_stored_at_once_by_those_who_know_the_vault_alone() {
    let longer = next(state().chain(), |edit| {
        edit.add_publisher(key_entry(3)).unwrap();
    });
    let slug = slug();
    let good = sign_under(&longer, &catalog_of(&longer, 2, 0), &[0]);
    let mut elsewhere = catalog_of(&longer, 2, 0);
    elsewhere.slug = "other".parse().unwrap();
    let bad = sign_under(&longer, &elsewhere, &[0]);
    let fingerprint = longer.fingerprint();
    let roots = |bytes: &[u8], side, own, expected: bool| {
        let mut reader = reader(side, &slug, own, None);
        reader.expected = expected.then_some(&fingerprint);
        match judge_catalog(bytes, &reader).roots {
            NewRoots::None => "none",
            NewRoots::Now(_) => "now",
            NewRoots::WithCatalog(_) => "with catalog",
        }
    };
    for (side, own, expected, of_good, of_bad) in [
        (ReaderKind::Device, None, false, "with catalog", "none"),
        (ReaderKind::Device, None, true, "now", "now"),
        (ReaderKind::Device, Some(state()), false, "now", "now"),
        (ReaderKind::Service, None, false, "with catalog", "none"),
        (
            ReaderKind::Service,
            Some(state()),
            false,
            "with catalog",
            "none",
        ),
    ] {
        assert_eq!(roots(&good, side, own, expected), of_good, "{side:?}");
        assert_eq!(roots(&bad, side, own, expected), of_bad, "{side:?}");
    }
    let known = known(longer.clone());
    assert_eq!(
        roots(&good, ReaderKind::Device, Some(&known), false),
        "none"
    );
}

#[test]
fn a_root_without_a_release_is_published_beside_the_current_one() {
    let current = sign(&catalog(5, 0), 0);
    let held = last(&current, &[0]);
    let longer = next(state().chain(), |edit| {
        edit.revoke(&key(0).public());
    });
    let file = SignedCatalog::parse(&current).unwrap();
    let bytes = file.with_roots(&longer).unwrap().to_bytes();
    let slug = slug();
    let judge = |side, own| judge_catalog(&bytes, &reader(side, &slug, Some(own), Some(&held)));
    let service = judge(ReaderKind::Service, state());
    assert!(matches!(service.outcome, Ok(CatalogOutcome::RootsOnly)));
    let NewRoots::WithCatalog(state) = service.roots else {
        panic!("{:?}", service.roots)
    };
    assert!(state.voids_release(&held.signers));
    assert!(matches!(
        judge(ReaderKind::Service, &state).outcome,
        Ok(CatalogOutcome::Equal { .. })
    ));
    let device = judge(ReaderKind::Device, make::state());
    assert_eq!(word(device.outcome), "release_awaited");
    assert!(matches!(device.roots, NewRoots::Now(_)));
}

#[test]
fn the_current_release_under_another_key_is_not_the_same_file() {
    let current = sign(&catalog(5, 0), 0);
    let held = last(&current, &[0]);
    let text = String::from_utf8(current).unwrap();
    let renamed = text.replacen(
        &key(0).public().to_string(),
        &key(1).public().to_string(),
        1,
    );
    let slug = slug();
    for side in [ReaderKind::Service, ReaderKind::Device] {
        let reader = reader(side, &slug, Some(state()), Some(&held));
        let judged = judge_catalog(renamed.as_bytes(), &reader);
        assert_eq!(word(judged.outcome), "catalog_key", "{side:?}");
    }
}

#[test]
fn a_machine_signs_one_payload_under_a_number() {
    let two = next(state().chain(), |edit| {
        edit.set_release_threshold(2);
    });
    let own = known(two.clone());
    let held = last(&sign_under(&two, &catalog_of(&two, 5, 0), &[0, 1]), &[0, 1]);
    let mut proposed = catalog_of(&two, 6, 0);
    proposed.previous = Some(held.stored);
    let bytes = sign_under(&two, &proposed, &[0]);
    let digest = SignedCatalog::parse(&bytes).unwrap().payload_sha256();
    let slug = slug();
    let reader = reader(ReaderKind::Device, &slug, Some(&own), Some(&held));
    let judge = |bytes: &[u8], signed: Option<Digest>| {
        let judged = judge_proposal(
            bytes,
            &reader,
            reader.last.map(|last| last.stored),
            &|root, release| signed.filter(|_| (root, release) == (2, 6)),
        );
        word(judged.outcome)
    };
    assert_eq!(judge(&bytes, None), "counts");
    assert_eq!(judge(&bytes, Some(digest)), "counts");
    let other = Some(stored(1).payload_sha256);
    assert_eq!(judge(&bytes, other), "proposal_outdated");
    assert_eq!(
        word(judge_catalog(&bytes, &reader).outcome),
        "signatures_missing"
    );
    // It does not follow what is current.
    proposed.previous = Some(stored(4));
    let bytes = sign_under(&two, &proposed, &[0]);
    assert_eq!(judge(&bytes, None), "proposal_outdated");
}

#[test]
fn withdrawn_entries_have_a_limit_and_name_each_bundle_once() {
    let listed = |numbers: &[u64]| {
        let mut new = catalog(1, 0);
        let numbers = numbers.iter().copied();
        new.withdrawn = numbers
            .map(|n| Withdrawn {
                name: "old".parse().unwrap(),
                bundle_hash: stored(n).payload_sha256,
                reason: String::new(),
                since_release: 1,
            })
            .collect();
        SignedCatalog::sign(&new, state().chain(), &[&key(0)]).map(|_| ())
    };
    let withdrawn = |count: u64| listed(&(0..count).collect::<Vec<_>>());
    assert_eq!(word(listed(&[1, 2, 1])), "catalog_schema");
    assert_eq!(word(withdrawn(1_000)), "counts");
    assert_eq!(word(withdrawn(1_001)), "catalog_withdrawn");
}

#[test]
fn a_catalog_that_no_reader_takes_is_not_signed() {
    let sign = |catalog: &catalog::Catalog, signer: u8| {
        word(SignedCatalog::sign(
            catalog,
            state().chain(),
            &[&key(signer)],
        ))
    };
    let good = catalog(1, 0);
    assert_eq!(sign(&good, 0), "counts");
    assert_eq!(sign(&good, 1), "catalog_key");
    assert_eq!(sign(&catalog(1, 9), 9), "catalog_key");
    let mut older = good.clone();
    older.root_version = 2;
    assert_eq!(sign(&older, 0), "catalog_schema");
    let mut long = good;
    long.expires_at = NOW.plus_days(401);
    assert_eq!(sign(&long, 0), "catalog_clock");
}

/// The order of checks is a promise: signatures, root, key, vault, slug, audience, clock, release.
#[test]
fn a_lifetime_that_is_wrong_is_found_after_key_slug_and_audience() {
    let signed = |change: fn(&mut catalog::Catalog), signer: u8| {
        let mut catalog = catalog(5, signer);
        catalog.expires_at = catalog.issued_at.plus_days(401);
        change(&mut catalog);
        let envelope = Envelope::sign(
            catalog::PAYLOAD_TYPE,
            &json::to_bytes(&catalog),
            &[&key(signer)],
        );
        let text = String::from_utf8(envelope.to_bytes()).unwrap();
        let roots = String::from_utf8(json::to_bytes(state().chain())).unwrap();
        let public_key = key(signer).public();
        format!(
            r#"{{"public_key":"{public_key}","roots":{roots},{}"#,
            &text[1..]
        )
    };
    let held = last(&sign(&catalog(4, 0), 0), &[0]);
    for (change, signer, found) in [
        (
            (|_| ()) as fn(&mut catalog::Catalog),
            9,
            "signatures_missing",
        ),
        (|c| c.root_version = 7, 0, "root_invalid"),
        (|c| c.public_key = key(1).public(), 0, "catalog_key"),
        (|c| c.slug = "other".parse().unwrap(), 0, "catalog_slug"),
        (|c| c.audience.clear(), 0, "catalog_audience"),
        (|c| c.release = 3, 0, "catalog_clock"),
        (|_| (), 0, "catalog_clock"),
    ] {
        let bytes = signed(change, signer);
        assert_eq!(word(pull(bytes.as_bytes(), Some(&held))), found);
    }
}

#[test]
fn a_skill_that_was_removed_comes_back_above_the_version_that_it_had() {
    let with = |skills: &[(&str, u64)]| {
        let mut catalog = catalog(10, 0);
        let skills = skills.iter();
        catalog.skills = skills
            .map(|(name, version)| SkillEntry {
                version: *version,
                ..entry(name)
            })
            .collect();
        catalog
    };
    let publisher = Some(key(0).public());
    let mut former = FormerSkills::default();
    former.record_removed(
        &with(&[("gone", 3), ("kept", 2)]),
        &with(&[("kept", 2)]),
        |_| publisher,
    );
    let never = |_: &SkillName| false;
    let judge = |former: &FormerSkills, catalog: &Catalog| {
        word(former.check_returned(never, catalog, state()))
    };
    let mut other_bytes = with(&[("gone", 3)]);
    other_bytes.skills[0].bundle_hash = Digest::of(b"other");
    for (shown, expected) in [
        (with(&[("gone", 2)]), "skill_rolled_back"),
        (other_bytes, "skill_rolled_back"),
        (with(&[("gone", 3)]), "counts"),
        (with(&[("gone", 4)]), "counts"),
        (with(&[("kept", 1), ("new", 1)]), "counts"),
    ] {
        assert_eq!(judge(&former, &shown), expected, "{:?}", shown.skills);
    }
    let lower = with(&[("gone", 2)]);
    let returned = former.find_rolled_back(never, &lower, state());
    assert_eq!(returned, [(lower.skills[0].clone(), 3)]);
    let has = |name: &SkillName| name.as_str() == "gone";
    assert!(former.find_rolled_back(has, &lower, state()).is_empty());

    // A key that the chain does not know binds nobody; a reader that held no manifest compares.
    let mut stranger = FormerSkills::default();
    stranger.insert(&with(&[("gone", 3)]).skills[0], Some(key(9).public()));
    assert_eq!(judge(&stranger, &lower), "counts");
    let mut unknown = FormerSkills::default();
    unknown.insert(&with(&[("gone", 3)]).skills[0], None);
    assert_eq!(judge(&unknown, &lower), "skill_rolled_back");

    // What is back is compared with the catalog that has it.
    former.record_removed(
        &with(&[("kept", 2)]),
        &with(&[("gone", 4), ("kept", 2)]),
        |_| publisher,
    );
    assert!(former.is_empty());
}

#[test]
fn many_removed_skills_push_no_other_out_and_a_revoked_key_s_are_forgotten() {
    let skill = |name: &str, version| SkillEntry {
        version,
        ..entry(name)
    };
    let mut former = FormerSkills::default();
    former.insert(&skill("honest", 3), Some(key(0).public()));
    let flooder = Some(key(9).public());
    for number in 0..MAX_FORMER_SKILLS as u64 {
        former.insert(
            &skill(&format!("flood-{number}"), u64::from(u32::MAX)),
            flooder,
        );
    }
    assert_eq!(former.skills.len(), MAX_FORMER_SKILLS);
    let judge = |former: &FormerSkills, name: &str, version| {
        let mut shown = catalog(10, 0);
        shown.skills = vec![skill(name, version)];
        word(former.check_returned(|_| false, &shown, state()))
    };
    assert_eq!(judge(&former, "honest", 2), "skill_rolled_back");
    for name in ["never-there", "flood-1"] {
        assert_eq!(judge(&former, name, 1), "counts", "{name}");
    }
    former.forget_revoked(state());
    assert_eq!(former.skills.len(), 1);
    former.insert(&skill("other", 5), Some(key(0).public()));
    assert_eq!(judge(&former, "other", 4), "skill_rolled_back");
}
