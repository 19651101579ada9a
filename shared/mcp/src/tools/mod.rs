//! The tools, as one table: names, schemas and hints are made once, a call goes to its row.
//!
//! Three tools have a second spelling with a dot, from the interface. Both are always callable; a list shows one.

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

pub use hand_in::{Asked, hand_in};
pub(crate) use skill_fetch::signature;

use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use rmcp::ErrorData;
use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vault_format::since::Since;
use vault_policy::Reach;
use vault_shelf::{Entry, Loaded};

use crate::content::meta;
use crate::fault::{Fault, ToolError};
use crate::session::{Names, Right, Session};
use crate::visible::{SnapshotCache, Visible};

/// What a tool is.
pub(crate) trait Spec: 'static {
    /// Its name.
    const NAME: &'static str;
    /// Its second spelling.
    const DOTTED: Option<&'static str> = None;
    /// Its name for people.
    const TITLE: &'static str;
    /// What it does, for the model that chooses.
    const DESCRIPTION: &'static str;
    /// The version that had it first.
    const SINCE: Since = Since::NEW;
    /// What it does to the vault.
    const EFFECT: Effect;
    /// Its arguments.
    type Input: DeserializeOwned + JsonSchema + 'static;
    /// Its structured result.
    type Output: Serialize + JsonSchema + 'static;

    /// Does it.
    fn call(
        call: &Call<'_>,
        input: Self::Input,
    ) -> impl Future<Output = Result<Answer<Self::Output>, Fault>> + Send;
}

/// What a tool does to the vault: the source of its hints, and of the scope that it needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// It adds; what is there stays.
    Adds,
    /// It replaces or takes away.
    Replaces,
}

/// What a tool answers: structured, and for the reader's eyes.
pub(crate) struct Answer<T> {
    pub structured: T,
    /// In place of the structured part as JSON text.
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

/// One call: who, and on what.
pub(crate) struct Call<'c> {
    pub looks: &'c SnapshotCache,
    pub session: &'c Session,
}

impl Call<'_> {
    /// What the caller sees. Fails when the caller may not read, or the shelf cannot be read.
    pub async fn visible(&self, reach: Reach<'_>) -> Result<Visible, Fault> {
        self.may_read()?;
        let person = self.session.person();
        let snapshot = self.session.shelf().snapshot().await;
        let snapshot = snapshot.map_err(|error| Fault::of_shelf(error, person.owner))?;
        self.looks.visible(snapshot, person, reach).await
    }

    /// Fails when the caller may not read.
    pub fn may_read(&self) -> Result<(), Fault> {
        require("read", self.session.person().read)
    }

    /// The content of a skill that the caller sees.
    pub async fn load(&self, entry: &Entry) -> Result<Arc<Loaded>, Fault> {
        let loaded = self.session.shelf().load(entry).await;
        loaded.map_err(|error| Fault::of_shelf(error, self.session.person().owner))
    }

    /// The owner's part of ids.
    pub fn owner(&self) -> &str {
        self.session.shelf().owner()
    }
}

fn require(scope: &'static str, right: Right) -> Result<(), Fault> {
    match right {
        Right::Granted => Ok(()),
        Right::Consentable | Right::Never => Err(Fault::Scope {
            scope,
            consentable: right == Right::Consentable,
        }),
    }
}

type Calling<'c> = Pin<Box<dyn Future<Output = Result<CallToolResult, Fault>> + Send + 'c>>;

struct Row {
    name: &'static str,
    dotted: Option<&'static str>,
    tool: Tool,
    call: for<'c> fn(&'c Call<'c>, JsonObject) -> Calling<'c>,
}

static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    vec![
        row::<get_skill::GetSkill>(),
        row::<skill_list::SkillList>(),
        row::<skill_fetch::SkillFetch>(),
        row::<resolve_capabilities::ResolveCapabilities>(),
        row::<check_updates::CheckUpdates>(),
        row::<propose_skill::ProposeSkill>(),
        row::<skill_publish::SkillPublish>(),
        row::<add_skill::AddSkill>(),
        row::<update_skill::UpdateSkill>(),
        row::<remove_skill::RemoveSkill>(),
    ]
});

fn row<T: Spec>() -> Row {
    let mut annotations = ToolAnnotations::with_title(T::TITLE)
        .read_only(T::EFFECT == Effect::Reads)
        .open_world(false);
    if T::EFFECT == Effect::Reads {
        annotations = annotations.idempotent(true);
    } else {
        annotations = annotations.destructive(T::EFFECT == Effect::Replaces);
    }
    // A type of ours whose schema is not an object would be found by the first test that lists the tools.
    let input = portable(&schema_for_input::<T::Input>().unwrap_or_default());
    let tool = Tool::new(T::NAME, T::DESCRIPTION, input)
        .with_title(T::TITLE)
        .with_raw_output_schema(portable(&schema_for_output::<T::Output>()))
        .with_annotations(annotations)
        .with_meta(meta([
            ("since", T::SINCE.as_str().into()),
            ("stability", T::SINCE.stability().as_str().into()),
        ]));
    Row {
        name: T::NAME,
        dotted: T::DOTTED,
        tool,
        call: |call, arguments| Box::pin(run::<T>(call, arguments)),
    }
}

/// A schema as every client reads it: an absent member has no value `null`, and formats are only those that JSON Schema names.
fn portable(schema: &JsonObject) -> Arc<JsonObject> {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(members) => {
                if members.get("default") == Some(&Value::Null) {
                    members.remove("default");
                }
                let is_rusts = |format: &Value| {
                    format.as_str().is_some_and(|text| {
                        text.trim_start_matches('u').starts_with("int") || text == "double"
                    })
                };
                if members.get("format").is_some_and(is_rusts) {
                    members.remove("format");
                }
                members.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            _ => {}
        }
    }
    let mut schema = schema.clone();
    schema.values_mut().for_each(clean);
    Arc::new(schema)
}

async fn run<T: Spec>(call: &Call<'_>, arguments: JsonObject) -> Result<CallToolResult, Fault> {
    let person = call.session.person();
    match T::EFFECT {
        Effect::Reads => require("read", person.read)?,
        Effect::Adds | Effect::Replaces => require("write", person.write)?,
    }
    let input = serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Fault::arguments(error.to_string()))?;
    let answer = T::call(call, input).await?;
    let structured = serde_json::to_value(answer.structured)
        .map_err(|error| Fault::ours(ToolError::Internal, error))?;
    let Some(content) = answer.content else {
        return Ok(CallToolResult::structured(structured));
    };
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(structured);
    Ok(result)
}

fn find(name: &str) -> Option<&'static Row> {
    TABLE
        .iter()
        .find(|row| row.name == name || row.dotted == Some(name))
}

/// The names of all tools, and their second spellings.
pub fn names() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    TABLE.iter().map(|row| (row.name, row.dotted))
}

/// The tools as a list shows them.
pub(crate) fn list(names: Names) -> Vec<Tool> {
    let shown = |row: &Row| {
        let mut tool = row.tool.clone();
        if let (Names::Dotted, Some(dotted)) = (names, row.dotted) {
            tool.name = dotted.into();
        }
        tool
    };
    TABLE.iter().map(shown).collect()
}

/// The tool of this name, in either spelling.
pub(crate) fn tool(name: &str) -> Option<Tool> {
    find(name).map(|row| row.tool.clone())
}

/// Calls a tool.
pub(crate) async fn call(
    looks: &SnapshotCache,
    session: &Session,
    name: &str,
    arguments: JsonObject,
) -> Result<CallToolResult, ErrorData> {
    let row = find(name)
        .ok_or_else(|| ErrorData::invalid_params("there is no tool of this name", None))?;
    let call = Call { looks, session };
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
        for tool in list(Names::Plain) {
            let schemas = [Some(tool.input_schema), tool.output_schema];
            let text = serde_json::to_string(&schemas).unwrap();
            assert!(!text.contains("\"format\":"), "{}: {text}", tool.name);
        }
    }
}
