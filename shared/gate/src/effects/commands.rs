//! What the commands of a shell do with what they are given: one row for each program, with the
//! options that read, write and send.

mod senders;

use super::graph::{Flow, Node, Place};
use super::program::{ALL, Call, Code, Language, Program};
use super::stores::ENVIRONMENT;

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
}

/// Programs that print the files that they are given, in some form.
const READERS: &str = " cat head tail tac nl rev base64 base32 gzip zcat gunzip bzip2 xz zstd xxd od hexdump strings openssl gpg fold paste sort uniq uuencode pv iconv more less bat basenc ";
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
    " sudo doas nohup exec command time nice setsid stdbuf timeout busybox builtin $ > ";

fn is_in(list: &str, name: &str) -> bool {
    !name.is_empty() && list.split(' ').any(|one| one == name)
}

/// Returns the value of a word.
pub(super) fn value_of(program: &mut Program, word: &Word, place: Place) -> Node {
    let node = program.literal(&word.text, place);
    for part in &word.nodes {
        program.copy(*part, node, place);
    }
    node
}

/// The interpreter that a program is.
fn interpreter(name: &str) -> Option<Language> {
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    Some(match name {
        "sh" | "bash" | "zsh" | "dash" | "ksh" | "ash" | "fish" => Language::Shell,
        "python" | "pypy" | "uv" => Language::Python,
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

/// Puts a command into the graph.
pub(super) fn run(program: &mut Program, command: &Command) {
    let mut words = command.words.as_slice();
    while let Some((first, rest)) = words.split_first() {
        let is_option = first.text.starts_with('-') && words.len() < command.words.len();
        let is_number = first
            .text
            .trim_end_matches(['s', 'm', 'h'])
            .parse::<u32>()
            .is_ok();
        let is_variable = first.text.contains('=') && !first.text.starts_with('-');
        let is_start = is_in(STARTERS, &first.text) || first.text == "env" && !rest.is_empty();
        if !(is_start || is_option || is_number || is_variable) {
            break;
        }
        words = rest;
    }
    let Some((name, arguments)) = words.split_first() else {
        if command.words.iter().any(|word| word.text == "env") {
            program.add_secret(command.output, ENVIRONMENT, true, command.place);
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
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let call = Arguments {
        command,
        words: arguments,
    };
    match name {
        "xargs" | "parallel" => call.run_on_input(program),
        "curl" => call.curl(program),
        "wget" => call.wget(program),
        "http" | "https" | "xh" | "xhs" => call.http(program),
        "printenv" | "env" if arguments.is_empty() => {
            program.add_secret(command.output, ENVIRONMENT, true, command.place);
        }
        "export" | "local" | "declare" | "readonly" | "typeset" => call.declare(program),
        "read" | "mapfile" | "readarray" => call.read_variables(program),
        "source" | "." => call.import(program),
        "eval" => call.evaluate(program),
        "echo" | "printf" => call.print(program),
        "cp" | "mv" | "ln" | "install" => call.copy_files(program),
        "tar" | "zip" | "7z" | "rar" => call.pack(program, name),
        "tee" | "dd" => call.write(program, name),
        "chmod" | "cd" | "mkdir" | "rm" | "test" | "[" | "wc" | "sha256sum" | "touch" => {}
        _ if is_in(READERS, name) => call.read(program, Flow::Copy),
        _ if is_in(SELECTORS, name) => call.read(program, Flow::Narrow),
        _ if is_in(LISTERS, name) => call.list(program),
        _ if is_in(PIPES, name) => call.pipe(program, name),
        _ if is_in(COPIERS, name) => call.copy_away(program, name),
        _ if is_in(RESOLVERS, name) => call.resolve(program),
        _ => match interpreter(name) {
            Some(language) => call.interpret(program, language),
            None => call.call_own(program, path),
        },
    }
}

/// Remembers the text of a document that a command gets, in case that it is code.
pub(super) fn set_document(program: &mut Program, input: Node, text: &str, place: Place) {
    let found = program.interpreters.iter().find(|one| one.0 == input);
    let Some((_, language, output, depth)) = found.copied() else {
        return;
    };
    let input = program.graph.fresh();
    program.read_later(Code {
        language,
        text: text.to_owned(),
        place,
        is_exact: true,
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

    fn read(&self, program: &mut Program, flow: Flow) {
        let output = program.graph.fresh();
        program.copy(self.command.input, output, self.place());
        for word in self.plain() {
            let node = self.value(program, word);
            program.graph.edge(node, output, Flow::Read, self.place());
        }
        program
            .graph
            .edge(output, self.command.output, flow, self.place());
        // `base64 -o file`, `openssl -in file -out file`.
        for pair in self.words.windows(2) {
            if matches!(pair[0].text.as_str(), "-o" | "-out" | "--output") {
                let node = self.value(program, &pair[1]);
                program.graph.edge(output, node, Flow::Write, self.place());
            }
        }
    }

    fn list(&self, program: &mut Program) {
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

    fn run_words(&self, program: &mut Program, words: Vec<Word>) {
        if self.command.depth >= super::program::MOST_DEPTH {
            program.graph.cut_at(self.place());
            return;
        }
        let output = program.graph.fresh();
        program.copy(output, self.command.output, self.place());
        let command = Command {
            words,
            input: self.command.input,
            output,
            function: self.command.function.clone(),
            depth: self.command.depth + 1,
            ..*self.command
        };
        run(program, &command);
    }

    /// `xargs`: the words of the input become arguments.
    fn run_on_input(&self, program: &mut Program) {
        let mut words: Vec<Word> = self
            .words
            .iter()
            .skip_while(|word| {
                word.text.starts_with('-') || word.text == "{}" || word.text.len() == 1
            })
            .cloned()
            .collect();
        let mut is_placed = false;
        for word in &mut words {
            if word.text.contains("{}") || word.text.contains('%') {
                word.nodes.push(self.command.input);
                is_placed = true;
            }
        }
        if !is_placed {
            words.push(Word {
                text: "{}".to_owned(),
                nodes: vec![self.command.input],
                at: 0,
            });
        }
        self.run_words(program, words);
    }

    fn declare(&self, program: &mut Program) {
        for word in self.words {
            if let Some((name, value)) = word.text.split_once('=') {
                let node = self.part(program, word, value);
                let variable = program.variable(self.command.file, 0, name);
                program.copy(node, variable, self.place());
            }
        }
    }

    fn read_variables(&self, program: &mut Program) {
        for word in self.plain() {
            let variable = program.variable(self.command.file, 0, &word.text);
            program.copy(self.command.input, variable, self.place());
        }
    }

    fn import(&self, program: &mut Program) {
        let Some(word) = self.words.first() else {
            return;
        };
        if let Some(other) = program.own_file(&word.text) {
            program.imports.push((self.command.file, other));
        }
        let target = self.target(program);
        let node = self.value(program, word);
        program.add_call(node, Call::RunsFile, target, self.place());
        if word.text.starts_with("/dev/") || word.text == "-" {
            program.add_call(self.command.input, Call::Runs, target, self.place());
        }
    }

    fn evaluate(&self, program: &mut Program) {
        let target = self.target(program);
        if self.words.first().is_some_and(is_value) {
            program.add_call(target, Call::Runs, target, self.place());
        }
        let text: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        self.read_code(program, Language::Shell, text.join(" "));
    }

    fn read_code(&self, program: &mut Program, language: Language, text: String) {
        program.read_later(Code {
            language,
            text,
            place: self.place(),
            is_exact: false,
            input: self.command.input,
            output: self.command.output,
            depth: self.command.depth + 1,
        });
    }

    fn print(&self, program: &mut Program) {
        for word in self.words {
            let node = self.value(program, word);
            program.copy(node, self.command.output, self.place());
        }
        if let [option, name, ..] = self.words
            && option.text == "-v"
        {
            let variable = program.variable(self.command.file, 0, &name.text);
            program.copy(self.command.output, variable, self.place());
        }
    }

    fn copy_files(&self, program: &mut Program) {
        let words: Vec<&Word> = self.plain().collect();
        let Some((last, files)) = words.split_last() else {
            return;
        };
        let to = self.value(program, last);
        let content = program.graph.fresh();
        for word in files {
            let node = self.value(program, word);
            program.graph.edge(node, content, Flow::Read, self.place());
        }
        program.graph.edge(content, to, Flow::Write, self.place());
    }

    /// The first plain word, or the one behind an option with `f`, is the archive.
    fn pack(&self, program: &mut Program, name: &str) {
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
        for word in self.words {
            let text = word.text.as_str();
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
            let node = self.value(program, word);
            program.graph.edge(node, content, Flow::Read, self.place());
        }
        match to.filter(|word| word.text != "-") {
            Some(word) => {
                let node = self.value(program, word);
                program.graph.edge(content, node, Flow::Write, self.place());
            }
            None => program.copy(content, self.command.output, self.place()),
        }
    }

    fn write(&self, program: &mut Program, name: &str) {
        program.copy(self.command.input, self.command.output, self.place());
        for word in self.plain() {
            let (option, value) = word.text.split_once('=').unwrap_or(("", &word.text));
            let node = self.part(program, word, value);
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

    fn interpret(&self, program: &mut Program, language: Language) {
        let code = self.words.iter().position(|word| {
            let option = word.text.as_str();
            let is_short = option.starts_with('-') && !option.starts_with("--");
            matches!(
                option.to_ascii_lowercase().as_str(),
                "-c" | "-e" | "-r" | "-p" | "--eval" | "-command" | "--print" | "eval"
            ) || is_short && language == Language::Shell && option.ends_with('c')
        });
        let target = self.target(program);
        if let Some(word) = code.and_then(|at| self.words.get(at + 1)) {
            if is_value(word) {
                let node = self.value(program, word);
                program.add_call(node, Call::Runs, target, self.place());
            }
            self.read_code(program, language, word.text.clone());
            return;
        }
        let own = (
            self.command.input,
            language,
            self.command.output,
            self.command.depth + 1,
        );
        let is_input =
            language == Language::Shell && self.words.iter().any(|word| word.text == "-s");
        let mut files = self
            .plain()
            .filter(|word| !is_input && word.text != "-" && word.text != "run");
        match files.next() {
            // `deno run https://…`
            Some(word) if word.text.contains("://") => {
                let node = program.fetched(target, self.place());
                program.add_call(node, Call::Runs, target, self.place());
            }
            Some(word) => {
                let node = self.value(program, word);
                program.add_call(node, Call::RunsFile, target, self.place());
                self.call_script(program, &word.text);
            }
            None => {
                program.add_call(self.command.input, Call::Runs, target, self.place());
                program.interpreters.push(own);
            }
        }
    }

    /// Joins what a script of the skill gets and prints with the command that starts it.
    fn call_script(&self, program: &mut Program, path: &str) {
        let Some(file) = program.own_file(path) else {
            return;
        };
        let printed = program.returned(file, "");
        program.copy(printed, self.command.output, self.place());
        let script = self.words.iter().position(|word| word.text == path);
        let arguments = Arguments {
            words: &self.words[script.map_or(0, |at| at + 1)..],
            ..*self
        };
        arguments.hand_over(program, file, "");
    }

    fn hand_over(&self, program: &mut Program, file: u32, function: &str) {
        let input = program.argument(file, function, 0);
        program.copy(self.command.input, input, self.place());
        for (number, word) in (1..=9).zip(self.words.iter()) {
            let node = self.value(program, word);
            for number in [number, ALL] {
                let argument = program.argument(file, function, number);
                program.copy(node, argument, self.place());
            }
        }
    }

    /// A function of the script, a script of the skill, or a program that is not known.
    fn call_own(&self, program: &mut Program, path: &str) {
        let output = self.command.output;
        if path.contains('/') {
            let node = program.literal(path, self.place());
            let target = self.target(program);
            program.add_call(node, Call::RunsFile, target, self.place());
            self.call_script(program, path);
            return;
        }
        program.copy(self.command.input, output, self.place());
        let returned = program.returned(self.command.file, path);
        program.copy(returned, output, self.place());
        self.hand_over(program, self.command.file, path);
    }
}
