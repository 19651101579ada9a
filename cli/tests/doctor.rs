//! `vault doctor --fix` on a machine with an agent.

use std::os::unix::fs::symlink;

use crate::support::Home;

#[test]
fn fix_does_what_needs_no_decision_and_lists_the_rest() {
    let home = Home::new();
    home.write(".claude/settings.json", "{}");
    home.skill("pdf", "Fills forms. Use when a form is to be filled.");
    home.run(&["add", "pdf"]).ok();
    home.run(&["sync-profiles", "--discover"]).ok();
    let link = home.path(".claude/skills/pdf");
    let target = std::fs::read_link(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    let gone = home.path(".claude/skills/gone");
    symlink(target.with_file_name("gone"), &gone).unwrap();
    let unsigned = home.write(
        ".vault/skills/csv/SKILL.md",
        "---\nname: csv\ndescription: Reads tables.\n---\nRead.\n",
    );

    let examine = |arguments: &[&str]| {
        let ended = home.run(arguments);
        assert_eq!(ended.code, 3, "{}", ended.out);
        ended.json["data"].clone()
    };
    let codes = |report: &serde_json::Value| {
        let findings = report["findings"].as_array().unwrap().iter();
        let codes = findings.map(|finding| finding["code"].as_str().unwrap().to_owned());
        codes.collect::<Vec<_>>()
    };
    let before = codes(&examine(&["doctor"]));
    for code in [
        "dangling_link",
        "links_stale",
        "skill_unsigned",
        "no_recovery_key",
    ] {
        assert!(
            before.iter().any(|found| found == code),
            "{code}: {before:?}"
        );
    }
    assert!(!link.exists());

    let fixed = examine(&["doctor", "--fix"]);
    assert_eq!(codes(&fixed), ["skill_unsigned", "no_recovery_key"]);
    assert_eq!(fixed["relinked"], true);
    assert!(link.exists() && gone.symlink_metadata().is_err());
    // Signing is the owner's decision.
    assert!(unsigned.exists() && unsigned.symlink_metadata().unwrap().is_file());

    let again = examine(&["doctor", "--fix"]);
    assert_eq!(again["relinked"], false);
}
