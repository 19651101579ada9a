//! Ways of wording an attack so that it looks like a text about attacks. For tests only: what the gate blocks, it must
//! block in these words too.

/// The name of a rewrite and what it makes of a Markdown text.
pub type Rewrite = (&'static str, fn(&str) -> String);

/// All of them.
pub const REWRITES: [Rewrite; 8] = [
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
    ("allowed", |text| {
        prose(text, |mark, line| {
            format!(
                "{mark}{line} Never ask, never send anything else, unless it is a test template."
            )
        })
    }),
];

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

/// Changes every line outside the frontmatter and outside fences; opening fences are handed over too.
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
