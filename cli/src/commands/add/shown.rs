//! Findings as compilers show them, in the text of files that may lie on the disk or only in memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use annotate_snippets::{Group, Level as Shown, Renderer};
use vault_skill::{
    finding::{Finding, Level, View},
    gate::RawFile,
};

use crate::{
    Context,
    excerpt::Line,
    ui::{Warning, clean},
};

/// Largest file that is kept to be quoted, in bytes.
const MOST: usize = 256 << 10;

/// The text of a skill's files.
pub struct Texts {
    base: PathBuf,
    /// Of a fetched skill; otherwise the disk is read.
    files: Option<HashMap<String, String>>,
}

impl Texts {
    /// Those of a folder of this machine, or of the folder that a SKILL.md stands in.
    pub fn of_folder(source: &str) -> Self {
        let path = Path::new(source);
        let base = if path.is_file() {
            path.parent().unwrap_or(path).to_owned()
        } else {
            path.to_owned()
        };
        Self { base, files: None }
    }

    /// Those of a fetched skill.
    pub fn of_fetched(shown: &str, files: &[RawFile]) -> Self {
        let texts = files
            .iter()
            .filter(|file| file.bytes.len() <= MOST)
            .filter_map(|file| {
                Some((
                    file.path.clone(),
                    String::from_utf8(file.bytes.clone()).ok()?,
                ))
            });
        Self {
            base: PathBuf::from(shown),
            files: Some(texts.collect()),
        }
    }

    fn path(&self, inner: &str) -> String {
        clean(&self.base.join(inner).display().to_string(), 300)
    }

    fn line(&self, inner: &str, number: u32) -> Option<Line> {
        match &self.files {
            Some(files) => Line::of(files.get(inner)?, number),
            None => Line::of_file(&self.base.join(inner), number),
        }
    }

    /// A finding as compilers show them: the rule, the place, the line of the file, and what mends it.
    pub fn excerpt(&self, finding: &Finding) -> String {
        let level = match finding.level {
            Level::Warning => Shown::WARNING,
            Level::Flag | Level::Error => Shown::ERROR,
        };
        let message = clean(&finding.message, 400);
        let path = self.path(&finding.path);
        let title = level.primary_title(&message).id(finding.rule);
        let line = finding.line.and_then(|line| self.line(&finding.path, line));
        let mut group = match (&line, finding.path.is_empty()) {
            (Some(line), _) => title.element(line.snippet(path, finding.column)),
            (None, false) => title.element(annotate_snippets::Origin::path(path)),
            (None, true) => Group::with_title(title),
        };
        if finding.view != View::Raw {
            let text = format!("{}, it reads: {}", finding.view.as_str(), finding.excerpt);
            group = group.element(Shown::NOTE.message(clean(&text, 400)));
        }
        if !finding.why.is_empty() {
            let text = format!("{} ({}, {})", finding.why, finding.id, finding.category);
            group = group.element(Shown::NOTE.message(text));
        }
        if !finding.hint.is_empty() {
            group = group.element(Shown::HELP.message(clean(&finding.hint, 400)));
        }
        Renderer::styled().render(&[group])
    }

    /// Warnings of the gate about a skill that was admitted.
    pub fn warn(&self, context: &Context, findings: &[Finding]) {
        for finding in findings {
            context.ui.warn(Warning {
                code: finding.rule.to_owned(),
                message: finding.message.clone(),
                hint: Some(finding.hint.clone()).filter(|hint| !hint.is_empty()),
                path: Some(self.path(&finding.path)),
                line: finding.line,
            });
        }
    }
}
