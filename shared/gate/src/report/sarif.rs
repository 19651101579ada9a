//! An audit as SARIF 2.1.0, for code scanning services.
//!
//! Every rule is listed once in the tool's description, sorted by id, so that `ruleIndex` means the
//! same in every run of a version. A result without a position in a file points at the first line
//! of the skill's document, because services require a position.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Audit, Audited, Located, json, percent_encoded};
use crate as gate;
use crate::finding::{Finding, Level, Rule, Severity, structure_rules};
use vault_format::hash::Digest;
use vault_format::text::printable;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// Name under which fingerprints are stored. If they are computed in another way, the number must
/// change.
const FINGERPRINT: &str = "vaultSkillFinding/v1";
const MAX_MESSAGE_CHARS: usize = 900;

/// Renders the audit as one line of JSON. `version` is that of the program.
pub fn render(audit: &Audit, version: &str) -> String {
    json::escape_invisible(&sarif_log(audit, version).to_string())
}

/// Returns the audit as a SARIF log.
pub fn sarif_log(audit: &Audit, version: &str) -> Value {
    let rules = described_rules(audit);
    let places: BTreeMap<&str, usize> = rules
        .keys()
        .enumerate()
        .map(|(place, id)| (*id, place))
        .collect();
    let results: Vec<Value> = audit
        .skills
        .iter()
        .flat_map(|skill| skill_results(audit, skill, &places))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "vault",
                "version": version,
                "semanticVersion": version,
                "rules": rules.values().map(RuleDescription::to_json).collect::<Vec<_>>(),
            }},
            // Columns of findings count characters, not UTF-16 units.
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": { "SRCROOT": { "description": { "text": "where the audit was started" } } },
            "invocations": [{
                "executionSuccessful": audit.is_complete(),
                "toolExecutionNotifications": notifications(audit),
            }],
            "results": results,
        }],
    })
}

/// A rule as SARIF describes it, with the fix that its findings suggest.
struct RuleDescription<'a> {
    name: &'a str,
    id: &'a str,
    category: &'a str,
    severity: Severity,
    why: &'a str,
    fix: Option<&'a str>,
}

impl<'a> RuleDescription<'a> {
    fn of_rule(rule: &'a Rule) -> Self {
        Self {
            name: rule.name,
            id: rule.id,
            category: rule.category,
            severity: rule.severity,
            why: rule.why,
            fix: None,
        }
    }

    fn of_finding(finding: &'a Finding) -> Self {
        Self {
            name: finding.rule,
            id: finding.id,
            category: finding.category,
            severity: finding.severity,
            why: finding.why,
            fix: None,
        }
    }

    fn to_json(&self) -> Value {
        let short = self.name.replace('-', " ");
        let full = if self.why.is_empty() {
            &short
        } else {
            self.why
        };
        let mut help = full.to_owned();
        if let Some(fix) = self.fix {
            help.push_str(" How to fix: ");
            help.push_str(fix);
            help.push('.');
        }
        help.push_str(" `vault audit <folder>` shows each place and how to fix it.");
        json!({
            "id": self.id,
            "name": to_pascal_case(self.name),
            "shortDescription": { "text": short },
            "fullDescription": { "text": full },
            // The Markdown is the plain text on purpose: hints quote skills, whose text may contain
            // mark-up.
            "help": { "text": escape_brackets(&help), "markdown": escape_brackets(&help) },
            "defaultConfiguration": { "level": match self.severity {
                Severity::Low => "note",
                Severity::Medium => "warning",
                Severity::High | Severity::Critical => "error",
            }},
            "properties": {
                "tags": ["security", format!("external/owasp-ast/{}", self.category)],
                "security-severity": self.severity.score(),
                "problem.severity": match self.severity {
                    Severity::Low => "recommendation",
                    Severity::Medium => "warning",
                    Severity::High | Severity::Critical => "error",
                },
            },
        })
    }
}

/// Turns `download-pipe-shell` into `DownloadPipeShell`.
fn to_pascal_case(name: &str) -> String {
    name.split('-')
        .filter_map(|word| {
            let first = word.chars().next()?;
            Some(first.to_ascii_uppercase().to_string() + &word[first.len_utf8()..])
        })
        .collect()
}

/// Returns every rule of the scan and of the findings, by id.
fn described_rules(audit: &Audit) -> BTreeMap<&str, RuleDescription<'_>> {
    let gate_rules = structure_rules().iter().chain(gate::scan_rules());
    let mut rules: BTreeMap<&str, RuleDescription<'_>> = gate_rules
        .map(|rule| (rule.id, RuleDescription::of_rule(rule)))
        .collect();
    for skill in &audit.skills {
        for Located { finding, .. } in &skill.findings {
            let rule = rules
                .entry(finding.id)
                .or_insert_with(|| RuleDescription::of_finding(finding));
            // Hints of rules about the shape of a skill name what was found, so they fit one
            // finding. Only the scanner's hints fit every finding of their rule.
            let general = !finding.id.starts_with("VG-ST-") && !finding.hint.is_empty();
            if rule.fix.is_none() && general {
                rule.fix = Some(&finding.hint);
            }
        }
    }
    rules
}

fn skill_results(audit: &Audit, skill: &Audited, places: &BTreeMap<&str, usize>) -> Vec<Value> {
    let mut seen = BTreeMap::<&str, usize>::new();
    skill
        .findings
        .iter()
        .map(|Located { finding, .. }| {
            let nth = seen.entry(finding.id).or_default();
            *nth += 1;
            finding_result(audit, skill, finding, places[finding.id], *nth)
        })
        .collect()
}

fn finding_result(
    audit: &Audit,
    skill: &Audited,
    finding: &Finding,
    rule: usize,
    nth: usize,
) -> Value {
    let level = match (finding.level, finding.severity) {
        (Level::Error | Level::Flag, _) => "error",
        (Level::Note, _) | (Level::Warning, Severity::Low) => "note",
        (Level::Warning, _) => "warning",
    };
    let mut region = json!({ "startLine": finding.line.unwrap_or(1).max(1) });
    if let Some(column) = finding.column {
        region["startColumn"] = column.max(1).into();
    }
    // Use the skill's hash and not its path, so that a moved skill keeps its alerts. `nth`
    // distinguishes the results of one rule in one skill.
    let of_what = skill
        .hash
        .map_or_else(|| skill.uri.clone(), |hash| hash.to_string());
    let fingerprint = Digest::of(format!("{of_what}\n{}\n{nth}", finding.id).as_bytes());
    let mut result = json!({
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": level,
        "message": { "text": message_text(finding) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": file_uri(audit, skill, finding), "uriBaseId": "SRCROOT" },
            "region": region,
        }}],
        "partialFingerprints": { FINGERPRINT: fingerprint },
        "properties": {
            "skill": skill.name,
            "verdict": skill.verdict,
            "rule": finding.rule,
            "view": finding.view,
            "security-severity": finding.severity.score(),
            "tags": [finding.category],
        },
    });
    if !finding.steps.is_empty() {
        result["codeFlows"] = code_flows(audit, skill, finding);
    }
    result
}

/// Returns the steps of a finding, which services show one below the other.
fn code_flows(audit: &Audit, skill: &Audited, finding: &Finding) -> Value {
    let steps = finding.steps.iter().map(|step| {
        let place = finding.clone().at(&step.path);
        json!({ "location": {
            "message": { "text": step.what },
            "physicalLocation": {
                "artifactLocation": { "uri": file_uri(audit, skill, &place), "uriBaseId": "SRCROOT" },
                "region": { "startLine": step.line },
            },
        }})
    });
    json!([{ "threadFlows": [{ "locations": steps.collect::<Vec<_>>() }] }])
}

/// Returns the reference of a finding's file, relative to the folder in which the audit was
/// started.
fn file_uri(audit: &Audit, skill: &Audited, finding: &Finding) -> String {
    let mut uri = audit.base.clone();
    if !skill.uri.is_empty() {
        uri.push_str(&skill.uri);
        uri.push('/');
    }
    uri.push_str(&percent_encoded(skill.file_of(finding).as_bytes()));
    uri
}

fn message_text(finding: &Finding) -> String {
    let mut text = to_sentence(&finding.message);
    if !finding.excerpt.is_empty() {
        text.push_str(&format!(
            " It reads ({}): {}",
            finding.view.as_str(),
            finding.excerpt
        ));
    }
    for part in [finding.why, &finding.hint] {
        if !part.is_empty() {
            text.push(' ');
            text.push_str(&to_sentence(part));
        }
    }
    // Cut the text before it is escaped, so that no escape is cut in two.
    let mut cut: String = text.chars().take(MAX_MESSAGE_CHARS).collect();
    if text.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        cut.push('…');
    }
    escape_brackets(&cut)
}

/// Returns the text with a capital letter and a full stop, since services show messages as
/// sentences.
fn to_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let mut out: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    out.push_str(letters.as_str());
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

/// Escapes text so that its brackets do not become a link in a SARIF message.
fn escape_brackets(text: &str) -> String {
    printable(text)
        .replace('\\', "\\\\")
        .replace('[', "\\[")
        .replace(']', "\\]")
}

/// Returns a notification for everything that was not searched or not judged.
fn notifications(audit: &Audit) -> Vec<Value> {
    let skipped = audit.skipped.iter().map(|skipped| {
        let text = format!("{} was not scanned: {}", skipped.path, skipped.reason);
        ("error", "folder-unreadable", text)
    });
    let bounds = audit.bounds.iter().map(|bound| {
        let text = format!("only the first {} {} were scanned", bound.limit, bound.unit);
        ("warning", "bound-reached", text)
    });
    let excluded = audit.excluded.iter().map(|excluded| {
        let text = format!("{} is excluded: {}", excluded.path, excluded.reason);
        ("note", "skill-excluded", text)
    });
    let left_out = audit.left_out.iter().map(|left| {
        let text = format!("{} is left out: {}", left.path, left.message);
        ("note", "skill-left-out", text)
    });
    skipped
        .chain(bounds)
        .chain(excluded)
        .chain(left_out)
        .map(|(level, id, text)| {
            json!({ "level": level, "descriptor": { "id": id }, "message": { "text": escape_brackets(&text) } })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, examples};
    use super::*;
    use crate::finding::Step;
    use std::collections::BTreeSet;
    use vault_format::text::is_invisible;

    /// Checks a log against the schema of SARIF 2.1.0, and against rules of the standard that the
    /// schema cannot express, for the parts that this module writes.
    fn assert_is_sarif(log: &Value) {
        let schema = jsonschema::options().should_validate_formats(true);
        let schema = schema.build(&schema_of_sarif()).expect("a schema");
        let errors: Vec<String> = schema.iter_errors(log).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        let run = &log["runs"][0];
        let rules = array(&run["tool"]["driver"]["rules"]);
        for rule in rules {
            let score = text(&rule["properties"]["security-severity"]);
            let score: f64 = score.parse().unwrap();
            assert!(score > 0.0 && score <= 10.0);
        }
        unique(rules.iter().map(|rule| &rule["id"]));
        for result in array(&run["results"]) {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(rules[index]["id"], result["ruleId"]);
            let place = &result["locations"][0]["physicalLocation"]["artifactLocation"];
            let uri = text(&place["uri"]);
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
            assert!(
                !uri.is_empty() && !uri.starts_with('/') && uri.chars().all(allowed),
                "{uri}"
            );
            assert!(run["originalUriBaseIds"][text(&place["uriBaseId"])].is_object());
            assert_eq!(text(&result["partialFingerprints"][FINGERPRINT]).len(), 64);
        }
    }

    /// The schema that OASIS publishes, from the crate `serde-sarif`. The log also fits that
    /// crate's types.
    fn schema_of_sarif() -> Value {
        let words = ["metadata", "--format-version=1", "--locked"];
        let metadata = std::process::Command::new(env!("CARGO"))
            .args(words)
            .output()
            .expect("cargo");
        let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
        let packages = array(&metadata["packages"]);
        let package = packages
            .iter()
            .find(|package| package["name"] == "serde-sarif");
        let manifest = std::path::Path::new(text(&package.expect("it")["manifest_path"]));
        let schema = std::fs::read(manifest.with_file_name("src").join("schema.json"));
        let mut schema: Value = serde_json::from_slice(&schema.expect("the schema")).expect("JSON");
        // The schema's `language` patterns contain a stray `]` and do not compile; our reports have
        // no `language`.
        for part in ["run", "toolComponent"] {
            schema["definitions"][part]["properties"]["language"] = json!(false);
        }
        schema
    }

    fn array(value: &Value) -> &[Value] {
        value.as_array().unwrap()
    }

    fn text(value: &Value) -> &str {
        value.as_str().unwrap()
    }

    fn unique<'v>(values: impl IntoIterator<Item = &'v Value>) {
        let mut seen = BTreeSet::new();
        for value in values {
            assert!(seen.insert(value.to_string()), "{value} stands twice");
        }
    }

    #[test]
    fn the_log_is_what_the_schema_asks_for() {
        let text_of = render(&examples::audit(), "0.5.0");
        let log: Value = serde_json::from_str(&text_of).unwrap();
        assert_is_sarif(&log);
        serde_json::from_str::<serde_sarif::sarif::Sarif>(&text_of).expect("a consumer reads it");
        let results = array(&log["runs"][0]["results"]);
        let levels: Vec<_> = results
            .iter()
            .map(|result| text(&result["level"]))
            .collect();
        assert_eq!(levels, ["error", "error", "note", "error"]);
        assert_eq!(
            log["runs"][0]["invocations"][0]["executionSuccessful"],
            false
        );
        let notes = array(&log["runs"][0]["invocations"][0]["toolExecutionNotifications"]);
        assert_eq!(notes.len(), 4);
        let mut clean = examples::audit();
        clean
            .skills
            .retain(|skill| skill.verdict == Verdict::Accepted);
        clean.left_out.clear();
        clean.skipped.clear();
        clean.excluded.clear();
        clean.bounds.clear();
        let log = sarif_log(&clean, "0.5.0");
        assert_is_sarif(&log);
        assert_eq!(array(&log["runs"][0]["results"]).len(), 0);
        assert_eq!(
            log["runs"][0]["invocations"][0]["executionSuccessful"],
            true
        );
    }

    #[test]
    fn every_rule_of_the_gate_has_its_help() {
        let log = sarif_log(&examples::audit(), "0.5.0");
        let rules = array(&log["runs"][0]["tool"]["driver"]["rules"]);
        assert_eq!(
            rules.len(),
            structure_rules().len() + gate::scan_rules().count()
        );
        assert!(rules.is_sorted_by(|a, b| text(&a["id"]) < text(&b["id"])));
        let tag = array(&rules[0]["properties"]["tags"]);
        assert!(text(&tag[1]).starts_with("external/owasp-ast/AST"));
    }

    #[test]
    fn fingerprints_hold_while_the_skill_does_and_tell_results_apart() {
        let prints = |audit: &Audit| -> Vec<Value> {
            let log = sarif_log(audit, "0.5.0");
            let results = array(&log["runs"][0]["results"]);
            results
                .iter()
                .map(|result| result["partialFingerprints"].clone())
                .collect()
        };
        let audit = examples::audit();
        let before = prints(&audit);
        unique(&before);
        let mut moved = audit.clone();
        moved.skills[1].uri = "elsewhere".to_owned();
        assert_eq!(prints(&moved), before);
        let mut changed = audit;
        changed.skills[1].hash = Some(Digest::of(b"other"));
        let after = prints(&changed);
        assert!(after[0] != before[0] && after[2] == before[2]);
    }

    #[test]
    fn the_steps_of_an_effect_are_a_code_flow_and_members_of_the_finding() {
        let mut audit = examples::audit();
        let finding = audit.skills[1].findings[0].clone();
        let step = |path: &str, line, what| Step {
            path: path.to_owned(),
            line,
            what,
        };
        let steps = vec![step("a b.sh", 3, "read"), step("SKILL.md", 9, "sent")];
        audit.skills[1].findings[0].finding = finding.finding.over(steps);
        let log: Value = serde_json::from_str(&render(&audit, "0.5.0")).unwrap();
        assert_is_sarif(&log);
        let flow = &log["runs"][0]["results"][0]["codeFlows"][0]["threadFlows"][0]["locations"];
        let shown: Vec<_> = flow.as_array().unwrap().iter().collect();
        let place = |at: usize| &shown[at]["location"]["physicalLocation"];
        assert_eq!(shown.len(), 2, "{flow}");
        assert!(text(&place(0)["artifactLocation"]["uri"]).ends_with("/a%20b.sh"));
        assert_eq!(place(1)["region"], json!({ "startLine": 9 }));
        assert_eq!(shown[1]["location"]["message"]["text"], "sent");
        let lines = json::render_lines(&audit);
        let line: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
        assert_eq!(
            line["findings"][0]["steps"],
            json!([
                { "path": "a b.sh", "line": 3, "what": "read" },
                { "path": "SKILL.md", "line": 9, "what": "sent" },
            ])
        );
    }

    #[test]
    fn hostile_texts_make_no_link_no_path_and_no_escape() {
        let mut audit = examples::audit();
        audit.base = "sub%20dir/".to_owned();
        let text_of = render(&audit, "0.5.0");
        assert!(!text_of.chars().any(is_invisible));
        let log: Value = serde_json::from_str(&text_of).unwrap();
        assert_is_sarif(&log);
        let result = &log["runs"][0]["results"][0];
        let message = text(&result["message"]["text"]);
        assert!(
            message.contains("\\[x\\](http") && message.contains("Look at `it`"),
            "{message}"
        );
        let uri = text(&result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]);
        assert!(
            uri.starts_with("sub%20dir/%1B%5B2J") && uri.ends_with("/run%20me.sh"),
            "{uri}"
        );
        let whole = &log["runs"][0]["results"][2]["locations"][0]["physicalLocation"];
        assert_eq!(whole["artifactLocation"]["uri"], "sub%20dir/w/SKILL.md");
        assert_eq!(whole["region"], json!({ "startLine": 1 }));
    }
}
