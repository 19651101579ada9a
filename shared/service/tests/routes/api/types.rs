//! The types of `types.txt`: how they read, how a value is held to them, and what they are in JSON
//! Schema.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

/// A type.
#[derive(Clone, Debug)]
pub enum Type {
    Any,
    Object,
    Null,
    Boolean,
    Integer(Option<(u64, u64)>),
    /// Text, with a member of JSON Schema that says more.
    Text(Option<(&'static str, &'static str)>),
    Literal(&'static str),
    List(Box<Self>),
    Union(Vec<Self>),
    Name(&'static str),
    Record(Vec<Member>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: &'static str,
    pub optional: bool,
    pub kind: Type,
    pub note: &'static str,
}

/// All named types, in the order of the file.
static TYPES: LazyLock<Vec<(&'static str, Type)>> = LazyLock::new(|| {
    let mut types: Vec<(&str, Type)> = Vec::new();
    for line in rows(include_str!("types.txt")) {
        if let Some(member) = line.strip_prefix("    ") {
            let (member, note) = split_note(member);
            let (name, kind) = member.split_once(": ").unwrap_or_else(|| {
                panic!("types.txt: {line:?} must be a member, a colon and a type")
            });
            let Some((_, Type::Record(members))) = types.last_mut() else {
                panic!("types.txt: the member {line:?} needs a type above it");
            };
            members.push(Member {
                name: name.trim_end_matches('?'),
                optional: name.ends_with('?'),
                kind: Type::parse(kind),
                note,
            });
        } else if let Some((name, kind)) = line.split_once(" = ") {
            types.push((name, Type::parse(kind)));
        } else {
            types.push((line, Type::Record(Vec::new())));
        }
    }
    types
});

/// The lines of a table, without comments and blank lines.
pub fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = table.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A line and its note after `--`.
pub fn split_note(line: &'static str) -> (&'static str, &'static str) {
    line.split_once(" -- ").unwrap_or((line, ""))
}

/// The type of this name.
pub fn named(name: &str) -> &'static Type {
    let found = TYPES.iter().find(|(known, _)| *known == name);
    &found
        .unwrap_or_else(|| panic!("{name}: describe this type in tests/routes/api/types.txt"))
        .1
}

/// All types as members of `components.schemas`.
pub fn schemas() -> Value {
    let schemas = TYPES
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), kind.schema()));
    Value::Object(schemas.collect())
}

impl Type {
    /// Reads a type as the tables write it.
    pub fn parse(text: &'static str) -> Self {
        if text.contains(" | ") {
            return Self::Union(text.split(" | ").map(Self::parse).collect());
        }
        let (word, more) = text.split_once([' ', ':']).unwrap_or((text, ""));
        match word {
            "any" => Self::Any,
            "object" => Self::Object,
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer(
                more.split_once("..")
                    .map(|(least, most)| (least.parse().unwrap(), most.parse().unwrap())),
            ),
            "string" if more.is_empty() => Self::Text(None),
            "string" => Self::Text(Some(match more.strip_prefix('/') {
                Some(pattern) => ("pattern", pattern.trim_end_matches('/')),
                None => ("format", more),
            })),
            _ if text.starts_with('"') => Self::Literal(text.trim_matches('"')),
            _ if text.starts_with('[') => {
                Self::List(Box::new(Self::parse(text.trim_matches(['[', ']']))))
            }
            name => Self::Name(name),
        }
    }

    /// What it is in JSON Schema.
    pub fn schema(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Object => json!({ "type": "object" }),
            Self::Null => json!({ "type": "null" }),
            Self::Boolean => json!({ "type": "boolean" }),
            Self::Integer(None) => json!({ "type": "integer" }),
            Self::Integer(Some((least, most))) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Self::Text(None) => json!({ "type": "string" }),
            Self::Text(Some((member, value))) => json!({ "type": "string", *member: value }),
            Self::Literal(text) => json!({ "const": text }),
            Self::List(items) => json!({ "type": "array", "items": items.schema() }),
            Self::Union(kinds) => {
                json!({ "anyOf": kinds.iter().map(Self::schema).collect::<Vec<_>>() })
            }
            Self::Name(name) => {
                named(name);
                json!({ "$ref": format!("#/components/schemas/{name}") })
            }
            Self::Record(members) => record_schema(members),
        }
    }

    /// Checks that a value is of this type, and has no member that the type does not name.
    pub fn check(&self, value: &Value, at: &str) -> Result<(), String> {
        let fits = match self {
            Self::Any => true,
            Self::Object => value.is_object(),
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer(_) => value.is_i64() || value.is_u64(),
            Self::Text(_) => value.is_string(),
            Self::Literal(text) => value == text,
            Self::Union(kinds) => kinds.iter().any(|kind| kind.check(value, at).is_ok()),
            Self::Name(name) => return named(name).check(value, at),
            Self::List(items) => {
                let Some(values) = value.as_array() else {
                    return Err(format!("{at} is {value}, not a list"));
                };
                return values.iter().try_for_each(|value| items.check(value, at));
            }
            Self::Record(members) => {
                let Some(values) = value.as_object() else {
                    return Err(format!("{at} is {value}, not an object"));
                };
                return check_record(members, values, at);
            }
        };
        if fits {
            Ok(())
        } else {
            Err(format!("{at} is {value}, not {self:?}"))
        }
    }
}

fn record_schema(members: &[Member]) -> Value {
    let required: Vec<_> = members.iter().filter(|member| !member.optional).collect();
    let required: Vec<_> = required.iter().map(|member| member.name).collect();
    let mut properties = Map::new();
    for member in members {
        let mut schema = member.kind.schema();
        if !member.note.is_empty() {
            schema["description"] = member.note.into();
        }
        properties.insert(member.name.to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

fn check_record(members: &[Member], values: &Map<String, Value>, at: &str) -> Result<(), String> {
    for name in values.keys() {
        if !members.iter().any(|member| member.name == name) {
            return Err(format!(
                "{at} has the member {name}: describe it in tests/routes/api/types.txt"
            ));
        }
    }
    for member in members {
        match values.get(member.name) {
            Some(value) => member.kind.check(value, &format!("{at}.{}", member.name))?,
            None if member.optional => {}
            None => return Err(format!("{at} lacks the member {}", member.name)),
        }
    }
    Ok(())
}
