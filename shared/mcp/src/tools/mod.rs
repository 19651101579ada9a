//! The table of tools. Names, schemas and hints are computed once, and a call is dispatched to its
//! row.
//!
//! Three tools have a second name with a dot, such as `skill.list`. A call may use either name; a
//! list shows one of them.

mod add_skill;
mod check_updates;
mod get_skill;
mod hand_in;
mod propose_skill;
mod remove_skill;
mod resolve_capabilities;
mod skill_fetch;
mod skill_list;
mod skill_publish;
mod update_skill;

mod changes;
mod shapes;

pub use hand_in::{DraftRequestKind, hand_in};
pub(crate) use skill_fetch::encoded_signature;

use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use rmcp::ErrorData;
use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vault_format::since::Since;
use vault_policy::Reach;
use vault_shelf::{Entry, Loaded};

use crate::content::vault_meta;
use crate::fault::{Fault, ToolError};
use crate::session::{Names, Right, Session};
use crate::visible::{SnapshotCache, Visible};

/// The definition of a tool; each tool's module implements it.
pub(crate) trait Spec: 'static {
    /// Name with underscores, such as `skill_list`.
    const NAME: &'static str;
    /// The second name with a dot, such as `skill.list`; `None` for most tools.
    const DOTTED: Option<&'static str> = None;
    /// Name for people.
    const TITLE: &'static str;
    /// Description for the model that chooses a tool.
    const DESCRIPTION: &'static str;
    /// The first version of vault that has the tool.
    const SINCE: Since = Since::NEW;
    /// The effect of the tool on the vault.
    const EFFECT: Effect;
    /// The arguments, from which the tool's input schema is made.
    type Input: DeserializeOwned + JsonSchema + 'static;
    /// The structured result, from which the tool's output schema is made.
    type Output: Serialize + JsonSchema + 'static;

    fn call(
        call: &Call<'_>,
        input: Self::Input,
    ) -> impl Future<Output = Result<Answer<Self::Output>, Fault>> + Send;
}

/// The effect of a tool on the vault. Its hints and the scope that it needs follow from this.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// The tool changes nothing. It needs the scope `read`.
    Reads,
    /// The tool adds something and changes nothing that exists. It needs the scope `write`.
    Adds,
    /// The tool replaces or removes something. It needs the scope `write`.
    Replaces,
}

/// The answer of a tool: structured data, and content blocks to read.
pub(crate) struct Answer<T> {
    pub structured: T,
    /// Content blocks to send instead of the structured part as JSON text.
    pub content: Option<Vec<ContentBlock>>,
}

impl<T> From<T> for Answer<T> {
    fn from(structured: T) -> Self {
        Self {
            structured,
            content: None,
        }
    }
}

/// The context of one call: the caller's session, and the server's cache.
pub(crate) struct Call<'c> {
    pub snapshot_cache: &'c SnapshotCache,
    pub session: &'c Session,
}

impl Call<'_> {
    /// Returns the skills that the caller sees. Fails if the caller may not read, or the shelf
    /// cannot be read.
    pub async fn visible(&self, reach: Reach<'_>) -> Result<Visible, Fault> {
        self.may_read()?;
        let person = self.session.person();
        let snapshot = self.session.shelf().take_snapshot().await;
        let snapshot = snapshot.map_err(|error| Fault::from_shelf(error, person.owner))?;
        self.snapshot_cache
            .visible_to(snapshot, person, reach)
            .await
    }

    /// Fails with the missing scope if the caller may not read.
    pub fn may_read(&self) -> Result<(), Fault> {
        require_right("read", self.session.person().read)
    }

    /// Loads the content of a skill that the caller sees.
    pub async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, Fault> {
        let loaded = self.session.shelf().load_skill(entry).await;
        loaded.map_err(|error| Fault::from_shelf(error, self.session.person().owner))
    }

    /// The first part of skill ids (`<owner>/<name>`) of this vault.
    pub fn owner(&self) -> &str {
        self.session.shelf().owner_name()
    }
}

fn require_right(scope: &'static str, right: Right) -> Result<(), Fault> {
    match right {
        Right::Granted => Ok(()),
        Right::Consentable | Right::Never => Err(Fault::Scope {
            scope,
            consentable: right == Right::Consentable,
        }),
    }
}

type ToolFuture<'c> = Pin<Box<dyn Future<Output = Result<CallToolResult, Fault>> + Send + 'c>>;

struct ToolRow {
    name: &'static str,
    dotted: Option<&'static str>,
    tool: Tool,
    call: for<'c> fn(&'c Call<'c>, JsonObject) -> ToolFuture<'c>,
}

static TABLE: LazyLock<Vec<ToolRow>> = LazyLock::new(|| {
    vec![
        tool_row::<get_skill::GetSkill>(),
        tool_row::<skill_list::SkillList>(),
        tool_row::<skill_fetch::SkillFetch>(),
        tool_row::<resolve_capabilities::ResolveCapabilities>(),
        tool_row::<check_updates::CheckUpdates>(),
        tool_row::<propose_skill::ProposeSkill>(),
        tool_row::<skill_publish::SkillPublish>(),
        tool_row::<add_skill::AddSkill>(),
        tool_row::<update_skill::UpdateSkill>(),
        tool_row::<remove_skill::RemoveSkill>(),
    ]
});

fn tool_row<T: Spec>() -> ToolRow {
    // The hints follow from the effect alone, so that no tool is declared read-only while it needs
    // the scope `write`.
    let mut annotations = ToolAnnotations::with_title(T::TITLE)
        .read_only(T::EFFECT == Effect::Reads)
        .open_world(false);
    if T::EFFECT == Effect::Reads {
        annotations = annotations.idempotent(true);
    } else {
        annotations = annotations.destructive(T::EFFECT == Effect::Replaces);
    }
    // `unwrap_or_default` applies only to a type whose schema is not an object; the first test that
    // lists the tools finds such a type.
    let input = portable_schema(&schema_for_input::<T::Input>().unwrap_or_default());
    let tool = Tool::new(T::NAME, T::DESCRIPTION, input)
        .with_title(T::TITLE)
        .with_raw_output_schema(portable_schema(&schema_for_output::<T::Output>()))
        .with_annotations(annotations)
        .with_meta(vault_meta([
            ("since", T::SINCE.as_str().into()),
            ("stability", T::SINCE.stability().as_str().into()),
        ]));
    ToolRow {
        name: T::NAME,
        dotted: T::DOTTED,
        tool,
        call: |call, arguments| Box::pin(run_tool::<T>(call, arguments)),
    }
}

/// Simplifies a schema for all clients: removes defaults of `null` and formats that name Rust's
/// number types.
fn portable_schema(schema: &JsonObject) -> Arc<JsonObject> {
    fn clean_value(value: &mut Value) {
        match value {
            Value::Object(members) => {
                // schemars writes a default of `null` for optional members, which contradicts their
                // type.
                if members.get("default") == Some(&Value::Null) {
                    members.remove("default");
                }
                // schemars names Rust's own types, such as `uint32`, which strict validators
                // reject.
                let is_rusts = |format: &Value| {
                    format.as_str().is_some_and(|text| {
                        text.trim_start_matches('u').starts_with("int") || text == "double"
                    })
                };
                if members.get("format").is_some_and(is_rusts) {
                    members.remove("format");
                }
                members.values_mut().for_each(clean_value);
            }
            Value::Array(items) => items.iter_mut().for_each(clean_value),
            _ => {}
        }
    }
    let mut schema = schema.clone();
    schema.values_mut().for_each(clean_value);
    Arc::new(schema)
}

async fn run_tool<T: Spec>(
    call: &Call<'_>,
    arguments: JsonObject,
) -> Result<CallToolResult, Fault> {
    let person = call.session.person();
    match T::EFFECT {
        Effect::Reads => require_right("read", person.read)?,
        Effect::Adds | Effect::Replaces => require_right("write", person.write)?,
    }
    // Check the scope first: a missing scope leads to consent, wrong arguments only to another try.
    let input = serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Fault::bad_arguments(error.to_string()))?;
    let answer = T::call(call, input).await?;
    let structured = serde_json::to_value(answer.structured)
        .map_err(|error| Fault::by_service(ToolError::Internal, error))?;
    let Some(content) = answer.content else {
        // This also sends the JSON as text, for clients that do not read structured content.
        return Ok(CallToolResult::structured(structured));
    };
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(structured);
    Ok(result)
}

fn find_row(name: &str) -> Option<&'static ToolRow> {
    TABLE
        .iter()
        .find(|row| row.name == name || row.dotted == Some(name))
}

/// Lists the names of all tools, each with its second name if it has one.
pub fn names() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    TABLE.iter().map(|row| (row.name, row.dotted))
}

/// Lists the tools by the chosen kind of name.
pub(crate) fn list_tools(names: Names) -> Vec<Tool> {
    let shown = |row: &ToolRow| {
        let mut tool = row.tool.clone();
        // Use the dotted spelling only on request: several clients reject a whole list if one name
        // has a dot. Never list both spellings, or clients show each tool twice.
        if let (Names::Dotted, Some(dotted)) = (names, row.dotted) {
            tool.name = dotted.into();
        }
        tool
    };
    TABLE.iter().map(shown).collect()
}

/// Returns the tool of this name, spelled with `_` or with a dot.
pub(crate) fn find_tool(name: &str) -> Option<Tool> {
    find_row(name).map(|row| row.tool.clone())
}

/// Calls the tool of this name, in either spelling. A mistake of the caller is a result with
/// `isError`; the error is one of the protocol, such as for an unknown tool.
pub(crate) async fn call_tool(
    snapshot_cache: &SnapshotCache,
    session: &Session,
    name: &str,
    arguments: JsonObject,
) -> Result<CallToolResult, ErrorData> {
    // An unknown name is an error of the protocol, since there is no tool that could report it.
    let row = find_row(name).ok_or_else(|| {
        let message = "`params.name` is not a tool of this server; tools/list lists them";
        ErrorData::invalid_params(message, Some(json!({ "member": "params.name" })))
    })?;
    let call = Call {
        snapshot_cache,
        session,
    };
    match (row.call)(&call, arguments).await {
        Ok(result) => Ok(result),
        Err(fault) => fault.into_tool_result(session, row.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_name_no_formats_that_only_rust_knows() {
        for tool in list_tools(Names::Plain) {
            let schemas = [Some(tool.input_schema), tool.output_schema];
            let text = serde_json::to_string(&schemas).unwrap();
            assert!(!text.contains("\"format\":"), "{}: {text}", tool.name);
        }
    }
}
