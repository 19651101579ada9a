//! What counts, and what each limit refuses.

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

/// A listing in which nothing is named and nothing is reached.
fn listed(bytes: u64, objects: u64) -> Listed {
    Listed {
        stored: amount(bytes, objects),
        not_current: amount(bytes, objects),
        unreached: amount(bytes, objects),
    }
}

fn usage(bytes: u64, objects: u64) -> Usage {
    Usage {
        tally: tally(bytes, objects),
        ..Usage::default()
    }
}

fn other(bytes: u64, objects: u64) -> Needed {
    Needed {
        other: tally(bytes, objects),
        ..Needed::default()
    }
}

fn files(bytes: u64, objects: u64, is_release: bool) -> Needed {
    Needed {
        release_files: tally(bytes, objects),
        is_release,
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
        // What adds nothing is never refused, however far beyond the quota the vault is.
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
        // Uploads that use up their allowance leave room for a verified release.
        (
            usage(1000 + mib, 10),
            files(1, 1, false),
            Some(StorageLimit::Bytes),
        ),
        (usage(1000 + mib, 10), files(mib, 1, true), None),
        (
            usage(1000 + mib, 10),
            files(mib + 1, 1, true),
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
        is_release: false,
    };
    assert!(usage(900, 1).check_room(&needed, &QUOTA).is_ok());
    let full = usage(901, 1).check_room(&needed, &QUOTA).unwrap_err();
    let numbers = (full.of, full.used, full.asked, full.limit);
    assert_eq!(numbers, (StorageLimit::Bytes, 901, 100, 1000));
}

#[test]
fn uploads_that_no_release_names_have_a_bound_of_their_own() {
    let quota = Quota::NONE;
    let full = |used: &Usage, needed| used.check_room(&needed, &quota).map_err(|full| full.of);
    let mut used = usage(MAX_UNNAMED_BYTES, 1);
    assert_eq!(full(&used, other(1, 1)), Err(StorageLimit::UnnamedBytes));
    assert_eq!(full(&used, files(1, 1, false)), Ok(()));
    used.name_objects(amount(1, 0));
    assert_eq!(full(&used, other(1, 1)), Ok(()));
    let used = usage(1, MAX_UNNAMED_OBJECTS);
    assert_eq!(full(&used, other(1, 1)), Err(StorageLimit::UnnamedObjects));
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
    // Its process has ended without storing it, and its time is over.
    usage.begin_upload("crashed", tally(7, 7), at(10_000));
    usage.begin_upload("before", tally(20, 2), at(10_200));
    usage.begin_listing(at(10_260), at(10_260));
    assert!(usage.is_doubtful);
    usage.begin_upload("meanwhile", tally(30, 3), at(10_300));
    usage.end_upload("meanwhile", tally(30, 3), false);
    // The listing came too early for both.
    usage.end_listing(at(10_260), listed(50, 5));
    assert_eq!(usage.tally.stored, amount(100, 10));
    assert!(!usage.is_doubtful);
    // And the next one has only what is there.
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
    usage.begin_upload("one", tally(30, 3), Timestamp::from_unix(1));
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
    let listed = Listed {
        stored: amount(100, 10),
        not_current: amount(40, 4),
        unreached: amount(10, 1),
    };
    // counted, corrected: within the bounds a former release may have named some of them.
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
fn owners_are_warned_once_until_less_than_80_percent_is_used() {
    let warned = |usage: &mut Usage| usage.take_warning(&QUOTA).is_some();
    let mut usage = usage(799, 1);
    assert!(!warned(&mut usage));
    for (bytes, is_warned) in [(800, true), (900, false), (799, false), (800, true)] {
        usage.tally.stored.bytes = bytes;
        assert_eq!(warned(&mut usage), is_warned, "{bytes}");
    }
    assert!(!usage.is_near(&Quota::NONE));
}
