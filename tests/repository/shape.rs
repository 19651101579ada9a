//! How the code of every crate is cut and reads: sizes of files and functions, names, comments, and
//! that no files use each other in a circle. Tests are not measured.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use regex::Regex;
use syn::visit::Visit;
use syn::{Attribute, FnArg, Item, ItemMod, Pat, PatType, Signature, Type, UseTree};

use crate::{packages, root, text};

/// Maximum number of lines of a file, with its tests.
const MOST_LINES: usize = 600;
/// Maximum number of lines of a function.
const MOST_FUNCTION_LINES: usize = 80;
/// Maximum number of parameters of a function besides `self`; a tuple counts as its members.
const MOST_PARAMETERS: usize = 5;
/// Maximum number of doc comments in a hundred that begin with a question word: they say which
/// question they answer, and not what the thing is.
const MOST_QUESTIONS: usize = 4;
/// Maximum number of function names in a hundred that are one word: such a name seldom reads alone
/// at the call.
const MOST_ONE_WORD: usize = 40;
/// Fewest lines with `//` in a hundred lines of code: reasons stand beside the steps.
const LEAST_REASONS: usize = 3;
/// Patterns of the gate, which are written anew as data; only circles are looked for there.
const UNMEASURED: &str = "shared/gate/src/rules";

/// A source file of a crate, without its tests.
pub struct Source {
    path: PathBuf,
    /// The segments of its module's path; none for the root of the crate.
    pub module: Vec<String>,
    text: String,
    syntax: syn::File,
    /// Lines of items that only tests have, counted from 1.
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    fn is_measured(&self) -> bool {
        !self.path.starts_with(root().join(UNMEASURED))
    }

    fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    fn name(&self) -> String {
        let path = self.path.strip_prefix(root()).expect("below the root");
        path.display().to_string()
    }
}

/// The sources of each crate that ships, by its name.
fn crates() -> BTreeMap<String, Vec<Source>> {
    let packages = packages(&["--no-deps"]);
    let shipped = packages.iter().filter(|package| {
        let manifest = text(package, "manifest_path");
        !["/tests/", "/testing/", "/fuzz/"]
            .iter()
            .any(|folder| manifest.contains(folder))
    });
    let crates: BTreeMap<_, _> = shipped
        .map(|package| {
            let manifest = Path::new(text(package, "manifest_path"));
            let folder = manifest.parent().expect("a folder").join("src");
            (text(package, "name").to_owned(), sources(&folder))
        })
        .collect();
    assert!(crates.len() > 10, "{:?}", crates.keys());
    crates
}

/// The sources below a folder, without modules that only tests have.
pub fn sources(folder: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    list_sources(folder, &mut paths);
    let mut sources: Vec<_> = paths
        .into_iter()
        .map(|path| read_source(folder, path))
        .collect();
    let mut test_modules = BTreeSet::new();
    for source in &sources {
        for item in &source.syntax.items {
            if let Item::Mod(ItemMod {
                ident,
                content: None,
                attrs,
                ..
            }) = item
                && is_for_tests(attrs)
            {
                test_modules.insert([source.module.as_slice(), &[ident.to_string()]].concat());
            }
        }
    }
    sources.retain(|source| {
        !test_modules
            .iter()
            .any(|test| source.module.starts_with(test))
    });
    sources
}

fn list_sources(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            list_sources(&path, paths);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            paths.push(path);
        }
    }
}

fn read_source(folder: &Path, path: PathBuf) -> Source {
    let text = std::fs::read_to_string(&path).expect("a source");
    let syntax =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let below = path.strip_prefix(folder).expect("below the folder");
    let below = below.with_extension("");
    let mut module: Vec<_> = below
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    let mut tests = TestLines::default();
    tests.visit_file(&syntax);
    Source {
        path,
        module,
        text,
        syntax,
        test_lines: tests.0,
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && (tokens == "test" || tokens.starts_with("any (test"))
    })
}

/// Collects the lines of items that only tests have.
#[derive(Default)]
struct TestLines(Vec<RangeInclusive<usize>>);

impl TestLines {
    fn note(&mut self, attributes: &[Attribute], end: proc_macro2::Span) -> bool {
        let is_test = is_for_tests(attributes);
        if is_test {
            let start = attributes[0].pound_token.span.start().line;
            self.0.push(start..=end.end().line);
        }
        is_test
    }
}

impl<'a> Visit<'a> for TestLines {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        let end = item
            .content
            .as_ref()
            .map_or(item.ident.span(), |(brace, _)| brace.span.close());
        if !self.note(&item.attrs, end) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.note(&item.attrs, item.block.brace_token.span.close());
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if !self.note(&item.attrs, item.brace_token.span.close()) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.note(&item.attrs, item.block.brace_token.span.close());
    }
}

/// A function, where it begins and how large it is.
struct Function {
    name: String,
    line: usize,
    lines: usize,
    parameters: usize,
}

#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn note(&mut self, signature: &Signature, end: Option<proc_macro2::Span>) {
        let line = signature.fn_token.span.start().line;
        let end = end.unwrap_or(signature.fn_token.span).end().line;
        self.0.push(Function {
            name: signature.ident.to_string(),
            line,
            lines: end - line + 1,
            parameters: signature.inputs.iter().map(parameters).sum(),
        });
    }
}

fn parameters(input: &FnArg) -> usize {
    match input {
        FnArg::Receiver(_) => 0,
        FnArg::Typed(PatType { pat, ty, .. }) => match (&**pat, &**ty) {
            (Pat::Tuple(tuple), _) => tuple.elems.len(),
            (_, Type::Tuple(tuple)) => tuple.elems.len().max(1),
            _ => 1,
        },
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.note(&item.sig, Some(item.block.brace_token.span.close()));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.note(&item.sig, Some(item.block.brace_token.span.close()));
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        let end = item
            .default
            .as_ref()
            .map(|block| block.brace_token.span.close());
        self.note(&item.sig, end);
        syn::visit::visit_trait_item_fn(self, item);
    }
}

/// The functions of a source that ship.
fn functions(source: &Source) -> Vec<Function> {
    let mut functions = Functions::default();
    functions.visit_file(&source.syntax);
    let shipped = functions.0.into_iter();
    shipped
        .filter(|function| !source.is_test_line(function.line))
        .collect()
}

#[test]
fn files_and_functions_are_small() {
    let mut large = Vec::new();
    let crates = crates();
    for source in crates
        .values()
        .flatten()
        .filter(|source| source.is_measured())
    {
        let (name, lines) = (source.name(), source.text.lines().count());
        if lines > MOST_LINES {
            large.push(format!("{name} has {lines} lines"));
        }
        for function in functions(source) {
            let Function {
                name: function,
                line,
                lines,
                parameters,
            } = function;
            if lines > MOST_FUNCTION_LINES {
                large.push(format!("{name}:{line}: {function} has {lines} lines"));
            }
            if parameters > MOST_PARAMETERS {
                large.push(format!(
                    "{name}:{line}: {function} has {parameters} parameters"
                ));
            }
        }
    }
    assert!(large.is_empty(), "{}", large.join("\n"));
}

/// The counts of a crate that its language is judged by.
#[derive(Default)]
struct Language {
    code: usize,
    reasons: usize,
    docs: usize,
    questions: Vec<String>,
    functions: usize,
    one_word: usize,
}

fn language(sources: &[Source]) -> Language {
    let question = Regex::new(r"^(What|Which|Whom|Whose|Who|Where|Why|How|When)\b").expect("good");
    let mut counted = Language::default();
    for source in sources.iter().filter(|source| source.is_measured()) {
        let mut in_doc = false;
        for (index, line) in source.text.lines().enumerate() {
            if source.is_test_line(index + 1) {
                continue;
            }
            let line = line.trim();
            let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
            if let Some(doc) = doc {
                if !in_doc {
                    counted.docs += 1;
                    if question.is_match(doc.trim()) {
                        let place = format!("{}:{}", source.name(), index + 1);
                        counted.questions.push(place);
                    }
                }
            } else if line.starts_with("//") {
                counted.reasons += 1;
            } else if !line.is_empty() {
                counted.code += 1;
            }
            in_doc = doc.is_some();
        }
        let functions = functions(source);
        counted.functions += functions.len();
        let one_word = functions
            .iter()
            .filter(|function| !function.name.trim_matches('_').contains('_'));
        counted.one_word += one_word.count();
    }
    counted
}

#[test]
fn names_and_comments_say_what_and_why() {
    let mut poor = Vec::new();
    for (name, sources) in crates() {
        let it = language(&sources);
        if it.reasons * 100 < LEAST_REASONS * it.code {
            let (reasons, code) = (it.reasons, it.code);
            poor.push(format!(
                "{name}: {reasons} lines with reasons in {code} lines of code"
            ));
        }
        if it.questions.len() * 100 > MOST_QUESTIONS * it.docs {
            poor.push(format!(
                "{name}: {} of {} doc comments begin with a question word: {}",
                it.questions.len(),
                it.docs,
                it.questions.join(", ")
            ));
        }
        if it.one_word * 100 > MOST_ONE_WORD * it.functions {
            let (one_word, functions) = (it.one_word, it.functions);
            poor.push(format!(
                "{name}: {one_word} of {functions} function names are one word"
            ));
        }
    }
    assert!(poor.is_empty(), "{}", poor.join("\n"));
}

/// Collects the paths of a source that begin in its own crate, as segments from the root of the
/// crate.
struct Uses<'s> {
    source: &'s Source,
    paths: Vec<Vec<String>>,
    /// Modules of this file in which the visitor is.
    depth: usize,
}

impl Uses<'_> {
    fn note(&mut self, segments: &[String]) {
        if segments.len() < 2 {
            return; // a visibility, or everything of the parent
        }
        let module = &self.source.module;
        let ups = segments.iter().take_while(|it| *it == "super").count();
        let (base, below) = match segments.first().map(String::as_str) {
            Some("crate") => (&module[..0], &segments[1..]),
            // An inline module is one floor below its file.
            Some("self") if self.depth == 0 => (module.as_slice(), &segments[1..]),
            Some("super") if ups >= self.depth && ups - self.depth <= module.len() => (
                &module[..module.len() - (ups - self.depth)],
                &segments[ups..],
            ),
            _ => return,
        };
        self.paths.push([base, below].concat());
    }

    fn note_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.note_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) if name.ident == "self" => self.note(before),
            UseTree::Name(name) => self.note(&with(name.ident.to_string())),
            UseTree::Rename(rename) => self.note(&with(rename.ident.to_string())),
            UseTree::Glob(_) => self.note(before),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_tree(before, tree);
                }
            }
        }
    }
}

impl<'a> Visit<'a> for Uses<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        let inline = usize::from(item.content.is_some());
        self.depth += inline;
        syn::visit::visit_item_mod(self, item);
        self.depth -= inline;
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.note_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<_> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        self.note(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'a syn::Macro) {
        // The tokens of a macro are not parsed, but a path in them is one all the same.
        let tokens = invocation.tokens.to_string();
        let path = Regex::new(r"\b(?:crate|self|super)(?: :: \w+)+").expect("good");
        for found in path.find_iter(&tokens) {
            let segments: Vec<_> = found.as_str().split(" :: ").map(str::to_owned).collect();
            self.note(&segments);
        }
    }
}

/// The modules that a source uses, as segments from the root of its crate.
pub fn used_modules(source: &Source, sources: &[Source]) -> BTreeSet<Vec<String>> {
    let mut uses = Uses {
        source,
        paths: Vec::new(),
        depth: 0,
    };
    uses.visit_file(&source.syntax);
    let used = uses.paths.into_iter().filter_map(|path| {
        // The longest beginning of the path that is a module; the rest is an item in it.
        let beginnings = (0..=path.len()).rev().map(|end| path[..end].to_vec());
        beginnings
            .into_iter()
            .find(|it| sources.iter().any(|source| source.module == *it))
    });
    used.filter(|it| *it != source.module).collect()
}

/// The modules of a crate with the modules that each uses, those of its parents and children left
/// out: a parent puts its children together, and they share what it holds.
fn graph(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let uses = |source: &Source| {
        let used = used_modules(source, sources).into_iter();
        used.filter(|it| !it.starts_with(&source.module) && !source.module.starts_with(it))
            .map(|it| it.join("::"))
            .collect()
    };
    sources
        .iter()
        .map(|source| (source.module.join("::"), uses(source)))
        .collect()
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut circles = Vec::new();
    for (name, sources) in crates() {
        let graph = graph(&sources);
        for start in graph.keys() {
            let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(module) = open.pop() {
                for used in graph.get(module).into_iter().flatten() {
                    if reached.insert(used) {
                        open.push(used);
                    }
                }
            }
            if reached.contains(start) {
                circles.push(format!("{name}: {start}"));
            }
        }
    }
    assert!(circles.is_empty(), "in a circle: {circles:#?}");
}
