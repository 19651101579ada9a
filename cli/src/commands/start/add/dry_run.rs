//! `vault add --dry-run`: what adding would do, without a change.

use serde_json::{Value, json};
use vault_gate::{Level, Outcome, package::Package, report};
use vault_library::{
    Origin, Vault,
    admit::{self, AdmitError, Candidate, Neighbours, examine},
    run,
};
use vault_store::clock::{Clock as _, SystemClock};

use super::gather::{Gathered, Item};
use crate::{
    admission::{allow_hint, refused, texts::Texts},
    audit_report::judged,
    context::Context,
    errors::{Exit, Failure},
    output::{BAD, BOLD, DIM, GOOD, Report, clean, count, paint, single_or_list, size, thousands},
};

/// Runs `--dry-run`: checks the skills and changes nothing. A missing vault is not created.
pub fn check(context: &Context, items: Vec<Gathered<Item>>) -> Result<Report, Failure> {
    let single = items.len() == 1;
    let here = context.existing_vault()?;
    let mut neighbours = Neighbours::new(here.as_ref(), SystemClock.now());
    let mut data = Vec::new();
    let mut lines = Vec::new();
    let mut exit = Exit::Done;
    for item in items {
        let examined = item.and_then(
            |Item {
                 shown,
                 source,
                 options,
             }| {
                let texts = Texts::of_source(&shown, &source);
                match examine(source, &options, &mut neighbours) {
                    Ok(candidate) => match preview(here.as_ref(), &shown, &candidate) {
                        Ok(preview) => {
                            let findings = candidate.package.findings.iter();
                            let all = context.ui.is_verbose();
                            let findings =
                                findings.filter(|finding| all || finding.level > Level::Note);
                            lines.extend(findings.map(|finding| texts.excerpt(finding)));
                            lines.extend(preview.lines);
                            data.push(preview.data);
                        }
                        Err(error) => {
                            let failure = refused(&shown, &texts, error);
                            return Err((shown, failure));
                        }
                    },
                    Err(AdmitError::Blocked { findings }) => {
                        exit = Exit::Gate;
                        lines.extend(findings.iter().map(|finding| texts.excerpt(finding)));
                        let line = format!("{BAD}✗ would be refused{BAD:#} {}", clean(&shown, 200));
                        lines.push(line);
                        lines.extend(allow_hint(findings.iter()).map(|hint| format!("  {hint}")));
                        let outcome = Outcome::Blocked;
                        let blocked = judged(&shown, outcome, None, &findings);
                        let mut blocked = report::json::skill(&blocked);
                        blocked["source"] = json!(shown);
                        blocked["outcome"] = json!(outcome);
                        data.push(blocked);
                    }
                    Err(error) => {
                        let failure = refused(&shown, &texts, error);
                        return Err((shown, failure));
                    }
                }
                Ok(())
            },
        );
        let Err((shown, failure)) = examined else {
            continue;
        };
        if single {
            return Err(failure);
        }
        context.ui.note_failure(&failure);
        // A blocked skill outweighs every other failure.
        if exit != Exit::Gate {
            exit = failure.exit();
        }
        let (code, message) = (failure.code.word(), &failure.message);
        data.push(json!({
            "source": shown, "code": code, "message": message, "hint": failure.hint,
        }));
    }
    Ok(Report::new(single_or_list(data), lines.join("\n")).exit(exit))
}

/// What adding a skill would do.
struct Preview {
    data: Value,
    lines: Vec<String>,
}

/// Describes the change, files, environment and context cost of a skill that passes the gate.
fn preview(
    vault: Option<&Vault>,
    shown: &str,
    candidate: &Candidate,
) -> Result<Preview, AdmitError> {
    let package = &candidate.package;
    let kept = match vault {
        Some(vault) => admit::preview(vault, candidate)?,
        None => None,
    };
    let is_installed = || {
        let found = vault.map(|vault| run::find(vault, &package.name));
        matches!(found, Some(Ok(Some(found))) if found.origin == Origin::Local)
    };
    let (admission, mark) = match kept {
        Some(_) => ("unchanged", paint(DIM, "= unchanged")),
        None if is_installed() => ("updated", paint(GOOD, "✓ would be updated")),
        None => ("added", paint(GOOD, "✓ would be added")),
    };
    let mut lines = vec![format!("{mark} {}", clean(shown, 200))];
    lines.extend(package_lines(candidate));
    let files = package.files.iter().map(|file| {
        let mode = format!("{:04o}", file.mode.bits());
        json!({ "path": file.path, "size": file.bytes.len(), "mode": mode })
    });
    let files: Vec<Value> = files.collect();
    let (listed, read) = context_cost(package);
    let verdict = judged(shown, candidate.outcome, Some(package), &package.findings);
    let mut data = report::json::skill(&verdict);
    let more = json!({
        "source": shown, "outcome": candidate.outcome, "admission": admission,
        "provenance": candidate.provenance.identifier,
        "revision": candidate.provenance.revision, "files": files,
        "environment": package.frontmatter.requires_secrets,
        "context": { "listed_tokens": listed, "read_tokens": read },
        "included": candidate.secrets.included, "left_out": candidate.secrets.left_out,
    });
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    Ok(Preview { data, lines })
}

/// Lists the name, files, environment and context cost of a skill.
fn package_lines(candidate: &Candidate) -> Vec<String> {
    let package = &candidate.package;
    let bytes: usize = package.files.iter().map(|file| file.bytes.len()).sum();
    let (files, bytes) = (count(package.files.len(), "file"), size(bytes as u64));
    let name = paint(BOLD, &package.name);
    let from = clean(candidate.provenance.identifier.as_str(), 200);
    let mut lines = vec![format!("  {name}  {files}, {bytes}, from {from}")];
    for file in &package.files {
        let mark = if file.mode.bits() & 0o111 == 0 {
            ' '
        } else {
            '*'
        };
        let path = clean(file.path.as_str(), 200);
        let bytes = size(file.bytes.len() as u64);
        lines.push(format!("{DIM}    {path}{mark} {bytes}{DIM:#}"));
    }
    for secret in &package.frontmatter.requires_secrets {
        let need = if secret.required { "needs" } else { "may use" };
        let name = clean(&secret.name, 100);
        lines.push(format!("  {need} the variable {name}"));
    }
    let (listed, read) = context_cost(package);
    let (listed, read) = (count(listed, "token"), thousands(read));
    lines.push(format!(
        "  costs about {listed} of context in every list, {read} when it is read"
    ));
    lines
}

/// Estimates the context that a skill costs an agent when it is listed and when it is read, in
/// tokens of four bytes.
fn context_cost(package: &Package) -> (u64, u64) {
    let own = &package.frontmatter;
    let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
    let listed = own.name.len() + own.description.len();
    (tokens(listed), tokens(package.document().len()))
}
