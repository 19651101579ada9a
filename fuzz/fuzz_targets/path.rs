//! Paths: of files in a skill, of requests under `/v/`, of places that skills come from. What is read has one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_format::name::{ActionName, AgentId, SkillName, Slug};
use vault_format::path::{FilePath, check_paths};
use vault_format::provenance::ProvenanceId;
use vault_format::request::route;
use vault_format::root::{KeyFingerprint, KeyName, VaultId};

fuzz_target!(|data: &str| {
    if let Some(route) = route::parse_route(data) {
        assert_eq!(route.to_string(), data);
    }
    let mut paths: Vec<FilePath> = data.lines().filter_map(|line| line.parse().ok()).collect();
    let clash = check_paths(&paths).is_err();
    paths.reverse();
    assert_eq!(
        check_paths(&paths).is_err(),
        clash,
        "whether paths clash does not depend on their order"
    );
    for path in &paths {
        assert!(
            !path.as_str().starts_with('/')
                && path
                    .as_str()
                    .split('/')
                    .all(|segment| !matches!(segment, "" | "." | ".."))
        );
    }
    for line in data.lines() {
        same(line, line.parse::<FilePath>());
        same(line, line.parse::<ProvenanceId>());
        same(line, line.parse::<Slug>());
        same(line, line.parse::<SkillName>());
        same(line, line.parse::<ActionName>());
        same(line, line.parse::<AgentId>());
        same(line, line.parse::<VaultId>());
        same(line, line.parse::<KeyFingerprint>());
        same(line, line.parse::<KeyName>());
        if let Some(name) = SkillName::derive(line) {
            assert_eq!(SkillName::derive(name.as_str()), Some(name));
        }
    }
});

fn same<T: std::fmt::Display, E>(text: &str, parsed: Result<T, E>) {
    if let Ok(value) = parsed {
        assert_eq!(value.to_string(), text);
    }
}
