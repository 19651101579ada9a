//! Neighbours of the examples: the same text with another host, folder, file name or variable, with
//! its options in another order, and with words that rules look for inside longer ones. What a rule
//! decides about an example, it decides about each of them.

use super::words::ending_of;
use crate::finding::{Finding, Level};
use crate::rule::{Act, ScanRule};
use crate::scan::scan_files;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use vault_format::bundle::File;
use vault_format::manifest::Mode;

/// Words of rules that one neighbour holds inside longer ones, so that a name stays short.
const WORDS_AT_ONCE: usize = 8;

/// Kinds of neighbours.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Host,
    Folder,
    FileName,
    Variable,
    Options,
    Beside,
}

/// Names that no rule knows, to put in the place of those of an example.
const NEW_NAMES: [&str; 3] = ["quartz", "nimbus", "harbor"];

fn expression(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a good expression")
}

static URL: LazyLock<Regex> = LazyLock::new(|| expression(r"(?i)\b(https?|ftp)://([a-z0-9.-]+)"));
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    expression(r#"(?m)(^|[\s"'=(`@<>])((?:~|\.\.?|\$\w+|\$\{\w+\})?/[\w@.*/-]+|[\w-]+/[\w.*/-]+)"#)
});
static FILE_NAME: LazyLock<Regex> = LazyLock::new(|| {
    expression(r#"(?m)(^|[\s"'=(`<>])([a-zA-Z][\w-]*)(\.(?:sh|py|js|txt|json|bin|zip))\b"#)
});
static SHELL_VARIABLE: LazyLock<Regex> =
    LazyLock::new(|| expression(r"(?m)(?:^|[\s;&])(?:export |local )?([A-Za-z_]\w*)="));
static CODE_VARIABLE: LazyLock<Regex> =
    LazyLock::new(|| expression(r"(?m)^\s*(?:const |let |var )?([A-Za-z_]\w*) = "));

/// The literals of the file that a rule stands in, but for its examples and messages.
struct Vocabulary {
    /// Every word in a literal of any rule.
    all: BTreeSet<String>,
    /// The words of each file with rules, by the beginning of their ids.
    of_family: BTreeMap<String, Vec<String>>,
    /// The words of the files without rules, which many rules ask.
    shared: Vec<String>,
    /// Every literal that is the name of a host.
    hosts: BTreeSet<String>,
}

impl Vocabulary {
    fn read() -> Self {
        let mut texts: BTreeSet<&str> = BTreeSet::new();
        for rule in super::all() {
            texts.extend(rule.bad.iter().chain(rule.good));
            texts.extend([rule.message, rule.mend, rule.rule.why, rule.rule.name]);
        }
        let mut vocabulary = Self {
            all: BTreeSet::new(),
            of_family: BTreeMap::new(),
            shared: Vec::new(),
            hosts: BTreeSet::new(),
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules");
        for entry in std::fs::read_dir(folder).expect("the folder of the rules") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name == "neighbours.rs" || ending_of(name) != "rs" {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("the source of a rule");
            let source = source
                .split("#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default();
            let literals: Vec<String> = literals(source)
                .into_iter()
                .filter(|literal| !texts.contains(literal.as_str()))
                .collect();
            vocabulary
                .hosts
                .extend(literals.iter().filter(|literal| is_host(literal)).cloned());
            let words: BTreeSet<String> = literals
                .iter()
                .flat_map(|literal| words_of(literal))
                .collect();
            vocabulary.all.extend(words.iter().cloned());
            let ids = expression(r"\bVG-[A-Z]+");
            let words = words.into_iter().filter(|word| word.len() >= 3);
            match ids.find(source) {
                Some(id) => {
                    vocabulary
                        .of_family
                        .insert(id.as_str().to_owned(), words.collect());
                }
                None => vocabulary.shared.extend(words),
            }
        }
        vocabulary
    }

    fn of(&self, rule: &ScanRule) -> &[String] {
        let family = rule
            .rule
            .id
            .rsplit_once('-')
            .map_or("", |(family, _)| family);
        self.of_family.get(family).map_or(&[], Vec::as_slice)
    }

    /// Whether a rule knows this name, or a part of it.
    fn knows(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let mut parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
        self.all.contains(&name) || parts.any(|part| part.len() > 1 && self.all.contains(part))
    }

    fn knows_host(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        let is_number = host
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is_reserved = host.contains("example");
        is_number
            || !host.contains('.')
            || (!is_reserved
                && self.hosts.iter().any(|known| {
                    host == known || host.ends_with(&format!(".{known}")) || known.ends_with(host)
                }))
    }
}

fn is_host(literal: &str) -> bool {
    literal.contains('.')
        && !literal.starts_with('.')
        && literal
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}

/// The string literals of a source.
fn literals(source: &str) -> Vec<String> {
    let code = expression(r"(?m)^\s*//.*$").replace_all(source, "");
    let literal =
        expression(r##"(?s)b?r#"(.*?)"#|b?r"(.*?)"|'(?:\\.|[^\\'])'|"((?:[^"\\]|\\.)*)""##);
    let mut found = Vec::new();
    for captures in literal.captures_iter(&code) {
        if let Some(raw) = captures.get(1).or(captures.get(2)) {
            found.push(raw.as_str().to_owned());
        } else if let Some(text) = captures.get(3) {
            let text = text.as_str().replace("\\n", "\n").replace("\\t", "\t");
            found.push(text.replace("\\\"", "\"").replace("\\\\", "\\"));
        }
    }
    found
}

/// The words of a literal, which may be an expression: an escape is no letter of a word.
fn words_of(literal: &str) -> BTreeSet<String> {
    let plain = expression(r"\\x[0-9a-f]{2}|\\.")
        .replace_all(literal, " ")
        .to_ascii_lowercase();
    plain
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| word.len() >= 2 && word.bytes().any(|byte| byte.is_ascii_alphabetic()))
        .map(ToOwned::to_owned)
        .collect()
}

/// The neighbours of an example with names made from these.
fn neighbours(example: &str, names: [&str; 3], vocabulary: &Vocabulary) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    let [name, other, third] = names;
    let hosts = URL.replace_all(example, |captures: &regex::Captures<'_>| {
        if vocabulary.knows_host(&captures[2].to_ascii_lowercase()) {
            captures[0].to_owned()
        } else {
            format!("{}://{name}.{other}-{third}.dev", &captures[1])
        }
    });
    found.push((Kind::Host, hosts.into_owned()));
    found.push((
        Kind::Folder,
        with_path(example, vocabulary, |is_file| !is_file, name),
    ));
    found.push((
        Kind::FileName,
        with_path(example, vocabulary, |is_file| is_file, name),
    ));
    let named = FILE_NAME
        .captures_iter(example)
        .map(|captures| captures[2].to_owned());
    found.push((Kind::FileName, renamed(example, named, vocabulary, name)));
    for expression in [&SHELL_VARIABLE, &CODE_VARIABLE] {
        let named = expression
            .captures_iter(example)
            .map(|captures| captures[1].to_owned());
        let name = name.replace('-', "_");
        found.push((Kind::Variable, renamed(example, named, vocabulary, &name)));
    }
    found.extend(
        reordered(example)
            .into_iter()
            .map(|text| (Kind::Options, text)),
    );
    found.push((Kind::Beside, with_words_beside(example, &names)));
    // The first line names the file of the example; it stays.
    if let Some((first, _)) = example
        .split_once('\n')
        .filter(|_| example.starts_with('@'))
    {
        for (_, text) in &mut found {
            let rest = text
                .split_once('\n')
                .map_or("", |(_, rest)| rest)
                .to_owned();
            *text = format!("{first}\n{rest}");
        }
    }
    found.retain(|(_, text)| text != example);
    found
}

/// An example with other folders, or other file names, on its paths.
fn with_path(
    example: &str,
    vocabulary: &Vocabulary,
    is_meant: impl Fn(bool) -> bool,
    name: &str,
) -> String {
    let replace = |captures: &regex::Captures<'_>| {
        let path = &captures[2];
        let count = path.split('/').count();
        let parts = path.split('/').enumerate().map(|(at, part)| {
            let is_file = at + 1 == count && part.contains('.');
            // What stands below `/dev` is a device by its name.
            let is_device = path.starts_with("/dev/");
            let is_plain = part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            let (stem, ending) = match part.rsplit_once('.') {
                Some((stem, ending)) if is_file => (stem, format!(".{ending}")),
                _ => (part, String::new()),
            };
            let is_kept =
                is_device || stem.len() < 2 || part.starts_with('.') || vocabulary.knows(stem);
            if is_plain && is_meant(is_file) && !is_kept {
                format!("{name}{ending}")
            } else {
                part.to_owned()
            }
        });
        let parts: Vec<String> = parts.collect();
        format!("{}{}", &captures[1], parts.join("/"))
    };
    PATH.replace_all(example, replace).into_owned()
}

/// An example with more words at the end of each sentence, and in a comment behind each line of
/// code.
fn with_words_beside(example: &str, words: &[&str; 3]) -> String {
    // JSON has no comments.
    if example
        .lines()
        .next()
        .is_some_and(|first| ending_of(first) == "json")
    {
        return example.to_owned();
    }
    let mut is_code = example.starts_with('@');
    let comment = match example.lines().next() {
        Some(first) if matches!(ending_of(first), "js" | "ts") => "//",
        _ => "#",
    };
    // A word behind `-` would be an option.
    let words = words.join(" ").replace('-', " ");
    let lines = example.lines().enumerate().map(|(at, line)| {
        if line.starts_with("```") {
            is_code = !is_code;
            return line.to_owned();
        }
        match line.strip_suffix('.') {
            Some(sentence) if !is_code => format!("{sentence} with {words}."),
            _ if is_code && at > 0 && !line.ends_with('\\') && !line.trim().is_empty() => {
                format!("{line}  {comment} {words}")
            }
            _ => line.to_owned(),
        }
    });
    let mut text = lines.collect::<Vec<_>>().join("\n");
    if example.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// An example with one name for another wherever it stands as a word.
fn renamed(
    example: &str,
    names: impl Iterator<Item = String>,
    vocabulary: &Vocabulary,
    name: &str,
) -> String {
    let names: BTreeSet<String> = names.collect();
    let mut text = example.to_owned();
    for (at, old) in names
        .iter()
        .filter(|old| !vocabulary.knows(old))
        .enumerate()
    {
        let word = expression(&format!(r"\b{}\b", regex::escape(old)));
        text = word.replace_all(&text, format!("{name}{at}")).into_owned();
    }
    text
}

/// Puts the options of a command, each with its value, and its other words into an order.
type Order = fn(Vec<Vec<String>>, Vec<String>) -> Vec<String>;

/// An example with the options of its commands in other orders: reversed, one by one, and behind
/// what they are given with.
fn reordered(example: &str) -> Vec<String> {
    let command = expression(r"(?m)\b(curl|wget|rm)((?: +[^\s|;&`<>()]+)+)");
    let changed = |order: Order| {
        let replace = |captures: &regex::Captures<'_>| {
            // Words inside quotation marks are one word, which this does not take apart.
            // Nor does it know a redirection with its number.
            if captures[2].contains(['\'', '"', '\\', '$']) || captures[2].ends_with(" 2") {
                return captures[0].to_owned();
            }
            let (options, rest) = options_of(&captures[1], &captures[2]);
            let words = order(options, rest);
            format!("{} {}", &captures[1], words.join(" "))
        };
        command.replace_all(example, replace).into_owned()
    };
    vec![
        changed(|mut options, rest| {
            options.reverse();
            options.into_iter().flatten().chain(rest).collect()
        }),
        changed(|options, rest| {
            rest.into_iter()
                .chain(options.into_iter().flatten())
                .collect()
        }),
        changed(|options, rest| {
            let single = options
                .into_iter()
                .flat_map(|option| match option.as_slice() {
                    [letters] if letters.len() > 2 && !letters.starts_with("--") => letters[1..]
                        .chars()
                        .map(|letter| format!("-{letter}"))
                        .collect(),
                    _ => option,
                });
            single.chain(rest).collect()
        }),
    ]
}

/// The options of a command, each with its value, and its other words.
fn options_of(program: &str, words: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let with_value = match program {
        "curl" => "odHXuAeFTbcmw",
        "wget" => "OPU",
        _ => "",
    };
    let mut options = Vec::new();
    let mut rest = Vec::new();
    let mut words = words.split_whitespace().map(ToOwned::to_owned).peekable();
    while let Some(word) = words.next() {
        if !word.starts_with('-') || word == "-" {
            rest.push(word);
            continue;
        }
        let takes = !word.starts_with("--") && word.ends_with(|letter| with_value.contains(letter))
            || word.starts_with("--data")
            || word.starts_with("--upload");
        let value = words.next_if(|next| takes && !word.contains('=') && !next.starts_with('-'));
        options.push([word].into_iter().chain(value).collect());
    }
    (options, rest)
}

/// Neighbours that are another case: the rule, the kind, and why.
const OTHER_CASES: [(&str, Kind, &str); 1] = [(
    "tool-from-its-own-page",
    Kind::Host,
    "the rule is about a page whose name is that of the tool",
)];

/// A way to put a word inside a longer one.
type Form = fn(&str) -> String;

/// A bad example gets words at the beginning and at the end of a longer one, too; a rule that finds
/// inflections would find those in a good one.
const FORMS: [Form; 3] = [
    |word| format!("x{word}x"),
    |word| format!("{word}x"),
    |word| format!("x{word}"),
];

/// Three names that hold these words inside longer ones.
fn longer_words(words: &[String], form: Form) -> [String; 3] {
    let part = |from: usize| {
        let words = words.iter().skip(from).step_by(3);
        words.map(|word| form(word)).collect::<Vec<_>>().join("-")
    };
    let or_new = |name: String, new: &str| {
        if name.is_empty() {
            new.to_owned()
        } else {
            name
        }
    };
    let [first, second, third] = NEW_NAMES;
    [
        or_new(part(0), first),
        or_new(part(1), second),
        or_new(part(2), third),
    ]
}

/// What the gate finds in an example, hints included.
fn findings(example: &str) -> Vec<Finding> {
    let (path, text) = match example.strip_prefix('@') {
        Some(rest) => rest.split_once('\n').expect("a path, then the text"),
        None => ("SKILL.md", example),
    };
    let file = File {
        path: path.parse().expect("a good path"),
        mode: Mode::Plain,
        bytes: text.as_bytes().to_vec(),
    };
    scan_files(&[file], &[], None).into_findings(true)
}

/// Whether a bad example is still judged as its rule says.
fn is_found(rule: &ScanRule, findings: &[Finding]) -> bool {
    findings.iter().any(|finding| match rule.act {
        Act::Block => finding.level == Level::Flag,
        Act::Warn | Act::Hint(_) => finding.id == rule.rule.id || finding.level == Level::Flag,
    })
}

/// Whether a good example is found after all.
fn is_alarm(rule: &ScanRule, findings: &[Finding]) -> bool {
    findings.iter().any(|finding| {
        finding.id == rule.rule.id && (rule.act != Act::Block || finding.level == Level::Flag)
    })
}

/// The neighbours of one example of a rule, tried.
struct Trial<'a> {
    rule: &'a ScanRule,
    example: &'a str,
    is_bad: bool,
    vocabulary: &'a Vocabulary,
    takes_words_beside: bool,
    seen: BTreeSet<String>,
    tried: BTreeMap<Kind, usize>,
    wrong: BTreeSet<String>,
}

impl Trial<'_> {
    /// The kinds of neighbours with these names that are judged otherwise, each with one of them.
    fn differing(&mut self, names: [&str; 3]) -> BTreeMap<Kind, String> {
        let is_other = |kind: Kind| {
            let mut others = OTHER_CASES.iter();
            others.any(|(name, of, _)| *name == self.rule.rule.name && *of == kind)
        };
        let mut neighbours = neighbours(self.example, names, self.vocabulary);
        neighbours.retain(|(kind, _)| *kind != Kind::Beside || self.takes_words_beside);
        neighbours.retain(|(kind, text)| !is_other(*kind) && self.seen.insert(text.clone()));
        for (kind, _) in &neighbours {
            *self.tried.entry(*kind).or_default() += 1;
        }
        neighbours.retain(|(_, text)| {
            let found = findings(text);
            if self.is_bad {
                !is_found(self.rule, &found)
            } else {
                is_alarm(self.rule, &found)
            }
        });
        neighbours.into_iter().collect()
    }

    fn run(&mut self) {
        if self.report(&NEW_NAMES.map(ToOwned::to_owned), "") {
            return;
        }
        let vocabulary = self.vocabulary;
        self.run_with(vocabulary.of(self.rule));
        // Beside the example they were tried with the rules that name them.
        self.takes_words_beside = false;
        self.run_with(&vocabulary.shared);
    }

    fn run_with(&mut self, words: &[String]) {
        let forms = if self.is_bad { 3 } else { 1 };
        for form in &FORMS[..forms] {
            for words in words.chunks(WORDS_AT_ONCE * 3) {
                if self.report(&longer_words(words, *form), "") {
                    for word in words {
                        self.report(&longer_words(std::slice::from_ref(word), *form), word);
                    }
                }
            }
        }
    }

    fn report(&mut self, names: &[String; 3], word: &str) -> bool {
        let differing = self.differing(names.each_ref().map(String::as_str));
        for (kind, text) in &differing {
            let verb = if self.is_bad { "misses" } else { "finds" };
            let id = self.rule.rule.id;
            let text = if word.is_empty() { text } else { self.example };
            self.wrong
                .insert(format!("{id} {verb} by {kind:?} `{word}`: {text:?}"));
        }
        !differing.is_empty()
    }
}

#[test]
fn a_neighbour_of_an_example_is_judged_like_it() {
    let vocabulary = Vocabulary::read();
    let mut tried: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut wrong = BTreeSet::new();
    for rule in super::all() {
        let bad = rule.bad.iter().map(|bad| (bad, true));
        for (example, is_bad) in bad.chain(rule.good.iter().map(|good| (good, false))) {
            let mut trial = Trial {
                rule,
                example,
                is_bad,
                vocabulary: &vocabulary,
                takes_words_beside: true,
                seen: BTreeSet::new(),
                tried: BTreeMap::new(),
                wrong: BTreeSet::new(),
            };
            trial.run();
            wrong.extend(trial.wrong);
            for (kind, count) in trial.tried {
                *tried.entry(kind).or_default() += count;
            }
        }
    }
    eprintln!("{tried:?}");
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        tried.len() == 6 && tried.values().all(|count| *count >= 40),
        "{tried:?}"
    );
}
