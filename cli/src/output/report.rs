//! The result of a command, and the envelope: the JSON object that `--json` prints around it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vault_format::credentials::hide_credentials;

use crate::errors::{Exit, Failure, Place};

/// The type of a command's result. `--json` prints its members. `docs/json.md` is generated from
/// their types and doc comments.
pub trait View: Serialize + JsonSchema {}

impl<T: Serialize + JsonSchema> View for T {}

/// The result of a command, for people and for programs.
#[derive(Debug)]
pub struct Report {
    /// The member `data` of the `--json` envelope.
    pub data: Value,
    /// The text for people, without the final newline.
    pub text: String,
    pub exit: Exit,
    /// Which of text and data is printed, and how.
    pub form: Form,
}

/// What a report prints on standard output.
#[derive(Debug)]
pub enum Form {
    /// The text, or the envelope with the data if `--json` is set.
    Result,
    /// The data without an envelope, regardless of `--json`.
    BareData,
    /// The unchanged text, regardless of `--json`, for other formats such as shell scripts.
    BareText,
}

impl Report {
    /// Creates a result of a type that `docs/json.md` describes, with exit code 0.
    pub fn view(view: impl View, text: impl Into<String>) -> Self {
        Self::new(view, text)
    }

    /// Creates a result of any type, with exit code 0. Prefer [`Report::view`], whose type is
    /// documented.
    pub fn new(data: impl Serialize, text: impl Into<String>) -> Self {
        Self {
            // Fails only for maps whose keys are not strings, and no view has one.
            data: serde_json::to_value(data).unwrap_or(Value::Null),
            text: text.into(),
            exit: Exit::Done,
            form: Form::Result,
        }
    }

    /// Creates a result from text that also serves as its data.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(&text, text.clone())
    }

    /// Creates a result that prints nothing, for commands that have printed their output
    /// themselves.
    pub fn silent(exit: Exit) -> Self {
        Self::new(Value::Null, "").with_exit(exit)
    }

    /// Creates a result that prints `text` unchanged.
    pub fn raw_text(text: impl Into<String>) -> Self {
        Self {
            form: Form::BareText,
            ..Self::new(Value::Null, text)
        }
    }

    /// Creates a result that prints JSON without an envelope.
    pub fn bare_data(data: impl Serialize) -> Self {
        Self {
            form: Form::BareData,
            ..Self::new(data, "")
        }
    }

    /// Sets the exit code, which is 0 unless this is called.
    #[must_use]
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }
}

/// A result in two parts, data and text, to which a command may still add.
#[derive(Default)]
pub struct ViewWithText<V> {
    /// The data that docs/json.md describes.
    pub view: V,
    /// The text for people, without the final newline.
    pub text: String,
}

impl<V: View> From<ViewWithText<V>> for Report {
    fn from(done: ViewWithText<V>) -> Self {
        Self::view(done.view, done.text)
    }
}

/// The only result by itself, or several as a list.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum SingleOrList<T> {
    /// The only result.
    Single(T),
    /// No result, or several.
    List(Vec<T>),
}

impl<T> SingleOrList<T> {
    /// Wraps the only result by itself, and any other number as a list.
    pub fn from_results(results: impl IntoIterator<Item = T>) -> Self {
        let mut results: Vec<T> = results.into_iter().collect();
        match results.pop() {
            // A caller that named one thing gets an object and need not unpack a list.
            Some(only) if results.is_empty() => Self::Single(only),
            last => Self::List(results.into_iter().chain(last).collect()),
        }
    }
}

/// A problem that did not stop the command.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Warning {
    /// Code of the warning, which scripts may rely on: it never changes its meaning.
    pub code: String,
    /// The message: one sentence without a full stop.
    pub message: String,
    /// The action that resolves the problem.
    pub hint: Option<String>,
    /// The file that the warning concerns.
    pub path: Option<String>,
    /// The line in that file, counted from 1.
    pub line: Option<u32>,
}

impl Warning {
    /// Creates a warning with its stable code and message, which shows no password of an address.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: hide_credentials(&message.into()),
            ..Self::default()
        }
    }

    /// Sets the text that says how to resolve the problem.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hide_credentials(&hint.into()));
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

/// The JSON object that `--json` prints for every command.
#[derive(Serialize)]
pub(super) struct Envelope<'a> {
    pub schema: u32,
    pub ok: bool,
    pub data: &'a Value,
    pub warnings: &'a [Warning],
    pub error: Option<EnvelopeError<'a>>,
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

pub(super) fn format_json(data: &Value, terminal: bool) -> String {
    // Programs that read line by line get one line.
    if terminal {
        serde_json::to_string_pretty(data)
    } else {
        serde_json::to_string(data)
    }
    .unwrap_or_default()
}
