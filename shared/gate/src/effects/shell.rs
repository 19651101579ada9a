//! Reads shell code: words, commands, pipes, redirections, functions and substitutions, as far as
//! values go. It expands nothing and knows no error: what it cannot read is a word.
//!
//! There is no parser crate here, because the programs are small and must stay small, and because a
//! parser rejects the broken code that a shell still runs in part.

mod redirections;

use super::commands::{self, Command, Word};
use super::graph::{Flow, Node, Place};
use super::program::{ALL, Code, MARK_BYTE, Program};

/// Largest number of substitutions inside one another. Deeper ones are read as words.
const MOST_NESTED: u32 = 40;

/// Longest sum.
const LONGEST_SUM: usize = 256;

/// What an open `while`, `{` or function gets, and where its output goes.
struct Group {
    closer: &'static str,
    input: Node,
    output: Node,
    /// The name of the function, if it is one.
    function: Option<String>,
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

    fn function(&self) -> String {
        let mut groups = self.groups.iter().rev();
        groups
            .find_map(|group| group.function.clone())
            .unwrap_or_default()
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
                    } else {
                        self.at += 1;
                    }
                    continue;
                }
                Some(b'|' | b')' | b'(') => {
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
            function: self.function(),
            depth: self.code.depth,
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
                continue;
            }
            if command.words.is_empty() {
                if self.read_assignment(&word) {
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
                let closed = closed.filter(|group| group.function.is_none());
                return closed.map_or(Keyword::IsRead, Keyword::Closes);
            }
            _ => return Keyword::IsNone,
        };
        let group = Group {
            closer,
            input: self.program.graph.fresh(),
            output: self.program.graph.fresh(),
            function: None,
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
            function: Some(name),
        };
        self.groups.push(group);
    }

    /// Reads `name=value` if the word is the beginning of one.
    fn read_assignment(&mut self, word: &Word) -> bool {
        let Some((name, value)) = word.text.split_once('=') else {
            return false;
        };
        let name = name.trim_end_matches('+');
        let name = name.split('[').next().unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return false;
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
        if value.is_empty() && self.peek() == Some(b'(') {
            self.at += 1;
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
                let node = commands::value_of(self.program, &item, place);
                self.program.copy(node, variable, place);
            }
            self.at += 1;
        }
        true
    }

    /// Reads the commands of a substitution up to its closing byte.
    fn read_nested(&mut self, input: Node, output: Node, close: u8) {
        if self.nested >= MOST_NESTED || self.program.graph.is_full() {
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

    /// Reads one word.
    fn read_word(&mut self) -> Word {
        let mut word = Word {
            text: String::new(),
            nodes: Vec::new(),
            at: self.at,
        };
        let mut bytes = Vec::new();
        let mut quote = None;
        while let Some(byte) = self.peek() {
            if byte == b'`' && self.is_in_ticks {
                break;
            }
            if quote != Some(b'\'') && self.read_substitution(&mut word, &mut bytes) {
                continue;
            }
            match (quote, byte) {
                (Some(mark), _) if byte == mark => quote = None,
                (None, b'\'' | b'"') => quote = Some(byte),
                (Some(b'\''), _) => bytes.push(byte),
                (_, b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        None | Some(b'\n') => {}
                        Some(next) => bytes.push(next),
                    }
                }
                (
                    None,
                    b' ' | b'\t' | b'\r' | b'\n' | b';' | b'|' | b'&' | b'<' | b'>' | b'(' | b')',
                ) => break,
                _ => bytes.push(byte),
            }
            self.at += 1;
        }
        word.text = String::from_utf8_lossy(&bytes).into_owned();
        word
    }

    /// Reads a sum, `$((…))`, as a word.
    fn skip_arithmetic(&mut self, bytes: &mut Vec<u8>) -> bool {
        let rest = &self.text[self.at..];
        let end = rest.iter().take(LONGEST_SUM).position(|byte| *byte == b')');
        let Some(end) =
            end.filter(|end| rest.starts_with(b"$((") && rest.get(end + 1) == Some(&b')'))
        else {
            return false;
        };
        bytes.push(b'0');
        self.at += end + 2;
        true
    }

    /// Reads a substitution behind its sign; returns the value, or the name of the file that stands
    /// for it.
    fn read_substituted(&mut self, sign: &str, place: Place) -> Node {
        self.at += sign.len();
        let [input, output, name] = std::array::from_fn(|_| self.program.graph.fresh());
        self.read_nested(input, output, if sign == "`" { b'`' } else { b')' });
        match sign {
            // What the command prints is read from the file.
            "<(" => self.program.graph.edge(output, name, Flow::Write, place),
            // What is written to the file is what the command gets.
            ">(" => self.program.graph.edge(name, input, Flow::Read, place),
            _ => return output,
        }
        name
    }

    /// Reads a variable or a substitution, if one begins here, and adds it to a word.
    fn read_substitution(&mut self, word: &mut Word, bytes: &mut Vec<u8>) -> bool {
        let begun = self.at;
        let file = self.code.place.file;
        let place = self.place(begun);
        // The fence of a block in a block is no command.
        if self.starts("```") {
            self.at += 3;
            return true;
        }
        let opening = ["`", "$(", "<(", ">("];
        let opening = opening.into_iter().find(|sign| self.starts(sign));
        if let Some(sign) = opening {
            if self.skip_arithmetic(bytes) {
                return true;
            }
            let node = self.read_substituted(sign, place);
            word.nodes.push(node);
            return true;
        }
        if self.peek() == Some(MARK_BYTE) {
            let digits = self.text[begun + 1..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit());
            let end = begun + 1 + digits.count();
            let number = std::str::from_utf8(&self.text[begun + 1..end]).ok();
            let node = number.and_then(|number| number.parse::<Node>().ok());
            word.nodes
                .extend(node.filter(|node| self.program.graph.has(*node)));
            self.at = (end + 1).min(self.text.len());
            return true;
        }
        if self.peek() != Some(b'$') {
            return false;
        }
        let is_braced = self.starts("${");
        let from = begun + if is_braced { 2 } else { 1 };
        let from =
            from + usize::from(is_braced && matches!(self.text.get(from), Some(b'!' | b'#')));
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let mut length = self.text[from..].iter().take_while(is_name).count();
        if length == 0 && matches!(self.text.get(from), Some(b'@' | b'*')) {
            length = 1;
        }
        if length == 0 {
            return false;
        }
        let name = String::from_utf8_lossy(&self.text[from..from + length]).into_owned();
        let node = match name.as_str() {
            "@" | "*" => self.program.argument(file, &self.function(), ALL),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = digits.parse().unwrap_or(1);
                self.program.argument(file, &self.function(), number)
            }
            name => self.program.variable(file, 0, name),
        };
        word.nodes.push(node);
        let mut end = from + length;
        if is_braced {
            // `${name:-text}` may hold a path; its text stays part of the word.
            let rest = self.text[end..]
                .iter()
                .take(256)
                .position(|byte| *byte == b'}');
            end += rest.map_or(0, |at| at + 1);
        }
        bytes.extend_from_slice(&self.text[begun..end]);
        self.at = end;
        true
    }
}
