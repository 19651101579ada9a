//! What a command hands back, and the envelope that `--json` prints.

use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::text::is_deceptive;
use crate::errors::{Exit, Failure, Place};

/// The result of a command, for people and for programs.
#[derive(Debug)]
pub struct Report {
    /// For `--json`: the member `data`.
    pub data: Value,
    /// For people: standard output, without the last line end.
    pub text: String,
    /// What the process ends with.
    pub exit: Exit,
    /// What of it is printed, and how.
    pub form: Form,
}

/// What of a report standard output gets.
#[derive(Debug)]
pub enum Form {
    /// The text for people; with `--json` the envelope with the data.
    Result,
    /// The same, where the data has so many parts that it was written at once; `None` where nobody asked for it.
    Written(Option<Box<RawValue>>),
    /// Exactly the data, whatever the flags say.
    BareData,
    /// Exactly the text, whatever the flags say: a format of its own.
    BareText,
}

impl Report {
    /// A result that ends with 0.
    pub fn new(data: impl Serialize, text: impl Into<String>) -> Self {
        Self {
            data: serde_json::to_value(data).unwrap_or(Value::Null),
            text: text.into(),
            exit: Exit::Done,
            form: Form::Result,
        }
    }

    /// A result whose data was written already, where programs asked for it.
    pub fn written(data: Option<Box<RawValue>>, text: impl Into<String>) -> Self {
        Self::new(Value::Null, text).form(Form::Written(data))
    }

    /// Text alone: what it prints is its data too.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(&text, text.clone())
    }

    /// Nothing to print: the command spoke for itself.
    pub fn silent(exit: Exit) -> Self {
        Self::new(Value::Null, "").exit(exit)
    }

    /// A text in a format of its own, which is printed as it is.
    pub fn raw(text: impl Into<String>) -> Self {
        Self::new(Value::Null, text).form(Form::BareText)
    }

    /// JSON without an envelope.
    pub fn bare(data: impl Serialize) -> Self {
        Self::new(data, "").form(Form::BareData)
    }

    /// The same result with another exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }
}

/// Something that did not stop the command but that the user should know.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Warning {
    /// The stable word.
    pub code: String,
    /// One sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The file it is about.
    pub path: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<u32>,
}

impl Warning {
    /// A warning with its stable word and sentence.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// The same warning with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<&Failure> for Warning {
    fn from(failure: &Failure) -> Self {
        Self {
            hint: failure.hint.clone(),
            ..Self::new(failure.code.word(), failure.message.clone())
        }
    }
}

/// What `--json` prints, whatever the command.
#[derive(Serialize)]
pub(super) struct Envelope<'a> {
    pub schema: u32,
    pub ok: bool,
    pub data: Data<'a>,
    pub warnings: &'a [Warning],
    pub error: Option<EnvelopeError<'a>>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
pub(super) enum Data<'a> {
    Built(&'a Value),
    Written(&'a RawValue),
}

#[derive(Serialize)]
pub(super) struct EnvelopeError<'a> {
    pub code: &'a str,
    pub message: &'a str,
    pub hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<&'a Place>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

pub(super) fn pretty(data: &Value, terminal: bool) -> String {
    if terminal {
        serde_json::to_string_pretty(data)
    } else {
        serde_json::to_string(data)
    }
    .unwrap_or_default()
}

/// JSON text in which nothing can paint a terminal: what JSON itself lets stand raw is written as an escape, the same text.
pub(super) fn escaped(json: String) -> String {
    // What JSON must escape is escaped: of ASCII the delete character is left. Most texts are seen to be harmless at once.
    let harmless = json.is_ascii() && !json.as_bytes().contains(&0x7f);
    if harmless || !json.chars().any(|c| c != '\n' && is_deceptive(c)) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if c != '\n' && is_deceptive(c) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_a_terminal_says_the_same_and_paints_nothing() {
        let data =
            serde_json::json!({ "a\u{9b}": ["\u{1b}[2J\u{7f}\u{85}\u{202e}\u{2028}é\n", "plain"] });
        for text in [pretty(&data, true), pretty(&data, false)] {
            let shown = escaped(text.clone());
            assert!(
                !shown.chars().any(|c| c != '\n' && is_deceptive(c)),
                "{shown}"
            );
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), data);
        }
    }
}
