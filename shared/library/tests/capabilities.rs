//! Tests of what a caller may use of a library, by its `policy.toml`.

use crate::support::{Home, approve_all};
use vault_library::{
    Capabilities, POLICY_FILE, ResolveError, ResolveInput, read_policy, resolve_capabilities,
};
use vault_testing::assert_matches;

const POLICY: &str = "[profiles.dev]\ngroups = [\"own\"]\n[groups.own]\nskills = [\"alpha\"]\n[callers.ann]\nprofile = \"dev\"\n";

fn ask(home: &Home, caller: &str) -> Result<Capabilities, ResolveError> {
    resolve_capabilities(&ResolveInput {
        vault: &home.vault,
        policy: None,
        callers: &[caller],
        bound_profile: None,
        platform: "cli",
        channel: None,
        query: Some("the work of alpha"),
    })
}

fn names(answer: &Capabilities) -> Vec<&str> {
    let skills = answer.skills.iter();
    skills.map(|skill| skill.name.as_str()).collect()
}

#[test]
fn the_policy_of_the_vault_decides_over_what_is_installed() {
    let home = Home::new(1);
    home.add("alpha", "one");
    home.add("beta", "two");
    let nobody = ask(&home, "ann").unwrap();
    assert!(nobody.skills.is_empty() && read_policy(&home.vault).unwrap().is_none());
    let reason = "there is no policy, so nothing is granted";
    assert_eq!(nobody.reasons, [reason]);

    let file = home.vault.paths().root.join(POLICY_FILE);
    std::fs::write(&file, POLICY).unwrap();
    assert!(ask(&home, "ann").unwrap().skills.is_empty());
    approve_all(&home.vault).unwrap();
    let ann = ask(&home, "ann").unwrap();
    assert_eq!(names(&ann), ["alpha"]);
    assert!(ann.skills[0].score > 0.0 && ann.matched_groups == ["own"]);
    assert!(ask(&home, "eve").unwrap().skills.is_empty());

    // The same request has the same cache key until a skill changes.
    assert_eq!(ask(&home, "ann").unwrap(), ann);
    home.add("beta", "three");
    assert_ne!(ask(&home, "ann").unwrap().cache_key, ann.cache_key);
}

#[test]
fn a_policy_with_an_error_grants_nothing_to_anybody() {
    let home = Home::new(2);
    home.add("alpha", "one");
    let file = home.vault.paths().root.join(POLICY_FILE);
    let wrong = POLICY.replace("\"own\"]", "\"owm\"]");
    std::fs::write(&file, &wrong).unwrap();
    let error = approve_all(&home.vault).unwrap_err();
    let message = "2:11: there is no group `owm` (defined: `own`)";
    assert_eq!(error.to_string(), message);
    assert!(ask(&home, "ann").unwrap().skills.is_empty());
    // A version of vault may read a policy that an earlier one approved more strictly.
    std::fs::write(&file, POLICY).unwrap();
    approve_all(&home.vault).unwrap();
    let id = home.vault.id();
    let approved = home.path(&format!("config/vaults/{id}/approved/policy.toml"));
    std::fs::write(&approved, wrong).unwrap();
    let error = ask(&home, "ann").unwrap_err().to_string();
    assert_eq!(error, format!("policy.toml: {message}"));
    std::fs::write(&approved, [0xff]).unwrap();
    assert_matches!(ask(&home, "ann"), Err(ResolveError::NotText));
}
