//! A graph of the values of a skill: its variables, functions, files and the outputs of its
//! commands, and how each of them gets into another one.
//!
//! A search begins at each secret and keeps, for each value that it reaches, the one before. So a
//! finding can show every step from the file that is read to the call that sends it.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

/// Number of a value.
pub(super) type Node = u32;

/// Largest number of values, and of ways between them. Real skills need less than a tenth.
const MOST_VALUES: Node = 1 << 20;
const MOST_EDGES: usize = 1 << 20;
/// Number of values, and of ways between them, that any piece of code may have. It gets one more for
/// each of its bytes. Real code has less than one for two bytes.
const LEAST_OF_PIECE: Node = 1 << 18;
/// Largest number of values that are searched for the addresses that a call is given.
const MOST_SEARCHED: usize = 2_000;
/// Largest number of values that are searched for the name of a file that is written.
const MOST_NAMES: usize = 64;
/// Largest number of values that are searched for addresses in a skill. Beyond it, addresses are not
/// known, so that they count as foreign.
const MOST_SEARCHED_IN_ALL: usize = 400_000;

/// A place in the skill: the number of a file, and an offset in its text.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    pub file: u32,
    pub offset: u32,
}

/// How one value gets into another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    /// All of it, as it is or in another form.
    Copy,
    /// A file that the value names is read.
    Read,
    /// The value is written to a file that the other one names.
    Write,
    /// A part of the value, such as one member of a document.
    Narrow,
    /// What the value has, but not the file that it names.
    Content,
    /// The value is put into the header of a request.
    Header,
    /// The value is the address from which the other one is fetched, and no part of it.
    Address,
}

#[derive(Clone, Copy)]
struct Edge {
    from: Node,
    to: Node,
    flow: Flow,
    place: Place,
}

/// A place where a secret begins: the name of its file, or its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub node: Node,
    /// Whether the value is the secret itself and not the name of its file.
    pub is_content: bool,
    /// Number of the kind of secret, as the caller counts.
    pub kind: usize,
    pub place: Place,
}

/// A call that does something with a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sink {
    pub node: Node,
    /// Whether the call reads the file that the value names.
    pub takes_file: bool,
    /// The value that has all addresses that the call is given.
    pub target: Node,
    /// Number of the kind of call, as the caller counts.
    pub kind: usize,
    pub place: Place,
}

/// What is known of a value during a search.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct State {
    node: Node,
    /// Whether it has the content, and not the name of a file with it.
    pub is_content: bool,
    /// Whether it is only a part.
    pub is_narrow: bool,
    /// Whether it stands in the header of a request.
    pub is_header: bool,
}

impl State {
    fn index(self) -> usize {
        self.node as usize * 8
            + usize::from(self.is_content) * 4
            + usize::from(self.is_narrow) * 2
            + usize::from(self.is_header)
    }

    fn over(self, edge: &Edge) -> Option<Self> {
        let next = Self {
            node: edge.to,
            ..self
        };
        Some(match edge.flow {
            Flow::Copy => next,
            Flow::Read => Self {
                is_content: true,
                ..next
            },
            Flow::Write if self.is_content => Self {
                is_content: false,
                ..next
            },
            Flow::Content if self.is_content => next,
            Flow::Write | Flow::Content | Flow::Address => return None,
            Flow::Narrow => Self {
                is_narrow: true,
                ..next
            },
            Flow::Header => Self {
                is_header: true,
                ..next
            },
        })
    }
}

/// The values of a skill and the ways between them.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) keys: HashMap<String, Node>,
    /// The last key.
    buffer: String,
    edges: Vec<Edge>,
    count: Node,
    /// Texts of literals that may be addresses.
    texts: HashMap<Node, String>,
    /// Values that are the names of files.
    names: Vec<Node>,
    pub sources: Vec<Source>,
    pub sinks: Vec<Sink>,
    /// Values that hold only addresses of a call. An unknown part of one makes it somebody else's.
    pub exact: HashSet<Node>,
    /// Words that the code spells out, and contents of files: they get no address from elsewhere.
    pub literals: Vec<Node>,
    /// Numbers of values and of ways at which the current piece of code ends.
    most_values: Node,
    most_edges: usize,
    /// The first place at which a bound was reached, so that the graph is not complete.
    pub cut: Option<Place>,
}

impl Graph {
    /// Returns a new value.
    pub(super) fn fresh(&mut self) -> Node {
        self.count += 1;
        self.count - 1
    }

    /// Returns whether there is a value of this number.
    pub(super) fn has(&self, node: Node) -> bool {
        node < self.count
    }

    /// Returns the value with this key, which is the same each time.
    pub(super) fn keyed(&mut self, key: std::fmt::Arguments<'_>) -> Node {
        // Most keys are known, so no text is made for each use of one.
        let mut text = std::mem::take(&mut self.buffer);
        text.clear();
        let _ = text.write_fmt(key);
        let known = self.keys.get(text.as_str()).copied();
        let node = known.unwrap_or_else(|| self.fresh());
        if known.is_none() {
            self.keys.insert(text.clone(), node);
        }
        self.buffer = text;
        node
    }

    /// Returns the value of the files with this name.
    pub(super) fn file(&mut self, name: &str) -> Node {
        let node = self.keyed(format_args!("file {name}"));
        if node + 1 == self.count {
            self.names.push(node);
        }
        node
    }

    /// Begins a piece of code of this many bytes, which gets a part of the room that is left, so that
    /// it cannot keep other pieces from being read.
    pub(super) fn begin_piece(&mut self, length: usize) {
        let length = Node::try_from(length).unwrap_or(Node::MAX);
        let values = self.count.saturating_add(LEAST_OF_PIECE);
        self.most_values = values.saturating_add(length).min(MOST_VALUES);
        let edges = self.edges.len() + LEAST_OF_PIECE as usize;
        self.most_edges = edges.saturating_add(length as usize).min(MOST_EDGES);
    }

    /// Returns whether the graph has all the values and ways that it may have.
    pub(super) fn is_full(&self) -> bool {
        self.count >= MOST_VALUES || self.edges.len() >= MOST_EDGES
    }

    /// Returns whether the current piece of code has all the values and ways that it may have.
    pub(super) fn is_piece_full(&self) -> bool {
        self.count >= self.most_values || self.edges.len() >= self.most_edges
    }

    /// Remembers that what stands at this place is not followed.
    pub(super) fn cut_at(&mut self, place: Place) {
        self.cut.get_or_insert(place);
    }

    pub(super) fn edge(&mut self, from: Node, to: Node, flow: Flow, place: Place) {
        if self.edges.len() >= MOST_EDGES {
            self.cut_at(place);
        } else if from != to {
            self.edges.push(Edge {
                from,
                to,
                flow,
                place,
            });
        }
    }

    /// Returns the values of the functions and variables of each file, by their names.
    pub(super) fn names_by_file(&self) -> BTreeMap<u32, BTreeMap<String, Node>> {
        // Sorted, so that the same skill always gives the same steps.
        let mut files = BTreeMap::<u32, BTreeMap<String, Node>>::new();
        for (key, node) in &self.keys {
            // The form is `kind file name`.
            let mut parts = key.splitn(3, ' ');
            let (kind, file, name) = (parts.next(), parts.next(), parts.next());
            let Some(file) = file.and_then(|file| file.parse().ok()) else {
                continue;
            };
            // A file's own arguments and output have no name and are not shared.
            if let (Some(kind), Some(name)) = (kind, name)
                && !name.is_empty()
                && !name.starts_with(' ')
            {
                let names = files.entry(file).or_default();
                names.insert(format!("{kind} {name}"), *node);
            }
        }
        files
    }

    /// Remembers the text of a literal.
    pub(super) fn set_text(&mut self, node: Node, text: &str) {
        self.texts.insert(node, text.to_ascii_lowercase());
    }

    /// Number of ways between values.
    pub(super) fn size(&self) -> usize {
        self.edges.len()
    }

    /// Prepares the searches.
    pub(super) fn index(&self) -> Index<'_> {
        let count = self.count as usize;
        let list = |end: fn(&Edge) -> Node| {
            let mut starts = vec![0_u32; count + 2];
            for edge in &self.edges {
                starts[end(edge) as usize + 2] += 1;
            }
            for at in 2..starts.len() {
                starts[at] += starts[at - 1];
            }
            let mut order = vec![0_u32; self.edges.len()];
            for (number, edge) in (0_u32..).zip(&self.edges) {
                let slot = &mut starts[end(edge) as usize + 1];
                order[*slot as usize] = number;
                *slot += 1;
            }
            (starts, order)
        };
        let marked = |nodes: &[Node]| {
            let mut marks = vec![false; count];
            for node in nodes {
                marks[*node as usize] = true;
            }
            marks
        };
        Index {
            is_literal: marked(&self.literals),
            graph: self,
            forward: list(|edge| edge.from),
            backward: list(|edge| edge.to),
            is_name: marked(&self.names),
            searched: Cell::new(0),
        }
    }
}

type List = (Vec<u32>, Vec<u32>);

/// A graph whose ways can be followed from each value.
pub(super) struct Index<'a> {
    graph: &'a Graph,
    forward: List,
    backward: List,
    is_name: Vec<bool>,
    is_literal: Vec<bool>,
    /// Number of values that were searched for addresses so far.
    searched: Cell<usize>,
}

/// For each state that a search reached, the state before and the place of the step.
pub(super) struct Reached {
    before: HashMap<usize, (Option<State>, Place)>,
}

impl Index<'_> {
    fn edges<'a>(&'a self, list: &'a List, node: Node) -> impl Iterator<Item = &'a Edge> {
        let (starts, order) = list;
        let range = starts[node as usize] as usize..starts[node as usize + 1] as usize;
        order[range]
            .iter()
            .map(|number| &self.graph.edges[*number as usize])
    }

    /// Follows all secrets of one kind.
    pub(super) fn search(&self, kind: usize) -> Reached {
        let mut reached = Reached {
            before: HashMap::new(),
        };
        let mut queue = VecDeque::new();
        for source in self.graph.sources.iter().filter(|one| one.kind == kind) {
            let state = State {
                node: source.node,
                is_content: source.is_content,
                is_narrow: false,
                is_header: false,
            };
            reached.add(state, None, source.place, &mut queue);
        }
        while let Some(state) = queue.pop_front() {
            for edge in self.edges(&self.forward, state.node) {
                let Some(next) = state.over(edge) else {
                    continue;
                };
                if reached.add(next, Some(state), edge.place, &mut queue)
                    && edge.flow == Flow::Write
                {
                    self.name_file(next, &mut reached, &mut queue);
                }
            }
        }
        reached
    }

    /// Marks the names from which the name of a written file was made, so that who reads the file
    /// under one of them gets the content.
    fn name_file(&self, written: State, reached: &mut Reached, queue: &mut VecDeque<State>) {
        let mut open = VecDeque::from([(written, true)]);
        let mut seen = HashSet::from([written.node]);
        while let Some((state, is_alone)) = open.pop_front() {
            let copies = self.edges(&self.backward, state.node);
            let copies: Vec<&Edge> = copies.filter(|edge| edge.flow == Flow::Copy).collect();
            for edge in &copies {
                if seen.len() > MOST_NAMES || !seen.insert(edge.from) {
                    continue;
                }
                let next = State {
                    node: edge.from,
                    ..state
                };
                // The folder in `folder + name` has other files, too. Only the name is marked then.
                let is_alone = is_alone && copies.len() == 1;
                if is_alone || self.is_name[edge.from as usize] {
                    // The step before is the written file: values between need not be reached.
                    reached.add(next, Some(written), edge.place, queue);
                }
                open.push_back((next, is_alone));
            }
        }
    }

    /// Returns the texts that may be addresses of a call, or `None` if a bound ends the search: what is
    /// not searched may be anybody's address, and must not count as a known one.
    pub(super) fn texts_behind(&self, target: Node) -> Option<Vec<&str>> {
        let mut seen = vec![target];
        let mut known = HashSet::from([target]);
        let mut at = 0;
        if self.searched.get() > MOST_SEARCHED_IN_ALL {
            return None;
        }
        while at < seen.len() && seen.len() < MOST_SEARCHED {
            for edge in self.edges(&self.backward, seen[at]) {
                // The address of an answer in it is not one of this call.
                let is_other = edge.flow == Flow::Address && edge.to != target;
                if !is_other && known.insert(edge.from) {
                    seen.push(edge.from);
                }
            }
            at += 1;
        }
        self.searched.set(self.searched.get() + seen.len());
        // A part of the addresses says nothing of the others.
        if seen.len() >= MOST_SEARCHED {
            return None;
        }
        let texts = seen.iter().filter_map(|node| self.graph.texts.get(node));
        Some(texts.map(String::as_str).collect())
    }

    /// Whether an address may come from elsewhere than the code: from a file, a variable that the
    /// caller sets, or another command. A text that `is_whole` needs nothing else.
    pub(super) fn is_open(&self, target: Node, is_whole: impl Fn(&str) -> bool) -> bool {
        let is_exact = self.graph.exact.contains(&target);
        if !is_exact || self.searched.get() > MOST_SEARCHED_IN_ALL {
            return is_exact;
        }
        let mut seen = vec![target];
        let mut known = HashSet::from([target]);
        let mut at = 0;
        while at < seen.len() && seen.len() < MOST_SEARCHED {
            let node = seen[at];
            at += 1;
            let text = self.graph.texts.get(&node);
            if text.is_some_and(|text| is_whole(text)) {
                continue;
            }
            let mut is_leaf = true;
            for edge in self.edges(&self.backward, node) {
                is_leaf = false;
                if edge.flow == Flow::Read {
                    return true;
                }
                if known.insert(edge.from) {
                    seen.push(edge.from);
                }
            }
            let is_known = self.is_literal[node as usize] || self.is_name[node as usize];
            if is_leaf && !is_known {
                return true;
            }
        }
        self.searched.set(self.searched.get() + seen.len());
        seen.len() >= MOST_SEARCHED
    }

    /// Returns every value that comes from one of these, in whatever form, but not over `ends`.
    pub(super) fn descendants(&self, of: &[Node], ends: &[Node]) -> Vec<bool> {
        let mut is_reached = vec![false; self.graph.count as usize];
        for end in ends {
            is_reached[*end as usize] = true;
        }
        let mut open = of.to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut is_reached[node as usize], true) {
                let next = self.edges(&self.forward, node);
                // What a file or an answer has is no connection.
                let next = next.filter(|edge| matches!(edge.flow, Flow::Copy | Flow::Narrow));
                open.extend(next.map(|edge| edge.to));
            }
        }
        for end in ends {
            is_reached[*end as usize] = false;
        }
        is_reached
    }
}

impl Reached {
    fn add(
        &mut self,
        state: State,
        before: Option<State>,
        place: Place,
        queue: &mut VecDeque<State>,
    ) -> bool {
        if self.before.contains_key(&state.index()) {
            return false;
        }
        self.before.insert(state.index(), (before, place));
        queue.push_back(state);
        true
    }

    /// Returns the states in which a value reaches a call.
    pub(super) fn at(&self, sink: &Sink) -> impl Iterator<Item = State> {
        let flags = [false, true];
        let states = flags.into_iter().flat_map(move |is_narrow| {
            flags.into_iter().flat_map(move |is_header| {
                flags.into_iter().map(move |is_content| State {
                    node: 0,
                    is_content,
                    is_narrow,
                    is_header,
                })
            })
        });
        let sink = *sink;
        states
            .filter(move |state| state.is_content || sink.takes_file)
            .map(move |state| State {
                node: sink.node,
                ..state
            })
            .filter(|state| self.before.contains_key(&state.index()))
    }

    /// Returns the value at which the way to this state begins.
    pub(super) fn root(&self, state: State) -> Node {
        let mut at = state;
        while let Some((Some(before), _)) = self.before.get(&at.index()) {
            at = *before;
        }
        at.node
    }

    /// Returns the places from the secret to this state. Steps between files have none.
    pub(super) fn steps(&self, state: State) -> Vec<Place> {
        let mut steps = Vec::new();
        let mut at = Some(state);
        while let Some(state) = at {
            let Some((before, place)) = self.before.get(&state.index()) else {
                break;
            };
            if place.offset != u32::MAX {
                steps.push(*place);
            }
            at = *before;
        }
        steps.reverse();
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_read_under_its_other_names() {
        let mut graph = Graph::default();
        let place = Place::default();
        let [secret, text, variable, other, sent] = std::array::from_fn(|_| graph.fresh());
        let file = graph.file("a");
        graph.sources.push(Source {
            node: secret,
            is_content: false,
            kind: 0,
            place,
        });
        graph.edge(secret, text, Flow::Read, place);
        graph.edge(file, variable, Flow::Copy, place);
        graph.edge(text, variable, Flow::Write, place);
        graph.edge(file, other, Flow::Copy, place);
        graph.edge(other, sent, Flow::Read, place);
        let sink = |node, takes_file| Sink {
            node,
            takes_file,
            target: node,
            kind: 0,
            place,
        };
        let index = graph.index();
        let reached = index.search(0);
        assert!(reached.at(&sink(sent, false)).next().is_some());
        assert!(reached.at(&sink(other, true)).next().is_some());
        assert!(reached.at(&sink(other, false)).next().is_none());
        assert!(index.search(1).at(&sink(sent, true)).next().is_none());
        let state = reached.at(&sink(sent, false)).next().unwrap();
        assert_eq!(reached.steps(state).len(), 6);
    }

    #[test]
    fn values_that_depend_on_each_other_end_the_search() {
        let mut graph = Graph::default();
        let place = Place::default();
        let nodes: Vec<Node> = (0..1_000).map(|_| graph.fresh()).collect();
        for (at, node) in nodes.iter().enumerate() {
            let next = nodes[(at + 1) % nodes.len()];
            graph.edge(*node, next, Flow::Write, place);
            graph.edge(*node, next, Flow::Read, place);
        }
        graph.sources.push(Source {
            node: nodes[0],
            is_content: true,
            kind: 0,
            place,
        });
        let index = graph.index();
        assert!(index.search(0).before.len() >= 1_000);
        assert_eq!(index.texts_behind(nodes[0]), Some(Vec::new()));
    }
}
