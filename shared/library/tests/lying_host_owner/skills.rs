//! Skills that publishers and thieves sign: their bundles, and what each of them says about itself.

use std::collections::BTreeMap;

use vault_format::bundle::{self, Bundle, File};
use vault_format::catalog::{
    Catalog, ObjectEntry, PolicyEntry, ProfileEntry, SkillEntry, Withdrawn,
};
use vault_format::hash::Digest;
use vault_format::index::{self, IndexEntry};
use vault_format::keys::Signer;
use vault_format::manifest::{
    ActionSpec, FileEntry, Gate, Manifest, ManifestExpectation, ManifestTrust, Mode,
    SignedManifest, Waiver,
};
use vault_format::name::SkillName;
use vault_format::provenance::Provenance;
use vault_format::root::{RootState, SkillPlace, VaultId};
use vault_format::time::Timestamp;
use vault_policy::Policy;
use vault_policy::profile::{Profile, ProfileSkill};

use super::dice::Dice;
use super::history::ANNA;
use crate::support::{PIPED, skill_md};

/// Skills of releases; the owner's library has the first two.
pub const NAMES: [&str; 5] = ["alpha", "beta", "gamma", "delta", "evil"];

/// What is special about a skill.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Twist {
    Plain,
    /// An action that SKILL.md declares.
    Action,
    /// Agents that its signer chose.
    Agents,
    /// A source elsewhere.
    Source,
    /// A file that is not text.
    Binary,
    /// A file that can be executed.
    Mode,
    /// An action that only the manifest has.
    HiddenAction,
    /// SKILL.md names an agent, the manifest none.
    HiddenAgents,
    /// A script that the gate refuses, under a manifest that refuses no flags.
    Loose,
    /// The same, under a manifest that excepts it.
    Waived,
}

impl Twist {
    pub const HONEST: [Self; 6] = [
        Self::Plain,
        Self::Action,
        Self::Agents,
        Self::Source,
        Self::Binary,
        Self::Mode,
    ];
    pub const FORGED: [Self; 7] = [
        Self::Plain,
        Self::HiddenAction,
        Self::HiddenAgents,
        Self::Loose,
        Self::Waived,
        Self::Source,
        Self::Agents,
    ];

    /// Whether nobody signs or takes over such a skill who has the bytes and a strict gate.
    pub const fn is_refused(self) -> bool {
        matches!(
            self,
            Self::HiddenAction | Self::HiddenAgents | Self::Loose | Self::Waived
        )
    }
}

/// A signed skill.
#[derive(Clone, Debug)]
pub struct Made {
    pub entry: SkillEntry,
    pub manifest: Manifest,
    pub files: Vec<File>,
    pub twist: Twist,
    /// Who signed it.
    pub by: usize,
    texts: IndexEntry,
}

type Wanted = (&'static str, u64, usize, Twist);

/// All skills and objects that were made, with the objects as a service keeps them.
pub struct Skills {
    vault_id: VaultId,
    now: Timestamp,
    made: BTreeMap<Digest, Made>,
    wanted: BTreeMap<Wanted, Digest>,
    pub objects: BTreeMap<Digest, Vec<u8>>,
}

impl Skills {
    pub fn new(vault_id: VaultId, now: Timestamp) -> Self {
        Self {
            vault_id,
            now,
            made: BTreeMap::new(),
            wanted: BTreeMap::new(),
            objects: BTreeMap::new(),
        }
    }

    /// The skill that a bundle holds.
    pub fn get(&self, bundle: &Digest) -> &Made {
        &self.made[bundle]
    }

    /// A version of a skill, signed by the key of this number.
    pub fn make(
        &mut self,
        (name, version, by, twist): Wanted,
        signer: &(dyn Signer + Send + Sync),
    ) -> SkillEntry {
        let wanted = (name, version, by, twist);
        if let Some(hash) = self.wanted.get(&wanted) {
            return self.made[hash].entry.clone();
        }
        let files = files(name, version, by, twist);
        let manifest = self.manifest(name, version, twist, &files);
        let signed = SignedManifest::sign(&manifest, signer).unwrap();
        let encoded = bundle::encode(&signed, &manifest, &files).unwrap();
        let entry = SkillEntry {
            name: manifest.name.clone(),
            version,
            bundle_hash: encoded.hash,
            size: encoded.bytes.len() as u64,
        };
        for part in encoded.parts {
            self.objects.insert(part.hash, part.bytes);
        }
        self.objects.insert(encoded.hash, encoded.bytes);
        self.wanted.insert(wanted, encoded.hash);
        self.keep(&entry, manifest, files, (twist, by));
        entry
    }

    /// A skill that the owner's machine has published.
    pub fn learn(&mut self, entry: &SkillEntry, roots: &RootState) {
        let bytes = &self.objects[&entry.bundle_hash];
        let bundle = Bundle::parse(bytes, &entry.bundle_hash, entry.size).unwrap();
        let trust = ManifestTrust {
            state: roots,
            place: SkillPlace::Listed,
        };
        let expected = ManifestExpectation {
            name: &entry.name,
            version: None,
            stored_version: None,
        };
        let opened = bundle.open(&|_| None, &trust, &expected).unwrap();
        let (manifest, files) = (opened.manifest, opened.files);
        self.keep(entry, manifest, files, (Twist::Plain, ANNA));
    }

    fn keep(
        &mut self,
        entry: &SkillEntry,
        manifest: Manifest,
        files: Vec<File>,
        (twist, by): (Twist, usize),
    ) {
        let texts = IndexEntry {
            name: entry.name.clone(),
            bundle_hash: entry.bundle_hash,
            description: format!("Does the work of {} in a test.", entry.name),
            tags: Vec::new(),
            categories: Vec::new(),
            when_to_use: String::new(),
            agents: manifest.agents.clone(),
            actions: manifest.actions.keys().cloned().collect(),
        };
        let made = Made {
            entry: entry.clone(),
            manifest,
            files,
            twist,
            by,
            texts,
        };
        self.made.insert(entry.bundle_hash, made);
    }

    fn manifest(&self, name: &str, version: u64, twist: Twist, files: &[File]) -> Manifest {
        let action = |command: &str| ActionSpec {
            command: command.to_owned(),
            args: Vec::new(),
            cwd: ".".to_owned(),
            description: None,
            requires_tty: false,
        };
        let mut manifest = Manifest {
            vault_id: self.vault_id,
            name: name.parse().unwrap(),
            frontmatter_name: None,
            version,
            signed_at: self.now,
            files: files.iter().map(listed).collect(),
            actions: BTreeMap::new(),
            agents: Vec::new(),
            rendered_from: None,
            provenance: Provenance {
                identifier: "local:made".parse().unwrap(),
                revision: None,
                fetched_at: self.now,
            },
            gate: Gate {
                strict: true,
                rules: "structure/1".to_owned(),
                flags: Vec::new(),
                waivers: Vec::new(),
            },
        };
        match twist {
            Twist::Action => {
                let action = action("echo");
                manifest.actions.insert("check".parse().unwrap(), action);
            }
            Twist::HiddenAction => {
                let action = action("sh");
                manifest.actions.insert("check".parse().unwrap(), action);
            }
            Twist::Agents => manifest.agents.push("codex".parse().unwrap()),
            Twist::Source => {
                let source = format!("github:anthropics/skills/{name}");
                manifest.provenance.identifier = source.parse().unwrap();
            }
            Twist::Loose => manifest.gate.strict = false,
            Twist::Waived => manifest.gate.waivers.push(Waiver {
                rule: "download-pipe-shell".to_owned(),
                sha256: Digest::of(PIPED.as_bytes()),
                reason: "read line by line".to_owned(),
            }),
            Twist::Plain | Twist::Binary | Twist::Mode | Twist::HiddenAgents => {}
        }
        manifest
    }

    /// The search texts that follow from the skills of a catalog.
    pub fn index(&self, catalog: &Catalog) -> Vec<ObjectEntry> {
        let objects = self.index_objects(catalog, None);
        let entries = objects.iter().map(|object| ObjectEntry {
            bundle_hash: Digest::of(object),
            size: object.len() as u64,
        });
        entries.collect()
    }

    fn index_objects(&self, catalog: &Catalog, lie: Option<&str>) -> Vec<Vec<u8>> {
        let texts = catalog.skills.iter().enumerate().map(|(at, entry)| {
            let mut texts = self.made[&entry.bundle_hash].texts.clone();
            if let Some(lie) = lie.filter(|_| at == 0) {
                lie.clone_into(&mut texts.description);
            }
            texts
        });
        index::build_objects(&self.vault_id, texts.collect::<Vec<_>>())
    }

    /// Gives a catalog search texts of which the first may be a lie.
    pub fn set_index(&mut self, catalog: &mut Catalog, lie: Option<&str>) {
        catalog.index.clear();
        for object in self.index_objects(catalog, lie) {
            let (bundle_hash, size) = self.put(object);
            catalog.index.push(ObjectEntry { bundle_hash, size });
        }
    }

    pub fn policy(&mut self, default: &str) -> PolicyEntry {
        let text =
            format!("default_profile = \"{default}\"\n\n[profiles.{default}]\ngroups = [\"*\"]\n");
        let (sha256, size) = self.put(Policy::from_toml(&text).unwrap().to_object());
        PolicyEntry { sha256, size }
    }

    /// A profile of a catalog's skills but those left out.
    pub fn profile(
        &mut self,
        name: &str,
        catalog: &Catalog,
        without: &[SkillName],
    ) -> ProfileEntry {
        let skills = catalog.skills.iter();
        let skills = skills.filter(|entry| !without.contains(&entry.name));
        let profile = Profile {
            name: name.to_owned(),
            agent: "codex".parse().unwrap(),
            skills: skills
                .map(|entry| ProfileSkill {
                    name: entry.name.clone(),
                    bundle_hash: entry.bundle_hash,
                    size: entry.size,
                })
                .collect(),
        };
        let (bundle_hash, size) = self.put(profile.to_object());
        ProfileEntry {
            name: profile.name,
            agent: profile.agent,
            bundle_hash,
            size,
        }
    }

    pub fn profiles(&self, catalog: &Catalog) -> Vec<Profile> {
        let entries = catalog.profiles.iter();
        entries
            .map(|entry| Profile::parse(&self.objects[&entry.bundle_hash]).unwrap())
            .collect()
    }

    fn put(&mut self, object: Vec<u8>) -> (Digest, u64) {
        let named = (Digest::of(&object), object.len() as u64);
        self.objects.insert(named.0, object);
        named
    }

    /// Changes one thing of a catalog; every publisher may, and so may a thief.
    pub fn change(
        &mut self,
        catalog: &mut Catalog,
        dice: &mut Dice,
        (by, signer): (usize, &(dyn Signer + Send + Sync)),
        twists: &[Twist],
    ) {
        match dice.below(12) {
            0..=3 => {
                let name = *dice.pick(&NAMES);
                let skill: SkillName = name.parse().unwrap();
                let before = catalog.skill(&skill).map_or(0, |entry| entry.version);
                let wanted = (name, before + 1, by, *dice.pick(twists));
                let entry = self.make(wanted, signer);
                catalog.skills.retain(|entry| entry.name != skill);
                catalog.skills.push(entry);
                catalog.skills.sort_by(|a, b| a.name.cmp(&b.name));
            }
            4 if !catalog.skills.is_empty() => {
                let at = dice.below(catalog.skills.len());
                catalog.skills.remove(at);
            }
            5 => {
                let policy = *dice.pick(&["all", "few", ""]);
                catalog.policy = (!policy.is_empty()).then(|| self.policy(policy));
            }
            6 => {
                let name: SkillName = dice.pick(&NAMES).parse().unwrap();
                let bundle_hash = Digest::of(&[u8::try_from(dice.below(4)).unwrap()]);
                catalog.withdrawn.retain(|it| it.bundle_hash != bundle_hash);
                catalog.withdrawn.push(Withdrawn {
                    name,
                    bundle_hash,
                    reason: "leaked".to_owned(),
                    since_release: 1,
                });
            }
            7 => drop(catalog.withdrawn.pop()),
            8 if catalog.audience.len() > 1 => drop(catalog.audience.pop()),
            8 => catalog
                .audience
                .push("https://elsewhere.example/v/acme/".to_owned()),
            9 => {
                let days = i64::try_from(40 + dice.below(80)).unwrap();
                catalog.expires_at = self.now.plus_days(days);
            }
            _ => {
                let name = *dice.pick(&["all", "few"]);
                let names: Vec<_> = catalog.skills.iter().map(|it| it.name.clone()).collect();
                let without = dice.shuffled(&names);
                let without = &without[..dice.below(names.len() + 1).min(1)];
                let profile = self.profile(name, catalog, without);
                catalog.profiles.retain(|it| it.name != name);
                if dice.below(4) > 0 {
                    catalog.profiles.push(profile);
                }
            }
        }
    }

    /// Brings what follows from the skills in line with them: search texts, and the bundles that
    /// profiles name.
    pub fn complete(&mut self, catalog: &mut Catalog) {
        self.set_index(catalog, None);
        let profiles = self.profiles(catalog);
        catalog.profiles = profiles
            .into_iter()
            .map(|profile| {
                let has = |name: &SkillName| profile.skills.iter().any(|it| it.name == *name);
                let names = catalog.skills.iter().map(|it| it.name.clone());
                let without: Vec<_> = names.filter(|name| !has(name)).collect();
                self.profile(&profile.name, catalog, &without)
            })
            .collect();
        let listed: Vec<_> = catalog.skills.iter().map(|it| it.bundle_hash).collect();
        catalog
            .withdrawn
            .retain(|it| !listed.contains(&it.bundle_hash));
    }
}

fn files(name: &str, version: u64, by: usize, twist: Twist) -> Vec<File> {
    let more = match twist {
        Twist::Action => "bin:\n  check: { command: echo }\n",
        Twist::HiddenAgents => "agents: [codex]\n",
        _ => "",
    };
    let body = format!("Version {version} by {by}.");
    let mut files = vec![file("SKILL.md", skill_md(name, more, &body))];
    match twist {
        Twist::Binary => files.push(file("data.bin", b"\xff\x00\xfe")),
        Twist::Mode => files.push(File {
            mode: Mode::Executable,
            ..file("run.sh", "#!/bin/sh\necho done\n")
        }),
        Twist::Loose | Twist::Waived => files.push(file("run.sh", PIPED)),
        _ => {}
    }
    files
}

fn file(path: &str, bytes: impl AsRef<[u8]>) -> File {
    File {
        path: path.parse().unwrap(),
        mode: Mode::Plain,
        bytes: bytes.as_ref().to_vec(),
    }
}

fn listed(file: &File) -> FileEntry {
    FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    }
}
