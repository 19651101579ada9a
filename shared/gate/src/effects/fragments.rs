//! Finds the code of a skill: its scripts, and in Markdown the fenced blocks and the commands
//! between back ticks.

use super::program::Language;
use serde_json::Value;

/// Longest JSON that is read for lists of arguments.
const LONGEST_JSON: usize = 1 << 20;

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
        "sh" | "bash" | "zsh" | "fish" | "ksh" | "command" | "bat" | "cmd" => {
            whole(Language::Shell)
        }
        "py" | "pyw" | "rb" => whole(Language::Python),
        "js" | "mjs" | "cjs" | "ts" | "tsx" | "jsx" | "mts" | "cts" | "php" | "pl" | "go"
        | "java" | "kt" | "cs" | "swift" => whole(Language::JavaScript),
        "ps1" | "psm1" => whole(Language::PowerShell),
        "md" | "mdx" | "markdown" | "mdc" | "rst" | "adoc" | "txt" => find_in_markdown(raw),
        "json" | "jsonc" => {
            let mut found = Vec::new();
            find_values(raw, 0, &mut found);
            find_lists(raw, &mut found);
            found
        }
        "html" | "htm" | "vue" | "svelte" => find_scripts(raw, 0),
        "yaml" | "yml" => vec![Fragment {
            language: Language::Shell,
            start: 0,
            text: without_keys(raw),
            is_exact: true,
            is_span: false,
        }],
        "toml" | "xml" | "csv" | "svg" | "css" | "lock" => Vec::new(),
        _ if matches!(name.as_str(), "makefile" | "dockerfile" | "justfile") => {
            vec![Fragment {
                text: without_marks(raw),
                ..shell_of(0, String::new())
            }]
        }
        _ if raw.starts_with("#!") => {
            let line = raw.lines().next().unwrap_or_default();
            let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
            whole(if has(&["python", "ruby", "uv run", "pipx"]) {
                Language::Python
            } else if has(&["node", "deno", "bun", "tsx", "php", "perl"]) {
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
    // `{python}` and `{.python}` are labels, too.
    let label = label
        .trim_matches([' ', '{', '.', '\t'])
        .to_ascii_lowercase();
    let label = label
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    Some(match label {
        "ruby" | "rb" | "ipython" | "ipython3" => Language::Python,
        label if label.starts_with("py") => Language::Python,
        "javascript" | "js" | "jsx" | "mjs" | "cjs" | "typescript" | "ts" | "tsx" | "node"
        | "php" | "perl" | "go" | "java" => Language::JavaScript,
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
    let mut is_yaml = false;
    found.extend(find_hooks(raw));
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
                        text: match language {
                            Language::Shell => without_marks(&unquoted(&raw[from..start])),
                            _ => unquoted(&raw[from..start]),
                        },
                        is_exact: true,
                        is_span: false,
                    }),
                    None => {
                        if is_yaml {
                            found.push(shell_of(from, without_keys(&raw[from..start])));
                        }
                        find_values(&raw[from..start], from, &mut found);
                        found.extend(find_scripts(&raw[from..start], from));
                    }
                }
                open = None;
            }
            Some(_) => {}
            None if length >= 3 && !text[length..].contains('`') => {
                open = Some((mark, language_of(&text[length..]), start + line.len()));
                is_yaml = matches!(text[length..].trim(), "yaml" | "yml");
            }
            None => find_spans(line, start, &mut found),
        }
        start += line.len();
    }
    // A block without an end lasts to the end of the text.
    if let Some((_, None, from)) = open {
        find_values(&raw[from..], from, &mut found);
    }
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

fn shell_of(start: usize, text: String) -> Fragment {
    Fragment {
        language: Language::Shell,
        start,
        text,
        is_exact: true,
        is_span: false,
    }
}

/// Replaces what stands before commands of a Dockerfile and a Makefile by blanks, so that no offset
/// changes.
fn without_marks(text: &str) -> String {
    let marks = ["RUN ", "CMD ", "ENTRYPOINT ", "@"];
    if !marks.iter().any(|mark| text.contains(mark)) {
        return text.to_owned();
    }
    let lines = text.split_inclusive('\n').map(|line| {
        let rest = line.trim_start_matches([' ', '\t']);
        let marks = ["RUN ", "CMD ", "ENTRYPOINT ", "@-", "@"];
        let mark = marks.iter().find(|mark| rest.starts_with(**mark));
        // `me@host:~$ command`
        let prompt = || {
            let end = rest.find("$ ")? + 2;
            let is_prompt = rest[..end].contains('@') && !rest[..end - 1].contains([' ', '"', '=']);
            is_prompt.then_some(end)
        };
        let length = mark.map(|mark| mark.len()).or_else(prompt).unwrap_or(0);
        " ".repeat(line.len() - rest.len() + length) + &rest[length..]
    });
    lines.collect()
}

/// Commands in the frontmatter: those of hooks.
fn find_hooks(raw: &str) -> Option<Fragment> {
    let end = raw.strip_prefix("---\n")?.find("\n---")? + 5;
    let front = raw.get(..end)?;
    front.contains("hooks:").then_some(())?;
    let lines = front.split_inclusive('\n').map(|line| {
        let key = line.trim_start_matches([' ', '-']).split(':').next();
        if matches!(key, Some("command" | "run")) {
            without_keys(line).replace('"', " ")
        } else {
            " ".repeat(line.len().saturating_sub(1)) + "\n"
        }
    });
    Some(shell_of(0, lines.collect()))
}

/// Scripts in HTML.
fn find_scripts(text: &str, start: usize) -> Vec<Fragment> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find("<script") {
        let Some(begin) = text[at + open..].find('>') else {
            break;
        };
        let from = at + open + begin + 1;
        let length = text[from..].find("</script").unwrap_or(text.len() - from);
        found.push(Fragment {
            language: Language::JavaScript,
            ..shell_of(start + from, text[from..from + length].to_owned())
        });
        at = from + length;
    }
    found
}

/// Programs of JSON that have their arguments in a list: `"command": "curl", "args": […]`.
fn find_lists(text: &str, found: &mut Vec<Fragment>) {
    let Some(start) = text.find("\"args\"").filter(|_| text.len() < LONGEST_JSON) else {
        return;
    };
    let Ok(whole) = serde_json::from_str::<Value>(text) else {
        return;
    };
    let mut open = vec![&whole];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                open.extend(members.values());
                if let (Some(Value::String(program)), Some(Value::Array(words))) =
                    (members.get("command"), members.get("args"))
                {
                    let words = words.iter().filter_map(Value::as_str);
                    let words = words.map(|word| format!(" '{}'", word.replace('\'', "'\\''")));
                    found.push(Fragment {
                        is_exact: false,
                        ..shell_of(start, program.clone() + &words.collect::<String>())
                    });
                }
            }
            _ => {}
        }
    }
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
