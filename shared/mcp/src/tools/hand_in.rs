//! Drafts that a program submits as plain JSON over HTTP, without MCP. Arguments and effects are
//! those of the tools.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vault_shelf::Submitted;

use super::add_skill::submit_install;
use super::changes::{GivenFile, given_files, raw_files, submit_files};
use super::remove_skill::submit_removal;
use super::{Call, require_right};
use crate::fault::Fault;
use crate::session::Session;
use crate::visible::SnapshotCache;

/// The kind of change that a draft asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DraftRequestKind {
    /// A skill that the caller wrote, or a new version of one: `skill_md` with `resources` as
    /// `skill_publish` takes them, or all of them as `files`.
    Propose,
    /// A skill from its source, with the arguments of `add_skill`.
    Install,
    /// The removal of a skill, with the arguments of `remove_skill`.
    Remove,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proposal {
    skill_md: Option<String>,
    resources: Option<Vec<GivenFile>>,
    files: Option<Vec<GivenFile>>,
}

/// Submits a change to the shelf of a session. Like a tool, it checks the caller's rights and
/// reveals no skill that the person may not see.
pub async fn hand_in(
    session: &Session,
    asked: DraftRequestKind,
    arguments: JsonObject,
) -> Result<Submitted, Fault> {
    // Check the right before the arguments are read: a caller without it gets no detailed errors.
    require_right("write", session.person().write)?;
    // The call reads one snapshot, so its cache need not live longer.
    let snapshot_cache = SnapshotCache::default();
    let call = Call {
        snapshot_cache: &snapshot_cache,
        session,
    };
    match asked {
        DraftRequestKind::Propose => {
            let input: Proposal = parse_arguments(arguments)?;
            let files = match (input.skill_md, input.resources, input.files) {
                (Some(skill_md), resources, None) => {
                    raw_files(skill_md, resources.unwrap_or_default())?
                }
                (None, None, Some(files)) => given_files("files", files)?,
                _ => {
                    return Err(Fault::bad_arguments(
                        "either `skill_md`, with `resources` if there are any, or `files`",
                    ));
                }
            };
            submit_files(&call, files, true, false).await
        }
        DraftRequestKind::Install => submit_install(&call, parse_arguments(arguments)?).await,
        DraftRequestKind::Remove => submit_removal(&call, &parse_arguments(arguments)?).await,
    }
}

fn parse_arguments<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Fault> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Fault::bad_arguments(error.to_string()))
}
