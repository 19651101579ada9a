//! What the gate reaches must not fall: the figures of `figures.json`, and the reach that is asked
//! for.
//!
//! Runs where the labelled skills lie beside the checkout; says so where they do not.

use std::path::Path;

use gate_accuracy::{CORPORA, Rate, groups, measure, rewritten, unpack};

/// Of a hundred blocked malicious skills, how many each rewrite must leave blocked.
const REWRITTEN: usize = 95;

/// Group, whether it is malicious, and in a thousand: the least blocked and found where it is, the
/// most where it is not.
const REACH: [(&str, bool, usize, usize); 4] = [
    ("real campaigns", true, 940, 980),
    ("all malicious", true, 700, 850),
    ("real skills, wild", false, 20, 60),
    ("real skills, curated", false, 20, 60),
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
    for part in ["tuned", "held out"] {
        let of_part = skills.iter().filter(|skill| skill.part() == part);
        for ((name, group), (wanted, malicious, block, say)) in
            groups(of_part).into_iter().zip(REACH)
        {
            assert_eq!(name, wanted);
            let rate = Rate::of(group.into_iter());
            let key = format!("{name}, {part}");
            let kept = |word: &str| {
                usize::try_from(figures[&key][word].as_u64().expect("a number"))
                    .expect("a small one")
            };
            assert_eq!(rate.count, kept("skills"), "{key}: the set itself changed");
            let (now, before) = ([rate.blocked, rate.said], [kept("blocked"), kept("said")]);
            let (share, reach) = (
                [rate.blocked_permille(), rate.said_permille()],
                [block, say],
            );
            for at in 0..2 {
                let holds = if malicious {
                    now[at] >= before[at] && share[at] >= reach[at]
                } else {
                    now[at] <= before[at] && share[at] <= reach[at]
                };
                assert!(holds, "{key}: {rate:?}, it was {}", figures[&key]);
            }
        }
    }
    let (blocked, left) = rewritten(skills.iter());
    for (name, count, lost) in left {
        assert!(
            count * 100 >= blocked * REWRITTEN,
            "{name}: {count} of {blocked} are still blocked; {} are not",
            lost.len()
        );
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
