//! Changes one entry in another program's configuration file and preserves every other byte.
//!
//! The changed text is parsed again and compared with the original. The edit is rejected unless
//! exactly that entry differs.

mod json;
mod toml;

use serde_json::{Map, Value};

/// The syntax of a configuration file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// JSON with comments and trailing commas.
    Json,
    /// TOML.
    Toml,
}

/// Why a text cannot be edited.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EditError {
    /// The text cannot be parsed.
    #[error("line {line}: {reason}")]
    Syntax {
        /// The line, counted from 1.
        line: u32,
        /// The error of the parser.
        reason: String,
    },
    /// A part of the path to the entry is not a table.
    #[error("`{0}` is not a table of entries")]
    NotATable(String),
    /// The edit would change more than the entry.
    #[error("the entry cannot be changed without touching the rest of the file")]
    WouldChangeOtherEntries,
}

impl Format {
    /// Parses the text. An empty text has no members.
    pub fn read(self, text: &str) -> Result<Map<String, Value>, EditError> {
        match self {
            Self::Json => json::read(text),
            Self::Toml => toml::read(text),
        }
    }

    /// Returns the entry of this name in the table at this path, if it exists.
    pub fn entry(self, text: &str, path: &[&str], name: &str) -> Result<Option<Value>, EditError> {
        let root = self.read(text)?;
        let mut table = &root;
        for part in path {
            table = match table.get(*part) {
                None => return Ok(None),
                Some(Value::Object(members)) => members,
                Some(_) => return Err(EditError::NotATable((*part).to_owned())),
            };
        }
        Ok(table.get(name).cloned())
    }

    /// Adds or replaces an entry and returns the new text.
    pub fn put(
        self,
        text: &str,
        path: &[&str],
        name: &str,
        value: &Value,
    ) -> Result<String, EditError> {
        let before = self.entry(text, path, name)?;
        // Keep the file unchanged if the entry already has this value.
        if before.as_ref() == Some(value) {
            return Ok(text.to_owned());
        }
        let changed = match self {
            Self::Json => json::put(text, path, name, value)?,
            Self::Toml => toml::put(text, path, name, value)?,
        };
        let mut wanted = self.read(text)?;
        set(&mut wanted, path, name, value);
        self.checked(changed, &wanted)
    }

    /// Removes an entry and returns the new text, which is unchanged if the entry does not exist.
    pub fn take(self, text: &str, path: &[&str], name: &str) -> Result<String, EditError> {
        if self.entry(text, path, name)?.is_none() {
            return Ok(text.to_owned());
        }
        let changed = match self {
            Self::Json => json::take(text, path, name)?,
            Self::Toml => toml::take(text, path, name)?,
        };
        let mut wanted = self.read(text)?;
        unset(&mut wanted, path, name);
        let mut found = self.read(&changed)?;
        // TOML drops a table with its last entry, JSON keeps it. Empty tables therefore do not
        // count as a difference.
        for table in [&mut wanted, &mut found] {
            drop_empty(table, path);
        }
        if found == wanted {
            Ok(changed)
        } else {
            Err(EditError::WouldChangeOtherEntries)
        }
    }

    fn checked(self, changed: String, wanted: &Map<String, Value>) -> Result<String, EditError> {
        if self.read(&changed)? == *wanted {
            Ok(changed)
        } else {
            Err(EditError::WouldChangeOtherEntries)
        }
    }
}

fn set(root: &mut Map<String, Value>, path: &[&str], name: &str, value: &Value) {
    let mut table = root;
    for part in path {
        let next = table
            .entry((*part).to_owned())
            .or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(members) = next else { return };
        table = members;
    }
    table.insert(name.to_owned(), value.clone());
}

fn unset(root: &mut Map<String, Value>, path: &[&str], name: &str) {
    let mut table = root;
    for part in path {
        let Some(Value::Object(members)) = table.get_mut(*part) else {
            return;
        };
        table = members;
    }
    table.remove(name);
}

fn drop_empty(root: &mut Map<String, Value>, path: &[&str]) {
    if let [first, rest @ ..] = path
        && let Some(Value::Object(members)) = root.get_mut(*first)
    {
        drop_empty(members, rest);
        if members.is_empty() {
            root.remove(*first);
        }
    }
}

/// Sorts members in the conventional order: the type, the command, then the rest by name.
fn in_order(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = members.iter().collect();
    all.sort_by_key(|(name, _)| {
        let first = ["type", "source", "command", "args"];
        first
            .iter()
            .position(|known| known == name)
            .unwrap_or(first.len())
    });
    all
}

fn line_of(text: &str, offset: usize) -> u32 {
    let end = (0..=offset.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    u32::try_from(text[..end].matches('\n').count() + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> Value {
        json!({ "command": "/bin/vault", "args": ["mcp"] })
    }

    #[test]
    fn json_gets_the_entry_and_nothing_else_changes() {
        let path = &["mcpServers"][..];
        for (before, after) in [
            (
                "",
                "{\n  \"mcpServers\": {\n    \"vault\": {\n      \"command\": \"/bin/vault\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
            ),
            (
                "{}",
                "{\n  \"mcpServers\": {\n    \"vault\": {\n      \"command\": \"/bin/vault\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}",
            ),
            (
                "{\n\t// mine\n\t\"a\": 1, // one\n\t\"mcpServers\": {\n\t\t\"x\": { \"command\": \"x\" } /* last */\n\t}\n}\n",
                "{\n\t// mine\n\t\"a\": 1, // one\n\t\"mcpServers\": {\n\t\t\"x\": { \"command\": \"x\" }, /* last */\n\t\t\"vault\": {\n\t\t\t\"command\": \"/bin/vault\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t}\n}\n",
            ),
            (
                "{\r\n  \"mcpServers\": {\r\n    \"x\": {},\r\n  },\r\n}\r\n",
                "{\r\n  \"mcpServers\": {\r\n    \"x\": {},\r\n    \"vault\": {\r\n      \"command\": \"/bin/vault\",\r\n      \"args\": [\"mcp\"],\r\n    },\r\n  },\r\n}\r\n",
            ),
            (
                "{\"b\":[1,2],\"mcpServers\":{\"x\":{}}}",
                "{\"b\":[1,2],\"mcpServers\":{\"x\":{}, \"vault\": {\"command\": \"/bin/vault\", \"args\": [\"mcp\"]}}}",
            ),
        ] {
            let put = Format::Json.put(before, path, "vault", &entry()).unwrap();
            assert_eq!(put, after);
            assert_eq!(
                Format::Json.put(&put, path, "vault", &entry()).unwrap(),
                after,
                "again"
            );
            let taken = Format::Json.take(&put, path, "vault").unwrap();
            if before.contains("mcpServers") {
                assert_eq!(taken, before, "taking undoes putting");
            } else {
                assert_eq!(
                    Format::Json.read(&taken).unwrap(),
                    json!({ "mcpServers": {} }).as_object().unwrap().clone()
                );
            }
        }
    }

    #[test]
    fn an_entry_between_others_is_replaced_and_taken_by_itself() {
        let path = &["mcpServers"][..];
        let text = "{\n  \"mcpServers\": {\n    // first\n    \"a\": 1,\n    \"vault\": {\"old\": true}, // ours\n    // second\n    \"b\": 2\n  }\n}\n";
        let put = Format::Json.put(text, path, "vault", &json!(7)).unwrap();
        assert_eq!(put, text.replace("{\"old\": true}", "7"));
        let taken = Format::Json.take(text, path, "vault").unwrap();
        assert_eq!(
            taken,
            "{\n  \"mcpServers\": {\n    // first\n    \"a\": 1,\n    // second\n    \"b\": 2\n  }\n}\n"
        );
        let first = Format::Json
            .take("{\"mcpServers\":{\"vault\":1,\"b\":2}}", path, "vault")
            .unwrap();
        assert_eq!(first, "{\"mcpServers\":{\"b\":2}}");
    }

    #[test]
    fn toml_gets_a_table_at_its_end_and_loses_it_again() {
        let path = &["mcp_servers"][..];
        let ours = "[mcp_servers.vault]\ncommand = \"/bin/vault\"\nargs = [\"mcp\"]\n";
        for before in [
            "",
            "# mine\nmodel = \"x\" # why\n",
            "[mcp_servers.other]\ncommand = \"y\"\n\n[tui]\na = 1\n",
            "a = \"\"\"\n[not.a.header]\n\"\"\"\r\n",
            "no_newline = true",
        ] {
            let put = Format::Toml.put(before, path, "vault", &entry()).unwrap();
            assert!(put.starts_with(before) && put.ends_with(ours), "{put}");
            assert_eq!(
                Format::Toml.put(&put, path, "vault", &entry()).unwrap(),
                put
            );
            let taken = Format::Toml.take(&put, path, "vault").unwrap();
            assert_eq!(taken.trim_end(), before.trim_end());
        }
        let between = "[mcp_servers.vault]\ncommand = \"old\"\n[mcp_servers.vault.env]\nA = \"1\"\n\n# of the next\n[tui]\na = 1\n";
        assert_eq!(
            Format::Toml.take(between, path, "vault").unwrap(),
            "\n# of the next\n[tui]\na = 1\n"
        );
        let replaced = Format::Toml.put(between, path, "vault", &entry()).unwrap();
        assert_eq!(replaced, format!("\n# of the next\n[tui]\na = 1\n\n{ours}"));
    }

    #[test]
    fn what_cannot_be_read_or_changed_by_itself_is_left_alone() {
        let path = &["mcpServers"][..];
        for text in [
            "{",
            "{\"a\":}",
            "[]",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1}}",
            "nonsense",
            "{\"a\": 01}",
            "{\"mcpServers\":{},\"mcpServers\":{}}",
        ] {
            assert!(
                Format::Json.put(text, path, "vault", &entry()).is_err(),
                "{text}"
            );
        }
        let deep = format!("{}{}", "{\"a\":".repeat(2_000), "1");
        assert!(Format::Json.read(&deep).is_err());
        assert_eq!(
            Format::Json.put("{\"mcpServers\": 3}", path, "vault", &entry()),
            Err(EditError::NotATable("mcpServers".to_owned()))
        );
        let path = &["mcp_servers"][..];
        for text in [
            "a = ",
            "a = 1\na = 2",
            "mcp_servers = { x = {} }",
            "mcp_servers = 1",
        ] {
            assert!(
                Format::Toml.put(text, path, "vault", &entry()).is_err(),
                "{text}"
            );
        }
        let inline = "mcp_servers = { vault = { command = \"x\" } }\n";
        assert_eq!(
            Format::Toml.take(inline, path, "vault"),
            Err(EditError::WouldChangeOtherEntries)
        );
    }
}
