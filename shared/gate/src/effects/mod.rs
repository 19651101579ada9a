//! Finds what a skill does, and not how it is written: secrets that are read at one place and sent
//! from another one, over variables, functions, files, and the scripts of the skill.
//!
//! Small tolerant readers put the code into one graph. They are written here and use no parser
//! crates, because parsers reject the broken code of which an interpreter still runs a part, and
//! because the program must stay small. The readers know no type and no order of statements. What
//! they do not understand makes no finding; the rules about lines judge it as before.

mod calls;
mod commands;
mod fragments;
mod graph;
mod judge;
mod own_files;
mod program;
mod script;
mod shell;
mod stores;
mod tokens;

use crate::finding::Finding;
use crate::rule::{Act, ScanRule};
use crate::rules::effects::CODE_CUT;
use aho_corasick::AhoCorasick;
use graph::Place;
use judge::Judge;
use program::{Code, Language, MARK, MOST_READ, PLACE, Program};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Words of which code that sends something has one.
const SENDERS: [&str; 76] = [
    "://",
    "slack",
    "octokit",
    "telegram",
    "gspread",
    "googleapi",
    "google.cloud",
    "mqtt",
    "redis",
    "grpc",
    "chromium",
    "curl",
    "wget",
    "http",
    "xh ",
    "nc ",
    "ncat",
    "netcat",
    "socat",
    "telnet",
    "mail",
    "scp ",
    "rsync",
    "sftp",
    "rclone",
    "gsutil",
    "aws s3",
    "/dev/tcp",
    "/dev/udp",
    "dig ",
    "nslookup",
    "host ",
    "ping ",
    "fetch(",
    "axios",
    "requests",
    "urlopen",
    "socket",
    "smtp",
    "invoke-",
    "irm",
    "iwr",
    "webclient",
    "sendbeacon",
    "gist",
    "ssh ",
    "dns.",
    "net.",
    "connect(",
    "tcpclient",
    "gh ",
    "glab",
    "git push",
    "twine",
    "gcloud storage",
    "azcopy",
    "s_client",
    "mosquitto",
    "redis-cli",
    "boto3",
    "paramiko",
    "put_object",
    "upload_file",
    "storbinary",
    "az storage",
    "s3cmd",
    "mc cp",
    "b2 upload",
    "croc ",
    "wormhole",
    "mutt",
    "msmtp",
    "lftp",
    "ftp ",
    "drill",
    "start-bitstransfer",
];
/// Words of code that runs other code.
const RUNNERS: [&str; 16] = [
    "eval",
    "exec",
    "iex",
    "invoke-expression",
    "scriptblock",
    "| sh",
    "|sh",
    "bash",
    "chmod",
    "sh ",
    "python",
    "node",
    "source ",
    "start-process",
    "function(",
    ". /",
];
/// Words of code that reads the whole environment or asks a program for a secret, besides those of [`stores::WORDS`].
const ENVIRONMENTS: [&str; 23] = [
    "process.env",
    "printenv",
    "env |",
    "(env",
    "`env",
    "env >",
    "env:",
    "export -p",
    "declare -",
    "auth token",
    "auth print",
    "get-access-token",
    "export-credentials",
    "credential fill",
    "get secret",
    "--export-secret",
    "op item",
    "op read",
    "pass show",
    "kv get",
    "find-generic-password",
    "dump-keychain",
    "grep -",
];

static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = SENDERS.iter().chain(&RUNNERS).chain(&ENVIRONMENTS);
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(words.chain(&stores::WORDS))
        .ok()
});

/// Whether the texts of a skill have words of what is looked for.
#[derive(Default)]
pub(crate) struct WordsFound {
    has_sender: bool,
    has_runner: bool,
    has_secret: bool,
}

impl WordsFound {
    /// Adds the words of a text.
    pub(crate) fn add(&mut self, text: &[u8]) {
        let Some(words) = WORDS.as_ref().filter(|_| !text.contains(&0)) else {
            // Words of other encodings are not found, so the text may have any.
            *self = Self {
                has_sender: true,
                has_runner: true,
                has_secret: true,
            };
            return;
        };
        for found in words.find_overlapping_iter(text) {
            let number = found.pattern().as_usize();
            if number < SENDERS.len() {
                self.has_sender = true;
            } else if number < SENDERS.len() + RUNNERS.len() {
                self.has_runner = true;
            } else {
                self.has_secret = true;
            }
            if self.has_sender && self.has_runner && self.has_secret {
                return;
            }
        }
    }

    /// Whether code with these words may send a secret, or run what it fetches.
    pub(crate) fn is_enough(&self) -> bool {
        self.has_sender && (self.has_secret || self.has_runner)
    }
}

/// A text of the skill.
pub(crate) struct Source<'a> {
    pub path: &'a str,
    pub raw: &'a str,
}

/// A finding of a rule about effects.
pub(crate) type EffectHit = (&'static ScanRule, Act, Finding);

/// Finds the pieces of code of a skill.
fn find_fragments(program: &mut Program, sources: &[Source<'_>]) {
    for (file, source) in (0_u32..).zip(sources) {
        for fragment in fragments::find_code(source.path, source.raw) {
            let is_whole = fragment.start == 0;
            if is_whole && !fragment.is_span {
                program.read.insert(file);
            }
            if fragment.is_span {
                let end = fragment.start + fragment.text.len();
                program.spans.push((file, fragment.start, end));
            }
            let [input, output] = if is_whole {
                [program.argument(file, "", 0), program.returned(file, "")]
            } else {
                [program.graph.fresh(), program.graph.fresh()]
            };
            program.open.push(Code {
                language: fragment.language,
                place: Place {
                    file,
                    offset: u32::try_from(fragment.start).unwrap_or(u32::MAX),
                },
                // Only code that a reader puts together has marks.
                text: fragment.text.replace([MARK, PLACE], " "),
                is_exact: fragment.is_exact,
                input,
                output,
                depth: 0,
            });
        }
    }
    program.spans.sort_unstable();
    // In the order of the text, with the code that is found inside at the end.
    program.open.reverse();
}

/// Returns what the code of a skill does, and the amount of work in bytes.
pub(crate) fn find_effects(sources: &[Source<'_>], publisher: &[String]) -> (Vec<EffectHit>, u64) {
    let mut program = Program::default();
    let mut work = 0;
    for (number, source) in (0_u32..).zip(sources) {
        program.files.add(source.path, number);
        // `curl` reads it by itself.
        if source.path.ends_with(".curlrc") || source.path.ends_with("_curlrc") {
            program.configured.push(number);
        }
    }
    find_fragments(&mut program, sources);
    let mut read = 0;
    while let Some(code) = program
        .next_code(sources)
        .or_else(|| commands::next_config(&mut program, sources))
    {
        read += code.text.len();
        if read > MOST_READ || program.graph.is_full() {
            program.graph.cut_at(code.place);
            break;
        }
        work += 4 * code.text.len() as u64;
        program.graph.begin_piece(code.text.len());
        if code.depth == 0 {
            program.begin_piece();
        }
        match code.language {
            Language::Shell => shell::read_shell(&code, &mut program),
            _ => script::read_script(&code, &mut program),
        }
    }
    program.read_listed(sources);
    program.join_imports();
    let judge = Judge {
        sources,
        publisher,
        index: &program.graph.index(),
        program: &program,
    };
    let mut hits = judge.find_thefts();
    hits.extend(judge.find_fetched());
    // Each kind of secret is followed by itself.
    let kinds: BTreeSet<usize> = program
        .graph
        .sources
        .iter()
        .map(|source| source.kind)
        .collect();
    work += program.graph.size() as u64 * 16 * (1 + kinds.len() as u64);
    if let Some(place) = program.graph.cut {
        hits.push((&CODE_CUT, CODE_CUT.act, judge.cut_finding(place)));
    }
    (hits, work)
}

#[cfg(test)]
mod tests;
