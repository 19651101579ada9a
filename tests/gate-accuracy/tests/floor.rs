//! What the gate reaches must not fall: the figures of `figures.json`, and the reach that is asked for.
//!
//! Runs where the labelled skills lie beside the checkout; says so where they do not.

use std::path::Path;

use gate_accuracy::{CORPORA, Rate, groups, measure, unpack};

/// Group, least blocked and least said in a thousand where they are malicious, most where they are real.
const REACH: [(&str, bool, usize, usize); 4] = [
    ("real campaigns", true, 950, 980),
    ("all malicious", true, 650, 850),
    ("real skills, wild", false, 15, 80),
    ("real skills, curated", false, 20, 100),
];

#[test]
fn detection_does_not_fall_and_false_alarms_do_not_rise() {
    if !Path::new(CORPORA).join("dev.tar.zst").exists() {
        eprintln!("left out: the labelled skills are not beside the checkout");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    unpack(folder.path()).expect("the archive can be unpacked");
    let skills = measure(folder.path(), 1).expect("every skill can be read");
    let figures: serde_json::Value =
        serde_json::from_str(include_str!("../figures.json")).expect("the figures are JSON");
    for ((name, group), (wanted, malicious, block, say)) in groups(&skills).into_iter().zip(REACH) {
        assert_eq!(name, wanted);
        let rate = Rate::of(group.into_iter());
        let kept = |word: &str| {
            usize::try_from(figures[name][word].as_u64().expect("a number")).expect("a small one")
        };
        assert_eq!(rate.count, kept("skills"), "{name}: the set itself changed");
        if malicious {
            assert!(
                rate.blocked >= kept("blocked") && rate.said >= kept("said"),
                "{name} fell: {rate:?}, {}",
                figures[name]
            );
            assert!(
                rate.blocked_permille() >= block && rate.said_permille() >= say,
                "{name}: {rate:?}"
            );
        } else {
            assert!(
                rate.blocked <= kept("blocked") && rate.said <= kept("said"),
                "{name} rose: {rate:?}, {}",
                figures[name]
            );
            assert!(
                rate.blocked_permille() <= block && rate.said_permille() <= say,
                "{name}: {rate:?}"
            );
        }
    }
    let readable: Vec<_> = skills
        .iter()
        .filter(|skill| skill.is_real() && skill.readable)
        .collect();
    let refused = readable
        .iter()
        .filter(|skill| skill.shape.is_some())
        .count();
    assert!(
        refused * 200 <= readable.len(),
        "the structure refuses {refused} of {}",
        readable.len()
    );
}
