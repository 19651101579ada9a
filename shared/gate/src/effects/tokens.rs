//! Reads Python, JavaScript and PowerShell into tokens with their brackets. It knows no grammar, so
//! that broken code and other languages of this family give tokens, too.

use super::program::Language;

/// Largest number of brackets inside one another. Deeper ones are passed over, and what is in them
/// belongs to the bracket around.
const MOST_NESTED: usize = 48;
/// Largest number of texts with code in them, inside one another.
const MOST_EMBEDDED: u32 = 3;

/// Longest regular expression of JavaScript.
const LONGEST_EXPRESSION: usize = 1_000;

/// What a token is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Name(String),
    /// A text, and the code in it (`f"{code}"`).
    Text(String, Vec<Token>),
    Number,
    /// One or two signs.
    Sign(&'static str),
    /// A bracket and what stands in it.
    Group(u8, Vec<Token>),
    /// The end of a line, and the number of blanks before the next one.
    Line(usize),
}

/// A part of the code.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub at: usize,
    pub kind: Kind,
}

impl Token {
    pub(super) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Name(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(&self.kind, Kind::Sign(this) if *this == sign)
    }

    pub(super) fn group(&self, open: u8) -> Option<&[Token]> {
        match &self.kind {
            Kind::Group(this, inner) if *this == open => Some(inner),
            _ => None,
        }
    }
}

/// Signs that are told apart; all others are `~`. Longer ones come first.
const SIGNS: [&str; 39] = [
    "===", "!==", "...", "=>", "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=", "|=", "->",
    "?.", "??", "::", "&&", "||", "++", "--", "**", "=", ".", ",", ";", ":", "+", "/", "|", "&",
    "<", ">", "@", "-", "?", "*", "%",
];

/// Returns the tokens of a text. What a bound cut off is reported in the second value.
pub(super) fn read_tokens(text: &str, language: Language) -> (Vec<Token>, bool) {
    Reader {
        text: text.as_bytes(),
        language,
        at: 0,
        open: vec![(0, 0, Vec::new())],
        is_cut: false,
        has_open_tick: false,
    }
    .read(0)
}

struct Reader<'a> {
    text: &'a [u8],
    language: Language,
    at: usize,
    /// Brackets that are open: the sign, where it stands, and what is in it so far.
    open: Vec<(u8, usize, Vec<Token>)>,
    is_cut: bool,
    /// Whether a back tick was found that no other one ends.
    has_open_tick: bool,
}

/// Whether a value stands behind a word, and no operator.
fn is_before_value(name: &str) -> bool {
    matches!(
        name,
        "return"
            | "typeof"
            | "case"
            | "in"
            | "of"
            | "do"
            | "else"
            | "await"
            | "yield"
            | "void"
            | "delete"
            | "throw"
            | "new"
            | "instanceof"
    )
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

impl Reader<'_> {
    fn read(mut self, embedded: u32) -> (Vec<Token>, bool) {
        while let Some(byte) = self.text.get(self.at).copied() {
            let at = self.at;
            match byte {
                b'\n' => self.read_line_end(),
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\\' if self.text[at..].starts_with(b"\\\n") => self.at += 2,
                b'`' if self.language == Language::PowerShell => {
                    // A line goes on behind it, and most of these files end lines with two bytes.
                    let is_line = self.text[at..].starts_with(b"`\r\n");
                    self.at += if is_line { 3 } else { 2 };
                }
                b'\\' if self.text[at..].starts_with(b"\\\r\n") => self.at += 3,
                // What stands behind it is for another program.
                b'-' if self.language == Language::PowerShell
                    && self.text[at..].starts_with(b"--%") =>
                {
                    let rest = &self.text[at..];
                    self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                }
                // A private member.
                b'#' if self.language == Language::JavaScript
                    && self.text.get(at + 1).is_some_and(|next| is_letter(*next)) =>
                {
                    self.at += 1;
                }
                _ if self.skip_comment() => {}
                b'`' if self.has_open_tick => self.read_sign(),
                b'"' | b'\'' | b'`' => self.read_text(byte, at, embedded),
                b'@' if self.language == Language::PowerShell
                    && matches!(self.text.get(at + 1), Some(b'"' | b'\'')) =>
                {
                    self.at += 1;
                    self.read_here_text(at, embedded);
                }
                b'/' if self.is_expression() => self.skip_expression(),
                b'(' | b'[' | b'{' => {
                    if self.open.len() <= MOST_NESTED {
                        self.open.push((byte, at, Vec::new()));
                    } else {
                        self.is_cut = true;
                    }
                    self.at += 1;
                }
                b')' | b']' | b'}' => {
                    self.close(byte);
                    self.at += 1;
                }
                b'$' => self.at += 1,
                _ if is_letter(byte) => self.read_name(embedded),
                _ => self.read_sign(),
            }
        }
        while self.open.len() > 1 {
            self.close_last();
        }
        let tokens = self.open.pop().map(|open| open.2).unwrap_or_default();
        (tokens, self.is_cut)
    }

    fn push(&mut self, at: usize, kind: Kind) {
        if let Some(open) = self.open.last_mut() {
            open.2.push(Token { at, kind });
        }
    }

    fn last(&self) -> Option<&Token> {
        self.open.last().and_then(|open| open.2.last())
    }

    fn close_last(&mut self) {
        if let Some((byte, at, inner)) = self.open.pop() {
            self.push(at, Kind::Group(byte, inner));
        }
    }

    /// Closes the brackets up to the one that fits; a bracket that fits none is passed over.
    fn close(&mut self, byte: u8) {
        let opening = match byte {
            b')' => b'(',
            b']' => b'[',
            _ => b'{',
        };
        // Only the nearest few are tried: otherwise a text of closing brackets would cost a walk
        // over all open ones each.
        if let Some(back) = self.open[1..]
            .iter()
            .rev()
            .take(MOST_NESTED)
            .position(|open| open.0 == opening)
        {
            for _ in 0..=back {
                self.close_last();
            }
        }
    }

    fn read_line_end(&mut self) {
        let at = self.at;
        self.at += 1;
        let rest = &self.text[self.at..];
        let indent = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        let is_block = matches!(self.open.last(), Some((0 | b'{', ..)));
        // Blank lines and comments have no indentation.
        let next = rest.get(indent);
        if is_block && !matches!(next, None | Some(b'\n' | b'\r' | b'#')) {
            self.push(at, Kind::Line(indent));
        }
    }

    fn skip_comment(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let has_hash = self.language != Language::JavaScript;
        let until = |mark: &[u8]| {
            let found = memchr::memmem::find(&rest[2..], mark);
            found.map_or(rest.len(), |at| at + 2 + mark.len())
        };
        let length = if has_hash && rest.starts_with(b"<#") {
            until(b"#>")
        } else if self.language == Language::JavaScript && rest.starts_with(b"/*") {
            until(b"*/")
        } else if has_hash && rest.starts_with(b"#") || !has_hash && rest.starts_with(b"//") {
            memchr::memchr(b'\n', rest).unwrap_or(rest.len())
        } else {
            return false;
        };
        self.at += length;
        true
    }

    /// Whether a slash begins a regular expression of JavaScript, and is no division.
    fn is_expression(&self) -> bool {
        self.language == Language::JavaScript
            && self.last().is_none_or(|last| match &last.kind {
                Kind::Sign(sign) => *sign != ".",
                Kind::Line(_) => true,
                Kind::Name(name) => is_before_value(name),
                // `if (a) /b/.test(c)`
                Kind::Group(b'(', _) => self.is_head(),
                _ => false,
            })
    }

    /// Whether the last bracket is the head of a statement.
    fn is_head(&self) -> bool {
        let tokens = self.open.last().map_or(&[][..], |open| open.2.as_slice());
        let word = tokens.len().checked_sub(2).and_then(|at| tokens[at].name());
        matches!(word, Some("if" | "while" | "for" | "with"))
    }

    fn skip_expression(&mut self) {
        let line = &self.text[self.at + 1..];
        let mut length = 0;
        let mut in_class = false;
        while let Some(byte) = line.get(length) {
            match byte {
                // It is no expression. Longer ones are rare, and looking far would cost too much.
                _ if length > LONGEST_EXPRESSION => {
                    self.at += 1;
                    return;
                }
                b'\n' => {
                    self.at += 1;
                    return;
                }
                b'\\' => length += 1,
                b'[' => in_class = true,
                b']' => in_class = false,
                b'/' if !in_class => break,
                _ => {}
            }
            length += 1;
        }
        self.push(self.at, Kind::Number);
        self.at = (self.at + length + 2).min(self.text.len());
    }

    fn read_name(&mut self, embedded: u32) {
        let at = self.at;
        let rest = &self.text[at..];
        let mut length = rest.iter().take_while(|byte| is_letter(**byte)).count();
        // Names of commands have hyphens.
        if self.language == Language::PowerShell {
            while rest.get(length) == Some(&b'-')
                && rest.get(length + 1).is_some_and(u8::is_ascii_alphabetic)
            {
                length += 1 + rest[length + 1..]
                    .iter()
                    .take_while(|byte| is_letter(**byte))
                    .count();
            }
        }
        self.at += length;
        let word = String::from_utf8_lossy(&rest[..length]).into_owned();
        let is_prefix = self.language == Language::Python
            && word.len() <= 2
            && word.bytes().all(|byte| b"rbfuRBFU".contains(&byte));
        match rest.get(length) {
            Some(quote @ (b'"' | b'\'')) if is_prefix => {
                let is_format = word.to_ascii_lowercase().contains('f');
                self.read_text(*quote, at, if is_format { embedded } else { MOST_EMBEDDED });
            }
            _ if word.as_bytes()[0].is_ascii_digit() => self.push(at, Kind::Number),
            _ => self.push(at, Kind::Name(word)),
        }
    }

    fn read_sign(&mut self) {
        let rest = &self.text[self.at..];
        let sign = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()));
        let sign = sign.copied().unwrap_or("~");
        self.push(self.at, Kind::Sign(sign));
        self.at += sign.len();
    }

    /// Reads a text in quotation marks; `at` is where its prefix begins.
    fn read_text(&mut self, quote: u8, at: usize, embedded: u32) {
        let is_triple =
            self.language == Language::Python && self.text[self.at..].starts_with(&[quote; 3]);
        let marks = if is_triple { 3 } else { 1 };
        let escape = if self.language == Language::PowerShell {
            b'`'
        } else {
            b'\\'
        };
        let is_raw = self.text[at..self.at]
            .iter()
            .any(|byte| b"rR".contains(byte));
        self.at += marks;
        let mut value = Vec::new();
        while let Some(byte) = self.text.get(self.at).copied() {
            if byte == quote && (!is_triple || self.text[self.at..].starts_with(&[quote; 3])) {
                break;
            }
            // A text on one line that has no end is an apostrophe.
            if byte == b'\n' && !is_triple && quote != b'`' && self.language != Language::PowerShell
            {
                break;
            }
            if byte == escape && self.at + 1 < self.text.len() {
                self.at += 1;
                match self.text[self.at] {
                    b'n' => value.push(b'\n'),
                    b'\n' => {}
                    other => {
                        let is_number = matches!(other, b'x' | b'u') && !is_raw;
                        if !is_number || !self.read_number(&mut value) {
                            value.push(other);
                        }
                    }
                }
            } else {
                value.push(byte);
            }
            self.at += 1;
        }
        if self.text.get(self.at) == Some(&quote) {
            self.at += marks;
        } else if quote == b'`' {
            // It has no end, so it is none: what stands behind it is code.
            self.has_open_tick = true;
            self.at = at + 1;
            self.push(at, Kind::Sign("~"));
            return;
        }
        self.push_text(at, &value, quote, embedded);
    }

    /// Reads a printable ASCII character that is written by its number, `\x41` or `\u0041`, up to the
    /// last digit.
    fn read_number(&mut self, value: &mut Vec<u8>) -> bool {
        let length = if self.text[self.at] == b'x' { 2 } else { 4 };
        let digits = self.text.get(self.at + 1..=self.at + length);
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = byte.filter(|byte| {
            self.language != Language::PowerShell && (byte.is_ascii_graphic() || *byte == b' ')
        });
        value.extend(byte);
        self.at += byte.map_or(0, |_| length);
        byte.is_some()
    }

    /// Reads `@"…"@` of PowerShell.
    fn read_here_text(&mut self, at: usize, embedded: u32) {
        let quote = self.text[self.at];
        let rest = &self.text[self.at + 1..];
        let end = memchr::memmem::find(rest, &[b'\n', quote, b'@']).unwrap_or(rest.len());
        let value = rest[..end].to_vec();
        self.at = (self.at + 1 + end + 3).min(self.text.len());
        self.push_text(at, &value, quote, embedded);
    }

    fn push_text(&mut self, at: usize, value: &[u8], quote: u8, embedded: u32) {
        let value = String::from_utf8_lossy(value).into_owned();
        let has_code = match self.language {
            Language::JavaScript => quote == b'`',
            Language::PowerShell => quote == b'"',
            _ => true,
        };
        let mut code = Vec::new();
        if has_code && embedded < MOST_EMBEDDED {
            for part in embedded_code(&value, self.language) {
                let (tokens, _) = Reader {
                    text: part.as_bytes(),
                    language: self.language,
                    at: 0,
                    open: vec![(0, 0, Vec::new())],
                    is_cut: false,
                    has_open_tick: false,
                }
                .read(embedded + 1);
                code.extend(tokens);
                code.push(Token {
                    at: 0,
                    kind: Kind::Sign(","),
                });
            }
            // Offsets inside are those of the text around.
            set_offsets(&mut code, at);
        }
        self.push(at, Kind::Text(value, code));
    }
}

fn set_offsets(tokens: &mut [Token], at: usize) {
    for token in tokens {
        token.at = at;
        if let Kind::Group(_, inner) | Kind::Text(_, inner) = &mut token.kind {
            set_offsets(inner, at);
        }
    }
}

/// Returns the pieces of code in a text: `{code}`, `${code}`, or `$name` and `$(code)`.
pub(super) fn embedded_code(value: &str, language: Language) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = value;
    let sign = if language == Language::Python {
        '{'
    } else {
        '$'
    };
    while let Some(at) = rest.find(sign) {
        let after = &rest[at + 1..];
        let body = match language {
            Language::Python => Some(after),
            _ => after.strip_prefix(['{', '(']),
        };
        let length = match body {
            // The end is the next bracket: code with brackets of the same kind is rare there.
            Some(body) => {
                let close = if after.starts_with('(') { ')' } else { '}' };
                let end = body.find(close).unwrap_or(body.len());
                let end = if close == ')' {
                    body.rfind(close).unwrap_or(end)
                } else {
                    end
                };
                parts.push(&body[..end]);
                after.len() - body.len() + end
            }
            None => {
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let end = after.find(|letter| !is_part(letter)).unwrap_or(after.len());
                parts.push(&after[..end]);
                end
            }
        };
        rest = &after[length..];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, language: Language) -> String {
        fn show(tokens: &[Token]) -> String {
            let all = tokens.iter().map(|token| match &token.kind {
                Kind::Name(name) => name.clone(),
                Kind::Text(value, code) => format!("\"{value}\"<{}>", show(code)),
                Kind::Number => "0".to_owned(),
                Kind::Sign(sign) => (*sign).to_owned(),
                Kind::Group(open, inner) => format!("{}[{}]", char::from(*open), show(inner)),
                Kind::Line(indent) => format!("/{indent}"),
            });
            all.collect::<Vec<_>>().join(" ")
        }
        show(&read_tokens(text, language).0)
    }

    #[test]
    fn brackets_texts_and_lines_are_told_apart() {
        assert_eq!(
            shown("x = f(a, f'{b}/c') # no\n  y\n", Language::Python),
            "x = f ([a , \"{b}/c\"<b ,>] /2 y"
        );
        assert_eq!(
            shown(
                "const t = `a${f(x)}`; // no\n/it's/.test(y)",
                Language::JavaScript
            ),
            "const t = \"a${f(x)}\"<f ([x] ,> ; /0 0 . test ([y]"
        );
        assert_eq!(
            shown("$a = Get-Content \"$HOME/.x\" -Raw", Language::PowerShell),
            "a = Get-Content \"$HOME/.x\"<HOME ,> - Raw"
        );
        assert_eq!(shown("f((]", Language::Python), "f ([([]]");
    }

    #[test]
    fn deep_brackets_are_cut_and_said() {
        for open in ["(", "[", "{"] {
            let (_, is_cut) = read_tokens(&open.repeat(100_000), Language::JavaScript);
            assert!(is_cut);
        }
        let (tokens, is_cut) = read_tokens(&")".repeat(100_000), Language::Python);
        assert!(tokens.is_empty() && !is_cut);
    }
}
