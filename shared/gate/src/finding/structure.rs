//! The rules about the shape of a skill. The id of a rule never changes, even if its wording does.

use super::{Rule, Severity};

/// All rules of this kind, sorted by name. The id of a removed rule is never used again.
pub(super) const RULES: [Rule; 37] = [
    Rule::new("VG-ST-001", "action-command", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-002", "action-cwd", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-003", "bin", "AST04", Severity::Medium, ""),
    Rule::new(
        "VG-ST-004",
        "description-length",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new("VG-ST-005", "description-long", "AST04", Severity::Low, ""),
    Rule::new(
        "VG-ST-006",
        "description-missing",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new("VG-ST-007", "description-short", "AST04", Severity::Low, ""),
    Rule::new(
        "VG-ST-035",
        "description-template",
        "AST04",
        Severity::Medium,
        "Agents choose a skill by its description.",
    ),
    Rule::new("VG-ST-008", "file-count", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-009", "file-count-high", "AST04", Severity::Low, ""),
    Rule::new(
        "VG-ST-032",
        "file-kind",
        "AST04",
        Severity::Medium,
        "A link or device leads out of what was checked.",
    ),
    Rule::new(
        "VG-ST-036",
        "file-left-out",
        "AST04",
        Severity::Medium,
        "What is left out is not judged, but an agent in that folder can run it.",
    ),
    Rule::new("VG-ST-010", "file-size", "AST04", Severity::Medium, ""),
    Rule::new(
        "VG-ST-033",
        "file-unreadable",
        "AST04",
        Severity::Medium,
        "What was not read was not checked.",
    ),
    Rule::new(
        "VG-ST-011",
        "frontmatter-colon",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new(
        "VG-ST-012",
        "frontmatter-missing",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new("VG-ST-013", "frontmatter-name", "AST04", Severity::Low, ""),
    Rule::new(
        "VG-ST-014",
        "frontmatter-size",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new(
        "VG-ST-015",
        "frontmatter-spelling",
        "AST04",
        Severity::Low,
        "",
    ),
    Rule::new("VG-ST-016", "frontmatter-type", "AST04", Severity::Low, ""),
    Rule::new(
        "VG-ST-017",
        "frontmatter-unclosed",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new(
        "VG-ST-018",
        "frontmatter-yaml",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new(
        "VG-ST-019",
        "hidden-text",
        "AST04",
        Severity::High,
        "What people cannot see can still steer an agent.",
    ),
    Rule::new(
        "VG-ST-037",
        "lfs-pointer",
        "AST04",
        Severity::Medium,
        "The file is only a pointer, so a signature would cover other content than agents need.",
    ),
    Rule::new("VG-ST-020", "name-hidden", "AST04", Severity::High, ""),
    Rule::new("VG-ST-021", "name-length", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-022", "name-missing", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-023", "name-unusable", "AST04", Severity::Medium, ""),
    Rule::new(
        "VG-ST-024",
        "native-executable",
        "AST02",
        Severity::Medium,
        "Nobody can read what a compiled program does before it runs.",
    ),
    Rule::new("VG-ST-025", "path", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-026", "path-clash", "AST04", Severity::Medium, ""),
    Rule::new(
        "VG-ST-027",
        "skill-md-encoding",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new(
        "VG-ST-028",
        "skill-md-missing",
        "AST04",
        Severity::Medium,
        "",
    ),
    Rule::new("VG-ST-029", "skill-md-name", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-030", "skill-md-size", "AST04", Severity::Medium, ""),
    Rule::new("VG-ST-031", "total-size", "AST04", Severity::Medium, ""),
    Rule::new(
        "VG-ST-034",
        "variable-reserved",
        "AST03",
        Severity::High,
        "A setting of vault can be a token or a password.",
    ),
];
/// Returns the rule with this name. A name that is not in the table gets the id `VG-ST-000`, which
/// tests reject.
pub(super) fn structure_rule(name: &'static str) -> Rule {
    // No `Option`: the names are literals of this crate, and a wrong one must fail a test and not
    // stop the scan of a user.
    match RULES.binary_search_by(|rule| rule.name.cmp(name)) {
        Ok(place) => RULES[place],
        Err(_) => Rule::new("VG-ST-000", name, "AST04", Severity::Medium, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_ids_are_their_own() {
        assert!(RULES.is_sorted_by(|a, b| a.name < b.name));
        let ids: std::collections::BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        assert_eq!(structure_rule("path-clash").name, "path-clash");
        assert_eq!(structure_rule("no such rule").id, "VG-ST-000");
    }
}
