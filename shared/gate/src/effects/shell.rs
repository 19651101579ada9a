//! Reads shell code: words, commands, pipes, redirections, functions and substitutions, as far as
//! values go. It expands nothing and knows no error: what it cannot read is a word.
//!
//! There is no parser crate here, because the programs are small and must stay small, and because a
//! parser rejects the broken code that a shell still runs in part.

mod redirections;
mod words;

use super::commands::{self, Command, Word};
use super::graph::{Flow, Node, Place};
use super::program::{Code, Program};
use std::collections::HashMap;
use std::rc::Rc;

/// Largest number of substitutions inside one another. Deeper ones are read as words.
const MOST_NESTED: u32 = 40;

/// What an open `while`, `{` or function gets, and where its output goes.
struct Group {
    closer: &'static str,
    input: Node,
    output: Node,
    /// Whether it is a function.
    is_function: bool,
    /// The name of the function that it is or stands in.
    within: Rc<str>,
}

/// What the first word of a command is.
enum Keyword {
    /// No keyword.
    IsNone,
    /// One that was read.
    IsRead,
    /// The end of this compound command.
    Closes(Group),
}

/// What a sign in a command is.
enum Sign {
    /// The command ends before it.
    Ends,
    /// It was read.
    IsRead,
    /// A word begins here.
    IsWord,
}

/// The redirections of a command.
#[derive(Default)]
struct Redirected {
    /// The file that the output goes to.
    to: Option<Node>,
    /// Whether the input comes from a file.
    is_read: bool,
}

struct Reader<'a> {
    code: &'a Code,
    text: &'a [u8],
    at: usize,
    nested: u32,
    /// Whether a substitution between back ticks is open. The next back tick ends it.
    is_in_ticks: bool,
    groups: Vec<Group>,
    /// Documents (`<<EOF`) whose text begins on the next line: the end, and where the text goes.
    documents: Vec<(String, bool, Node)>,
    /// Whether the code moves its arguments on, so that the number of one says little.
    has_shift: bool,
    /// Documents without an end so far.
    unended: u32,
    /// The file that the last command with one writes to.
    written: String,
    /// The number in front of a redirection that begins here.
    descriptor: Option<u8>,
    /// Numbers that stand for connections to other machines: `exec 3<>/dev/tcp/…`.
    sockets: HashMap<u8, (String, Node)>,
    program: &'a mut Program,
}

/// Puts shell code into the graph.
pub(super) fn read_shell(code: &Code, program: &mut Program) {
    let mut reader = Reader {
        code,
        text: code.text.as_bytes(),
        at: 0,
        nested: 0,
        is_in_ticks: false,
        groups: Vec::new(),
        documents: Vec::new(),
        has_shift: code.text.contains("shift"),
        unended: 0,
        written: String::new(),
        descriptor: None,
        sockets: HashMap::new(),
        program,
    };
    reader.read_list(code.input, code.output, None);
}

impl Reader<'_> {
    fn place(&self, at: usize) -> Place {
        let offset = if self.code.is_exact { at } else { 0 };
        Place {
            offset: self.code.place.offset + u32::try_from(offset).unwrap_or_default(),
            ..self.code.place
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn starts(&self, with: &str) -> bool {
        self.text[self.at.min(self.text.len())..].starts_with(with.as_bytes())
    }

    fn function(&self) -> Rc<str> {
        let group = self.groups.last();
        group.map_or_else(|| Rc::from(""), |group| Rc::clone(&group.within))
    }

    /// Reads commands up to this closing byte or the end. What they print goes to `output`.
    fn read_list(&mut self, input: Node, output: Node, close: Option<u8>) {
        let outer = self.groups.len();
        let mut piped: Option<Node> = None;
        loop {
            self.skip_space();
            match self.peek() {
                None => break,
                Some(byte) if Some(byte) == close => break,
                Some(b'`') if self.is_in_ticks => break,
                Some(b'\n' | b';' | b'&') => {
                    if self.peek() == Some(b'\n') {
                        self.at += 1;
                        self.read_documents();
                        self.written.clear();
                    } else {
                        self.at += 1;
                    }
                    continue;
                }
                Some(b'|' | b')') => {
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            let inner = self.groups[outer..].last().map(|group| group.input);
            let input = piped.take().or(inner).unwrap_or(input);
            let before = self.at;
            let printed = self.read_command(input, outer);
            self.skip_space();
            let is_piped = self.starts("|") && !self.starts("||") || self.starts("|&");
            if is_piped {
                self.at += 1;
                piped = Some(printed);
            } else {
                let place = self.place(before);
                // Only here, because the command may have opened or closed a group.
                let out = self.groups[outer..].last().map(|group| group.output);
                self.program.copy(printed, out.unwrap_or(output), place);
            }
            // Always move on, so that no text keeps the reader forever.
            if self.at == before {
                self.at += 1;
            }
        }
        self.groups.truncate(outer);
    }

    /// Skips blanks, escaped line breaks and comments.
    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\\' if self.starts("\\\n") => self.at += 2,
                b'\\' if self.starts("\\\r\n") => self.at += 3,
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
    }

    /// Reads one command, with its assignments and redirections, and returns what it prints.
    fn read_command(&mut self, input: Node, outer: usize) -> Node {
        let output = self.program.graph.fresh();
        let mut command = Command {
            words: Vec::new(),
            input: self.program.graph.fresh(),
            output,
            place: self.place(self.at),
            file: self.code.place.file,
            function: self.function().to_string(),
            depth: self.code.depth,
            given: Vec::new(),
            is_exact: self.code.is_exact,
            source: input,
        };
        let place = command.place;
        self.program.copy(input, command.input, place);
        let mut redirected = Redirected::default();
        loop {
            self.skip_space();
            match self.read_sign(&mut command, (input, outer), &mut redirected) {
                Sign::Ends => break,
                Sign::IsRead => continue,
                Sign::IsWord => {}
            }
            let before = self.at;
            let word = self.read_word();
            if self.at == before {
                break;
            }
            // The number of a redirection: `2>`.
            let is_number = word.nodes.is_empty() && word.text.len() == 1;
            if is_number
                && matches!(self.peek(), Some(b'<' | b'>'))
                && word.text.bytes().all(|byte| byte.is_ascii_digit())
            {
                self.descriptor = word.text.bytes().next();
                continue;
            }
            if command.words.is_empty() {
                if let Some(given) = self.read_assignment(&word) {
                    command.given.push(given);
                    continue;
                }
                match self.read_keyword(&word.text, input, outer) {
                    Keyword::IsNone => {}
                    Keyword::IsRead => {
                        // The command may be the first one in a group.
                        if let Some(group) = self.groups[outer..].last() {
                            self.program.copy(group.input, command.input, place);
                        }
                        continue;
                    }
                    Keyword::Closes(group) => {
                        self.program.copy(group.output, output, place);
                        self.program.copy(command.input, group.input, place);
                        command.input = group.input;
                        continue;
                    }
                }
            }
            command.words.push(word);
        }
        if !command.words.is_empty() {
            commands::run(self.program, &command);
        } else if redirected.is_read {
            self.program.copy(command.input, output, place);
        }
        if let Some(file) = redirected.to {
            self.program.graph.edge(output, file, Flow::Write, place);
        }
        output
    }

    /// Reads a bracket or a redirection of a command, if one begins here.
    fn read_sign(
        &mut self,
        command: &mut Command,
        (input, outer): (Node, usize),
        redirected: &mut Redirected,
    ) -> Sign {
        match self.peek() {
            None | Some(b'\n' | b';' | b'|' | b')') => return Sign::Ends,
            Some(b'`') if self.is_in_ticks => return Sign::Ends,
            Some(b'&') if !self.starts("&>") => return Sign::Ends,
            Some(b'(') if command.words.is_empty() && self.skip_sum("((") => {}
            Some(b'(') if command.words.is_empty() => {
                self.at += 1;
                self.read_nested(input, command.output, b')');
            }
            Some(b'(') => {
                self.at += 1;
                self.skip_space();
                if self.peek() == Some(b')') {
                    self.at += 1;
                    let words = std::mem::take(&mut command.words);
                    let name = words.into_iter().last().map(|word| word.text);
                    self.open_function(name.unwrap_or_default(), outer);
                    return Sign::Ends;
                }
            }
            Some(b'<' | b'>' | b'&') if !self.starts("<(") && !self.starts(">(") => {
                // `$(< file)` prints the file.
                redirected.is_read |= self.peek() == Some(b'<');
                if let Some(to) = self.read_redirection(command) {
                    redirected.to = Some(to);
                }
            }
            _ => return Sign::IsWord,
        }
        Sign::IsRead
    }

    /// Opens or closes a compound command, if the word is a keyword.
    fn read_keyword(&mut self, word: &str, input: Node, outer: usize) -> Keyword {
        let closer = match word {
            "while" | "until" | "for" | "select" => "done",
            "if" => "fi",
            "case" => "esac",
            "{" => "}",
            "function" => {
                self.skip_space();
                let name = self.read_word().text;
                if self.starts("()") {
                    self.at += 2;
                }
                self.open_function(name, outer);
                return Keyword::IsRead;
            }
            "then" | "do" | "else" | "elif" | "!" | "time" => return Keyword::IsRead,
            "done" | "fi" | "esac" | "}" => {
                let is_open = self.groups[outer..]
                    .last()
                    .is_some_and(|group| group.closer == word);
                let closed = is_open.then(|| self.groups.pop()).flatten();
                // What the body of a function prints goes to its callers.
                let closed = closed.filter(|group| !group.is_function);
                return closed.map_or(Keyword::IsRead, Keyword::Closes);
            }
            _ => return Keyword::IsNone,
        };
        let group = Group {
            closer,
            input: self.program.graph.fresh(),
            output: self.program.graph.fresh(),
            is_function: false,
            within: self.function(),
        };
        let place = self.place(self.at);
        self.program.copy(input, group.input, place);
        let file = self.code.place.file;
        if matches!(word, "for" | "select") {
            self.skip_space();
            let name = self.read_word();
            let variable = self.program.variable(file, 0, &name.text);
            while matches!(self.peek(), Some(b' ' | b'\t')) {
                self.at += 1;
                let before = self.at;
                let word = self.read_word();
                if self.at == before {
                    break;
                }
                let place = self.place(word.at);
                let value = commands::value_of(self.program, &word, place);
                self.program.copy(value, variable, place);
                commands::paths::add_text(self.program, file, &name.text, &word.text);
            }
        }
        // A function's head is in front of its `{`.
        if let Some(last) = self
            .groups
            .last_mut()
            .filter(|last| last.closer == "function")
        {
            last.closer = "}";
            if closer == "}" {
                return Keyword::IsRead;
            }
        }
        self.groups.push(group);
        Keyword::IsRead
    }

    fn open_function(&mut self, name: String, outer: usize) {
        let file = self.code.place.file;
        // A function that is open without its `{` had none.
        if self.groups[outer..]
            .last()
            .is_some_and(|last| last.closer == "function")
        {
            self.groups.pop();
        }
        let group = Group {
            closer: "function",
            input: self.program.argument(file, &name, 0),
            output: self.program.returned(file, &name),
            is_function: true,
            within: Rc::from(name),
        };
        self.groups.push(group);
    }

    /// Reads `name=value` if the word is the beginning of one. Returns the name and the value.
    fn read_assignment(&mut self, word: &Word) -> Option<(String, Node)> {
        let (name, value) = word.text.split_once('=')?;
        let name = name.trim_end_matches('+');
        let name = name.split('[').next().unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return None;
        }
        let place = self.place(word.at);
        let variable = self.program.variable(self.code.place.file, 0, name);
        let whole = Word {
            text: value.to_owned(),
            nodes: word.nodes.clone(),
            at: word.at,
        };
        let node = commands::value_of(self.program, &whole, place);
        self.program.copy(node, variable, place);
        // A substitution leaves no sign in the text.
        if whole.nodes.len() == value.matches('$').count() {
            commands::paths::add_text(self.program, self.code.place.file, name, value);
        }
        if whole.nodes.is_empty() {
            commands::remember(
                self.program,
                self.code.place.file,
                format!("${name}"),
                value,
            );
        }
        if value.is_empty() && self.peek() == Some(b'(') {
            self.at += 1;
            let mut is_key = false;
            while self.peek().is_some_and(|byte| byte != b')') {
                self.skip_space();
                if self.peek() == Some(b'\n') {
                    self.at += 1;
                    continue;
                }
                let before = self.at;
                let item = self.read_word();
                if self.at == before {
                    break;
                }
                // `(-i KEY)` are options of `ssh`: the key is used and not sent.
                if !std::mem::replace(&mut is_key, item.text == "-i") {
                    let node = commands::value_of(self.program, &item, place);
                    let is_login = item.text.to_ascii_lowercase().starts_with("authorization:");
                    let flow = if is_login { Flow::Header } else { Flow::Copy };
                    self.program.graph.edge(node, variable, flow, place);
                }
            }
            self.at += 1;
        }
        Some((name.to_owned(), node))
    }

    /// Reads the commands of a substitution up to its closing byte.
    fn read_nested(&mut self, input: Node, output: Node, close: u8) {
        if self.nested >= MOST_NESTED || self.program.graph.is_piece_full() {
            let place = self.place(self.at);
            self.program.graph.cut_at(place);
            return;
        }
        self.nested += 1;
        let was_in_ticks = self.is_in_ticks;
        self.is_in_ticks |= close == b'`';
        self.read_list(input, output, Some(close));
        self.is_in_ticks = was_in_ticks;
        self.nested -= 1;
        if self.peek() == Some(close) {
            self.at += 1;
        }
    }
}
