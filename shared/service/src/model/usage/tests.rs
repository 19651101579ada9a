//! Tests of what is counted in a usage, and of what each limit refuses.

use super::*;

const QUOTA: Quota = Quota {
    bytes: 1000,
    objects: 10,
    ..Quota::NONE
};

fn amount(bytes: u64, objects: u64) -> Amount {
    Amount { bytes, objects }
}

fn tally(bytes: u64, objects: u64) -> Tally {
    Tally {
        stored: amount(bytes, objects),
        unnamed: amount(bytes, objects),
    }
}

/// A listing in which no release names an object and no root reaches one.
fn listed(bytes: u64, objects: u64) -> ListedUsage {
    ListedUsage {
        stored: amount(bytes, objects),
        not_current: amount(bytes, objects),
        unreached: amount(bytes, objects),
        ..ListedUsage::default()
    }
}

fn usage(bytes: u64, objects: u64) -> Usage {
    Usage {
        tally: tally(bytes, objects),
        ..Usage::default()
    }
}

fn in_files(bytes: u64, objects: u64) -> Beyond {
    Beyond {
        files: amount(bytes, objects),
        ..Beyond::default()
    }
}

/// A vault that has stored this much beyond its quota for releases.
fn beyond(bytes: u64, objects: u64) -> Usage {
    Usage {
        beyond: in_files(bytes, objects),
        ..usage(1000 + bytes, 10 + objects)
    }
}

/// An upload that is within the quota.
fn counted(bytes: u64, objects: u64) -> Counted {
    Counted {
        added: tally(bytes, objects),
        ..Counted::default()
    }
}

fn other(bytes: u64, objects: u64) -> Needed {
    Needed {
        other: tally(bytes, objects),
        ..Needed::default()
    }
}

fn files(bytes: u64, objects: u64, is_proposal: bool) -> Needed {
    Needed {
        release_files: tally(bytes, objects),
        allowances: 1 + u64::from(is_proposal),
        ..Needed::default()
    }
}

#[test]
fn each_limit_holds_to_the_last_byte_and_object() {
    let (mib, thousand) = (ALLOWANCE_BYTES, ALLOWANCE_OBJECTS);
    // used, needed, the limit that is full
    let table = [
        (usage(0, 0), other(1000, 10), None),
        (usage(0, 0), other(1001, 1), Some(StorageLimit::Bytes)),
        (usage(0, 0), other(1, 11), Some(StorageLimit::Objects)),
        (usage(999, 9), other(1, 1), None),
        (usage(999, 9), other(2, 1), Some(StorageLimit::Bytes)),
        // An upload that adds nothing always passes, however far beyond the quota the vault is.
        (usage(5000, 50), other(0, 0), None),
        (usage(5000, 9), other(0, 1), None),
        (usage(1000, 10), files(mib, thousand, false), None),
        (
            usage(1000, 10),
            files(mib + 1, 1, false),
            Some(StorageLimit::Bytes),
        ),
        (
            usage(1000, 10),
            files(1, thousand + 1, false),
            Some(StorageLimit::Objects),
        ),
        // Uploads that use up their allowance leave room for a verified proposal.
        (
            beyond(mib, 0),
            files(1, 1, false),
            Some(StorageLimit::Bytes),
        ),
        (beyond(mib, 0), files(mib, 1, true), None),
        (
            beyond(mib, 0),
            files(mib + 1, 1, true),
            Some(StorageLimit::Bytes),
        ),
        (
            beyond(0, thousand),
            files(0, thousand + 1, true),
            Some(StorageLimit::Objects),
        ),
        // A vault that was far beyond its quota still has the whole allowance.
        (
            usage(9 * mib, 9 * thousand),
            files(mib, thousand, false),
            None,
        ),
        (usage(9 * mib, 9 * thousand), files(2 * mib, 1, true), None),
        (
            usage(9 * mib, 9 * thousand),
            files(2 * mib + 1, 1, true),
            Some(StorageLimit::Bytes),
        ),
    ];
    for (row, (usage, needed, full)) in table.into_iter().enumerate() {
        let refused = usage.check_room(&needed, &QUOTA).err();
        assert_eq!(refused.map(|full| full.of), full, "row {row}");
    }
}

#[test]
fn a_skill_beside_a_file_of_a_release_does_not_use_the_allowance() {
    let needed = Needed {
        other: tally(100, 1),
        release_files: tally(500, 1),
        allowances: 1,
        again: Amount::default(),
    };
    assert!(usage(900, 1).check_room(&needed, &QUOTA).is_ok());
    let full = usage(901, 1).check_room(&needed, &QUOTA).unwrap_err();
    let numbers = (full.of, full.used, full.asked, full.limit);
    assert_eq!(numbers, (StorageLimit::Bytes, 901, 100, 1000));
}

#[test]
fn uploads_that_no_release_names_have_a_bound_of_their_own() {
    let quota = Quota::NONE;
    let full = |used: &Usage, needed| {
        let checked = used.check_room(&needed, &quota);
        checked.map(drop).map_err(|full| full.of)
    };
    let mut used = usage(MAX_UNNAMED_BYTES, 1);
    assert_eq!(full(&used, other(1, 1)), Err(StorageLimit::UnnamedBytes));
    assert_eq!(full(&used, files(1, 1, false)), Ok(()));
    used.name_objects(amount(1, 0));
    assert_eq!(full(&used, other(1, 1)), Ok(()));
    let used = usage(1, MAX_UNNAMED_OBJECTS);
    assert_eq!(full(&used, other(1, 1)), Err(StorageLimit::UnnamedObjects));
}

#[test]
fn skills_are_signed_again_beyond_the_quota_once() {
    let again = |bytes, objects| Needed {
        again: amount(500, 5),
        ..other(bytes, objects)
    };
    let mut usage = usage(900, 9);
    let counted = usage.check_room(&again(600, 6), &QUOTA).unwrap();
    assert_eq!(counted.beyond.again, amount(500, 5));
    for (bytes, objects, full) in [
        (601, 6, StorageLimit::Bytes),
        (600, 7, StorageLimit::Objects),
    ] {
        let refused = usage.check_room(&again(bytes, objects), &QUOTA);
        assert_eq!(refused.unwrap_err().of, full);
    }
    usage.begin_upload("one", counted, Timestamp::from_unix(1));
    usage.end_upload("one", tally(600, 6), false);
    assert!(usage.check_room(&again(1, 0), &QUOTA).is_err());
    // Skills signed again do not use the allowance for files, and raise the bound of unnamed
    // objects.
    assert!(
        usage
            .check_room(&files(ALLOWANCE_BYTES, 1, false), &QUOTA)
            .is_ok()
    );
    let mut unnamed = usage;
    unnamed.tally.unnamed = amount(MAX_UNNAMED_BYTES, 1);
    assert!(unnamed.check_room(&again(500, 1), &Quota::NONE).is_ok());
    let full = unnamed
        .check_room(&again(501, 1), &Quota::NONE)
        .unwrap_err();
    assert_eq!(full.of, StorageLimit::UnnamedBytes);
}

#[test]
fn what_is_deleted_counts_as_unnamed_no_longer_though_a_former_release_holds_others() {
    let now = Timestamp::from_unix(10_000);
    let mut usage = usage(100, 10);
    usage.tally.unnamed = amount(40, 4);
    usage.begin_listing(now, now);
    usage.end_listing(
        now,
        ListedUsage {
            stored: amount(60, 6),
            not_current: amount(50, 5),
            deleted: amount(40, 4),
            ..ListedUsage::default()
        },
    );
    assert_eq!(usage.tally.unnamed, amount(0, 0));
}

#[test]
fn the_first_count_of_a_vault_has_what_comes_up_at_its_end() {
    let now = Timestamp::from_unix(10_000);
    let mut usage = Usage::default();
    usage.begin_upload("open", counted(50, 5), now);
    usage.begin_listing(now, now);
    usage.end_listing(now, listed(1000, 10));
    usage.end_upload("open", tally(50, 5), false);
    assert_eq!(usage.tally.stored, amount(1050, 15));
}

#[test]
fn releases_have_places_that_uploads_cannot_take() {
    let mut usage = Usage::default();
    for n in 0..MAX_OPEN {
        assert!(!usage.is_busy(false));
        let now = Timestamp::from_unix(1);
        usage.begin_upload(&n.to_string(), counted(1, 1), now);
    }
    assert!(usage.is_busy(false) && !usage.is_busy(true));
}

#[test]
fn an_upload_that_has_not_ended_or_is_in_doubt_warns_nobody() {
    let mut usage = usage(500, 1);
    usage.begin_upload("open", counted(400, 1), Timestamp::from_unix(1));
    assert_eq!(usage.take_warnings(&QUOTA), []);
    usage.end_upload("open", tally(400, 1), true);
    assert_eq!(usage.take_warnings(&QUOTA), []);
    usage.is_doubtful = false;
    assert_eq!(usage.take_warnings(&QUOTA).len(), 1);
}

#[test]
fn files_beyond_the_quota_are_counted_until_as_much_is_deleted() {
    let now = Timestamp::from_unix(10_000);
    let mut usage = usage(990, 5);
    let release = files(30, 1, true);
    let counted = usage.check_room(&release, &QUOTA).unwrap();
    assert_eq!(counted.beyond, in_files(20, 0));
    usage.begin_upload("one", counted, now);
    usage.settle_beyond(&QUOTA);
    assert_eq!(usage.beyond, in_files(20, 0));
    assert_eq!(usage.settled().beyond, in_files(0, 0));
    usage.end_upload("one", tally(30, 1), false);
    assert_eq!(usage.beyond, in_files(20, 0));
    // Objects that were stored already are taken out of the count.
    let counted = usage.check_room(&release, &QUOTA).unwrap();
    usage.begin_upload("two", counted, now);
    assert_eq!(usage.beyond, in_files(50, 0));
    usage.end_upload("two", tally(0, 0), false);
    assert_eq!(usage.beyond, in_files(20, 0));
    // The quota is lowered, so the vault is far beyond it. Deletions then make room.
    let lower = Quota { bytes: 10, ..QUOTA };
    usage.settle_beyond(&lower);
    usage.begin_listing(now, now);
    usage.end_listing(now, listed(1008, 6));
    usage.settle_beyond(&lower);
    assert_eq!(usage.beyond, in_files(8, 0));
    usage.settle_beyond(&QUOTA);
    assert_eq!(usage.beyond, in_files(8, 0));
    usage.settle_beyond(&Quota::NONE);
    assert_eq!(usage.beyond, in_files(0, 0));
}

#[test]
fn a_quiet_listing_makes_the_count_exact() {
    let now = Timestamp::from_unix(10_000);
    for counted in [0, 70, 100] {
        let mut usage = usage(counted, counted);
        usage.begin_listing(now, now);
        usage.end_listing(now, listed(70, 7));
        assert_eq!(usage.tally, tally(70, 7));
    }
}

#[test]
fn a_listing_loses_no_upload_that_began_shortly_before_or_meanwhile() {
    let at = Timestamp::from_unix;
    let mut usage = usage(50, 5);
    // The process of this upload died before it stored anything, and the upload is now forgotten.
    usage.begin_upload("crashed", counted(7, 7), at(10_000));
    usage.begin_upload("before", counted(20, 2), at(10_200));
    usage.begin_listing(at(10_260), at(10_260));
    assert!(usage.is_doubtful);
    usage.begin_upload("meanwhile", counted(30, 3), at(10_300));
    usage.end_upload("meanwhile", tally(30, 3), false);
    // The listing passed before either upload had stored its objects.
    usage.end_listing(at(10_260), listed(50, 5));
    assert_eq!(usage.tally.stored, amount(100, 10));
    assert!(!usage.is_doubtful);
    // The next listing finds only what is stored.
    usage.begin_listing(at(20_000), at(20_000));
    usage.end_listing(at(20_000), listed(80, 8));
    assert_eq!(usage.tally.stored, amount(80, 8));
}

#[test]
fn only_the_visit_that_began_last_corrects_the_count() {
    let at = Timestamp::from_unix;
    let mut usage = usage(50, 5);
    usage.begin_listing(at(1), at(1));
    usage.begin_listing(at(2), at(2));
    usage.end_listing(at(1), listed(10, 1));
    assert_eq!(usage.tally, tally(50, 5));
    usage.end_listing(at(2), listed(40, 4));
    assert_eq!(usage.tally, tally(40, 4));
}

#[test]
fn an_upload_that_ends_counts_what_it_stored() {
    let mut usage = usage(50, 5);
    usage.begin_upload("one", counted(30, 3), Timestamp::from_unix(1));
    assert_eq!(usage.settled().tally, tally(50, 5));
    usage.end_upload("one", tally(10, 1), true);
    // A second end changes nothing.
    usage.end_upload("one", tally(10, 1), true);
    assert_eq!(usage.tally, tally(60, 6));
    assert!(usage.is_doubtful);
}

#[test]
fn a_release_during_a_listing_leaves_its_objects_named() {
    let mut usage = usage(50, 5);
    let now = Timestamp::from_unix(10_000);
    usage.begin_listing(now, now);
    usage.name_objects(amount(40, 4));
    // Listed before the release named them.
    usage.end_listing(now, listed(50, 5));
    assert_eq!(usage.tally.unnamed, amount(10, 1));
    assert_eq!(usage.tally.stored, amount(50, 5));
}

#[test]
fn a_listing_bounds_what_no_release_names_from_both_sides() {
    let now = Timestamp::from_unix(10_000);
    // The current release names 60 of 100 bytes; nothing reaches 10 of the others.
    let listed = ListedUsage {
        stored: amount(100, 10),
        not_current: amount(40, 4),
        unreached: amount(10, 1),
        ..ListedUsage::default()
    };
    // counted, corrected: between the bounds the count stays, since a former release may name some
    // of the objects.
    for (counted, corrected) in [((0, 0), (10, 1)), ((20, 2), (20, 2)), ((90, 9), (40, 4))] {
        let mut usage = usage(100, 10);
        usage.tally.unnamed = amount(counted.0, counted.1);
        usage.begin_listing(now, now);
        usage.end_listing(now, listed);
        assert_eq!(usage.tally.unnamed, amount(corrected.0, corrected.1));
        assert_eq!(usage.tally.stored, amount(100, 10));
    }
}

#[test]
fn owners_are_warned_once_for_each_limit_until_less_than_80_percent_is_used() {
    let warned = |usage: &mut Usage| {
        let events = usage.take_warnings(&QUOTA).into_iter();
        let numbers = events.map(|event| match event {
            Event::QuotaNear { quota, used, limit } => (quota, used, limit),
            other => panic!("{other:?}"),
        });
        numbers.collect::<Vec<_>>()
    };
    let bytes = |used| (QuotaKind::Bytes, used, 1000);
    let objects = |used| (QuotaKind::Objects, used, 10);
    for (row, (stored, events)) in [
        ((799, 7), vec![]),
        ((800, 7), vec![bytes(800)]),
        ((900, 8), vec![objects(8)]),
        ((799, 8), vec![]),
        ((1000, 10), vec![bytes(1000)]),
        ((0, 0), vec![]),
        ((999, 9), vec![bytes(999), objects(9)]),
        ((999, 9), vec![]),
    ]
    .into_iter()
    .scan(
        usage(0, 0),
        |usage, ((stored_bytes, stored_objects), events)| {
            usage.tally.stored = amount(stored_bytes, stored_objects);
            Some((warned(usage), events))
        },
    )
    .enumerate()
    {
        assert_eq!(stored, events, "row {row}");
    }
    // A limit that is lowered can be reached without an upload.
    let mut usage = usage(500, 1);
    assert_eq!(warned(&mut usage), []);
    let lower = Quota {
        bytes: 600,
        ..QUOTA
    };
    assert_eq!(usage.take_warnings(&lower).len(), 1);
    assert_eq!(usage.take_warnings(&QUOTA).len(), 0);
    assert!(!usage.is_near(&Quota::NONE));
}
