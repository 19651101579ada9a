//! Redirections and documents of a shell.

use super::super::commands::{self, Command, Word};
use super::super::graph::{Flow, Node};
use super::Reader;

impl Reader<'_> {
    /// Reads a redirection; returns the file that the output goes to.
    pub(super) fn read_redirection(&mut self, command: &Command) -> Option<Node> {
        let begun = self.at;
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
        let value = commands::value_of(self.program, &word, place);
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
            return None;
        }
        if word.text.starts_with("/dev/tcp/") || word.text.starts_with("/dev/udp/") {
            commands::send_to_socket(self.program, command, &word.text, value);
        }
        if is_read {
            self.program
                .graph
                .edge(value, command.input, Flow::Read, place);
            None
        } else {
            Some(value)
        }
    }

    /// Reads the texts of documents that begin here.
    pub(super) fn read_documents(&mut self) {
        for (end, is_quoted, input) in std::mem::take(&mut self.documents) {
            let begun = self.at;
            let mut until = self.text.len();
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
                    break;
                }
            }
            self.at = self.at.min(self.text.len());
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
