//! The downloads of `vault cloud pull`: the catalog (signed list of a release's content), profiles,
//! and the bundles of skills.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use vault_format::hash::Digest;
use vault_library::{
    Vault,
    subscribe::{AcceptedCatalog, Link, SelectedSkill, Selection, StagedBundles},
};

use crate::{
    context::Context,
    errors::Failure,
    service::{DeviceClient, in_flight},
};

/// Returns the bytes of the link's current catalog, unverified. Does not download it if the stored
/// one has the digest that the service reports as current. `None` before the first release.
pub(super) async fn catalog_bytes(
    vault: &Vault,
    client: &DeviceClient,
    link: &Link,
    current: Option<Digest>,
) -> Result<Option<Vec<u8>>, Failure> {
    // The digest only saves a download. Callers verify stored bytes like fetched ones.
    if let (Some(current), Some(stored)) = (current, link.catalog_bytes(vault)?)
        && Digest::of(&stored) == current
    {
        return Ok(Some(stored));
    }
    client.fetch_catalog().await
}

/// Fetches the objects that are needed to resolve a selection of skills (profiles of agents).
/// Returns them by their digest, unverified.
pub(super) async fn fetch_objects(
    vault: &Vault,
    client: &Arc<DeviceClient>,
    catalog: &AcceptedCatalog,
    selection: &Selection,
) -> Result<HashMap<Digest, Vec<u8>>, Failure> {
    // Downloads finish in any order, so the objects are kept by their digest.
    let mut objects = HashMap::new();
    let mut missing = catalog.objects_for(selection);
    // A profile that an earlier pull has stored is not fetched again.
    missing.retain(|object| {
        let stored = catalog.stored_profile(vault, &object.bundle_hash);
        stored.is_none_or(|bytes| objects.insert(object.bundle_hash, bytes).is_some())
    });
    in_flight(
        missing,
        |object| {
            let client = Arc::clone(client);
            async move {
                // The signed size bounds the download, so a service cannot send endless data.
                let bytes = client
                    .fetch_bundle(&object.bundle_hash, object.size)
                    .await?;
                Ok((object.bundle_hash, bytes))
            }
        },
        |(hash, bytes)| {
            objects.insert(hash, bytes);
            Ok(())
        },
    )
    .await?;
    Ok(objects)
}

/// Fetches the bundles of the missing skills, with the parts into which large ones are split.
/// Verifies each as it arrives and stages it for the installation. Also returns the number of
/// downloaded bytes.
pub(super) async fn fetch_bundles(
    context: &Context,
    vault: &Vault,
    client: &Arc<DeviceClient>,
    catalog: &AcceptedCatalog,
    missing: &[SelectedSkill],
) -> Result<(StagedBundles, u64), Failure> {
    let mut staged = StagedBundles::new(vault)?;
    let mut total = 0_u64;
    let bar = context.ui.start_bar(missing.len() as u64, "Fetching");
    in_flight(
        missing.to_vec(),
        |skill| {
            let client = Arc::clone(client);
            async move {
                let bytes = client.fetch_bundle(&skill.bundle_hash, skill.size).await;
                let bytes = bytes.map_err(|failure| name_bundle(&skill, failure))?;
                let mut parts = HashMap::new();
                for (hash, size) in StagedBundles::list_parts(&skill, &bytes)? {
                    // A bundle lists a part once for each file that uses it; one download is
                    // enough.
                    if let Entry::Vacant(part) = parts.entry(hash) {
                        let bytes = client.fetch_bundle(&hash, size).await;
                        part.insert(bytes.map_err(|failure| name_bundle(&skill, failure))?);
                    }
                }
                Ok((skill, bytes, parts))
            }
        },
        |(skill, bytes, parts)| {
            total += bytes.len() as u64 + parts.values().map(|part| part.len() as u64).sum::<u64>();
            // Verify each bundle now, so that the first bad one aborts the other downloads.
            staged.add_bundle(catalog, &skill, &bytes, &|hash| parts.get(hash).cloned())?;
            bar.advance(1);
            bar.set_message(skill.name.as_str());
            Ok(())
        },
    )
    .await?;
    Ok((staged, total))
}

/// Adds the agent and the skill to the failure to fetch a variant, which is the bundle of a skill
/// for one agent.
fn name_bundle(skill: &SelectedSkill, mut failure: Failure) -> Failure {
    if let Some(agent) = &skill.agent {
        failure.message = format!(
            "the variant of {} for {agent}: {}",
            skill.name, failure.message
        );
    }
    failure
}
