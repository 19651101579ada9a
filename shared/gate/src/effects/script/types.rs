//! Methods, and the types of TypeScript, which stand between what matters: `(a: b): c => …`.

use super::super::program::Language;
use super::super::tokens::{Kind, Token};
use super::{Script, split_commas, trim_lines};

/// Largest number of tokens of a type.
const LONGEST_TYPE: usize = 48;

/// Returns where the bracket behind the types between `<` and `>` stands.
pub(super) fn skip_angles(tokens: &[Token], at: usize) -> Option<usize> {
    if !tokens.get(at)?.is_sign("<") {
        return None;
    }
    let mut depth = 0;
    for (end, token) in tokens.iter().enumerate().skip(at).take(LONGEST_TYPE) {
        match &token.kind {
            Kind::Sign("<") => depth += 1,
            Kind::Sign(">") if depth == 1 => {
                let is_bracket = tokens.get(end + 1)?.group(b'(').is_some();
                return is_bracket.then_some(end + 1);
            }
            Kind::Sign(">") => depth -= 1,
            Kind::Name(_)
            | Kind::Text(..)
            | Kind::Group(..)
            | Kind::Sign("." | "," | "|" | "&" | "=>" | ":" | "?") => {}
            _ => return None,
        }
    }
    None
}

/// Returns where the body or the arrow behind a type stands; `at` is where its colon may be. The
/// second value is whether there is a type.
pub(super) fn skip_type(tokens: &[Token], at: usize) -> Option<(usize, bool)> {
    if !tokens.get(at)?.is_sign(":") {
        return Some((at, false));
    }
    let mut is_operand = false;
    for (end, token) in tokens.iter().enumerate().skip(at + 1).take(LONGEST_TYPE) {
        match &token.kind {
            // The first bracket is a part of the type: `: { a: b } {`.
            Kind::Group(b'{', _) if is_operand => return Some((end, true)),
            Kind::Sign("=>") => return Some((end, true)),
            Kind::Sign("." | "|" | "&" | "<" | ",") => is_operand = false,
            Kind::Sign(">") | Kind::Name(_) | Kind::Text(..) | Kind::Group(..) | Kind::Number => {
                is_operand = true;
            }
            _ => return None,
        }
    }
    None
}

/// Whether a bracket `{…}` of JavaScript has statements, and is no object.
pub(super) fn has_statements(tokens: &[Token]) -> bool {
    let sign_at = |at: Option<usize>, sign: &str| {
        at.and_then(|at| tokens.get(at))
            .is_some_and(|token| token.is_sign(sign))
    };
    // `{ return: 1, const() {…} }` names members.
    let is_member = |at: usize| {
        let is_method = |token: &Token| token.group(b'(').is_some();
        sign_at(at.checked_sub(1), ",")
            || sign_at(Some(at + 1), ":")
            || sign_at(Some(at + 1), ",")
            || tokens.get(at + 1).is_some_and(is_method)
                && tokens
                    .get(at + 2)
                    .is_some_and(|body| body.group(b'{').is_some())
    };
    let begin = trim_lines(tokens);
    let is_object = begin.len() == 1
        || begin
            .get(1)
            .is_some_and(|sign| sign.is_sign(":") || sign.is_sign(","))
        || begin.first().is_some_and(|sign| sign.is_sign("..."));
    tokens.iter().enumerate().any(|(at, token)| {
        token.is_sign(";")
            || match token.name() {
                Some("return" | "const" | "let" | "var") => !is_member(at),
                Some("await") => !is_object,
                _ => false,
            }
    })
}

/// A method, or a word with a condition and a body.
pub(super) struct Method<'t> {
    params: &'t [Token],
    /// Where the body stands.
    body: usize,
    /// Whether a type stands before it.
    is_typed: bool,
}

impl Script<'_> {
    /// Reads a method, or a word with a condition and a body; returns where it ends.
    pub(super) fn read_method(
        &mut self,
        name: &str,
        method: &Method<'_>,
        (tokens, at, scope): (&[Token], usize, usize),
    ) -> usize {
        let Method {
            params,
            body,
            is_typed,
        } = *method;
        let is_control = matches!(
            name,
            "if" | "while" | "switch" | "catch" | "foreach" | "for" | "elseif"
        );
        let block = tokens[body].group(b'{').unwrap_or_default();
        if is_control {
            self.read_taken(params, scope);
            self.read_caught(name, params, scope);
            self.read_block(block, scope);
        } else {
            // It may be the middle of `a ? b(c) : d` as well. Defaults are evaluated where they are
            // declared: twice would double the work with each function inside another one.
            if is_typed && !params.iter().any(|token| token.is_sign("=")) {
                self.evaluate_chain(&tokens[..body - 1], at, scope);
            }
            let before = at.checked_sub(1).and_then(|at| tokens[at].name());
            if before == Some("get") {
                self.properties.insert(name.to_owned());
            }
            let inner = self.open_function(name, params, scope);
            self.read_block(block, inner);
        }
        body + 1
    }

    /// Reads a bracket that may be the parameters of a function, or the middle of
    /// `a ? (b) : c => d`, as the latter. `inner` is the scope of the function, which has evaluated
    /// what stands behind each `=`.
    pub(super) fn read_middle(&mut self, params: &[Token], scope: usize, inner: usize) {
        for part in split_commas(params) {
            match part {
                [name, ..] if part.iter().any(|token| token.is_sign("=")) => {
                    let name = name.name().unwrap_or_default();
                    let place = self.place(part[0].at);
                    let value = self.variable(inner, name);
                    let variable = self.variable(scope, name);
                    self.program.copy(value, variable, place);
                }
                _ => {
                    self.evaluate(part, scope);
                }
            }
        }
    }

    /// Where the sign of an assignment inside an expression stands, if one begins here.
    pub(super) fn inner_assignment(&self, tokens: &[Token], at: usize) -> Option<usize> {
        if tokens.get(at + 1)?.is_sign(":=") {
            return Some(at + 1);
        }
        // Arguments of Python have names, and attributes of JSX stand in the middle.
        if at > 0 || self.code.language == Language::Python {
            return None;
        }
        let head = &tokens[..tokens.len().min(8)];
        let sign = head.iter().position(|token| token.is_sign("="))?;
        let is_name = |token: &Token| matches!(token.kind, Kind::Name(_) | Kind::Sign("."));
        head[..sign].iter().all(is_name).then_some(sign)
    }

    /// The parameters of a method that begins here, or the condition behind a word; where its body
    /// stands; and whether a type stands between.
    pub(super) fn method_of<'t>(&self, tokens: &'t [Token], at: usize) -> Option<Method<'t>> {
        let is_script = self.code.language == Language::JavaScript;
        let generic = skip_angles(tokens, at + 1).filter(|_| is_script);
        let from = generic.unwrap_or(at + 1);
        let params = tokens.get(from)?.group(b'(')?;
        let (body, is_typed) = if is_script {
            skip_type(tokens, from + 1)?
        } else {
            (from + 1, false)
        };
        tokens.get(body)?.group(b'{')?;
        Some(Method {
            params,
            body,
            is_typed,
        })
    }
}
