//! Code that a command runs: scripts, functions, and the code between quotation marks.

use super::super::program::{ALL, Call, Code, Language, MOST_DEPTH, Program};
use super::paths::add_text;
use super::programs::base_name;
use super::{
    Arguments, Command, Word, add_environment, interpreter, is_in, is_value, remember, run,
};
use std::collections::BTreeSet;

/// Programs that others start: `torsocks curl …`, `docker run image curl …`.
const INNER: &str = " curl wget nc ncat netcat socat scp rsync rclone ";

impl Arguments<'_> {
    pub(super) fn run_words(&self, program: &mut Program, words: Vec<Word>) {
        if self.command.depth >= MOST_DEPTH {
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
            given: Vec::new(),
            ..*self.command
        };
        run(program, &command);
    }

    /// `xargs`: the words of the input become arguments.
    pub(super) fn run_on_input(&self, program: &mut Program) {
        let mut place = "{}".to_owned();
        let mut at = 0;
        while let Some(word) = self.words.get(at) {
            let option = word.text.as_str();
            let Some(letter) = option.strip_prefix('-') else {
                break;
            };
            at += 1;
            match letter {
                "I" | "J" => {
                    place = self.words.get(at).map_or(place, |word| word.text.clone());
                    at += 1;
                }
                "d" | "n" | "P" | "L" | "s" | "a" | "E" | "j" => at += 1,
                _ => {
                    if let Some(given) = letter.strip_prefix('I') {
                        given.clone_into(&mut place);
                    }
                }
            }
        }
        let mut words: Vec<Word> = self.words[at.min(self.words.len())..].to_vec();
        let mut is_placed = false;
        for word in &mut words {
            if !place.is_empty() && word.text.contains(&place) {
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

    pub(super) fn declare(&self, program: &mut Program, name: &str) {
        let is_list = |word: &Word| matches!(word.text.as_str(), "-p" | "-x" | "-px" | "-xp");
        if self.words.iter().all(is_list) {
            add_environment(program, self.command);
            return;
        }
        for word in self.plain() {
            let (variable, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            let own = program.variable(self.command.file, 0, variable);
            if !value.is_empty() || !word.nodes.is_empty() {
                let node = self.part(program, word, value);
                program.copy(node, own, self.place());
            }
            if word.nodes.len() == value.matches('$').count() {
                add_text(program, self.command.file, variable, value);
            }
            if word.nodes.is_empty() {
                remember(program, self.command.file, format!("${variable}"), value);
            }
            if name == "export" {
                program
                    .exported
                    .push((self.command.file, variable.to_owned(), own));
            }
        }
    }

    /// Variables that are set for a script alone.
    pub(super) fn hand_environment(&self, program: &mut Program, path: &str) {
        if self.command.given.is_empty() {
            return;
        }
        let words = self.words.iter().map(|word| word.text.as_str());
        let files: BTreeSet<u32> = words
            .chain([path])
            .filter_map(|path| program.own_file(path))
            .collect();
        for other in files {
            for (name, node) in &self.command.given {
                let variable = program.variable(other, 0, name);
                program.copy(*node, variable, self.place());
            }
        }
    }

    pub(super) fn add_alias(&self, program: &mut Program) {
        for word in self.words {
            if let Some((name, text)) = word.text.split_once('=') {
                remember(program, self.command.file, name.to_owned(), text);
            }
        }
    }

    pub(super) fn import(&self, program: &mut Program) {
        let Some(word) = self.words.first() else {
            return;
        };
        if let Some(other) = program.own_file(&word.text) {
            program.imports.push((self.command.file, other));
            program.started.push((other, Language::Shell));
        }
        let target = self.target(program);
        let node = self.value(program, word);
        program.add_call(node, Call::RunsFile, target, self.place());
        if word.text.starts_with("/dev/") || word.text == "-" {
            program.add_call(self.command.input, Call::Runs, target, self.place());
        }
    }

    pub(super) fn evaluate(&self, program: &mut Program) {
        let target = self.target(program);
        if self.words.first().is_some_and(is_value) {
            program.add_call(target, Call::Runs, target, self.place());
        }
        let text: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        self.read_code(program, Language::Shell, text.join(" "));
    }

    pub(super) fn read_code(&self, program: &mut Program, language: Language, text: String) {
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

    pub(super) fn interpret(&self, program: &mut Program, language: Language) {
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
            // `sh -c CODE NAME ARGUMENTS`
            let arguments = Arguments {
                words: self
                    .words
                    .get(code.map_or(0, |at| at + 3)..)
                    .unwrap_or_default(),
                ..*self
            };
            arguments.hand_over(program, self.command.file, "");
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
                let node = program.add_fetched_node(target, self.place());
                program.add_call(node, Call::Runs, target, self.place());
            }
            Some(word) => {
                let node = self.value(program, word);
                program.add_call(node, Call::RunsFile, target, self.place());
                self.call_script(program, &word.text, language);
            }
            None => {
                program.add_call(self.command.input, Call::Runs, target, self.place());
                self.run_printed(program, language);
                program.interpreters.push(own);
            }
        }
    }

    /// Joins what a script of the skill gets and prints with the command that starts it.
    pub(super) fn call_script(&self, program: &mut Program, path: &str, language: Language) {
        let Some(file) = program.own_file(path) else {
            return;
        };
        program.started.push((file, language));
        let printed = program.returned(file, "");
        program.copy(printed, self.command.output, self.place());
        let script = self.words.iter().position(|word| word.text == path);
        let arguments = Arguments {
            words: &self.words[script.map_or(0, |at| at + 1)..],
            ..*self
        };
        arguments.hand_over(program, file, "");
    }

    pub(super) fn hand_over(&self, program: &mut Program, file: u32, function: &str) {
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
    pub(super) fn call_own(&self, program: &mut Program, path: &str) {
        let output = self.command.output;
        if path.contains('/') {
            let node = program.literal(path, self.place());
            let target = self.target(program);
            program.add_call(node, Call::RunsFile, target, self.place());
            self.call_script(program, path, Language::Shell);
            return;
        }
        program.copy(self.command.input, output, self.place());
        let returned = program.returned(self.command.file, path);
        program.copy(returned, output, self.place());
        self.hand_over(program, self.command.file, path);
    }

    /// Reads what the command before it prints, if that stands in the code.
    pub(super) fn run_printed(&self, program: &mut Program, language: Language) {
        if let Some(text) = program.printed.get(&self.command.source).cloned() {
            self.read_code(program, language, text);
        }
    }

    /// Reads the words that are lines of a shell: `su -c '…'`, `tmux new -d '…'`.
    pub(super) fn run_lines(&self, program: &mut Program) {
        for word in self.words.iter().filter(|word| word.text.contains(' ')) {
            self.read_code(program, Language::Shell, word.text.clone());
        }
    }

    /// A program or a function that starts another program, which is named among its words.
    pub(super) fn run_inner(&self, program: &mut Program) {
        let is_inner = |at: usize| {
            let name = base_name(&self.words[at].text);
            let next = self.words.get(at + 1).map(|word| word.text.as_str());
            is_in(INNER, name)
                || interpreter(name).is_some() && matches!(next, Some("-c" | "-e" | "-lc" | "-ec"))
        };
        if let Some(at) = (0..self.words.len()).find(|at| is_inner(*at)) {
            self.run_words(program, self.words[at..].to_vec());
        }
    }
}
