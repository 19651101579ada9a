//! The opposite of each rule of roots, catalogs and signers that no stored vector shows.

use std::collections::BTreeSet;

use vault_format::catalog::{
    CatalogError, MAX_OBJECT_BYTES, ReaderKind, SignedCatalog, judge_catalog,
};
use vault_format::json;
use vault_format::keys::{PublicKey, Signer};
use vault_format::root::{
    KeyStanding, MAX_VERSION, RootBudget, RootDocument, RootEdit, RootError, RootList, RootState,
    RootWriteError, SignerRefusal, SkillPlace, judge_archive, judge_roots,
};
use vault_format::time::Timestamp;

use crate::make::{
    NOW, ROOT, catalog_of, key, key_entry, known, last, next, reader, sign, sign_under, slug, state,
};

fn public(number: u8) -> PublicKey {
    key(number).public()
}

#[test]
fn a_document_has_at_most_version_1024() {
    let document = state().document().clone();
    let text = String::from_utf8(json::to_bytes(&document)).unwrap();
    let at = |version: u64| {
        let text = text
            .replace(r#""version":1"#, &format!(r#""version":{version}"#))
            .replace(
                r#""vault_id":null"#,
                &format!(r#""vault_id":"{}""#, state().vault_id()),
            )
            .replace(
                r#""previous_sha256":null"#,
                &format!(r#""previous_sha256":"{}""#, state().chain().root1_sha256()),
            );
        json::parse::<RootDocument>(text.as_bytes()).is_ok()
    };
    assert!(at(2) && at(MAX_VERSION));
    assert!(!at(MAX_VERSION + 1) && !at(0));
}

#[test]
fn a_file_over_4_mib_is_refused_before_its_roots_are_taken() {
    let longer = next(state().chain(), |edit| {
        edit.revoke(&public(1));
    });
    let mut bytes = sign_under(&longer, &catalog_of(&longer, 1, 0), &[0]);
    let slug = slug();
    let reader = reader(ReaderKind::Device, &slug, Some(state()), None);
    bytes.resize(MAX_OBJECT_BYTES, b' ');
    let fits = judge_catalog(&bytes, &reader);
    assert!(fits.outcome.is_ok() && matches!(fits.roots, vault_format::catalog::NewRoots::Now(_)));
    bytes.push(b' ');
    let refused = judge_catalog(&bytes, &reader);
    assert!(matches!(refused.outcome, Err(CatalogError::TooLarge)));
    assert!(matches!(
        refused.roots,
        vault_format::catalog::NewRoots::None
    ));
}

#[test]
fn standing_follows_the_whole_history() {
    let chain = state().chain();
    // Key 0 retires; key 1 is revoked; key 3 comes; a second root key comes and goes.
    let chain = next(chain, |edit| {
        edit.retire(&public(0)).unwrap();
        edit.add_publisher(key_entry(3)).unwrap();
    });
    let mut edit = RootEdit::begin_after(&chain, NOW);
    edit.add_root_key(key_entry(ROOT + 1)).unwrap();
    let chain = edit.sign(&[&key(ROOT)]).unwrap();
    let chain = next(&chain, |edit| {
        edit.remove_root_key(&public(ROOT + 1)).unwrap();
        edit.revoke(&public(1));
    });
    let state = known(chain);
    for (number, standing) in [
        (0, KeyStanding::Retired),
        (1, KeyStanding::Revoked),
        (3, KeyStanding::Release),
        (ROOT, KeyStanding::RootOnly),
        (ROOT + 1, KeyStanding::Unknown),
        (9, KeyStanding::Unknown),
    ] {
        assert_eq!(state.standing(&public(number)), standing, "{number}");
    }
    let rows: [(SkillPlace, [Result<(), SignerRefusal>; 5]); 7] = {
        use SignerRefusal::{Catalog, ReleaseAwaited, Retired, Signature};
        let (own, archive) = (
            |taken_over| SkillPlace::Own { taken_over },
            |listed| SkillPlace::Archive { listed },
        );
        let (s, c, a) = (Err(Signature), Err(Catalog), Err(ReleaseAwaited));
        [
            (SkillPlace::Listed, [Ok(()), c, Ok(()), c, c]),
            (SkillPlace::Installed, [Ok(()), a, Ok(()), a, a]),
            (own(false), [Err(Retired), s, Ok(()), s, s]),
            (own(true), [Ok(()), s, Ok(()), s, s]),
            (SkillPlace::SignAgain, [Err(Retired), a, Ok(()), s, s]),
            (archive(false), [Err(Retired), s, Ok(()), s, s]),
            (archive(true), [Ok(()), s, Ok(()), s, s]),
        ]
    };
    for (place, results) in rows {
        for (number, result) in [0, 1, 3, ROOT, ROOT + 1].into_iter().zip(results) {
            let judged = state.judge_signer(Some(&public(number)), place);
            assert_eq!(judged, result, "{place:?} {number}");
        }
        assert!(state.judge_signer(None, place).is_err(), "{place:?}");
    }
}

#[test]
fn a_publisher_who_becomes_a_root_key_alone_still_has_his_listed_skills() {
    let mut edit = RootEdit::begin_first(NOW);
    edit.add_root_key(key_entry(0)).unwrap();
    edit.add_publisher(key_entry(0)).unwrap();
    let chain = edit.sign(&[&key(0)]).unwrap();
    let mut edit = RootEdit::begin_after(&chain, NOW);
    edit.retire(&public(0)).unwrap();
    edit.add_root_key(key_entry(0)).unwrap_err(); // it left all roles in this edit, and its entry with them
    let mut edit = RootEdit::begin_after(&chain, NOW);
    edit.add_publisher(key_entry(1)).unwrap();
    edit.remove_publisher(&public(0)).unwrap();
    let state = known(edit.sign(&[&key(0)]).unwrap());
    assert_eq!(state.standing(&public(0)), KeyStanding::RootOnly);
    assert_eq!(
        state.judge_signer(Some(&public(0)), SkillPlace::Listed),
        Ok(())
    );
    let own = state.judge_signer(Some(&public(0)), SkillPlace::Own { taken_over: true });
    assert_eq!(own, Err(SignerRefusal::Signature));
}

#[test]
fn a_stored_state_is_verified_again() {
    let chain = next(state().chain(), |_| {});
    let list = chain.to_list();
    let load = |root1, list| RootState::load(root1, list, BTreeSet::new());
    assert_eq!(
        load(chain.root1_sha256(), &list).unwrap(),
        known(chain.clone())
    );
    let other = load(chain.newest().payload_sha256(), &list).unwrap_err();
    assert_eq!(other.error_code(), "vault_changed");
    let damaged =
        String::from_utf8(json::to_bytes(&chain))
            .unwrap()
            .replacen("sig\":\"", "sig\":\"AAAA", 1);
    let damaged: RootList = serde_json::from_str(&damaged).unwrap();
    let error = RootState::load(chain.root1_sha256(), &damaged, BTreeSet::new());
    assert_eq!(error.unwrap_err().error_code(), "root_invalid");
}

#[test]
fn an_archive_needs_a_reason_to_be_trusted() {
    let list = state().chain().to_list();
    let error = judge_archive(None, &list, None).unwrap_err();
    assert!(matches!(error, RootError::ExpectKeyNeeded));
    assert!(judge_archive(Some(state()), &list, None).is_ok());
    let fingerprint = state().chain().fingerprint();
    assert!(judge_archive(None, &list, Some(&fingerprint)).is_ok());
    // An expectation binds a reader that knows the vault, too.
    let longer = next(state().chain(), |_| {});
    let expected = vault_format::root::VaultFingerprint::new(2, longer.newest().payload_sha256());
    assert_eq!(
        judge_roots(Some(state()), &list, Some(&expected))
            .unwrap_err()
            .error_code(),
        "vault_changed"
    );
    assert!(
        judge_roots(Some(state()), &longer.to_list(), Some(&expected))
            .unwrap()
            .taken
    );
}

#[test]
fn a_root_that_expires_bounds_what_is_published_under_it() {
    let end = NOW.plus_days(30);
    let chain = next(state().chain(), |edit| {
        edit.set_expiry(Some(end));
    });
    let own = known(chain.clone());
    let slug = slug();
    let judge = |side, expires_at: Timestamp, now: Timestamp| {
        let mut catalog = catalog_of(&chain, 1, 0);
        catalog.expires_at = expires_at;
        let bytes = sign_under(&chain, &catalog, &[0]);
        let mut reader = reader(side, &slug, Some(&own), None);
        reader.now = now;
        judge_catalog(&bytes, &reader)
            .outcome
            .map_or_else(|error| error.error_code(), |_| "counts")
    };
    for side in [ReaderKind::Device, ReaderKind::Service] {
        assert_eq!(judge(side, end, NOW), "counts");
        assert_eq!(judge(side, end, end), "counts");
        assert_eq!(judge(side, end, end.plus_seconds(1)), "release_expired");
        assert_eq!(judge(side, end.plus_seconds(1), NOW), "catalog_clock");
    }
}

#[test]
fn a_threshold_needs_as_many_distinct_publishers() {
    let two = next(state().chain(), |edit| {
        edit.set_release_threshold(2);
    });
    let own = known(two.clone());
    let slug = slug();
    let catalog = catalog_of(&two, 1, 0);
    for (signers, word) in [
        (&[0_u8, 1][..], "counts"),
        (&[0], "signatures_missing"),
        (&[0, 0], "signatures_missing"),
        (&[0, ROOT], "signatures_missing"),
        (&[0, 9], "signatures_missing"),
        (&[0, 9, 1], "counts"),
    ] {
        let bytes = sign_under(&two, &catalog, signers);
        let outcome =
            judge_catalog(&bytes, &reader(ReaderKind::Device, &slug, Some(&own), None)).outcome;
        let found = outcome.map_or_else(|error| error.error_code(), |_| "counts");
        assert_eq!(found, word, "{signers:?}");
    }
    // Another publisher completes a proposal.
    let mut proposal = SignedCatalog::parse(&sign_under(&two, &catalog, &[0])).unwrap();
    proposal.add_signature(&key(1)).unwrap();
    let whole = proposal.to_bytes();
    assert_eq!(whole, sign_under(&two, &catalog, &[0, 1]));
    assert_eq!(last(&whole, &[0, 1]).signers, [public(0), public(1)]);
}

#[test]
fn one_publisher_of_two_releases_nothing_by_an_archive() {
    let two = known(next(state().chain(), |edit| {
        edit.set_release_threshold(2);
    }));
    let judge = |state: &RootState, number, listed| {
        let place = SkillPlace::Archive { listed };
        state.judge_signer(Some(&public(number)), place)
    };
    assert_eq!(judge(&two, 0, false), Err(SignerRefusal::NotReleased));
    assert_eq!(judge(&two, 0, true), Ok(()));
    assert_eq!(judge(state(), 0, false), Ok(()));
    assert_eq!(judge(&two, 9, true), Err(SignerRefusal::Signature));

    let carried = |chain, signers: &[u8], reader: &RootState| {
        let bytes = sign_under(chain, &catalog_of(chain, 1, 0), signers);
        let read = SignedCatalog::parse(&bytes).unwrap().read_carried(reader);
        read.map_or_else(|error| error.error_code(), |_| "counts")
    };
    for (chain, signers, word) in [
        (two.chain(), &[0_u8, 1][..], "counts"),
        (two.chain(), &[0], "signatures_missing"),
        (two.chain(), &[0, ROOT], "signatures_missing"),
        // An older root version, for which one signature was enough.
        (state().chain(), &[0], "signatures_missing"),
        (state().chain(), &[0, 1], "counts"),
    ] {
        assert_eq!(carried(chain, signers, &two), word, "{signers:?}");
    }
    // A chain that this reader gave up revoked the second key.
    let elsewhere = RootState::new(two.chain().clone(), BTreeSet::from([(&public(1)).into()]));
    assert_eq!(
        carried(two.chain(), &[0, 1], &elsewhere),
        "signatures_missing"
    );
    let longer = next(two.chain(), |edit| {
        edit.revoke(&public(1)).set_release_threshold(1);
    });
    let unknown = carried(&longer, &[0], state());
    assert_eq!(
        unknown, "catalog_schema",
        "a root version that is not known here"
    );
}

#[test]
fn old_catalogs_say_that_they_are_old() {
    let file = String::from_utf8(sign(&catalog_of(state().chain(), 1, 0), 0)).unwrap();
    let old = file.replace("catalog.v2+json", "catalog.v1+json");
    let error = SignedCatalog::parse(old.as_bytes()).unwrap_err();
    assert!(matches!(error, CatalogError::EarlierFormat));
    let roots = String::from_utf8(json::to_bytes(state().chain())).unwrap();
    let rootless = old.replace(&format!(r#""roots":{roots},"#), "");
    let error = SignedCatalog::parse(rootless.as_bytes()).unwrap_err();
    assert_eq!(
        (
            error.error_code(),
            matches!(error, CatalogError::EarlierFormat)
        ),
        ("catalog_schema", true)
    );
}

/// A reader that saw only part of the budget used says so in time, and emergencies have room.
#[test]
fn room_is_kept_for_emergencies() {
    let chain = state().chain();
    assert!(!RootBudget::used_by(chain).is_nearly_used());
    let full = RootBudget {
        versions: 768,
        bytes: 0,
    };
    assert!(full.is_nearly_used());
    let full = RootBudget {
        versions: 1,
        bytes: 384 << 10,
    };
    assert!(full.is_nearly_used());
    // Signers of no role cost room and prove nothing.
    let mut edit = RootEdit::begin_after(chain, NOW);
    let signers: [&dyn Signer; 2] = [&key(8), &key(9)];
    assert!(matches!(
        edit.sign(&signers),
        Err(RootWriteError::Refused(_))
    ));
    assert!(edit.set_root_threshold(2).to_document().is_err());
}
