//! Redirections and documents of a shell.

use super::super::commands::{self, Command, Word};
use super::super::fragments::find_code;
use super::super::graph::{Flow, Node};
use super::super::program::Code;
use super::Reader;

/// Largest number of documents without an end that are read as code, too.
const MOST_UNENDED: u32 = 16;

impl Reader<'_> {
    /// Reads a redirection; returns the file that the output goes to.
    pub(super) fn read_redirection(&mut self, command: &Command) -> Option<Node> {
        let begun = self.at;
        let descriptor = self.descriptor.take();
        while matches!(self.peek(), Some(b'<' | b'>' | b'&' | b'|')) && self.at < begun + 3 {
            // `<(` and `>(` are words.
            if self.at > begun && self.text.get(self.at - 1) == Some(&b'&') {
                break;
            }
            self.at += 1;
        }
        let sign = &self.text[begun..self.at];
        let is_document = sign == b"<<";
        let is_text = sign == b"<<<";
        let is_read = sign.starts_with(b"<");
        let is_number = sign.ends_with(b"&");
        if is_document && self.peek() == Some(b'-') {
            self.at += 1;
        }
        if !is_document && sign.len() == 1 && self.peek() == Some(b'(') {
            self.at -= 1;
        }
        self.skip_space();
        let quoted = matches!(self.peek(), Some(b'\'' | b'"' | b'\\'));
        let word = self.read_word();
        let place = self.place(word.at);
        if is_document {
            self.documents.push((word.text, quoted, command.input));
            return None;
        }
        let value = commands::file_of(self.program, &word, &word.text, place);
        if is_text {
            self.program.copy(value, command.input, place);
            return None;
        }
        if is_number
            && word
                .text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-')
        {
            let number = word.text.bytes().next();
            if let Some((host, node)) = number.and_then(|number| self.sockets.get(&number)) {
                commands::send_to_socket(self.program, command, host, *node);
            }
            return None;
        }
        if word.text.starts_with("/dev/tcp/") || word.text.starts_with("/dev/udp/") {
            commands::send_to_socket(self.program, command, &word.text, value);
            if let Some(descriptor) = descriptor {
                self.sockets.insert(descriptor, (word.text.clone(), value));
            }
        }
        if is_read {
            self.program
                .graph
                .edge(value, command.input, Flow::Read, place);
            None
        } else {
            self.written.clone_from(&word.text);
            Some(value)
        }
    }

    /// Reads a document that is written to a script.
    fn read_written(&mut self, body: &str, begun: usize) {
        let name = std::mem::take(&mut self.written);
        let is_prose = [".md", ".txt", ".mdx"]
            .iter()
            .any(|end| name.ends_with(end));
        if name.is_empty() || is_prose {
            return;
        }
        for fragment in find_code(&name, body) {
            if fragment.is_span {
                continue;
            }
            let [input, output] = std::array::from_fn(|_| self.program.graph.fresh());
            self.program.read_later(Code {
                language: fragment.language,
                text: fragment.text,
                place: self.place(begun + fragment.start),
                is_exact: fragment.is_exact,
                input,
                output,
                depth: self.code.depth + 1,
            });
        }
    }

    /// Reads the texts of documents that begin here.
    pub(super) fn read_documents(&mut self) {
        for (end, is_quoted, input) in std::mem::take(&mut self.documents) {
            let begun = self.at;
            let mut until = self.text.len();
            let mut is_ended = false;
            while self.at < self.text.len() {
                let line = &self.text[self.at..];
                let length = line
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(line.len());
                let here = self.at;
                self.at += length + 1;
                if line[..length].trim_ascii() == end.as_bytes() {
                    until = here;
                    is_ended = true;
                    break;
                }
            }
            self.at = self.at.min(self.text.len());
            // `1 << 2` is no document. Only a few are tried, because each is read to the end.
            if !is_ended && self.unended < MOST_UNENDED {
                self.unended += 1;
                self.at = begun;
            }
            let place = self.place(begun);
            let body = String::from_utf8_lossy(&self.text[begun..until]).into_owned();
            let node = if is_quoted {
                self.program.literal(&body, place)
            } else {
                let after = std::mem::replace(&mut self.at, begun);
                let word = self.read_until(until);
                self.at = after;
                commands::value_of(self.program, &word, place)
            };
            self.program.copy(node, input, place);
            commands::set_document(self.program, input, &body, place);
            if is_ended {
                self.read_written(&body, begun);
            }
        }
    }

    /// Reads text with substitutions up to an offset.
    fn read_until(&mut self, until: usize) -> Word {
        let mut word = Word {
            text: String::new(),
            nodes: Vec::new(),
            at: self.at,
        };
        let mut bytes = Vec::new();
        while self.at < until {
            if !self.read_substitution(&mut word, &mut bytes) {
                bytes.push(self.text[self.at]);
                self.at += 1;
            }
        }
        word.text = String::from_utf8_lossy(&bytes).into_owned();
        word
    }
}
