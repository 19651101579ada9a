//! Words of a shell, with the variables and substitutions in them.

use super::super::commands::Word;
use super::super::graph::{Flow, Node, Place};
use super::super::program::{ALL, MARK_BYTE};
use super::{MOST_NESTED, Reader};

/// Longest sum.
const LONGEST_SUM: usize = 256;
/// Longest command that asks where a program is.
const LONGEST_NAME: usize = 64;

impl Reader<'_> {
    /// Reads one word.
    pub(super) fn read_word(&mut self) -> Word {
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
            if quote.is_none() && self.starts("$'") {
                self.read_escaped(&mut bytes);
                continue;
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

    /// Passes over a sum with its brackets, which begins like this. What looks like a redirection in
    /// it is none.
    pub(super) fn skip_sum(&mut self, start: &str) -> bool {
        if !self.starts(start) {
            return false;
        }
        let rest = &self.text[self.at..];
        let mut open = 0_usize;
        for (at, byte) in rest.iter().enumerate().take(LONGEST_SUM) {
            match byte {
                b'(' => open += 1,
                b')' => {
                    open = open.saturating_sub(1);
                    if open == 0 {
                        // `((a) | b)` is a command.
                        let is_sum = rest[..at].ends_with(b")");
                        self.at += if is_sum { at + 1 } else { 0 };
                        return is_sum;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Reads `$'…'`, with its escapes.
    fn read_escaped(&mut self, bytes: &mut Vec<u8>) {
        self.at += 2;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\'' => return,
                b'\\' => {
                    let rest = &self.text[self.at.min(self.text.len())..];
                    let (decoded, length) = decode_escape(rest);
                    bytes.extend(decoded);
                    self.at += length;
                }
                _ => bytes.push(byte),
            }
        }
    }

    /// Reads a sum, `$((…))`, as a word.
    fn skip_arithmetic(&mut self, bytes: &mut Vec<u8>) -> bool {
        let is_sum = self.skip_sum("$((");
        if is_sum {
            bytes.push(b'0');
        }
        is_sum
    }

    /// Reads `$(command -v curl)` as the name of the program.
    fn read_found_program(&mut self, sign: &str, bytes: &mut Vec<u8>) -> bool {
        let rest = &self.text[self.at + sign.len()..];
        let line = &rest[..rest.len().min(LONGEST_NAME)];
        let line = String::from_utf8_lossy(line);
        let name = ["which ", "command -v ", "type -p "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        let end = name.and_then(|name| {
            let is_end = |letter: char| letter == ')' || letter == '`';
            let name = &name[..name.find(is_end)?];
            let is_name = name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            is_name.then(|| name.as_bytes().to_vec())
        });
        let Some(name) = end else {
            return false;
        };
        let length = line.find(')').or_else(|| line.find('`'));
        self.at += sign.len() + length.unwrap_or(0) + 1;
        bytes.extend_from_slice(&name);
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
    pub(super) fn read_substitution(&mut self, word: &mut Word, bytes: &mut Vec<u8>) -> bool {
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
            if self.skip_arithmetic(bytes) || self.read_found_program(sign, bytes) {
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
            "@" | "*" | "OPTARG" => self.program.argument(file, &self.function(), ALL),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = digits.parse().unwrap_or(1);
                let is_moved = self.has_shift && number > 0;
                let number = if is_moved { ALL } else { number };
                self.program.argument(file, &self.function(), number)
            }
            name => self.program.variable(file, 0, name),
        };
        word.nodes.push(node);
        bytes.extend_from_slice(&self.text[begun..from + length]);
        self.at = from + length;
        if is_braced {
            self.read_braced(word, bytes);
        }
        true
    }

    /// Reads what stands behind the name in `${name:-text}`, with the substitutions in it.
    fn read_braced(&mut self, word: &mut Word, bytes: &mut Vec<u8>) {
        // Whoever calls may set it.
        if matches!(self.peek(), Some(b':' | b'-')) {
            word.nodes.push(self.program.graph.fresh());
        }
        let end = self.text.len().min(self.at + LONGEST_DEFAULT);
        self.nested += 1;
        while self.at < end && self.text[self.at] != b'}' {
            let is_read = self.nested < MOST_NESTED && self.read_substitution(word, bytes);
            if !is_read {
                bytes.push(self.text[self.at]);
                self.at += 1;
            }
        }
        self.nested -= 1;
        if self.peek() == Some(b'}') {
            bytes.push(b'}');
            self.at += 1;
        }
    }
}

/// Longest text behind the name of a variable between braces.
const LONGEST_DEFAULT: usize = 256;

/// Decodes an escape behind its backslash; returns its bytes and its length.
fn decode_escape(rest: &[u8]) -> (Vec<u8>, usize) {
    let digits = |from: usize, most: usize, radix: u32| {
        let text = rest.get(from..).unwrap_or_default();
        let digits = text.iter().take(most);
        let digits = digits.map_while(|byte| char::from(*byte).to_digit(radix));
        let digits: Vec<u32> = digits.collect();
        let value = digits.iter().fold(0, |sum, digit| sum * radix + digit);
        let mut encoded = [0; 4];
        let letter = char::from_u32(value).unwrap_or_default();
        let bytes = letter.encode_utf8(&mut encoded).as_bytes().to_vec();
        (bytes, from + digits.len())
    };
    match rest.first() {
        None => (Vec::new(), 0),
        Some(b'n') => (vec![b'\n'], 1),
        Some(b't') => (vec![b'\t'], 1),
        Some(b'x') => digits(1, 2, 16),
        Some(b'u') => digits(1, 4, 16),
        Some(b'0'..=b'7') => digits(0, 3, 8),
        Some(other) => (vec![*other], 1),
    }
}
