//! A namespace in memory that accepts and rejects the same requests as the service.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;

use vault_format::bundle::Bundle;
use vault_format::catalog::{
    Catalog, CatalogError, CatalogOutcome, CatalogReader, LastCatalog, NewRoots, ReaderKind,
    SignedCatalog, SkillEntry, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::Slug;
use vault_format::root::RootState;
use vault_format::time::Timestamp;
use vault_library::Vault;
use vault_library::publish::{self, OnDivergence, Plan, PlanError, PlanRequest, ReleasePlan};
use vault_library::subscribe::{
    self, AcceptOptions, Link, LinkError, PullReport, SelectedSkill, Selection, StagedBundles,
};

pub const BASE: &str = "https://vault.example";

pub struct Host {
    pub slug: Slug,
    pub objects: BTreeMap<Digest, Vec<u8>>,
    pub releases: BTreeMap<u64, Vec<u8>>,
    pub current: Option<Vec<u8>>,
    pub roots: Option<RootState>,
    pub signers: Vec<PublicKey>,
    pub uploads: usize,
}

impl Host {
    pub fn new(slug: &str) -> Self {
        Self {
            slug: slug.parse().unwrap(),
            objects: BTreeMap::new(),
            releases: BTreeMap::new(),
            current: None,
            roots: None,
            signers: Vec::new(),
            uploads: 0,
        }
    }

    pub fn request(&self) -> PlanRequest<'_> {
        PlanRequest::new(BASE, &self.slug, self.current.as_deref())
    }

    pub fn plan(&self, vault: &Vault) -> Result<Plan, PlanError> {
        publish::plan_release(vault, &self.request())
    }

    /// Plans and publishes a release; `None` if nothing changed.
    pub fn sync(&mut self, vault: &Vault, now: Timestamp) -> Option<Box<ReleasePlan>> {
        self.sync_as(vault, now, OnDivergence::Stop)
    }

    pub fn sync_as(
        &mut self,
        vault: &Vault,
        now: Timestamp,
        on_divergence: OnDivergence,
    ) -> Option<Box<ReleasePlan>> {
        let request = PlanRequest {
            on_divergence,
            ..self.request()
        };
        match publish::plan_release(vault, &request).unwrap() {
            Plan::Unchanged(_) => None,
            Plan::TakeOver(taken) => panic!("asked to take over {taken:?}"),
            Plan::FetchProfiles(profiles) => panic!("asked to fetch {profiles:?}"),
            Plan::FetchVariants(variants) => panic!("asked to fetch {variants:?}"),
            Plan::Propose(plan) => panic!("asked to propose release {}", plan.release),
            Plan::SignAgain(names) => panic!("asked to sign again {names:?}"),
            Plan::Publish(plan) => {
                self.take(vault, &plan, now);
                Some(plan)
            }
        }
    }

    /// Uploads a planned release and its catalog, and records it in the library.
    pub fn take(&mut self, vault: &Vault, plan: &ReleasePlan, now: Timestamp) {
        self.upload(vault, plan);
        self.put(&plan.catalog, now).unwrap();
        publish::record_published(vault, plan).unwrap();
    }

    /// Uploads the missing objects.
    pub fn upload(&mut self, vault: &Vault, plan: &ReleasePlan) {
        for object in &plan.objects {
            if self.objects.contains_key(&object.sha256) {
                continue;
            }
            let bytes = plan.read_object(vault, object).unwrap();
            assert_eq!(
                (Digest::of(&bytes), bytes.len() as u64),
                (object.sha256, object.size)
            );
            self.objects.insert(object.sha256, bytes);
            self.uploads += 1;
        }
    }

    /// Checks the catalog as the service does, then makes it the current one.
    pub fn put(&mut self, bytes: &[u8], now: Timestamp) -> Result<u64, CatalogError> {
        let last = self.current.as_ref().map(|current| {
            let payload_sha256 = SignedCatalog::parse(current).unwrap().payload_sha256();
            LastCatalog::read_stored(current, &payload_sha256, self.signers.clone()).unwrap()
        });
        let judged = judge_catalog(
            bytes,
            &CatalogReader {
                side: ReaderKind::Service,
                base: BASE,
                slug: &self.slug,
                now,
                latest_seen_at: None,
                own: self.roots.as_ref(),
                expected: None,
                last: last.as_ref(),
                accept_fork: false,
            },
        );
        let roots = match judged.roots {
            NewRoots::None => self.roots.clone(),
            NewRoots::Now(state) | NewRoots::WithCatalog(state) => Some(state),
        };
        let release = match judged.outcome? {
            CatalogOutcome::Release(release) => {
                let state = release.state().clone();
                let counted = release.settle_versions(|entry| self.counts(entry, &state))?;
                for (hash, size) in named(&counted.catalog) {
                    let object = self.objects.get(&hash).expect("every object is there");
                    assert_eq!(object.len() as u64, size);
                }
                self.signers = counted.signers;
                counted.stored.release
            }
            CatalogOutcome::Equal { signers } => {
                self.signers = signers;
                read(bytes).release
            }
            CatalogOutcome::RootsOnly => read(bytes).release,
        };
        self.roots = roots;
        self.current = Some(bytes.to_vec());
        self.releases.insert(release, bytes.to_vec());
        Ok(release)
    }

    /// Whether the stored manifest of a skill is by a key that counts.
    fn counts(&self, entry: &SkillEntry, state: &RootState) -> bool {
        let bytes = &self.objects[&entry.bundle_hash];
        let bundle = Bundle::parse(bytes, &entry.bundle_hash, entry.size).unwrap();
        let signer = bundle.signed_manifest().signer(state);
        signer.is_some_and(|signer| state.was_publisher(&signer))
    }

    pub fn catalog(&self) -> Catalog {
        read(self.current.as_ref().unwrap())
    }

    /// Pulls as an approved device does.
    pub fn pull(
        &self,
        vault: &Vault,
        link: &Link,
        selection: &Selection,
    ) -> Result<PullReport, LinkError> {
        self.pull_bytes(vault, link, selection, self.current.as_ref().unwrap())
    }

    pub fn pull_bytes(
        &self,
        vault: &Vault,
        link: &Link,
        selection: &Selection,
        bytes: &[u8],
    ) -> Result<PullReport, LinkError> {
        let link = subscribe::find_link_by_id(vault, link.id())?.unwrap();
        let offer = link.accept_catalog(vault, bytes, &AcceptOptions::default())?;
        let object = |hash: &Digest| self.objects.get(hash).cloned();
        let chosen = offer.resolve_selection(selection, &object)?;
        let mut staged = StagedBundles::new(vault)?;
        for skill in offer.missing_bundles(vault, &chosen) {
            self.stage(&mut staged, &offer, &skill)?;
        }
        subscribe::install_selection(vault, &offer, selection, &chosen, staged)
    }

    pub fn stage(
        &self,
        staged: &mut StagedBundles,
        offer: &subscribe::AcceptedCatalog,
        skill: &SelectedSkill,
    ) -> Result<(), LinkError> {
        let object = |hash: &Digest| self.objects.get(hash).cloned();
        let bytes = object(&skill.bundle_hash).unwrap_or_default();
        for (part, size) in StagedBundles::list_parts(skill, &bytes)? {
            assert_eq!(self.objects[&part].len() as u64, size);
        }
        staged.add_bundle(offer, skill, &bytes, &object)
    }
}

/// Plans a release; panics if there is nothing to publish.
pub fn planned(vault: &Vault, request: &PlanRequest<'_>) -> Box<ReleasePlan> {
    match publish::plan_release(vault, request).unwrap() {
        Plan::Publish(plan) => plan,
        other => panic!("{other:?}"),
    }
}

pub fn read(bytes: &[u8]) -> Catalog {
    let file = SignedCatalog::parse(bytes).unwrap();
    file.read_counted(&file.payload_sha256()).unwrap()
}

fn named(catalog: &Catalog) -> Vec<(Digest, u64)> {
    let skills = catalog
        .skills
        .iter()
        .map(|entry| (entry.bundle_hash, entry.size));
    let index = catalog
        .index
        .iter()
        .map(|entry| (entry.bundle_hash, entry.size));
    let profiles = catalog
        .profiles
        .iter()
        .map(|entry| (entry.bundle_hash, entry.size));
    let policy = catalog
        .policy
        .iter()
        .map(|entry| (entry.sha256, entry.size));
    skills.chain(index).chain(profiles).chain(policy).collect()
}
