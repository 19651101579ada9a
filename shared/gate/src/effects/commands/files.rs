//! Programs that read, pack, copy and write files.

use super::super::graph::{Flow, Node};
use super::super::program::Program;
use super::super::stores::{find_store, kind_of};
use super::{Arguments, SELECTORS, Word, is_in};

/// Words of settings in files of secrets.
const SETTINGS: [&str; 6] = [
    "region",
    "profile",
    "context",
    "registry=",
    "email",
    "server",
];
/// Words of patterns that find secrets, or more than one line.
const SECRETS: [&str; 9] = [
    "secret", "token", "pass", "key", "auth", "cred", "|", "!", "^[",
];

/// Beginnings of tokens and keys.
const FORMS: [&str; 8] = [
    "sk-",
    "ghp_",
    "gho_",
    "github_pat_",
    "AKIA",
    "xox",
    "glpat-",
    "PRIVATE KEY",
];

impl Arguments<'_> {
    pub(super) fn read(&self, program: &mut Program, name: &str, flow: Flow) {
        if self.has("-pubout") || self.is_harmless(name) {
            return;
        }
        let output = program.graph.fresh();
        // A search in the whole environment may find one variable, which is not a secret, or all
        // whose names have `token` in them, which are.
        let has_environment = program.environments.contains(&self.command.source);
        let is_many = has_environment && !(flow == Flow::Narrow && self.is_one(name));
        let flow = if is_many { Flow::Copy } else { flow };
        if is_many {
            program.environments.insert(self.command.output);
        }
        program.copy(self.command.input, output, self.place());
        if self.finds_tokens()
            && let Some(kind) = kind_of("an access token")
        {
            program.add_secret(self.command.output, kind, true, self.place());
        }
        for word in self.inputs(name) {
            let node = self.file(program, word, &word.text);
            program.graph.edge(node, output, Flow::Read, self.place());
            self.replace_packed(program, (name, &word.text), output);
        }
        program
            .graph
            .edge(output, self.command.output, flow, self.place());
        self.decode_printed(program, name);
        // `base64 -o file`, `openssl -in file -out file`.
        for pair in self.words.windows(2) {
            if matches!(pair[0].text.as_str(), "-o" | "-out" | "--output") {
                let node = self.file(program, &pair[1], &pair[1].text);
                program.graph.edge(output, node, Flow::Write, self.place());
            }
        }
    }

    /// The words that name files to read: neither the pattern of a search nor a key that signs.
    fn inputs(&self, name: &str) -> Vec<&Word> {
        let is_pattern = |word: &Word| matches!(word.text.as_str(), "-e" | "-f" | "--regexp");
        let has_pattern = matches!(name, "cut" | "tr")
            || !is_in(SELECTORS, name)
            || self.words.iter().any(is_pattern);
        let mut found = Vec::new();
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let is_key = matches!(
                word.text.as_str(),
                "-sign" | "-inkey" | "-key" | "-passin" | "-CAkey" | "--homedir" | "-signkey"
            );
            if is_key {
                words.next();
            } else if !word.text.starts_with('-') || word.text.len() == 1 {
                found.push(word);
            }
        }
        found.split_off(usize::from(!has_pattern).min(found.len()))
    }

    /// Whether a search finds only settings that are not secret: `awk '/region/' ~/.aws/config`.
    fn is_harmless(&self, name: &str) -> bool {
        let pattern = self
            .plain()
            .next()
            .map(|word| word.text.to_ascii_lowercase());
        let pattern = pattern.unwrap_or_default();
        let has = |words: &[&str]| words.iter().any(|word| pattern.contains(word));
        matches!(name, "grep" | "egrep" | "awk" | "gawk" | "jq" | "yq")
            && !self.has("-v")
            && has(&SETTINGS)
            && !has(&SECRETS)
    }

    /// Whether a search goes through the home folder for what has the form of a token.
    fn finds_tokens(&self) -> bool {
        let is_home = |word: &Word| {
            let path = word.text.trim_end_matches('/');
            matches!(
                path,
                "" | "~" | "$HOME" | "${HOME}" | "/home" | "/root" | "/Users"
            )
        };
        let has_form = |word: &Word| FORMS.iter().any(|form| word.text.contains(form));
        self.plain().any(has_form) && self.plain().skip(1).any(is_home)
    }

    /// Whether a search finds one environment variable.
    fn is_one(&self, name: &str) -> bool {
        let pattern = self.plain().next().map_or("", |word| word.text.as_str());
        let pattern = pattern.trim_start_matches('^');
        let end = pattern.find(['=', '\\']).unwrap_or(pattern.len());
        let is_letter =
            |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        name.ends_with("grep") && end > 1 && pattern[..end].bytes().all(is_letter)
    }

    /// A program that packs a file puts it into another one, with an ending of its own.
    fn replace_packed(&self, program: &mut Program, (name, path): (&str, &str), packed: Node) {
        let ending = match name {
            "gzip" => "gz",
            "bzip2" => "bz2",
            "xz" => "xz",
            "zstd" => "zst",
            "gpg" => "gpg",
            _ => return,
        };
        let node = program.graph.fresh();
        program.name_file(node, &format!("{path}.{ending}"), self.place());
        let file = program.literal(&format!("{path}.{ending}"), self.place());
        program.copy(node, file, self.place());
        program.graph.edge(packed, file, Flow::Write, self.place());
    }

    /// `cd`: files of a folder of secrets need no path behind it.
    pub(super) fn enter(&self, program: &mut Program) {
        let Some(word) = self.plain().next() else {
            return;
        };
        if find_store(&word.text).is_some() {
            let folder = word.text.trim_end_matches('/').to_owned();
            program.folders.insert(self.command.file, folder);
        }
    }

    pub(super) fn list(&self, program: &mut Program) {
        for word in self.plain() {
            let node = self.value(program, word);
            program.copy(node, self.command.output, self.place());
        }
        let run = self
            .words
            .iter()
            .position(|word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-x"));
        if let Some(at) = run {
            let mut words: Vec<Word> = self.words[at + 1..].to_vec();
            for word in &mut words {
                if word.text.contains("{}") {
                    word.nodes.push(self.command.output);
                }
            }
            self.run_words(program, words);
        }
    }

    pub(super) fn copy_files(&self, program: &mut Program) {
        let words: Vec<&Word> = self.plain().collect();
        let Some((last, files)) = words.split_last() else {
            return;
        };
        let to = self.file(program, last, &last.text);
        let content = program.graph.fresh();
        for word in files {
            let node = self.file(program, word, &word.text);
            program.graph.edge(node, content, Flow::Read, self.place());
        }
        program.graph.edge(content, to, Flow::Write, self.place());
    }

    /// The first plain word, or the one behind an option with `f`, is the archive.
    pub(super) fn pack(&self, program: &mut Program, name: &str) {
        // To unpack or to list an archive makes none.
        let first = self
            .words
            .first()
            .map_or("", |word| word.text.trim_start_matches('-'));
        if name == "tar" && first.starts_with(['x', 't']) {
            return;
        }
        let content = program.graph.fresh();
        let mut to = None;
        let mut is_next = name != "tar";
        let mut is_first = true;
        let mut is_left_out = false;
        let mut is_list = false;
        for word in self.words {
            let text = word.text.as_str();
            if std::mem::replace(&mut is_list, matches!(text, "-T" | "--files-from"))
                && let Some(node) = program.listed_in(text)
            {
                program.graph.edge(node, content, Flow::Read, self.place());
            }
            // `--exclude .env`, and all words behind `-x` of `zip`.
            if std::mem::take(&mut is_left_out) || name == "zip" && text == "-x" {
                is_left_out = name == "zip";
                continue;
            }
            is_left_out = matches!(text, "--exclude" | "--exclude-from" | "-X");
            let is_bundle = is_first && name == "tar";
            is_first = false;
            if is_bundle || text.starts_with('-') && text.len() > 1 {
                is_next |= name == "tar" && text.ends_with('f') && !text.starts_with("--");
                continue;
            }
            if std::mem::take(&mut is_next) && !(name == "7z" && text.len() == 1) {
                to = Some(word);
                continue;
            }
            let node = self.file(program, word, &word.text);
            program.graph.edge(node, content, Flow::Read, self.place());
        }
        match to.filter(|word| word.text != "-") {
            Some(word) => {
                let node = self.file(program, word, &word.text);
                program.graph.edge(content, node, Flow::Write, self.place());
            }
            None => program.copy(content, self.command.output, self.place()),
        }
    }

    pub(super) fn write(&self, program: &mut Program, name: &str) {
        program.copy(self.command.input, self.command.output, self.place());
        for word in self.plain() {
            let (option, value) = word.text.split_once('=').unwrap_or(("", &word.text));
            let node = self.file(program, word, value);
            if name == "dd" && option == "if" {
                program
                    .graph
                    .edge(node, self.command.output, Flow::Read, self.place());
            } else if name == "tee" || option == "of" {
                program
                    .graph
                    .edge(self.command.output, node, Flow::Write, self.place());
            }
        }
    }
}
