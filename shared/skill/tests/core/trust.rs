//! What a reader believes: releases, clocks, keys and rotations that no stored vector covers.

use vault_skill::catalog::{
    Expectation, MAX_RELEASE_JUMP, Side, Stored, Trust, Warning, Withdrawn, accept,
};
use vault_skill::rotation::Reason;

use crate::make::{
    NOW, catalog, entry, expected, key, pull, push, rotate, sign, slug, stored, trust,
};

fn word<T>(result: Result<T, vault_skill::catalog::CatalogError>) -> &'static str {
    result.map_or_else(|error| error.word(), |_| "accepted")
}

#[test]
fn the_same_release_must_be_the_same_payload() {
    let first = sign(&catalog(5, 0), &[], 0);
    let pinned = pull(&first, &Trust::default()).unwrap().trust;
    let again = pull(&first, &pinned).unwrap();
    assert!(again.same_release);
    assert_eq!(again.trust, pinned);
    // A host that changes the unsigned keyid and adds white space cannot raise a false alarm.
    let text = String::from_utf8(first.clone()).unwrap();
    let changed = text.replace(&key(0).public().key_id().to_string(), "somebody else") + "\n";
    let changed = pull(changed.as_bytes(), &pinned).unwrap();
    assert!(changed.same_release && changed.file_sha256 != again.file_sha256);
    let mut other = catalog(5, 0);
    other.skills.push(entry("other"));
    let error = pull(&sign(&other, &[], 0), &pinned).unwrap_err();
    assert_eq!(
        (error.word(), error.to_string().as_str()),
        ("catalog_release", "two different catalogs carry release 5")
    );
    assert_eq!(word(push(&first, &pinned)), "catalog_release");
    assert_eq!(
        word(pull(&sign(&catalog(4, 0), &[], 0), &pinned)),
        "catalog_release"
    );
}

#[test]
fn a_release_may_jump_a_million_and_no_more() {
    let pinned = trust(&[0], 0, 10);
    assert_eq!(
        word(pull(
            &sign(&catalog(10 + MAX_RELEASE_JUMP, 0), &[], 0),
            &pinned
        )),
        "accepted"
    );
    assert_eq!(
        word(pull(
            &sign(&catalog(11 + MAX_RELEASE_JUMP, 0), &[], 0),
            &pinned
        )),
        "catalog_release"
    );
    // The first catalog may have any number.
    assert_eq!(
        word(pull(
            &sign(&catalog((1 << 53) - 1, 0), &[], 0),
            &Trust::default()
        )),
        "accepted"
    );
    assert_eq!(
        word(push(
            &sign(&catalog((1 << 53) - 1, 0), &[], 0),
            &Trust::default()
        )),
        "accepted"
    );
}

#[test]
fn a_client_may_miss_releases_and_a_service_may_not() {
    let pinned = trust(&[0], 0, 10);
    assert_eq!(
        word(pull(&sign(&catalog(13, 0), &[], 0), &pinned)),
        "accepted"
    );
    assert_eq!(
        word(push(&sign(&catalog(13, 0), &[], 0), &pinned)),
        "catalog_previous"
    );
    let mut follows = catalog(13, 0);
    follows.previous = Some(stored(10));
    assert_eq!(word(push(&sign(&follows, &[], 0), &pinned)), "accepted");
    follows.previous = Some(Stored {
        release: 10,
        payload_sha256: stored(9).payload_sha256,
    });
    assert_eq!(
        word(push(&sign(&follows, &[], 0), &pinned)),
        "catalog_previous"
    );
    assert_eq!(
        pull(&sign(&follows, &[], 0), &pinned).unwrap().warnings,
        [Warning::PreviousDiffers]
    );
}

#[test]
fn clocks() {
    let (slug, bytes) = (slug(), sign(&catalog(1, 0), &[], 0));
    let at = |side, now: i64, seen: Option<i64>| {
        let now = NOW.plus_seconds(now);
        let expected = Expectation {
            now,
            latest_seen_at: seen.map(|seen| NOW.plus_seconds(seen)),
            ..expected(side, &slug)
        };
        accept(&bytes, &Trust::default(), &expected)
            .map(|accepted| accepted.warnings)
            .map_err(|error| error.word())
    };
    let end = 90 * 86_400;
    assert_eq!(at(Side::Client, end, None), Ok(vec![]));
    assert_eq!(at(Side::Client, end + 1, None), Err("catalog_clock"));
    assert_eq!(at(Side::Client, 0, Some(end + 1)), Err("catalog_clock"));
    assert_eq!(
        at(Side::Client, 0, Some(5)),
        Ok(vec![Warning::ClockWentBack])
    );
    assert_eq!(at(Side::Client, -300, None), Ok(vec![]));
    assert_eq!(
        at(Side::Client, -301, None),
        Ok(vec![Warning::IssuedInFuture])
    );
    assert_eq!(at(Side::Service, -300, None), Ok(vec![]));
    assert_eq!(at(Side::Service, -301, None), Err("catalog_clock"));
    assert_eq!(at(Side::Service, end, Some(end + 1)), Ok(vec![]));
    assert_eq!(at(Side::Service, end + 1, None), Err("catalog_clock"));
}

#[test]
fn chains_of_1_5_and_32_rotations_and_not_of_33() {
    for steps in [1_u8, 5, 32, 33] {
        let rotations: Vec<_> = (1..=steps)
            .map(|n| rotate(n.into(), n - 1, n, Reason::Rotation, 10 + u64::from(n)))
            .collect();
        let new = catalog(50, steps);
        if steps == 33 {
            assert!(
                vault_skill::catalog::SignedCatalog::sign(&new, &rotations, &key(steps)).is_err()
            );
            // Signed with as many as allowed, then one more put in by hand.
            let bytes = String::from_utf8(sign(&new, &rotations[..32], 33)).unwrap();
            let last = String::from_utf8(rotations[32].to_bytes()).unwrap();
            let bytes = bytes.replacen(r#""rotations":["#, &format!(r#""rotations":[{last},"#), 1);
            assert_eq!(
                word(pull(bytes.as_bytes(), &trust(&[0], 0, 10))),
                "catalog_rotation"
            );
            continue;
        }
        let bytes = sign(&new, &rotations, steps);
        for pinned in [trust(&[0], 0, 10), Trust::default()] {
            let accepted = pull(&bytes, &pinned).unwrap();
            assert_eq!(accepted.trust.rotation_sequence, u64::from(steps));
            assert_eq!(
                accepted.trust.former_keys,
                (0..steps).map(|n| key(n).public()).collect::<Vec<_>>()
            );
            assert_eq!(accepted.keys.len(), usize::from(steps) + 1);
            assert!(accepted.voided.is_empty());
        }
        // A pin in the middle of the chain gets through as well, and one of a stranger does not.
        let half = steps / 2;
        let keys: Vec<u8> = (0..=half).collect();
        assert_eq!(
            pull(&bytes, &trust(&keys, half.into(), 10))
                .unwrap()
                .trust
                .rotation_sequence,
            u64::from(steps)
        );
        assert_eq!(word(pull(&bytes, &trust(&[99], 0, 10))), "catalog_rotation");
    }
}

#[test]
fn a_thief_cannot_use_the_release_numbers_up() {
    // The thief of key 0 published release 900,000; the owner's last one was 41.
    let thief = stored(900_000);
    let mut pinned = trust(&[0], 0, 41);
    pinned.stored = Some(thief);
    let statement = [rotate(1, 0, 1, Reason::Compromise, 42)];
    let mut new = catalog(42, 1);
    let accepted = pull(&sign(&new, &statement, 1), &pinned).unwrap();
    assert_eq!(accepted.reset_release, Some(41));
    assert_eq!(accepted.voided, [key(0).public()]);
    assert_eq!(accepted.keys, [key(1).public(), key(0).public()]);
    assert_eq!(word(push(&sign(&new, &statement, 1), &pinned)), "accepted");
    new.previous = Some(thief);
    assert_eq!(
        word(push(&sign(&new, &statement, 1), &pinned)),
        "catalog_previous"
    );
    // Once it is known, the statement resets nothing any more.
    let pinned = accepted.trust;
    let mut next = catalog(43, 1);
    next.previous = pinned.stored;
    let next = pull(&sign(&next, &statement, 1), &pinned).unwrap();
    assert_eq!(
        (next.reset_release, next.voided),
        (None, vec![key(0).public()])
    );
    assert_eq!(
        word(pull(&sign(&catalog(42, 1), &statement, 1), &next.trust)),
        "catalog_release"
    );
    // The thief's next catalog is refused, with or without the statement beside it.
    assert_eq!(
        word(pull(&sign(&catalog(900_001, 0), &[], 0), &next.trust)),
        "catalog_key"
    );
    assert_eq!(
        word(pull(
            &sign(&catalog(900_001, 0), &statement, 0),
            &next.trust
        )),
        "catalog_key"
    );
}

#[test]
fn a_recovery_signed_statement_settles_a_fork() {
    let halves = [
        rotate(1, 0, 1, Reason::Rotation, 11),
        rotate(1, 0, 2, Reason::Rotation, 11),
    ];
    assert_eq!(
        word(pull(
            &sign(&catalog(11, 1), &halves, 1),
            &trust(&[0], 0, 10)
        )),
        "catalog_rotation"
    );
    let last_word = rotate(1, 0, 3, Reason::Compromise, 11);
    let [a, b] = halves;
    let all = [a.clone(), b, last_word.clone()];
    // One who saw neither half, one who followed the thief's, one to whom both are shown again.
    for (pinned, rotations) in [
        (trust(&[0], 0, 10), &all[..]),
        (trust(&[0, 2], 1, 11), &all[..]),
        (trust(&[0, 2], 1, 11), std::slice::from_ref(&last_word)),
        (trust(&[0, 3], 1, 10), &all[..]),
    ] {
        let accepted = pull(&sign(&catalog(11, 3), rotations, 3), &pinned).unwrap();
        assert_eq!(accepted.trust.public_key, Some(key(3).public()));
        assert_eq!(accepted.trust.former_keys, [key(0).public()]);
    }
    // Without the pinned recovery key it settles nothing.
    let mut pinned = trust(&[0, 2], 1, 11);
    pinned.recovery_key_sha256 = Some(key(9).public().key_id());
    assert_eq!(
        word(pull(&sign(&catalog(11, 3), &[last_word], 3), &pinned)),
        "catalog_rotation"
    );
}

#[test]
fn the_recovery_key_changes_only_by_its_own_statement() {
    let statement = [rotate(1, 0, 0, Reason::Recovery, 11)];
    let mut new = catalog(11, 0);
    new.recovery_key_sha256 = Some(key(crate::make::RECOVERY + 1).public().key_id());
    let pinned = trust(&[0], 0, 10);
    assert_eq!(word(pull(&sign(&new, &[], 0), &pinned)), "catalog_rotation");
    let accepted = pull(&sign(&new, &statement, 0), &pinned).unwrap();
    assert_eq!(accepted.trust.recovery_key_sha256, new.recovery_key_sha256);
    assert_eq!(
        (accepted.trust.rotation_sequence, accepted.reset_release),
        (1, None)
    );
    assert!(accepted.trust.former_keys.is_empty());
    // The old hash with the statement beside it is a contradiction; so is none at all, or one out of nothing.
    assert_eq!(
        word(pull(&sign(&catalog(11, 0), &statement, 0), &pinned)),
        "catalog_rotation"
    );
    new.recovery_key_sha256 = None;
    assert_eq!(word(pull(&sign(&new, &[], 0), &pinned)), "catalog_rotation");
    let none = Trust {
        recovery_key_sha256: None,
        ..pinned
    };
    assert_eq!(
        word(pull(&sign(&catalog(11, 0), &[], 0), &none)),
        "catalog_rotation"
    );
}

#[test]
fn withdrawn_entries_have_a_limit() {
    let withdrawn = |count: u64| {
        let mut new = catalog(1, 0);
        new.withdrawn = (0..count)
            .map(|n| Withdrawn {
                name: "old".parse().unwrap(),
                bundle_hash: stored(n).payload_sha256,
                reason: String::new(),
                since_release: 1,
            })
            .collect();
        vault_skill::catalog::SignedCatalog::sign(&new, &[], &key(0)).map(|_| ())
    };
    assert_eq!(word(withdrawn(1_000)), "accepted");
    assert_eq!(word(withdrawn(1_001)), "catalog_withdrawn");
}

#[test]
fn pins_survive_their_file() {
    let pinned = trust(&[0, 1, 2], 2, 41);
    let text = serde_json::to_string(&pinned).unwrap();
    assert_eq!(serde_json::from_str::<Trust>(&text).unwrap(), pinned);
}

/// The order of checks is a promise: envelope, key, vault, slug, audience, clock, release.
#[test]
fn a_lifetime_that_is_wrong_is_found_after_key_slug_and_audience() {
    use vault_skill::{catalog, dsse::Envelope, json};
    let signed = |change: fn(&mut catalog::Catalog), signer: u8| {
        let mut catalog = crate::make::catalog(5, signer);
        catalog.expires_at = catalog.issued_at.plus_days(401);
        change(&mut catalog);
        let envelope = Envelope::sign(
            catalog::PAYLOAD_TYPE,
            &json::to_bytes(&catalog),
            &[&key(signer)],
        );
        let text = String::from_utf8(envelope.to_bytes()).unwrap();
        format!("{{\"public_key\":\"{}\",{}", catalog.public_key, &text[1..])
    };
    let pinned = trust(&[0], 0, 4);
    for (change, signer, found) in [
        ((|_| ()) as fn(&mut catalog::Catalog), 9, "catalog_key"),
        (|c| c.slug = "other".parse().unwrap(), 0, "catalog_slug"),
        (|c| c.audience.clear(), 0, "catalog_audience"),
        (|c| c.release = 3, 0, "catalog_clock"),
        (|_| (), 0, "catalog_clock"),
    ] {
        let bytes = signed(change, signer);
        assert_eq!(word(pull(bytes.as_bytes(), &pinned)), found);
    }
}
