//! Commands that send something to another machine, with the options that name what they send.

use super::super::Source;
use super::super::graph::{Flow, Node, Place};
use super::super::program::{Call, Code, Language, Program};
use super::{Arguments, Word, is_in};
use crate::rules::hosts;

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
            let node = self.file(program, word, path);
            self.sends_file(program, node, target);
        } else {
            let node = self.part(program, word, text);
            self.sends(program, node, target);
        }
    }

    pub(super) fn curl(&self, program: &mut Program) {
        let target = program.graph.fresh();
        program.graph.exact.insert(target);
        for (name, node) in &self.command.given {
            if name.to_ascii_lowercase().ends_with("_proxy") {
                program.copy(*node, target, self.place());
            }
        }
        let mut is_saved = false;
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            if !word.text.starts_with('-') || word.text == "-" {
                // The address: what stands in it is sent.
                let node = self.value(program, word);
                program.copy(node, target, self.place());
                self.open_host(program, word, target);
                self.sends(program, node, target);
            } else if let Some((option, word, value)) = take_option(word, &mut words) {
                is_saved |= matches!(option.as_str(), "o" | "output");
                self.curl_option(program, &option, (word, &value), target);
            }
        }
        let keeps_name = |word: &Word| {
            let option = word.text.as_str();
            option == "--remote-name"
                || option.starts_with('-') && !option.starts_with("--") && option.contains('O')
        };
        if self.words.iter().any(keeps_name) {
            self.save_by_address(program);
        } else if !is_saved {
            let fetched = self.add_fetched_node(program);
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
                let node = self.file(program, word, value);
                self.sends_file(program, node, target);
            }
            "K" | "config" if value == "-" => {
                program.configs.insert(self.command.input);
                program.interpreters.push((
                    self.command.input,
                    Language::Shell,
                    self.command.output,
                    self.command.depth + 1,
                ));
            }
            "K" | "config" => {
                let file = program.own_file(value);
                program.configured.extend(file);
            }
            "x" | "proxy" | "preproxy" | "socks5" | "socks5-hostname" | "connect-to"
            | "resolve" => {
                let node = self.part(program, word, value);
                program.copy(node, target, self.place());
                // The address alone says nothing then.
                let mut hosts = value.split([':', '/', ',', '@']);
                let is_other =
                    |host: &str| host.contains('.') && !hosts::is_local(host) || host.contains('$');
                if hosts.any(is_other) {
                    let unknown = program.graph.fresh();
                    program.copy(unknown, target, self.place());
                }
            }
            "o" | "output" => {
                let node = self.file(program, word, value);
                let fetched = self.add_fetched_node(program);
                program.graph.edge(fetched, node, Flow::Write, self.place());
            }
            "H" | "header" | "u" | "user" | "A" | "user-agent" | "e" | "referer"
            | "oauth2-bearer" => {
                let is_login = matches!(option, "u" | "user" | "oauth2-bearer") || signs_in(value);
                self.send_header(program, (word, value), is_login, target);
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

    /// Adds the node of what a program fetches from the addresses that it is given.
    pub(super) fn add_fetched_node(&self, program: &mut Program) -> Node {
        let target = self.target(program);
        program.add_fetched_node(target, self.place())
    }

    /// Sends a value in a header. One that signs in uses it.
    fn send_header(
        &self,
        program: &mut Program,
        (word, value): (&Word, &str),
        is_login: bool,
        target: Node,
    ) {
        let node = self.part(program, word, value);
        let header = program.graph.fresh();
        let flow = if is_login { Flow::Header } else { Flow::Copy };
        program.graph.edge(node, header, flow, self.place());
        self.sends(program, header, target);
    }

    /// In `$base.a.dev`, the address in the variable is a part of the host.
    fn open_host(&self, program: &mut Program, word: &Word, target: Node) {
        let Some(rest) = word.text.strip_prefix('$') else {
            return;
        };
        let is_name = |letter: char| letter.is_alphanumeric() || "_{}".contains(letter);
        let rest = rest.trim_start_matches(is_name);
        if rest.starts_with(['.', '@', '-']) {
            let unknown = program.graph.fresh();
            program.copy(unknown, target, self.place());
        }
    }

    pub(super) fn wget(&self, program: &mut Program) {
        let target = self.target(program);
        let mut words = self.words.iter();
        while let Some(first) = words.next() {
            let (option, value) = first.text.split_once('=').unwrap_or((&first.text, ""));
            let has_value = matches!(
                option,
                "--post-file" | "--body-file" | "--post-data" | "--body-data" | "--header"
            );
            let behind = if has_value && value.is_empty() {
                words.next()
            } else {
                None
            };
            let word = behind.unwrap_or(first);
            let value = behind.map_or(value, |word| word.text.as_str());
            match option {
                "--post-file" | "--body-file" => {
                    let node = self.file(program, word, value);
                    self.sends_file(program, node, target);
                }
                "--post-data" | "--body-data" => {
                    let node = self.part(program, word, value);
                    self.sends(program, node, target);
                }
                "--header" => {
                    self.send_header(program, (word, value), signs_in(value), target);
                }
                _ if option.starts_with('-') => {}
                _ => {
                    let node = self.value(program, word);
                    self.sends(program, node, target);
                }
            }
        }
        let fetched = self.add_fetched_node(program);
        let mut to = None;
        for pair in self.words.windows(2) {
            if matches!(pair[0].text.as_str(), "-O" | "-qO" | "--output-document")
                || pair[0].text.starts_with('-') && pair[0].text.ends_with('O')
            {
                to = Some(&pair[1]);
            }
        }
        // `-qO- ADDRESS`
        let prints = self
            .words
            .iter()
            .any(|word| word.text.starts_with('-') && word.text.ends_with("O-"));
        match to {
            Some(word) if word.text != "-" => {
                let node = self.file(program, word, &word.text);
                program.graph.edge(fetched, node, Flow::Write, self.place());
            }
            Some(_) => program.copy(fetched, self.command.output, self.place()),
            None if prints => program.copy(fetched, self.command.output, self.place()),
            None => self.save_by_address(program),
        }
    }

    /// Writes what is fetched to files that have the last names of the addresses.
    fn save_by_address(&self, program: &mut Program) {
        for word in self.plain() {
            let path = word.text.split(['?', '#']).next().unwrap_or_default();
            let Some((_, name)) = path.rsplit_once('/').filter(|_| path.contains("://")) else {
                continue;
            };
            let target = self.value(program, word);
            let fetched = program.add_fetched_node(target, self.place());
            let file = program.literal(&format!("./{name}"), self.place());
            program.graph.edge(fetched, file, Flow::Write, self.place());
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

    /// A program that copies files to another machine, if one is named behind them.
    pub(super) fn copy_away(&self, program: &mut Program, name: &str) {
        let files = self.operands(name);
        let is_remote = |word: &&Word| {
            let text = word.text.as_str();
            let host = text.split_once(':').map(|(host, _)| host);
            text.contains("://")
                || host.is_some_and(|host| host.len() > 1 && !host.contains('/'))
                || text.starts_with('$')
        };
        let is_upload = match name {
            "aws" => {
                let is_copy = self.words.iter().take(4).any(|word| word.text == "s3");
                let is_put = self.has("put-object");
                let at = files.iter().position(|word| word.text.starts_with("s3://"));
                is_put || is_copy && at.is_none_or(|at| at > 2)
            }
            "az" => self.has("upload") || self.has("upload-batch"),
            "scp" | "rsync" | "gsutil" | "rclone" | "mc" | "s3cmd" => {
                files.last().is_some_and(is_remote)
            }
            _ => true,
        };
        if !is_upload {
            return;
        }
        let target = self.target(program);
        let host = |word: &&Word| {
            let host = word.text.split_once(':').map(|(host, _)| host.to_owned());
            host.map(|host| host.rsplit('@').next().unwrap_or_default().to_owned())
        };
        let mut hosts = files
            .iter()
            .filter(|word| is_remote(word))
            .map(host)
            .peekable();
        let is_near = |host: Option<String>| host.is_some_and(hosts::is_local);
        if hosts.peek().is_some() && hosts.all(is_near) {
            let near = program.graph.fresh();
            program.graph.set_text(near, "localhost");
            program.copy(near, target, self.place());
        }
        let mut before = "";
        for word in self.words {
            let text = word.text.as_str();
            let path = text.strip_prefix("--files-from=");
            let path = path.or((before == "--files-from").then_some(text));
            if let Some(node) = path.and_then(|path| program.listed_in(path)) {
                self.sends_file(program, node, target);
            }
            before = text;
        }
        // What is typed into `sftp` names the files.
        self.sends_file(program, self.command.input, target);
        for word in files {
            let node = self.file(program, word, &word.text);
            self.sends_file(program, node, target);
        }
    }

    /// The words that are neither options nor values of them.
    fn operands(&self, name: &str) -> Vec<&Word> {
        let mut found = Vec::new();
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            // The value of these options is the file to upload, so it is an operand here.
            let is_body = matches!(text, "--body" | "--file" | "-f" | "--source");
            if text.len() < 2 || !text.starts_with('-') || is_body && name != "rsync" {
                found.push(word);
                continue;
            }
            let is_long = text.starts_with("--") && !text.contains('=');
            let has_value = matches!(text, "-i" | "-F" | "-o" | "-P" | "-e" | "-p" | "--rsh")
                || text.starts_with("--exclude") && is_long
                || is_long && matches!(name, "aws" | "az") && !super::is_in(FLAGS, text);
            if has_value {
                words.next();
            }
        }
        found
    }

    pub(super) fn resolve(&self, program: &mut Program) {
        let target = self.target(program);
        for word in self.plain() {
            let node = self.value(program, word);
            self.sends(program, node, target);
        }
    }
}

/// Options of `aws` and `az` without a value.
const FLAGS: &str = " --recursive --quiet --dryrun --delete --no-progress --only-show-errors --follow-symlinks --no-sign-request --overwrite ";

/// Whether a header signs in.
fn signs_in(header: &str) -> bool {
    let name = header.split(':').next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    ["auth", "token", "key", "cookie", "secret"]
        .iter()
        .any(|word| name.contains(word))
}

/// Returns the next file of options of `curl` as code.
pub(in super::super) fn next_config(program: &mut Program, sources: &[Source<'_>]) -> Option<Code> {
    let mut file = program.configured.pop()?;
    while !program.read_configs.insert(file) {
        file = program.configured.pop()?;
    }
    let source = sources.get(file as usize)?;
    let [input, output] = std::array::from_fn(|_| program.graph.fresh());
    Some(Code {
        language: Language::Shell,
        text: command_of_config(source.raw),
        place: Place { file, offset: 0 },
        is_exact: false,
        input,
        output,
        depth: 0,
    })
}

/// Returns the options in a file of `curl` as a command.
pub(super) fn command_of_config(text: &str) -> String {
    let mut command = "curl".to_owned();
    for line in text.lines().map(str::trim) {
        let end = line.find(['=', ':', ' ']).unwrap_or(line.len());
        let (option, value) = line.split_at(end);
        if option.is_empty() || option.starts_with('#') {
            continue;
        }
        let value = value.trim_start_matches(['=', ':', ' ']);
        let dashes = if option.starts_with('-') { "" } else { "--" };
        command += &format!(" {dashes}{option} {value}");
    }
    command
}

/// Options of `curl` with a value.
const SHORT: &str = "AbcCdDeEFhHKmoPQrtTuUwxXyYz";
const LONG: &str = " oauth2-bearer proxy preproxy socks5 socks5-hostname connect-to resolve user-agent upload-file json url-query header user output request cookie cert key proxy url max-time retry connect-timeout write-out config cacert referer ";

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
