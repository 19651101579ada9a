//! What the commands of a shell do with what they are given: one row for each program, with the
//! options that read, write and send.

mod decoders;
mod files;
pub(super) mod paths;
mod programs;
mod publishers;
mod scripts;
mod secrets;
mod senders;

pub(super) use senders::next_config;

use super::graph::{Flow, Node, Place};
use super::program::{Call, Code, Language, Program};
use super::stores::{ENVIRONMENT, find_store, is_public};

/// A word of a command.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// The word without its quotation marks; variables stand in it as they are written.
    pub text: String,
    /// Values of the variables and substitutions in it.
    pub nodes: Vec<Node>,
    /// Where it begins.
    pub at: usize,
}

/// A command with its values.
pub(super) struct Command {
    pub words: Vec<Word>,
    pub input: Node,
    pub output: Node,
    pub place: Place,
    pub file: u32,
    /// The function in whose body it stands.
    pub function: String,
    pub depth: u32,
    /// Variables that are set for it alone.
    pub given: Vec<(String, Node)>,
    /// Whether it stands in the file like this, and was not put together by a script.
    pub is_exact: bool,
    /// What the command before it in the pipe prints.
    pub source: Node,
}

/// Longest text that is printed and read as code by what gets it.
const LONGEST_PRINTED: usize = 64 << 10;
/// Longest text of a variable that stands for a program with its options.
const LONGEST_TEXT: usize = 256;

/// Programs that print the files that they are given, in some form.
const READERS: &str = " cat head tail tac nl rev base64 base32 gzip zcat gunzip bzip2 xz zstd xxd od hexdump strings openssl gpg fold paste sort uniq uuencode pv iconv more less bat basenc sqlite3 type ";
/// Programs that print parts of them.
const SELECTORS: &str = " grep egrep fgrep rg sed awk gawk cut jq yq perl tr ";
/// Programs that print the names of files that they are given.
const LISTERS: &str = " find ls fd realpath readlink ";
/// Programs that send what they read, to the hosts that they are given.
const PIPES: &str = " nc ncat netcat socat telnet mail mailx mutt sendmail msmtp ssh ";
/// Programs that copy files to other machines.
const COPIERS: &str =
    " scp rsync sftp rclone gsutil aws az gist lftp ftp b2 mc s3cmd croc wormhole transfer ";
/// Programs that ask name servers.
const RESOLVERS: &str = " dig nslookup host ping drill ";
/// Programs that start the program named behind them.
const STARTERS: &str =
    " sudo doas nohup exec command time nice ionice setsid stdbuf timeout busybox builtin @ $ > ";

fn is_in(list: &str, name: &str) -> bool {
    !name.is_empty() && list.split(' ').any(|one| one == name)
}

/// Returns the value of a word.
pub(super) fn value_of(program: &mut Program, word: &Word, place: Place) -> Node {
    let node = program.literal(&word.text, place);
    let texts = if word.nodes.is_empty() {
        Vec::new()
    } else {
        paths::join_texts(program, place.file, &word.text)
    };
    let mut files = texts.iter().filter(|text| !text.contains("-i "));
    if let Some(kind) = files.find_map(|text| find_store(text)) {
        program.add_secret(node, kind, false, place);
    }
    // `"$key.pub"` is not the file that `$key` names.
    let is_beside = !texts.is_empty() && texts.iter().all(|text| is_public(text));
    let flow = if is_beside || is_public(&word.text) {
        Flow::Content
    } else {
        Flow::Copy
    };
    for part in &word.nodes {
        program.graph.edge(*part, node, flow, place);
    }
    node
}

/// The interpreter that a program is.
fn interpreter(name: &str) -> Option<Language> {
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    Some(match name {
        "sh" | "bash" | "zsh" | "dash" | "ksh" | "ash" | "fish" => Language::Shell,
        "python" | "pypy" | "uv" | "ruby" => Language::Python,
        "node" | "nodejs" | "deno" | "bun" | "tsx" | "ts-node" | "php" | "npx" | "bunx"
        | "pnpx" => Language::JavaScript,
        "pwsh" | "powershell" => Language::PowerShell,
        _ => return None,
    })
}

/// Whether a word is the value of a variable or of a substitution, and no text with one in it.
fn is_value(word: &Word) -> bool {
    !word.nodes.is_empty() && (word.text.is_empty() || word.text.starts_with('$'))
}

/// Returns the value of a word that names a file, whatever its name looks like.
pub(super) fn file_of(program: &mut Program, word: &Word, text: &str, place: Place) -> Node {
    let part = Word {
        text: text.to_owned(),
        ..word.clone()
    };
    let node = value_of(program, &part, place);
    program.name_file(node, text, place);
    node
}

/// Puts a command into the graph.
pub(super) fn run(program: &mut Program, command: &Command) {
    let words = programs::find_program(program, command);
    let Some((name, arguments)) = words.split_first() else {
        if command.words.iter().any(|word| word.text == "env") {
            add_environment(program, command);
        }
        return;
    };
    let path = name.text.as_str();
    // The name of the program is a value.
    let operator = arguments.first().map(|word| word.text.as_str());
    let is_test = operator.is_some_and(|word| {
        word == "in"
            || word.starts_with(['=', '!', ']'])
            || word.starts_with('-') && word.len() == 3
    });
    if !is_test && (path.is_empty() || path.starts_with('$')) {
        let node = value_of(program, name, command.place);
        program.add_call(node, Call::Runs, node, command.place);
        program.add_call(node, Call::RunsFile, node, command.place);
    }
    let name = programs::base_name(path);
    let call = Arguments {
        command,
        words: arguments,
    };
    call.find_secret(program, name);
    match name {
        "xargs" | "parallel" => call.run_on_input(program),
        "curl" => call.curl(program),
        "wget" => call.wget(program),
        "http" | "https" | "xh" | "xhs" => call.http(program),
        "printenv" | "env" | "set" if arguments.is_empty() => add_environment(program, command),
        "export" | "local" | "declare" | "readonly" | "typeset" => call.declare(program, name),
        "read" | "mapfile" | "readarray" => call.read_variables(program),
        "source" | "." => call.import(program),
        "eval" | "trap" => call.evaluate(program),
        "su" | "runuser" | "cmd" | "watch" | "tmux" | "screen" | "script" => {
            call.run_lines(program);
        }
        "at" | "batch" | "crontab" => call.run_printed(program, Language::Shell),
        "alias" => call.add_alias(program),
        "echo" | "printf" => call.print(program),
        "cp" | "mv" | "ln" | "install" => call.copy_files(program),
        "tar" | "zip" | "7z" | "rar" => call.pack(program, name),
        "tee" | "dd" => call.write(program, name),
        "cd" | "pushd" => call.enter(program),
        "git" => call.git(program),
        "chmod" | "mkdir" | "rm" | "test" | "[" | "wc" | "sha256sum" | "touch" => {}
        "openssl" if call.has("s_client") => call.pipe(program, name),
        "perl" if call.has("-e") => call.interpret(program, Language::JavaScript),
        _ if is_in(READERS, name) => call.read(program, name, Flow::Copy),
        _ if is_in(SELECTORS, name) => call.read(program, name, Flow::Narrow),
        _ if is_in(LISTERS, name) => call.list(program),
        _ if is_in(PIPES, name) => call.pipe(program, name),
        _ if is_in(COPIERS, name) => call.copy_away(program, name),
        _ if is_in(RESOLVERS, name) => call.resolve(program),
        _ if call.publishes(name) => call.publish(program),
        _ => match interpreter(name) {
            Some(language) => call.interpret(program, language),
            None => {
                call.call_own(program, path);
                call.run_inner(program);
            }
        },
    }
    call.hand_environment(program, path);
}

/// Makes what a command prints the whole environment.
fn add_environment(program: &mut Program, command: &Command) {
    program.add_secret(command.output, ENVIRONMENT, true, command.place);
    program.environments.insert(command.output);
}

/// Remembers what a word stands for: a variable or an alias that names a program or its options.
pub(super) fn remember(program: &mut Program, file: u32, word: String, text: &str) {
    let first = text.split_whitespace().next().unwrap_or_default();
    if text.len() < LONGEST_TEXT && (first.starts_with('-') || programs::is_known(first)) {
        program.texts.insert((file, word), text.to_owned());
    }
}

/// Remembers the text of a document that a command gets, in case that it is code.
pub(super) fn set_document(program: &mut Program, input: Node, text: &str, place: Place) {
    let found = program.interpreters.iter().find(|one| one.0 == input);
    let Some((_, language, output, depth)) = found.copied() else {
        return;
    };
    let is_config = program.configs.contains(&input);
    let (text, is_exact) = if is_config {
        (senders::command_of_config(text), false)
    } else {
        (text.to_owned(), true)
    };
    let input = program.graph.fresh();
    program.read_later(Code {
        language,
        text,
        place,
        is_exact,
        input,
        output,
        depth,
    });
}

/// A redirection to a socket, as `bash` has it.
pub(super) fn send_to_socket(program: &mut Program, command: &Command, path: &str, value: Node) {
    let target = program.graph.fresh();
    let host = path.split('/').nth(3).unwrap_or_default();
    program.graph.set_text(target, host);
    program.copy(value, target, command.place);
    program.add_call(command.output, Call::Sends, target, command.place);
}

/// The words behind the program's name.
struct Arguments<'a> {
    command: &'a Command,
    words: &'a [Word],
}

impl Arguments<'_> {
    fn place(&self) -> Place {
        self.command.place
    }

    /// The values of all words; of the addresses among them a call has its target.
    fn target(&self, program: &mut Program) -> Node {
        let target = program.graph.fresh();
        for word in self.words {
            let value = value_of(program, word, self.place());
            program.copy(value, target, self.place());
        }
        target
    }

    /// The words that are no options.
    fn plain(&self) -> impl Iterator<Item = &Word> {
        self.words
            .iter()
            .filter(|word| !word.text.starts_with('-') || word.text.len() == 1)
    }

    fn has(&self, text: &str) -> bool {
        self.words.iter().any(|word| word.text == text)
    }

    /// The value of a word, or of a part of it, that names a file.
    fn file(&self, program: &mut Program, word: &Word, text: &str) -> Node {
        let node = file_of(program, word, text, self.place());
        // In a folder of secrets, a path without a folder in it is one of them.
        if let Some(folder) = program.folders.get(&self.command.file)
            && !text.contains(['/', '$', '~'])
        {
            let is_all = matches!(text, "." | "*");
            let path = format!("{folder}/{}", if is_all { "" } else { text });
            if let Some(kind) = find_store(&path) {
                program.add_secret(node, kind, false, self.place());
            }
        }
        node
    }

    fn value(&self, program: &mut Program, word: &Word) -> Node {
        value_of(program, word, self.place())
    }

    /// The part of a word behind its first bytes.
    fn part(&self, program: &mut Program, word: &Word, text: &str) -> Node {
        let part = Word {
            text: text.to_owned(),
            ..word.clone()
        };
        value_of(program, &part, self.place())
    }

    fn read_variables(&self, program: &mut Program) {
        for word in self.plain() {
            let variable = program.variable(self.command.file, 0, &word.text);
            program.copy(self.command.input, variable, self.place());
        }
    }

    fn print(&self, program: &mut Program) {
        for word in self.words {
            let node = self.value(program, word);
            program.copy(node, self.command.output, self.place());
        }
        let texts: Vec<&str> = self.plain().map(|word| word.text.as_str()).collect();
        let text = texts.join(" ");
        if text.len() < LONGEST_PRINTED && self.plain().all(|word| word.nodes.is_empty()) {
            program.remember_printed(self.command.output, text);
        }
        if let [option, name, ..] = self.words
            && option.text == "-v"
        {
            let variable = program.variable(self.command.file, 0, &name.text);
            program.copy(self.command.output, variable, self.place());
        }
    }
}
