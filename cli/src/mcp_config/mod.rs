//! Edits of agents' configuration files, for `vault mcp install`: changes the one entry that
//! registers vault as an MCP server, and preserves every other byte of the file.
//!
//! The changed text is parsed again and compared with the original. The edit is rejected unless
//! exactly that entry differs.

mod json;
mod toml;

use serde_json::{Map, Value};

/// The syntax of a configuration file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// JSON; comments and trailing commas are accepted.
    Json,
    Toml,
}

/// The reason why a configuration file could not be edited. Its text is then unchanged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EditError {
    /// The text cannot be parsed.
    #[error("line {line}: {reason}")]
    Syntax {
        /// The line, counted from 1.
        line: u32,
        reason: String,
    },
    /// A part of the path to the entry is not a table.
    #[error("`{0}` is not a table of entries")]
    NotATable(String),
    /// The edit would not leave the meaning of everything else in the file as it is.
    #[error("the entry cannot be changed without touching the rest of the file")]
    WouldChangeOtherEntries,
}

impl Format {
    /// Parses the text. An empty text has no members.
    pub fn read_members(self, text: &str) -> Result<Map<String, Value>, EditError> {
        match self {
            Self::Json => json::read_members(text),
            Self::Toml => toml::read_members(text),
        }
    }

    /// Returns the entry of this name in the table at this path, if it exists.
    pub fn find_entry(
        self,
        text: &str,
        path: &[&str],
        name: &str,
    ) -> Result<Option<Value>, EditError> {
        let root = self.read_members(text)?;
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
    pub fn put_entry(
        self,
        text: &str,
        path: &[&str],
        name: &str,
        value: &Value,
    ) -> Result<String, EditError> {
        let before = self.find_entry(text, path, name)?;
        // Replacing an equal entry would lose its layout and the comments in it.
        if before.as_ref() == Some(value) {
            return Ok(text.to_owned());
        }
        let changed = match self {
            Self::Json => json::put_entry(text, path, name, value)?,
            Self::Toml => toml::put_entry(text, path, name, value)?,
        };
        // Compute the expected content without the code that edited the text, so that a fault in
        // that code is noticed.
        let expected = with_entry(self.read_members(text)?, path, name, Some(value));
        self.check_edit(changed, expected, path)
    }

    /// Removes an entry and returns the new text, which is unchanged if the entry does not exist.
    pub fn remove_entry(self, text: &str, path: &[&str], name: &str) -> Result<String, EditError> {
        if self.find_entry(text, path, name)?.is_none() {
            return Ok(text.to_owned());
        }
        let changed = match self {
            Self::Json => json::remove_entry(text, path, name)?,
            Self::Toml => toml::remove_entry(text, path, name)?,
        };
        let expected = with_entry(self.read_members(text)?, path, name, None);
        self.check_edit(changed, expected, path)
    }

    fn check_edit(
        self,
        changed: String,
        mut expected: Map<String, Value>,
        path: &[&str],
    ) -> Result<String, EditError> {
        // TOML drops a table with its last entry, JSON keeps it. Empty tables on the path
        // therefore do not count as a difference.
        let mut actual = self.read_members(&changed)?;
        for root in [&mut expected, &mut actual] {
            drop_empty(root, path);
        }
        if actual == expected {
            Ok(changed)
        } else {
            Err(EditError::WouldChangeOtherEntries)
        }
    }
}

/// Returns `root` with the entry set to `value`, or removed if there is no value.
fn with_entry(
    mut root: Map<String, Value>,
    path: &[&str],
    name: &str,
    value: Option<&Value>,
) -> Map<String, Value> {
    let mut table = &mut root;
    for part in path {
        let next = table.entry(*part).or_insert_with(|| Map::new().into());
        let Value::Object(members) = next else {
            return root;
        };
        table = members;
    }
    match value {
        Some(value) => table.insert(name.to_owned(), value.clone()),
        None => table.remove(name),
    };
    root
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

/// Sorts the members of an entry in the conventional order: type, source, command, arguments, then
/// the others by name.
fn in_order(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = members.iter().collect();
    let first = ["type", "source", "command", "args"];
    // The sort is stable, so the other members keep their order.
    all.sort_by_key(|(name, _)| {
        let place = first.iter().position(|known| known == name);
        place.unwrap_or(first.len())
    });
    all
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
        let new = "{\n  \"mcpServers\": {\n    \"vault\": {\n      \"command\": \"/bin/vault\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}";
        for (before, after) in [
            ("", &*format!("{new}\n")),
            ("{}", new),
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
            let put = |text: &str| {
                Format::Json
                    .put_entry(text, path, "vault", &entry())
                    .unwrap()
            };
            assert_eq!(put(before), after);
            assert_eq!(put(after), after, "again");
            let taken = Format::Json.remove_entry(after, path, "vault").unwrap();
            if before.contains("mcpServers") {
                assert_eq!(taken, before, "taking undoes putting");
            } else {
                let members = Format::Json.read_members(&taken).unwrap();
                assert_eq!(Value::from(members), json!({ "mcpServers": {} }));
            }
        }
    }

    #[test]
    fn replacing_or_removing_an_entry_keeps_its_neighbours() {
        let path = &["mcpServers"][..];
        let text = "{\n  \"mcpServers\": {\n    // first\n    \"a\": 1,\n    \"vault\": {\"old\": true}, // ours\n    // second\n    \"b\": 2\n  }\n}\n";
        let put = Format::Json
            .put_entry(text, path, "vault", &json!(7))
            .unwrap();
        assert_eq!(put, text.replace("{\"old\": true}", "7"));
        let remove = |text: &str| Format::Json.remove_entry(text, path, "vault").unwrap();
        let without = text.replace("    \"vault\": {\"old\": true}, // ours\n", "");
        assert_eq!(remove(text), without);
        assert_eq!(
            remove("{\"mcpServers\":{\"vault\":1,\"b\":2}}"),
            "{\"mcpServers\":{\"b\":2}}"
        );
    }

    #[test]
    fn toml_gets_a_table_at_its_end_and_loses_it_again() {
        let path = &["mcp_servers"][..];
        let ours = "[mcp_servers.vault]\ncommand = \"/bin/vault\"\nargs = [\"mcp\"]\n";
        let put = |text: &str| {
            Format::Toml
                .put_entry(text, path, "vault", &entry())
                .unwrap()
        };
        let remove = |text: &str| Format::Toml.remove_entry(text, path, "vault").unwrap();
        for before in [
            "",
            "# mine\nmodel = \"x\" # why\n",
            "[mcp_servers.other]\ncommand = \"y\"\n\n[tui]\na = 1\n",
            "a = \"\"\"\n[not.a.header]\n\"\"\"\r\n",
            "no_newline = true",
        ] {
            let after = put(before);
            assert!(
                after.starts_with(before) && after.ends_with(ours),
                "{after}"
            );
            assert_eq!(put(&after), after);
            assert_eq!(remove(&after).trim_end(), before.trim_end());
        }
        let between = "[mcp_servers.vault]\ncommand = \"old\"\n[mcp_servers.vault.env]\nA = \"1\"\n\n# of the next\n[tui]\na = 1\n";
        assert_eq!(remove(between), "\n# of the next\n[tui]\na = 1\n");
        assert_eq!(
            put(between),
            format!("\n# of the next\n[tui]\na = 1\n\n{ours}")
        );
    }

    #[test]
    fn what_cannot_be_read_or_changed_by_itself_is_left_alone() {
        let path = &["mcpServers"][..];
        let put = |text: &str| Format::Json.put_entry(text, path, "vault", &entry());
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
            assert!(put(text).is_err(), "{text}");
        }
        let deep = format!("{}{}", "{\"a\":".repeat(2_000), "1");
        assert!(Format::Json.read_members(&deep).is_err());
        let no_table = EditError::NotATable("mcpServers".to_owned());
        assert_eq!(put("{\"mcpServers\": 3}"), Err(no_table));
        let path = &["mcp_servers"][..];
        for text in [
            "a = ",
            "a = 1\na = 2",
            "mcp_servers = { x = {} }",
            "mcp_servers = 1",
        ] {
            let put = Format::Toml.put_entry(text, path, "vault", &entry());
            assert!(put.is_err(), "{text}");
        }
        let inline = "mcp_servers = { vault = { command = \"x\" } }\n";
        let taken = Format::Toml.remove_entry(inline, path, "vault");
        assert_eq!(taken, Err(EditError::WouldChangeOtherEntries));
    }
}
