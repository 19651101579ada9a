//! Reads the code of all files of a skill together, for the rules about effects.

use super::segment::Kind;
use super::text::Source;
use super::{Scan, total::Hit};
use crate::effects;
use crate::finding::Finding;
use crate::rule::{Act, ScanRule};
use crate::rules::effects::FETCHED_RUN;
use vault_format::bundle::File;

/// Adds what the code of the skill does. Skills without a word of what is looked for are not read.
pub(super) fn scan_code(files: &[File], scan: &mut Scan) {
    let mut words = effects::WordsFound::default();
    for file in files {
        words.add(&file.bytes);
        scan.work += file.bytes.len() as u64;
    }
    if !words.is_enough() || scan.is_spent() {
        return;
    }
    let texts: Vec<(&str, Source)> = files
        .iter()
        .filter_map(|file| {
            let path = file.path.as_str();
            let source = Source::read_text(&file.bytes, Kind::is_script(path, &file.bytes))?;
            Some((path, source))
        })
        .collect();
    let sources: Vec<effects::Source<'_>> = texts
        .iter()
        .map(|(path, source)| effects::Source {
            path,
            raw: &source.raw,
        })
        .collect();
    let (hits, work) = effects::find_effects(&sources, &scan.publisher);
    scan.work += work;
    for (rule, act, finding) in hits {
        if !is_reported(&scan.hits, rule, &finding) {
            scan.hits.push(Hit { rule, act, finding });
        }
    }
}

/// Tells whether a rule about lines blocks for the same reason on the same line. An exception for
/// another reason must not hide what the code does.
fn is_reported(hits: &[Hit], rule: &ScanRule, finding: &Finding) -> bool {
    let families: &[&str] = if rule.rule.id == FETCHED_RUN.rule.id {
        &["VG-DR-"]
    } else {
        &["VG-EX-", "VG-CR-"]
    };
    hits.iter().any(|hit| {
        hit.act == Act::Block
            && hit.finding.line == finding.line
            && hit.finding.path == finding.path
            && families
                .iter()
                .any(|family| hit.rule.rule.id.starts_with(family))
    })
}
