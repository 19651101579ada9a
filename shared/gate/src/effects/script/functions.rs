//! Functions with their parameters and what they return.

use super::super::graph::{Node, Place};
use super::super::program::Language;
use super::super::tokens::{Kind, Token};
use super::types::{skip_angles, skip_type};
use super::{LONGEST_JOINED, Scope, Script, split_commas};
use std::collections::HashSet;

/// Number of arguments that a parameter for all further ones takes.
const MOST_REST: usize = 4;

impl Script<'_> {
    /// Declares a function and its parameters; returns its scope.
    pub(super) fn open_function(&mut self, name: &str, params: &[Token], parent: usize) -> usize {
        let name = match name {
            // `module.exports = (a) => …`
            "exports" => "default",
            _ => name,
        };
        let function = self.folded(name).into_owned();
        let scope = self.open_scope(parent, function, None);
        self.declare_parameters(params, scope);
        scope
    }

    fn open_scope(&mut self, parent: usize, function: String, class: Option<String>) -> usize {
        self.program.scopes += 1;
        self.scopes.push(Scope {
            number: self.program.scopes,
            parent: Some(parent),
            function,
            class,
            declared: HashSet::new(),
            outer: HashSet::new(),
        });
        self.scopes.len() - 1
    }

    /// Reads a class, behind its first word. Returns its scope if the body follows.
    pub(super) fn read_class(&mut self, tokens: &[Token], scope: usize) -> Option<usize> {
        let name = match tokens.first().map(|first| &first.kind) {
            Some(Kind::Name(name)) => self.folded(name).into_owned(),
            Some(Kind::Group(b'{', _)) => String::new(),
            // An attribute of HTML or JSX: `class="a"`.
            _ => {
                self.evaluate(tokens, scope);
                return None;
            }
        };
        let function = self.scopes[scope].function.clone();
        let inner = self.open_scope(scope, function, Some(name));
        if self.code.language == Language::Python {
            let colon = tokens.iter().position(|token| token.is_sign(":"));
            let body = colon.map_or(&[][..], |at| &tokens[at + 1..]);
            self.read_statement(body, inner);
            return Some(inner);
        }
        let body = tokens
            .iter()
            .position(|token| token.group(b'{').is_some())?;
        self.read_block(tokens[body].group(b'{').unwrap_or_default(), inner);
        self.evaluate(&tokens[body + 1..], scope);
        None
    }

    /// Declares the parameters of the function whose scope this is.
    pub(super) fn declare_parameters(&mut self, params: &[Token], scope: usize) {
        let function = self.scopes[scope].function.clone();
        let parent = self.scopes[scope].parent;
        let class = parent
            .and_then(|parent| self.scopes[parent].class.clone())
            .filter(|class| is_constructor(&function, class));
        // A constructor is called by the name of its class.
        let functions = [Some(function), class];
        let mut number = 0;
        for param in split_commas(params) {
            let param = self.without_types(param);
            let Some(first) = param.first() else {
                continue;
            };
            let end = param
                .iter()
                .position(|token| token.is_sign("=") || token.is_sign(":"));
            let head = &param[..end.unwrap_or(param.len())];
            let names: Vec<&str> = match &first.kind {
                Kind::Group(_, inner) => inner.iter().filter_map(Token::name).collect(),
                _ => head.iter().filter_map(Token::name).collect(),
            };
            if matches!(names[..], ["self" | "cls"]) {
                continue;
            }
            number += 1;
            let place = self.place(first.at);
            let value = self.program.graph.fresh();
            // `*names` takes all that follow.
            let is_rest = ["*", "**", "..."].iter().any(|sign| first.is_sign(sign));
            let most = if is_rest { number + MOST_REST } else { number };
            for function in functions.iter().flatten() {
                for number in number..=most {
                    let argument = self.program.argument(self.file(), function, number);
                    self.program.copy(argument, value, place);
                }
                // `**names` takes all named ones.
                let all = first.is_sign("**").then_some("**");
                if let Some(name) = all.or(names.last().copied()) {
                    let name = self.folded(name).into_owned();
                    let named = self.program.named_argument(self.file(), function, &name);
                    self.program.copy(named, value, place);
                }
            }
            if parent.is_none() {
                self.take_words(value, place);
            }
            for name in &names {
                self.declare(scope, name);
                let variable = self.variable(scope, name);
                self.program.copy(value, variable, place);
            }
            // `constructor(private text: string)`
            let is_attribute =
                |name: &&str| matches!(*name, "private" | "public" | "readonly" | "protected");
            if names.first().is_some_and(is_attribute)
                && let Some(name) = names.last()
            {
                let attribute = self.variable(scope, &format!("this.{name}"));
                self.program.copy(value, attribute, place);
            }
            self.set_default(param, value, scope);
        }
    }

    /// Puts the default of a parameter into its value.
    fn set_default(&mut self, param: &[Token], value: Node, scope: usize) {
        let Some(at) = param.iter().position(|token| token.is_sign("=")) else {
            return;
        };
        let place = self.place(param[at].at);
        let default = self.evaluate(&param[at + 1..], scope);
        self.program.copy(default, value, place);
    }

    /// `param` of PowerShell without the attributes in front: `[CmdletBinding()] param(…)`.
    pub(super) fn without_attributes<'t>(&self, tokens: &'t [Token]) -> &'t [Token] {
        let rest = self.without_types(tokens);
        let first = rest.first().and_then(Token::name);
        match first {
            Some(word) if word.eq_ignore_ascii_case("param") => rest,
            _ => tokens,
        }
    }

    /// A parameter of PowerShell without the types and attributes in front.
    fn without_types<'t>(&self, mut param: &'t [Token]) -> &'t [Token] {
        let is_type = |token: &Token| matches!(token.kind, Kind::Group(b'[', _) | Kind::Line(_));
        while self.code.language == Language::PowerShell
            && let Some((first, rest)) = param.split_first()
            && is_type(first)
        {
            param = rest;
        }
        param
    }

    /// Lets the calls of one name be those of the function of another one.
    pub(super) fn link_functions(&mut self, from: &str, to: &str, place: Place) {
        let file = self.file();
        for number in 1..=MOST_REST {
            let given = self.program.argument(file, from, number);
            let taken = self.program.argument(file, to, number);
            self.program.copy(given, taken, place);
        }
        let returned = self.program.returned(file, to);
        let value = self.program.returned(file, from);
        self.program.copy(returned, value, place);
    }

    /// Reads a function that begins here: `function (a) {…}`, `(a) => …`, `a => …`. Returns where it
    /// ends.
    pub(super) fn read_function(
        &mut self,
        tokens: &[Token],
        name: &str,
        scope: usize,
    ) -> Option<usize> {
        if let Some(body) = self.block_with_parameters(tokens) {
            let inner = self.open_function(name, &[], scope);
            self.read_block(body, inner);
            self.blocks.push(name.to_owned());
            return Some(1);
        }
        let mut at = usize::from(tokens.first()?.name() == Some("async"));
        let begins = tokens.get(at)?.name();
        let is_power = self.code.language == Language::PowerShell;
        let is_function = |word: &str| matches!(word, "function" | "filter");
        let is_folded = |word: &str| is_function(&word.to_ascii_lowercase());
        if begins.is_some_and(|word| is_function(word) || is_power && is_folded(word)) {
            at += 1;
            let own = tokens.get(at).and_then(Token::name);
            at += usize::from(own.is_some());
            // A generator.
            at += usize::from(tokens.get(at).is_some_and(|sign| sign.is_sign("*")));
            let own = own.or_else(|| tokens.get(at).and_then(Token::name));
            at += usize::from(tokens.get(at).is_some_and(|token| token.name().is_some()));
            at = skip_angles(tokens, at).unwrap_or(at);
            let params = tokens.get(at).and_then(|token| token.group(b'('));
            at += usize::from(params.is_some());
            let (at, _) = skip_type(tokens, at)?;
            let body = tokens.get(at)?.group(b'{')?;
            let inner = self.open_function(own.unwrap_or(name), params.unwrap_or_default(), scope);
            self.read_block(body, inner);
            return Some(at + 1);
        }
        if begins == Some("lambda") {
            let head = &tokens[..tokens.len().min(LONGEST_JOINED)];
            let colon = head.iter().position(|token| token.is_sign(":"))?;
            let inner = self.open_function(name, &tokens[at + 1..colon], scope);
            self.return_value(&tokens[colon + 1..], inner);
            return Some(tokens.len());
        }
        at = skip_angles(tokens, at).unwrap_or(at);
        let is_bracket = tokens.get(at)?.group(b'(').is_some();
        let (arrow, is_typed) = match skip_type(tokens, at + 1)? {
            (arrow, is_typed) if is_bracket && self.code.language == Language::JavaScript => {
                (arrow, is_typed)
            }
            _ => (at + 1, false),
        };
        if !tokens.get(arrow)?.is_sign("=>") {
            return None;
        }
        let params = match &tokens[at].kind {
            Kind::Group(b'(', inner) => inner.as_slice(),
            Kind::Name(_) => &tokens[at..=at],
            _ => return None,
        };
        let inner = self.open_function(name, params, scope);
        if is_typed {
            self.read_middle(params, scope, inner);
        }
        if let Some(body) = tokens.get(arrow + 1).and_then(|token| token.group(b'{')) {
            self.read_block(body, inner);
            return Some(arrow + 2);
        }
        self.return_value(&tokens[arrow + 1..], inner);
        Some(tokens.len())
    }

    pub(super) fn return_value(&mut self, tokens: &[Token], scope: usize) {
        // `(part) => text += part`
        let value = if tokens
            .iter()
            .any(|token| token.is_sign("=") || token.is_sign("+="))
        {
            self.read_assignment(tokens, scope, false);
            self.program.graph.fresh()
        } else {
            self.evaluate(tokens, scope)
        };
        let function = self.scopes[scope].function.clone();
        let returned = self.program.returned(self.file(), &function);
        let place = self.place(tokens.first().map_or(0, |token| token.at));
        self.program.copy(value, returned, place);
    }

    /// A block of PowerShell that begins with its parameters: `{ param($a) … }`.
    fn block_with_parameters<'t>(&self, tokens: &'t [Token]) -> Option<&'t [Token]> {
        let body = tokens.first()?.group(b'{')?;
        let mut words = body.iter().filter_map(Token::name);
        let is_block = self.code.language == Language::PowerShell
            && words
                .next()
                .is_some_and(|word| word.eq_ignore_ascii_case("param"));
        is_block.then_some(body)
    }
}

/// Whether a function makes the values of a class.
fn is_constructor(function: &str, class: &str) -> bool {
    function == class
        || matches!(
            function,
            "__init__" | "__new__" | "__post_init__" | "constructor" | "initialize" | "__construct"
        )
}
