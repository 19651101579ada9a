//! The Skills extension of MCP: lists of skills with the digest of every file, and vault's
//! signature in `_meta`.

use rmcp::ErrorData;
use rmcp::model::{
    GetSkillResult, ListSkillsResult, Skill, SkillFrontmatter, SkillResource, SkillResources,
};
use serde_json::{Value, json};
use vault_format::manifest::SKILL_MD;
use vault_format::name::SkillName;
use vault_gate::document::frontmatter_json;
use vault_policy::Reach;
use vault_shelf::{Loaded, ReleaseKeys};

use crate::content::{files_in_order, vault_meta};
use crate::cursor::write_cursor;
use crate::fault::Fault;
use crate::resources::read_cursor;
use crate::tools::Call;
use crate::tools::encoded_signature;
use crate::uri::{self, MANIFEST, Target};

/// The largest number of skills on a page: each has to be read from the store.
const PAGE: usize = 25;
/// The approximate limit of a page in bytes of JSON.
const PAGE_BYTES: usize = 1024 * 1024;

/// Lists the skills by name. A skill is left out if its content is damaged or missing, or if the
/// name in its frontmatter is not the name in the vault.
pub async fn list_skills(
    call: &Call<'_>,
    cursor: Option<String>,
) -> Result<ListSkillsResult, Fault> {
    let after = read_cursor(cursor)?;
    let visible = call.visible(Reach::List).await?;
    let mut skills = Vec::new();
    let mut size = 0;
    let mut last: Option<&SkillName> = None;
    let mut more = false;
    for (seen, entry) in visible.entries_after(after.as_ref()).enumerate() {
        if seen >= PAGE || size > PAGE_BYTES {
            more = true;
            break;
        }
        // Set this also for skills that are left out, so that the next page starts behind them.
        last = Some(entry.name());
        match call.load(entry).await {
            Ok(loaded) => {
                if let Some(skill) =
                    skill_entry(call.owner(), entry.name(), &loaded, visible.keys())?
                {
                    size += loaded
                        .bundle
                        .manifest
                        .files
                        .iter()
                        .map(|file| 220 + file.path.as_str().len())
                        .sum::<usize>()
                        + 2 * frontmatter_size(&loaded);
                    skills.push(skill);
                }
            }
            // One damaged skill must not hide all others. If the store does not answer, the whole
            // list fails.
            Err(Fault::Caller {
                code: crate::fault::ToolError::ContentDamaged | crate::fault::ToolError::NotFound,
                ..
            }) => {}
            Err(other) => return Err(other),
        }
    }
    let mut result = ListSkillsResult::with_all_items(skills);
    result.next_cursor = last.filter(|_| more).map(write_cursor);
    Ok(result)
}

fn frontmatter_size(loaded: &Loaded) -> usize {
    let document = loaded.find_file(SKILL_MD);
    document.map_or(0, |file| file.bytes.len().min(64 * 1024))
}

/// Returns one skill by the address of its SKILL.md.
pub async fn get_skill(call: &Call<'_>, uri: &str) -> Result<GetSkillResult, Fault> {
    let unknown = || {
        Fault::Protocol(ErrorData::invalid_params(
            "there is no skill at this address",
            Some(json!({ "uri": uri })),
        ))
    };
    call.may_read()?;
    let id = match uri::parse_uri(call.owner(), uri) {
        Some(Target::In(id, path)) if path == SKILL_MD => id,
        _ => return Err(unknown()),
    };
    let visible = call.visible(Reach::Fetch).await?;
    let found = visible.find_id(call.owner(), &id);
    let (owner, entry) = found.ok_or_else(unknown)?;
    let loaded = call.load(entry).await?;
    let skill = skill_entry(owner, entry.name(), &loaded, visible.keys())?
        // Clients use the address as the identity of a skill, so another spelling of it must not
        // return the entry.
        .filter(|skill| skill.uri == uri)
        .ok_or_else(unknown)?;
    Ok(GetSkillResult::new(skill))
}

/// Creates the entry of a skill. `None` if its frontmatter cannot be read, or if the name there is
/// not the last folder of the skill's address, as the extension requires.
fn skill_entry(
    owner: &str,
    name: &SkillName,
    loaded: &Loaded,
    keys: Option<&ReleaseKeys>,
) -> Result<Option<Skill>, Fault> {
    let document = loaded.find_file(SKILL_MD);
    let Some(mut members) = document.and_then(|file| frontmatter_json(&file.bytes)) else {
        return Ok(None);
    };
    let (Some(Value::String(own)), Some(Value::String(description))) =
        (members.remove("name"), members.remove("description"))
    else {
        return Ok(None);
    };
    // The two names differ if the vault derived its name, because that in the frontmatter does not
    // fit the grammar.
    if own != name.as_str() {
        return Ok(None);
    }
    let mut frontmatter = SkillFrontmatter::new(own, description);
    frontmatter.extra = members;
    let resources: Vec<SkillResource> = files_in_order(loaded)
        .map(|(entry, _)| {
            SkillResource::new(
                uri::file_uri(owner, name, entry.path.as_str()),
                format!("sha256:{}", entry.sha256),
                entry.size,
            )
        })
        .collect();
    let uri = uri::file_uri(owner, name, SKILL_MD);
    let members = [
        ("bundle-hash", loaded.bundle_hash.to_string().into()),
        ("version", loaded.bundle.manifest.version.into()),
        ("signature", encoded_signature(loaded)?.into()),
        ("public-key", loaded.public_key.to_string().into()),
        ("manifest", uri::file_uri(owner, name, MANIFEST).into()),
        (
            "vault-id",
            loaded.bundle.manifest.vault_id.to_string().into(),
        ),
    ];
    let release = keys.into_iter().flat_map(|keys| {
        [
            ("root-version", keys.root_version.into()),
            ("release-signers", json!(keys.signers)),
        ]
    });
    let skill = Skill::new(uri, frontmatter, SkillResources::Files(resources))
        .with_meta(vault_meta(members.into_iter().chain(release)));
    Ok(Some(skill))
}
