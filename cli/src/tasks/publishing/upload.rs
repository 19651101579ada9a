//! Uploads the objects that the namespace lacks, and the catalog last.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use reqwest::{Method, header};
use serde::Deserialize;
use serde_json::json;
use vault_api::{MAX_PACK_OBJECTS, MissingObjects, ObjectClass, ObjectQuestion, ObjectReference};
use vault_format::{hash::Digest, name::SkillName};
use vault_library::{
    Vault,
    publish::{PlannedObject, ReleasePlan, ReleaseRejection, Uploaded},
};
use vault_service::error::ErrorCode as ServiceCode;
use vault_store::objects::Class;

use super::Publisher;
use crate::{
    errors::Failure,
    service::{Answer, Body, PACK_BYTES, ceiling, in_flight},
};

/// Maximum number of hashes in one request that asks which objects are missing.
const ASKED: usize = 5000;
/// Objects larger than this many bytes are uploaded one per request.
const ALONE: u64 = 256 * 1024;

impl Publisher<'_> {
    /// Uploads the objects of a release that the namespace lacks. Objects of the current release
    /// count as present and are not asked for, unless `all` is set. Returns the number of uploaded
    /// objects and their bytes.
    pub(super) async fn upload_missing(
        &self,
        plan: &ReleasePlan,
        all: bool,
    ) -> Result<Uploaded, Failure> {
        let mut uploaded = (0, 0);
        for class in [Class::Bundles, Class::Policies] {
            let objects = plan.objects.iter();
            let asked: Vec<_> = objects
                .filter(|object| object.class == class && (all || !object.known))
                .collect();
            let missing = self.find_missing(class, &asked).await?;
            let (objects, bytes) = self.send_objects(plan, class, &missing).await?;
            uploaded.0 += objects;
            uploaded.1 += bytes;
        }
        Ok(uploaded)
    }

    async fn find_missing<'o>(
        &self,
        class: Class,
        asked: &[&'o PlannedObject],
    ) -> Result<Vec<&'o PlannedObject>, Failure> {
        let mut lacking = HashSet::new();
        for some in asked.chunks(ASKED) {
            let objects = some.iter().map(|object| ObjectReference {
                sha256: object.sha256,
                size: object.size,
            });
            let question = json!(ObjectQuestion {
                class: object_class(class).into(),
                objects: objects.collect(),
            });
            let path = format!("{}/objects/missing", self.root);
            let answer = self
                .client
                .call_patiently(Method::POST, &path, Body::Json(question), ceiling::LIST)
                .await?;
            let answer: MissingObjects = answer.json()?;
            lacking.extend(answer.missing);
        }
        let missing = asked.iter().copied();
        Ok(missing
            .filter(|object| lacking.contains(&object.sha256))
            .collect())
    }

    /// Uploads objects with up to sixteen concurrent requests: small ones together in packs, large
    /// ones alone.
    async fn send_objects(
        &self,
        plan: &ReleasePlan,
        class: Class,
        objects: &[&PlannedObject],
    ) -> Result<Uploaded, Failure> {
        let bar = self.context.ui.start_bar(objects.len() as u64, "Uploading");
        let mut bytes = 0;
        in_flight(
            group_loads(objects),
            |load| {
                let client = self.client.clone();
                let path = format!("{}/objects/{}", self.root, object_class(class));
                // Read the objects here, because only this thread accesses the library. At most
                // sixteen loads are in memory.
                let body = pack_objects(self.vault, plan, &load);
                let (method, path, kind) = match &load[..] {
                    [large] if large.size > ALONE => (
                        Method::PUT,
                        format!("{path}/{}", large.sha256),
                        "application/octet-stream",
                    ),
                    _ => (Method::POST, path, "application/vnd.vault.pack"),
                };
                let number = load.len();
                let size = load.iter().map(|object| object.size).sum::<u64>();
                async move {
                    let body = Body::Bytes(kind, Bytes::from(body?));
                    client
                        .call_patiently(method, &path, body, ceiling::SMALL)
                        .await?
                        .require_good()?;
                    Ok((number, size))
                }
            },
            |(number, size)| {
                bar.advance(number as u64);
                bytes += size;
                Ok(())
            },
        )
        .await?;
        Ok((objects.len(), bytes))
    }

    /// Sends a signed catalog. The service accepts it only if the catalog with the SHA-256
    /// `follows` is still the current one, or, with `None`, if there is none yet.
    pub(super) async fn put_catalog(
        &self,
        catalog: &[u8],
        follows: Option<&Digest>,
    ) -> Result<Answer, Failure> {
        let condition = [match follows {
            Some(hash) => (header::IF_MATCH, format!("\"{hash}\"")),
            None => (header::IF_NONE_MATCH, "*".to_owned()),
        }];
        let path = format!("{}/catalog", self.root);
        let body = Body::Bytes("application/octet-stream", Bytes::copy_from_slice(catalog));
        self.client
            .call(Method::PUT, &path, &condition, body, ceiling::SMALL)
            .await
    }

    /// Returns the answer to a submitted release if it is a success. Otherwise converts it into the
    /// kinds of rejection to which the library's driver reacts.
    pub(super) fn judge_answer(&self, answer: Answer) -> Result<Answer, ReleaseRejection<Failure>> {
        if answer.is_refusal(ServiceCode::SkillRolledBack) {
            let returned = self.returned_versions(&answer);
            return Err(ReleaseRejection::Returned(returned, answer.to_failure()));
        }
        answer.require_good().map_err(|failure| {
            if failure.code == ServiceCode::ObjectsMissing {
                return ReleaseRejection::ObjectsMissing(failure);
            }
            ReleaseRejection::Other(failure)
        })
    }

    /// Returns the version that each of the named skills must exceed. An earlier release, which
    /// this machine may not have seen, had the skill and removed it; the service refuses it below
    /// that version.
    fn returned_versions(&self, answer: &Answer) -> BTreeMap<SkillName, u64> {
        let returned = serde_json::from_slice::<ReturnedSkills>(&answer.body);
        let skills = returned.map_or_else(|_| Vec::new(), |it| it.skills);
        let skills = skills.into_iter().map(|ReturnedSkill { name, reached }| {
            self.context.ui.note(format!(
                "An earlier release had {name} at version {reached}, so its next version is higher."
            ));
            (name, reached)
        });
        skills.collect()
    }
}

/// The body of a refusal because of skills that come back with a version below their earlier one.
#[derive(Deserialize)]
struct ReturnedSkills {
    #[serde(default)]
    skills: Vec<ReturnedSkill>,
}

#[derive(Deserialize)]
struct ReturnedSkill {
    name: SkillName,
    /// The highest version that an earlier release had.
    reached: u64,
}

const fn object_class(class: Class) -> ObjectClass {
    match class {
        Class::Policies => ObjectClass::Policies,
        _ => ObjectClass::Bundles,
    }
}

/// Groups objects into requests. A request has one large object, or small ones up to the size of a
/// pack.
fn group_loads<'o>(objects: &[&'o PlannedObject]) -> Vec<Vec<&'o PlannedObject>> {
    let mut loads = Vec::new();
    let mut open: Vec<&PlannedObject> = Vec::new();
    let mut open_bytes = 0;
    for object in objects {
        if object.size > ALONE {
            loads.push(vec![*object]);
            continue;
        }
        // The header line of an object: 64 hex digits, a space, at most seven digits and a newline.
        let length = object.size + 73;
        let is_full = open_bytes + length > PACK_BYTES as u64 || open.len() == MAX_PACK_OBJECTS;
        if is_full && !open.is_empty() {
            loads.push(std::mem::take(&mut open));
            open_bytes = 0;
        }
        open_bytes += length;
        open.push(object);
    }
    if !open.is_empty() {
        loads.push(open);
    }
    loads
}

fn pack_objects(
    vault: &Vault,
    plan: &ReleasePlan,
    load: &[&PlannedObject],
) -> Result<Vec<u8>, Failure> {
    let read = |object: &PlannedObject| plan.read_object(vault, object).map_err(Failure::from);
    if let [one] = load
        && one.size > ALONE
    {
        return read(one);
    }
    let mut packed = Vec::new();
    for object in load {
        let bytes = read(object)?;
        packed.extend_from_slice(format!("{} {}\n", object.sha256, bytes.len()).as_bytes());
        packed.extend_from_slice(&bytes);
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pack_s_line_never_passes_its_allowance() {
        assert!(format!("{} {}\n", "0".repeat(64), super::ALONE).len() <= 73);
    }
}
