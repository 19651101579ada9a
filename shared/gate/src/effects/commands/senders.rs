//! Commands that send something to another machine, with the options that name what they send.

use super::super::graph::{Flow, Node};
use super::super::program::{Call, Program};
use super::{Arguments, Word, is_in};

impl Arguments<'_> {
    pub(super) fn sends(&self, program: &mut Program, node: Node, target: Node) {
        program.add_call(node, Call::Sends, target, self.place());
    }

    pub(super) fn sends_file(&self, program: &mut Program, node: Node, target: Node) {
        program.add_call(node, Call::SendsFile, target, self.place());
    }

    /// A value of an option that may name a file behind `@` or `<`.
    pub(super) fn send_value(&self, program: &mut Program, word: &Word, text: &str, target: Node) {
        let is_input = text.ends_with("@-") || text == "-" || text.ends_with("@/dev/stdin");
        if is_input {
            self.sends(program, self.command.input, target);
        } else if let Some((_, path)) = text.split_once('@').or_else(|| text.split_once("=<")) {
            let path = path.split(';').next().unwrap_or_default();
            let node = self.part(program, word, path);
            self.sends_file(program, node, target);
        } else {
            let node = self.part(program, word, text);
            self.sends(program, node, target);
        }
    }

    pub(super) fn curl(&self, program: &mut Program) {
        let target = program.graph.fresh();
        let mut is_saved = false;
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            if !word.text.starts_with('-') || word.text == "-" {
                // The address: what stands in it is sent.
                let node = self.value(program, word);
                program.copy(node, target, self.place());
                self.sends(program, node, node);
            } else if let Some((option, word, value)) = take_option(word, &mut words) {
                is_saved |= matches!(option.as_str(), "o" | "output");
                self.curl_option(program, &option, (word, &value), target);
            }
        }
        if !is_saved {
            let fetched = self.fetched(program);
            program.copy(fetched, self.command.output, self.place());
        }
    }

    fn curl_option(
        &self,
        program: &mut Program,
        option: &str,
        (word, value): (&Word, &str),
        target: Node,
    ) {
        match option {
            "T" | "upload-file" if value == "-" || value == "." => {
                self.sends(program, self.command.input, target);
            }
            "T" | "upload-file" => {
                let node = self.part(program, word, value);
                self.sends_file(program, node, target);
            }
            "o" | "output" => {
                let node = self.part(program, word, value);
                let fetched = self.fetched(program);
                program.graph.edge(fetched, node, Flow::Write, self.place());
            }
            "H" | "header" | "u" | "user" | "A" | "e" | "referer" => {
                let node = self.part(program, word, value);
                let header = program.graph.fresh();
                program.graph.edge(node, header, Flow::Header, self.place());
                self.sends(program, header, target);
            }
            "d" | "F" | "json" | "b" | "cookie" | "url" | "url-query" => {
                self.send_value(program, word, value, target);
            }
            long if long.starts_with("data") || long.starts_with("form") => {
                self.send_value(program, word, value, target);
            }
            _ => {}
        }
    }

    /// What a program fetches from the addresses that it is given.
    pub(super) fn fetched(&self, program: &mut Program) -> Node {
        let target = self.target(program);
        program.fetched(target, self.place())
    }

    pub(super) fn wget(&self, program: &mut Program) {
        let target = self.target(program);
        for word in self.words {
            let (option, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            match option {
                "--post-file" | "--body-file" => {
                    let node = self.part(program, word, value);
                    self.sends_file(program, node, target);
                }
                "--post-data" | "--body-data" => {
                    let node = self.part(program, word, value);
                    self.sends(program, node, target);
                }
                _ if option.starts_with('-') => {}
                _ => {
                    let node = self.value(program, word);
                    self.sends(program, node, target);
                }
            }
        }
        let fetched = self.fetched(program);
        let mut to = None;
        for pair in self.words.windows(2) {
            if matches!(pair[0].text.as_str(), "-O" | "-qO" | "--output-document")
                || pair[0].text.starts_with('-') && pair[0].text.ends_with('O')
            {
                to = Some(&pair[1]);
            }
        }
        match to {
            Some(word) if word.text != "-" => {
                let node = self.value(program, word);
                program.graph.edge(fetched, node, Flow::Write, self.place());
            }
            _ => program.copy(fetched, self.command.output, self.place()),
        }
    }

    /// `httpie` and `xh`: `name=value`, `name@file`, `name=@file`, `name:header`.
    pub(super) fn http(&self, program: &mut Program) {
        let target = self.target(program);
        self.sends(program, self.command.input, target);
        for word in self.plain() {
            let is_address = word.text.contains("://") || word.text.starts_with(':');
            match word.text.find(['@', '=', ':']) {
                Some(at)
                    if !is_address
                        && word.text[at..].starts_with(':')
                        && !word.text[at..].starts_with(":=") =>
                {
                    let node = self.value(program, word);
                    let header = program.graph.fresh();
                    program.graph.edge(node, header, Flow::Header, self.place());
                    self.sends(program, header, target);
                }
                Some(at) if !is_address => self.send_value(
                    program,
                    word,
                    &word.text[at + usize::from(word.text[at..].starts_with('='))..],
                    target,
                ),
                _ => {
                    let node = self.value(program, word);
                    self.sends(program, node, target);
                }
            }
        }
    }

    /// A program that sends its input to the hosts among its words.
    pub(super) fn pipe(&self, program: &mut Program, name: &str) {
        let target = self.target(program);
        self.sends(program, self.command.input, target);
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            match word.text.as_str() {
                "-a" | "-A" if name != "ssh" => {
                    if let Some(file) = words.next() {
                        let node = self.value(program, file);
                        self.sends_file(program, node, target);
                    }
                }
                // The key with which it signs in, and other options with a value.
                "-i" | "-F" | "-o" | "-p" | "-l" | "-w" => {
                    words.next();
                }
                option if option.starts_with('-') => {}
                _ => {
                    let node = self.value(program, word);
                    self.sends(program, node, target);
                }
            }
        }
    }

    /// A program that copies files to another machine, if that is named last.
    pub(super) fn copy_away(&self, program: &mut Program, name: &str) {
        let target = self.target(program);
        let is_remote = |word: &Word| {
            let text = word.text.as_str();
            text.contains("://")
                || text
                    .split_once(':')
                    .is_some_and(|(host, _)| host.len() > 1 && !host.contains('/'))
                || text.starts_with('$')
        };
        let is_upload = match name {
            "scp" | "rsync" | "aws" | "gsutil" | "rclone" | "mc" | "s3cmd" => {
                self.words.last().is_some_and(is_remote)
                    || self.words.iter().any(|word| {
                        word.text.starts_with("s3://") || word.text.starts_with("gs://")
                    }) && !self
                        .words
                        .iter()
                        .any(|word| word.text.starts_with("--profile"))
                        && self
                            .words
                            .last()
                            .is_some_and(|word| word.text.starts_with('-'))
            }
            _ => true,
        };
        if !is_upload {
            return;
        }
        self.sends(program, self.command.input, target);
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            match word.text.as_str() {
                "-i" | "-F" | "-o" | "-P" | "-e" | "-p" | "--rsh" | "--profile"
                | "--endpoint-url" => {
                    words.next();
                }
                option if option.starts_with('-') => {}
                _ => {
                    let node = self.value(program, word);
                    self.sends_file(program, node, target);
                }
            }
        }
    }

    pub(super) fn resolve(&self, program: &mut Program) {
        let target = self.target(program);
        for word in self.plain() {
            let node = self.value(program, word);
            self.sends(program, node, target);
        }
    }
}

/// Options of `curl` with a value.
const SHORT: &str = "AbcCdDeEFhHKmoPQrtTuUwxXyYz";
const LONG: &str = " upload-file json url-query header user output request cookie cert key proxy url max-time retry connect-timeout write-out config cacert referer ";

/// Returns an option of `curl` with the word of its value and the value; `None` if it has none.
fn take_option<'a>(
    word: &'a Word,
    words: &mut std::slice::Iter<'a, Word>,
) -> Option<(String, &'a Word, String)> {
    if let Some(long) = word.text.strip_prefix("--") {
        let with_value = long.starts_with("data") || long.starts_with("form") || is_in(LONG, long);
        if !with_value {
            return None;
        }
        let value = words.next()?;
        return Some((long.to_owned(), value, value.text.clone()));
    }
    let short = word.text.strip_prefix('-')?;
    let at = short.find(|letter| SHORT.contains(letter))?;
    let rest = &short[at + 1..];
    let option = short[at..=at].to_owned();
    if rest.is_empty() {
        let value = words.next()?;
        return Some((option, value, value.text.clone()));
    }
    Some((option, word, rest.to_owned()))
}
