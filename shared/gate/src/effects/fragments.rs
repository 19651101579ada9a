//! Finds the code of a skill: its scripts, and in Markdown the fenced blocks and the commands
//! between back ticks.

use super::program::Language;

/// A piece of code in a text.
pub(super) struct Fragment {
    pub language: Language,
    /// Where it begins in the text.
    pub start: usize,
    pub text: String,
    /// Whether each offset in the text is one of the file.
    pub is_exact: bool,
    /// Whether it is a command between back ticks in prose.
    pub is_span: bool,
}

/// Returns the code in a file, by its name and first line.
pub(super) fn find_code(path: &str, raw: &str) -> Vec<Fragment> {
    let whole = |language| {
        vec![Fragment {
            language,
            start: 0,
            text: raw.to_owned(),
            is_exact: true,
            is_span: false,
        }]
    };
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending {
        "sh" | "bash" | "zsh" | "fish" | "ksh" | "command" => whole(Language::Shell),
        "py" | "pyw" | "rb" => whole(Language::Python),
        "js" | "mjs" | "cjs" | "ts" | "tsx" | "jsx" | "php" | "go" | "java" | "kt" | "cs"
        | "swift" => whole(Language::JavaScript),
        "ps1" | "psm1" => whole(Language::PowerShell),
        "md" | "mdx" | "markdown" | "mdc" | "rst" | "adoc" | "txt" => find_in_markdown(raw),
        "json" | "jsonc" => {
            let mut found = Vec::new();
            find_values(raw, 0, &mut found);
            found
        }
        "yaml" | "yml" => vec![Fragment {
            language: Language::Shell,
            start: 0,
            text: without_keys(raw),
            is_exact: true,
            is_span: false,
        }],
        "toml" | "xml" | "csv" | "svg" | "html" | "css" | "lock" => Vec::new(),
        _ if matches!(name.as_str(), "makefile" | "dockerfile" | "justfile") => {
            whole(Language::Shell)
        }
        _ if raw.starts_with("#!") => {
            let line = raw.lines().next().unwrap_or_default();
            whole(if line.contains("python") || line.contains("ruby") {
                Language::Python
            } else if line.contains("node") || line.contains("deno") || line.contains("bun") {
                Language::JavaScript
            } else if line.contains("pwsh") {
                Language::PowerShell
            } else {
                Language::Shell
            })
        }
        _ => find_in_markdown(raw),
    }
}

/// The language that the label of a fenced block names; `None` for data.
fn language_of(label: &str) -> Option<Language> {
    let label = label.trim().to_ascii_lowercase();
    let label = label
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    Some(match label {
        "python" | "py" | "python3" | "ruby" | "rb" => Language::Python,
        "javascript" | "js" | "jsx" | "mjs" | "typescript" | "ts" | "tsx" | "node" | "php"
        | "go" | "java" => Language::JavaScript,
        "powershell" | "ps1" | "pwsh" | "ps" => Language::PowerShell,
        "json" | "json5" | "jsonc" | "jsonl" | "yaml" | "yml" | "toml" | "ini" | "xml" | "csv"
        | "diff" | "mermaid" | "html" | "css" | "sql" | "rust" | "rs" | "c" | "cpp" | "kotlin"
        | "swift" | "cs" | "csharp" => return None,
        _ => Language::Shell,
    })
}

fn find_in_markdown(raw: &str) -> Vec<Fragment> {
    let mut found = Vec::new();
    let mut start = 0;
    // The mark of the open block, its language, and where its text begins.
    let mut open: Option<(&str, Option<Language>, usize)> = None;
    for line in raw.split_inclusive('\n') {
        let text = line.trim_start_matches(['>', ' ', '\t']);
        let length = text.len() - text.trim_start_matches(['`', '~']).len();
        let mark = &text[..length];
        match open {
            Some((fence, language, from))
                if mark.starts_with(fence) && text[length..].trim().is_empty() =>
            {
                match language {
                    Some(language) => found.push(Fragment {
                        language,
                        start: from,
                        text: unquoted(&raw[from..start]),
                        is_exact: true,
                        is_span: false,
                    }),
                    None => find_values(&raw[from..start], from, &mut found),
                }
                open = None;
            }
            Some(_) => {}
            None if length >= 3 && !text[length..].contains('`') => {
                open = Some((mark, language_of(&text[length..]), start + line.len()));
            }
            None => find_spans(line, start, &mut found),
        }
        start += line.len();
    }
    // A block without an end lasts to the end of the text.
    if let Some((_, Some(language), from)) = open {
        let text = unquoted(&raw[from..]);
        found.push(Fragment {
            language,
            start: from,
            text,
            is_exact: true,
            is_span: false,
        });
    }
    found
}

/// Replaces the marks of a block quote by blanks, so that no offset changes.
fn unquoted(text: &str) -> String {
    if !text.trim_start().starts_with('>') {
        return text.to_owned();
    }
    let lines = text.split_inclusive('\n').map(|line| {
        let rest = line.trim_start_matches(['>', ' ']);
        " ".repeat(line.len() - rest.len()) + rest
    });
    lines.collect()
}

/// Values of JSON that are commands: texts with a blank, between quotation marks.
fn find_values(text: &str, start: usize, found: &mut Vec<Fragment>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'"', &bytes[at..]) {
        let from = at + open + 1;
        let mut end = from;
        let mut value = Vec::new();
        while let Some(byte) = bytes.get(end).filter(|byte| **byte != b'"') {
            if *byte == b'\\' {
                end += 1;
                match bytes.get(end) {
                    Some(b'n') => value.push(b'\n'),
                    Some(other) => value.push(*other),
                    None => break,
                }
            } else {
                value.push(*byte);
            }
            end += 1;
        }
        if value.contains(&b' ') {
            found.push(Fragment {
                language: Language::Shell,
                start: start + from,
                text: String::from_utf8_lossy(&value).into_owned(),
                is_exact: false,
                is_span: false,
            });
        }
        at = (end + 1).min(bytes.len());
    }
}

/// Replaces the keys of YAML by blanks, so that commands in it begin their lines.
fn without_keys(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let rest = line.trim_start_matches([' ', '-']);
        let key = rest
            .find(": ")
            .or_else(|| rest.trim_end().strip_suffix(':').map(str::len));
        let is_key = |key: &usize| {
            rest[..*key]
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        };
        let Some(key) = key.filter(is_key) else {
            return line.to_owned();
        };
        let value = rest[key + 1..].trim_start_matches([' ', '|', '>', '-']);
        " ".repeat(line.len() - value.len()) + value
    });
    lines.collect()
}

/// Commands between back ticks in a line of prose.
fn find_spans(line: &str, start: usize, found: &mut Vec<Fragment>) {
    let mut at = 0;
    while let Some(open) = line[at..].find('`') {
        let from = at + open + 1;
        let Some(length) = line[from..].find('`') else {
            return;
        };
        let text = &line[from..from + length];
        if text.contains(' ') {
            found.push(Fragment {
                language: Language::Shell,
                start: start + from,
                text: text.to_owned(),
                is_exact: true,
                is_span: true,
            });
        }
        at = from + length + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_markdown_is_found_with_its_place() {
        let raw = "# a\nRun `cat x | y` and `z`.\n\n  ```python\n  a = 1\n  ```\n> ```\n> b c\n> ```\n```json\n{}\n```\n~~~js\nd\n";
        let found = find_code("SKILL.md", raw);
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.language, one.text.trim()))
            .collect();
        assert_eq!(
            shown,
            [
                (Language::Shell, "cat x | y"),
                (Language::Python, "a = 1"),
                (Language::Shell, "b c"),
                (Language::JavaScript, "d"),
            ]
        );
        for one in &found {
            let there = &raw[one.start..one.start + one.text.len()];
            assert_eq!(there.replace('>', " "), one.text);
        }
    }

    #[test]
    fn scripts_are_known_by_name_or_first_line() {
        for (path, raw, language) in [
            ("a/b.PY", "", Language::Python),
            ("run", "#!/usr/bin/env node\n", Language::JavaScript),
            ("run", "#!/bin/sh\n", Language::Shell),
            ("Makefile", "", Language::Shell),
            ("x.ps1", "", Language::PowerShell),
        ] {
            assert_eq!(find_code(path, raw)[0].language, language, "{path}");
        }
        let values = find_code("a.json", r#"{"a": "cat \"x\" | y", "b": 1, "c": "d"}"#);
        assert_eq!(
            (values.len(), values[0].text.as_str()),
            (1, "cat \"x\" | y")
        );
        let yaml = find_code("a.yml", "run: |\n  cat x\n- run: cat y\n");
        assert_eq!(yaml[0].text, "      \n  cat x\n       cat y\n");
    }
}
