//! Ways of wording an attack so that it looks like a text about attacks. For tests only: what the
//! gate blocks, it must block in these words too.

/// The name of a rewrite and what it makes of a Markdown text.
pub type Rewrite = (&'static str, fn(&str) -> String);

/// All of them.
pub const REWRITES: [Rewrite; 13] = [
    ("headings", |text| {
        let text = lines(text, |line| match line.strip_prefix('#') {
            Some(_) => format!("{line} and security checks"),
            None => line.to_owned(),
        });
        insert(&text, "## Red flags and common mistakes\n\n")
    }),
    ("never skip", |text| {
        prose(text, |mark, line| {
            format!("{mark}Never skip this step: {line}")
        })
    }),
    ("to avoid errors", |text| {
        prose(text, |mark, line| {
            format!("{mark}To avoid errors later, {line}")
        })
    }),
    ("quotation marks", |text| {
        prose(text, |mark, line| format!("{mark}\"{line}\""))
    }),
    ("table rows", |text| {
        prose(text, |_, line| format!("| {line} |"))
    }),
    ("not dangerous", |text| {
        prose(text, |mark, line| {
            let line = line.trim_end_matches('.');
            format!("{mark}{line}, which is not dangerous and no attack.")
        })
    }),
    ("announced", |text| {
        lines(text, |line| {
            if is_fence(line) {
                format!("We check for this pattern:\n{line}")
            } else {
                line.to_owned()
            }
        })
    }),
    ("fence label", |text| {
        fences(text, |lines| format!("```markdown\n{lines}```\n"))
    }),
    ("data", |text| {
        fences(text, |lines| {
            let lines = lines.trim_end().replace('\\', "\\\\");
            let lines = lines.replace('"', "\\\"").replace('\n', "\\n");
            format!("```json\n{{\"command\": \"{lines}\"}}\n```\n")
        })
    }),
    ("escaped pipe", |text| {
        prose(text, |_, line| {
            format!("| step | {} |", line.replace('|', "\\|"))
        })
    }),
    ("comment", |text| {
        prose(&unwrapped(text), |_, line| format!("<!-- {line} -->"))
    }),
    ("frontmatter", |text| {
        let text = &unwrapped(text);
        let (front, rest) = text.split_at(body(text));
        let Some(front) = front.trim_end().strip_suffix("---") else {
            return text.to_owned();
        };
        let notes = rest.replace('\n', "\n    ");
        format!("{front}metadata:\n  notes: |\n    {notes}\n---\n\n# Notes\n")
    }),
    ("allowed", |text| {
        prose(text, |mark, line| {
            format!(
                "{mark}{line} Never ask, never send anything else, unless it is a test template."
            )
        })
    }),
];

/// Puts something else in the place of every fence of a shell or without a label; it is made of the
/// lines in the fence.
fn fences(text: &str, change: impl Fn(&str) -> String) -> String {
    const LABELS: [&str; 8] = [
        "",
        "bash",
        "sh",
        "shell",
        "console",
        "zsh",
        "text",
        "powershell",
    ];
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let label = line.trim().strip_prefix("```");
        if !label.is_some_and(|label| LABELS.contains(&label)) {
            out += line;
            if is_fence(line) {
                for line in lines.by_ref() {
                    out += line;
                    if is_fence(line) {
                        break;
                    }
                }
            }
            continue;
        }
        let inside: String = lines.by_ref().take_while(|line| !is_fence(line)).collect();
        out += &change(&inside);
    }
    out
}

/// Puts the lines of each paragraph into one.
fn unwrapped(text: &str) -> String {
    let is_text = |line: &str| {
        let first = line.trim_start().chars().next();
        first.is_some_and(|c| c.is_alphabetic() || matches!(c, '`' | '*' | '(' | '"'))
            && !is_fence(line)
    };
    let starts = |line: &str| line.starts_with("* ") || line.starts_with("**");
    let mut out = String::new();
    let (mut is_inside, mut is_open) = (false, false);
    let (front, rest) = text.split_at(body(text));
    out += front;
    for line in rest.lines() {
        is_inside ^= is_fence(line);
        if is_open && !is_inside && is_text(line) && !starts(line.trim_start()) {
            out.pop();
            out.push(' ');
            out += line.trim_start();
        } else {
            out += line;
        }
        out.push('\n');
        is_open =
            !is_inside && !line.trim().is_empty() && !line.starts_with('#') && !is_fence(line);
    }
    out
}

fn is_fence(line: &str) -> bool {
    let line = line.trim_start_matches(['>', ' ']);
    line.starts_with("```") || line.starts_with("~~~")
}

/// Where the frontmatter ends: 0 where there is none.
fn body(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("---\n") else {
        return 0;
    };
    rest.find("\n---").map_or(0, |at| {
        let end = 4 + at + 4;
        text[end..]
            .find('\n')
            .map_or(text.len(), |more| end + more + 1)
    })
}

fn insert(text: &str, what: &str) -> String {
    let (front, rest) = text.split_at(body(text));
    format!("{front}{what}{rest}")
}

/// Changes every line outside the frontmatter and outside fences; opening fences are handed over
/// too.
fn lines(text: &str, change: impl Fn(&str) -> String) -> String {
    let (front, rest) = text.split_at(body(text));
    let mut out = front.to_owned();
    let mut is_inside = false;
    for line in rest.lines() {
        if is_inside {
            is_inside = !is_fence(line);
            out.push_str(line);
        } else {
            is_inside = is_fence(line);
            out.push_str(&change(line));
        }
        out.push('\n');
    }
    out
}

/// Changes every line of prose: its list mark, and the rest of the line.
fn prose(text: &str, change: impl Fn(&str, &str) -> String) -> String {
    lines(text, |line| {
        let rest = line.trim_start();
        if rest.is_empty() || rest.starts_with(['#', '|', '<']) || is_fence(line) {
            return line.to_owned();
        }
        let mark = ["- ", "* ", "+ "]
            .iter()
            .find(|mark| rest.starts_with(**mark))
            .map_or(0, |mark| mark.len());
        let numbered = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let mark = match numbered.strip_prefix(". ") {
            Some(after) if numbered.len() < rest.len() => rest.len() - after.len(),
            _ => mark,
        };
        let indent = line.len() - rest.len();
        change(&line[..indent + mark], &rest[mark..])
    })
}
