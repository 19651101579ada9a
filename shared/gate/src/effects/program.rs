//! What the readers of all languages have in common: they put values, secrets and calls of a skill
//! into its graph, and hand code in another language to the reader of that language.

use super::Source as Text;
use super::graph::{Flow, Graph, Node, Place, Sink, Source};
use super::own_files::OwnFiles;
use super::stores::{FETCHED, find_store};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A language, by its reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Language {
    Shell,
    Python,
    JavaScript,
    PowerShell,
}

/// A piece of code that is still to be read.
pub(super) struct Code {
    pub language: Language,
    pub text: String,
    /// Where it begins.
    pub place: Place,
    /// Whether each offset in the text is one of the file.
    pub is_exact: bool,
    /// What it gets on its standard input, and what it prints.
    pub input: Node,
    pub output: Node,
    /// Number of pieces of code around it.
    pub depth: u32,
}

/// Largest number of bytes of code that are read in a skill, with code inside other code.
pub(super) const MOST_READ: usize = 32 << 20;
/// Largest number of bytes of code that a piece of code puts together or has inside.
const MOST_WAITING: usize = 4 << 20;
/// Largest number of lines of a list of files that are read.
const MOST_LISTED: usize = 256;
/// Largest number of pieces of code inside one another.
pub(super) const MOST_DEPTH: u32 = 6;
/// Largest number of bytes of texts that commands print as they stand in the code.
const MOST_PRINTED: usize = 4 << 20;
/// Largest number of pairs of files of which one imports the other, over names that may mean several.
const MOST_IMPORTS: usize = 1 << 16;
/// Largest number of names that are compared between files that import one another.
const MOST_COMPARED: usize = 1 << 23;
/// Number of the argument that stands for all of them.
pub(super) const ALL: usize = 99;
/// Mark around the number of a value inside a text.
pub(super) const MARK: char = '\u{1}';
/// Stands for code in a text, before its value is known.
pub(super) const PLACE: char = '\u{2}';
/// [`MARK`] as a byte.
pub(super) const MARK_BYTE: u8 = 1;

/// How a call takes what it is given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
    /// It sends the value.
    Sends,
    /// It sends the file that the value names.
    SendsFile,
    /// It runs the value.
    Runs,
    /// It runs the file that the value names.
    RunsFile,
}

/// The graph of a skill, and the code that is still to be put into it.
#[derive(Default)]
pub(super) struct Program {
    pub graph: Graph,
    pub open: Vec<Code>,
    pub files: OwnFiles,
    /// For each call of `graph.sinks`, how it takes its value.
    pub calls: Vec<Call>,
    /// Values that are connections to other machines.
    pub connections: Vec<Node>,
    /// Calls that send only if they are made on a connection: the value of the connection, and the
    /// number of the call.
    pub if_connected: Vec<(Node, usize)>,
    /// Calls that send only on a connection of a known type.
    pub if_known: Vec<(Node, usize)>,
    /// Values that are made with an address, and calls that send if they are made on one.
    pub made: Vec<Node>,
    pub if_made: Vec<(Node, usize)>,
    /// Values of arguments, at which such a value is followed no further.
    pub arguments: Vec<Node>,
    /// Interpreters that run what they get: their input, the language and the output.
    pub interpreters: Vec<(Node, Language, Node, u32)>,
    /// Number of functions of scripts so far.
    pub scopes: usize,
    /// Commands between back ticks in prose: the file, and where they begin and end.
    pub spans: Vec<(u32, usize, usize)>,
    /// Pairs of a file and one that it imports.
    pub imports: Vec<(u32, u32)>,
    /// Values that are the whole environment, as a shell prints it.
    pub environments: HashSet<Node>,
    /// What words of a shell stand for, by the file and the word.
    pub texts: HashMap<(u32, String), String>,
    /// Texts that variables of a shell may have, by the file and the name.
    pub values: HashMap<(u32, String), Vec<String>>,
    /// Inputs that are options of `curl`.
    pub configs: HashSet<Node>,
    /// Variables that a shell hands to what it starts: the file, the name and the value.
    pub exported: Vec<(u32, String, Node)>,
    /// For each file, the folder of secrets that its code goes to.
    pub folders: HashMap<u32, String>,
    /// Texts that commands print as they stand in the code.
    pub printed: HashMap<Node, String>,
    /// Length of all of them.
    printed_length: usize,
    /// Files of the skill that are read as code already.
    pub read: HashSet<u32>,
    /// Files that a command runs though their names are none of code.
    pub started: Vec<(u32, Language)>,
    /// Files of the skill with options of `curl` that are still to be read, and those that are read.
    pub configured: Vec<u32>,
    pub read_configs: HashSet<u32>,
    /// Files of the skill with names of files, and the values that stand for these.
    pub listed: Vec<(u32, Node)>,
    /// Number of bytes of code inside other code, so far, and of those in the current piece of code.
    waiting: usize,
    waiting_here: usize,
    /// Pairs of files of which a path may mean either one.
    pub same_files: BTreeSet<(u32, u32)>,
}

impl Program {
    /// Returns the value of a variable. Variables of different files and functions differ.
    pub(super) fn variable(&mut self, file: u32, scope: usize, name: &str) -> Node {
        self.graph
            .keyed(format_args!("variable {file} {scope} {name}"))
    }

    /// Returns what a function of a file returns or prints.
    pub(super) fn returned(&mut self, file: u32, function: &str) -> Node {
        self.graph.keyed(format_args!("returned {file} {function}"))
    }

    /// Returns what a function gets: an argument by its number, or its standard input.
    pub(super) fn argument(&mut self, file: u32, function: &str, number: usize) -> Node {
        self.graph
            .keyed(format_args!("argument {file} {function} {number}"))
    }

    /// Returns what a function gets for the parameter of this name.
    pub(super) fn named_argument(&mut self, file: u32, function: &str, name: &str) -> Node {
        self.graph
            .keyed(format_args!("named {file} {function} {name}"))
    }

    /// Returns the file of the skill that a path or the name of a module leads to. If it may be one
    /// of several, they are joined.
    pub(super) fn own_file(&mut self, path: &str) -> Option<u32> {
        let (found, is_cut) = self.files.find(path);
        let (first, others) = found.split_first()?;
        if is_cut {
            self.graph.cut_at(Place {
                file: *first,
                offset: 0,
            });
        }
        self.same_files
            .extend(others.iter().map(|other| (*first, *other)));
        Some(*first)
    }

    pub(super) fn copy(&mut self, from: Node, to: Node, place: Place) {
        self.graph.edge(from, to, Flow::Copy, place);
    }

    /// Returns the value of a text in the code: a path, an address or anything else.
    pub(super) fn literal(&mut self, text: &str, place: Place) -> Node {
        let node = self.graph.fresh();
        self.graph.literals.push(node);
        // The key with which `ssh` signs in is used and not sent.
        let is_option = text.starts_with(['-', 's']) && text.contains("-i ");
        if let Some(kind) = find_store(text).filter(|_| !is_option) {
            self.add_secret(node, kind, false, place);
        }
        if (text.contains('.') || text.contains("://") || text == "localhost") && text.len() < 2_048
        {
            self.graph.set_text(node, text);
        }
        if let Some(name) = file_name(text) {
            let file = self.graph.file(&name);
            self.copy(file, node, place);
        }
        node
    }

    /// Joins a value with the file that it names, where [`Program::literal`] sees no name of a file:
    /// `notes`, `/tmp/notes-$USER`.
    pub(super) fn name_file(&mut self, node: Node, text: &str, place: Place) {
        let text = text.trim_matches(['"', '\'', ' ']);
        let name = text.rsplit(['/', '\\']).next().unwrap_or(text);
        let is_name = |letter: char| letter.is_alphanumeric() || "-_.+@$".contains(letter);
        let has_own = name
            .split('$')
            .next()
            .is_some_and(|start| !start.is_empty());
        let is_file = has_own && name.len() < 128 && name.chars().all(is_name);
        if is_file && !name.starts_with('-') && file_name(text).is_none() {
            let file = self.graph.file(&name.to_ascii_lowercase());
            self.copy(file, node, place);
        }
    }

    /// Returns what `git` sends for a file of the skill.
    pub(super) fn index_of(&mut self, file: u32) -> Node {
        self.graph.keyed(format_args!("index {file}"))
    }

    /// Marks a value as a secret: its content, or the name of its file.
    pub(super) fn add_secret(&mut self, node: Node, kind: usize, is_content: bool, place: Place) {
        self.graph.sources.push(Source {
            node,
            is_content,
            kind,
            place,
        });
    }

    /// Adds the node of what is fetched from the addresses behind a value.
    pub(super) fn add_fetched_node(&mut self, target: Node, place: Place) -> Node {
        let node = self.graph.fresh();
        // The addresses do not flow into the answer: a file that is fetched is not its address. A
        // value between them stops searches forward and lets those backward pass.
        self.graph.edge(target, node, Flow::Address, place);
        self.add_secret(node, FETCHED, true, place);
        node
    }

    /// Adds a call that takes a value. `target` has the addresses that the call is given.
    pub(super) fn add_call(&mut self, node: Node, call: Call, target: Node, place: Place) -> usize {
        self.graph.sinks.push(Sink {
            node,
            takes_file: matches!(call, Call::SendsFile | Call::RunsFile),
            target,
            kind: self.calls.len(),
            place,
        });
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Joins everything that has the same name in a file and in one that it imports.
    pub(super) fn join_imports(&mut self) {
        self.share_same_files();
        let imports: BTreeSet<(u32, u32)> = std::mem::take(&mut self.imports).into_iter().collect();
        let reexported = self.files.reexported(&imports);
        if imports.is_empty() && self.exported.is_empty() {
            return;
        }
        let names = self.graph.names_by_file();
        self.join_exported(&names);
        let mut compared = 0;
        for (file, other) in imports.union(&reexported).copied() {
            let (Some(here), Some(there)) = (names.get(&file), names.get(&other)) else {
                continue;
            };
            let (few, many) = if here.len() < there.len() {
                (here, there)
            } else {
                (there, here)
            };
            compared += few.len();
            if compared > MOST_COMPARED {
                self.graph.cut_at(Place { file, offset: 0 });
                return;
            }
            for (name, node) in few {
                if let Some(same) = many.get(name).filter(|_| file != other) {
                    let place = Place {
                        file,
                        offset: u32::MAX,
                    };
                    self.copy(*node, *same, place);
                    self.copy(*same, *node, place);
                }
            }
        }
    }

    /// Joins a variable that a shell hands on with those of this name in other files.
    fn join_exported(&mut self, names: &BTreeMap<u32, BTreeMap<String, Node>>) {
        let exported = std::mem::take(&mut self.exported);
        if exported.is_empty() {
            return;
        }
        let mut variables = HashMap::<&str, Vec<(u32, Node)>>::new();
        for (file, names) in names {
            for (key, node) in names {
                if let Some(name) = key.strip_prefix("variable 0 ") {
                    variables.entry(name).or_default().push((*file, *node));
                }
            }
        }
        for (file, name, node) in exported {
            let place = Place {
                file,
                offset: u32::MAX,
            };
            for (other, same) in variables.get(name.as_str()).into_iter().flatten() {
                if self.graph.is_full() {
                    return;
                }
                if *other != file {
                    self.copy(node, *same, place);
                }
            }
        }
    }

    /// Remembers what a command prints, if that stands in the code.
    pub(super) fn remember_printed(&mut self, node: Node, text: String) {
        self.printed_length += text.len();
        if self.printed_length < MOST_PRINTED {
            self.printed.insert(node, text);
        }
    }

    /// Returns the value of the files that a file of the skill lists.
    pub(super) fn listed_in(&mut self, path: &str) -> Option<Node> {
        let file = self.own_file(path)?;
        let node = self.graph.fresh();
        self.listed.push((file, node));
        Some(node)
    }

    /// Marks the files of secrets that lists of files name, which begin in the home folder.
    pub(super) fn read_listed(&mut self, sources: &[Text<'_>]) {
        for (file, node) in std::mem::take(&mut self.listed) {
            let text = sources.get(file as usize).map_or("", |source| source.raw);
            let mut offset = 0;
            for line in text.split_inclusive('\n').take(MOST_LISTED) {
                let place = Place { file, offset };
                if let Some(kind) = find_store(&format!("~/{}", line.trim())) {
                    self.add_secret(node, kind, false, place);
                }
                offset += u32::try_from(line.len()).unwrap_or_default();
            }
        }
    }

    /// Returns the code that is read next.
    pub(super) fn next_code(&mut self, sources: &[Text<'_>]) -> Option<Code> {
        if let Some(code) = self.open.pop() {
            return Some(code);
        }
        while let Some((file, language)) = self.started.pop() {
            if let Some(source) = sources
                .get(file as usize)
                .filter(|_| self.read.insert(file))
            {
                let input = self.argument(file, "", 0);
                return Some(Code {
                    language,
                    text: source.raw.to_owned(),
                    place: Place { file, offset: 0 },
                    is_exact: true,
                    input,
                    output: self.returned(file, ""),
                    depth: 0,
                });
            }
        }
        None
    }

    /// Lets files that a path may mean get and print the same, and be imported together.
    fn share_same_files(&mut self) {
        self.imports.sort_unstable();
        self.imports.dedup();
        let mut importers = BTreeMap::<u32, Vec<u32>>::new();
        for (file, other) in &self.imports {
            importers.entry(*other).or_default().push(*file);
        }
        for (first, other) in std::mem::take(&mut self.same_files) {
            let place = Place {
                file: other,
                offset: u32::MAX,
            };
            for number in (0..=9).chain([ALL]) {
                let given = self.argument(first, "", number);
                let taken = self.argument(other, "", number);
                self.copy(given, taken, place);
            }
            let printed = self.returned(other, "");
            let value = self.returned(first, "");
            self.copy(printed, value, place);
            let files = importers.get(&first).map_or(&[][..], Vec::as_slice);
            if self.imports.len() + files.len() > MOST_IMPORTS {
                self.graph.cut_at(Place {
                    file: other,
                    offset: 0,
                });
                return;
            }
            self.imports.extend(files.iter().map(|file| (*file, other)));
        }
    }

    /// Hands code inside other code to its reader.
    pub(super) fn read_later(&mut self, code: Code) {
        if code.depth >= MOST_DEPTH {
            self.graph.cut_at(code.place);
        } else if !code.text.trim().is_empty() && !self.is_waiting_full(code.place) {
            self.add_waiting(code.text.len());
            self.open.push(code);
        }
    }

    /// Counts work on code inside other code, in bytes.
    pub(super) fn add_waiting(&mut self, count: usize) {
        self.waiting += count;
        self.waiting_here += count;
    }

    /// Begins a piece of code that stands in no other one.
    pub(super) fn begin_piece(&mut self) {
        self.waiting_here = 0;
    }

    /// Whether so much code is still to be read that no more of it will be.
    pub(super) fn is_waiting_full(&mut self, place: Place) -> bool {
        let is_full = self.waiting_here > MOST_WAITING || self.waiting > MOST_READ;
        if is_full {
            self.graph.cut_at(place);
        }
        is_full
    }
}

/// Returns the name by which a file is known in all scripts: the last part of a path that looks like
/// one of a file.
fn file_name(text: &str) -> Option<String> {
    let text = text.trim_matches(['"', '\'', ' ']);
    let text = text.strip_suffix(['/', '\\']).unwrap_or(text);
    if text.len() > 512 || text.contains(['\n', '<', '>', '|', ';']) || text.contains("://") {
        return None;
    }
    let name = text.rsplit(['/', '\\']).next().unwrap_or(text);
    let is_path = text.len() > name.len() || name.contains('.');
    let least = if text.starts_with(['/', '~', '$', '.']) {
        1
    } else {
        2
    };
    let has_letters = name.chars().filter(char::is_ascii_alphanumeric).count() >= least;
    (is_path && has_letters && !name.contains(['$', ' ', '{']) && name.len() < 128)
        .then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name_in_all_scripts() {
        for text in [
            "/tmp/x.log",
            "$TMPDIR/x.log",
            "x.log",
            "./out/X.log",
            "$env:TEMP\\x.log",
        ] {
            assert_eq!(file_name(text).as_deref(), Some("x.log"), "{text}");
        }
        for text in [
            "https://a.dev/x.log",
            "x",
            "a b",
            "/tmp/$x",
            "",
            "a/",
            "1.2 | x",
        ] {
            assert_eq!(file_name(text), None, "{text}");
        }
    }
}
