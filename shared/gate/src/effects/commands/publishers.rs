//! Commands that publish what they are given under an account: `git push`, `gh gist create`.

use super::super::graph::Flow;
use super::super::program::Program;
use super::Arguments;

/// Programs with the words of which one publishes.
const PUBLISHERS: [(&str, &str); 7] = [
    ("gh", " gist issue pr release api "),
    ("glab", " snippet issue mr release api "),
    ("twine", " upload "),
    ("gcloud", " storage "),
    ("azcopy", " copy cp sync "),
    ("mosquitto_pub", " -f -m -l "),
    ("redis-cli", " -h "),
];

impl Arguments<'_> {
    pub(super) fn publishes(&self, name: &str) -> bool {
        let row = PUBLISHERS.iter().find(|row| row.0 == name);
        let words = || self.words.iter().take(6);
        row.is_some_and(|(_, all)| words().any(|word| super::is_in(all, &word.text)))
    }

    /// Everything that it is given is sent: texts, and the files that are named.
    pub(super) fn publish(&self, program: &mut Program) {
        let target = program.graph.fresh();
        self.sends(program, self.command.input, target);
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            // What signs in is used and not sent.
            if matches!(word.text.as_str(), "-H" | "--header") {
                words.next();
                continue;
            }
            let parts = word.text.split_once('@');
            let text = parts.map_or(word.text.as_str(), |parts| parts.1);
            let node = self.file(program, word, text);
            program.copy(node, target, self.place());
            self.sends_file(program, node, target);
        }
    }

    /// Reads `git`: `add` and `commit` put values into the index, and `push` sends it.
    pub(super) fn git(&self, program: &mut Program) {
        let index = program.index_of(self.command.file);
        let named = ["add", "commit", "push"]
            .into_iter()
            .find(|name| self.words.iter().take(4).any(|word| word.text == *name));
        match named {
            Some("add") => {
                let content = program.graph.fresh();
                for word in self.plain().filter(|word| word.text.len() > 1) {
                    let node = self.value(program, word);
                    program.graph.edge(node, content, Flow::Read, self.place());
                }
                program.copy(content, index, self.place());
            }
            Some("commit") => {
                for word in self.words {
                    for part in &word.nodes {
                        program.copy(*part, index, self.place());
                    }
                }
            }
            Some("push") => {
                let target = self.target(program);
                self.sends(program, index, target);
            }
            _ => {}
        }
    }
}
