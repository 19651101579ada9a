//! Functions with their parameters and what they return.

use super::super::tokens::{Kind, Token};
use super::{LONGEST_COMMAND, Scope, Script, split_commas};
use std::collections::HashSet;

impl Script<'_> {
    /// Declares a function and its parameters; returns its scope.
    pub(super) fn open_function(&mut self, name: &str, params: &[Token], parent: usize) -> usize {
        self.program.scopes += 1;
        self.scopes.push(Scope {
            number: self.program.scopes,
            parent: Some(parent),
            function: name.to_owned(),
            declared: HashSet::new(),
        });
        let scope = self.scopes.len() - 1;
        let mut number = 0;
        for param in split_commas(params) {
            let names: Vec<&str> = match &param[0].kind {
                Kind::Group(_, inner) => inner.iter().filter_map(Token::name).collect(),
                _ => param.iter().find_map(Token::name).into_iter().collect(),
            };
            if matches!(names[..], ["self" | "cls"]) {
                continue;
            }
            number += 1;
            let argument = self.program.argument(self.file(), name, number);
            let place = self.place(param[0].at);
            for name in names {
                self.declare(scope, name);
                let variable = self.variable(scope, name);
                self.program.copy(argument, variable, place);
            }
            if let Some(param) = param.iter().find_map(Token::name) {
                let named = self.program.named_argument(self.file(), name, param);
                self.program.copy(named, argument, place);
            }
        }
        scope
    }

    /// Reads a function that begins here: `function (a) {…}`, `(a) => …`, `a => …`. Returns where it
    /// ends.
    pub(super) fn read_function(
        &mut self,
        tokens: &[Token],
        name: &str,
        scope: usize,
    ) -> Option<usize> {
        let mut at = usize::from(tokens.first()?.name() == Some("async"));
        let begins = tokens.get(at)?.name();
        if matches!(begins, Some("function" | "filter")) {
            at += 1;
            let own = tokens.get(at).and_then(Token::name);
            at += usize::from(own.is_some());
            // A generator.
            let params = tokens.get(at).and_then(|token| token.group(b'('));
            at += usize::from(params.is_some());
            let body = tokens.get(at)?.group(b'{')?;
            let inner = self.open_function(own.unwrap_or(name), params.unwrap_or_default(), scope);
            self.read_block(body, inner);
            return Some(at + 1);
        }
        if begins == Some("lambda") {
            let head = &tokens[..tokens.len().min(LONGEST_COMMAND)];
            let colon = head.iter().position(|token| token.is_sign(":"))?;
            let inner = self.open_function(name, &tokens[at + 1..colon], scope);
            self.return_value(&tokens[colon + 1..], inner);
            return Some(tokens.len());
        }
        if !tokens.get(at + 1)?.is_sign("=>") {
            return None;
        }
        let params = match &tokens[at].kind {
            Kind::Group(b'(', inner) => inner.as_slice(),
            Kind::Name(_) => &tokens[at..=at],
            _ => return None,
        };
        let inner = self.open_function(name, params, scope);
        if let Some(body) = tokens.get(at + 2).and_then(|token| token.group(b'{')) {
            self.read_block(body, inner);
            return Some(at + 3);
        }
        self.return_value(&tokens[at + 2..], inner);
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
}
