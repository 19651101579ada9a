//! The grant: what a compiled policy lets one caller use.

use super::{CompiledPolicy, fold_case};
use crate::pattern::Pattern;
use std::collections::BTreeSet;
use vault_format::hash::Digest;
use vault_format::name::SkillName;

/// What one caller may use: some groups (named sets of skills, tools and MCP servers) of a policy,
/// or everything, for an owner. [`CompiledPolicy::grant_for`] computes it.
#[derive(Clone, Debug)]
pub struct Grant(Scope);

#[derive(Clone, Debug)]
enum Scope {
    Everything,
    Groups {
        policy: CompiledPolicy,
        profile: Option<String>,
        groups: GroupSet,
        /// Whether one of the groups holds every skill.
        whole: bool,
    },
}

/// A cache key for the set of skills that a grant allows. Two grants with the same groups of the
/// same policy have equal keys, so a list or a ranking made for one caller serves all callers with
/// the same access. The key holds the policy's hash and not the policy, so a cache does not keep
/// old policies in memory.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct View(Option<(Option<Digest>, GroupSet)>);

impl Grant {
    /// Grants everything. Only owners get it: no policy filters what they see.
    pub const fn everything() -> Self {
        Self(Scope::Everything)
    }

    pub(super) fn without_access(policy: &CompiledPolicy) -> Self {
        Self(Scope::Groups {
            policy: policy.clone(),
            profile: None,
            groups: GroupSet::none(policy.0.names.len()),
            whole: false,
        })
    }

    pub(super) fn of(policy: &CompiledPolicy, profile: &str, groups: GroupSet) -> Self {
        Self(Scope::Groups {
            // Decided here once: for callers who have a group that holds every skill, checking a
            // skill then needs no look-up.
            whole: groups.has_common(&policy.0.whole),
            policy: policy.clone(),
            profile: Some(profile.to_owned()),
            groups,
        })
    }

    /// Tells whether the caller may use this skill, which has these tags in its frontmatter.
    pub fn allows<T: AsRef<str>>(&self, name: &SkillName, tags: &[T]) -> bool {
        self.allows_text(name.as_str(), tags)
    }

    /// Like [`Self::allows`], for a name that is not parsed yet.
    pub(crate) fn allows_text<T: AsRef<str>>(&self, name: &str, tags: &[T]) -> bool {
        let Scope::Groups {
            policy,
            groups,
            whole,
            ..
        } = &self.0
        else {
            return true;
        };
        let inner = &*policy.0;
        let any = |numbers: Option<&Vec<usize>>| {
            numbers.is_some_and(|numbers| numbers.iter().any(|number| groups.contains(*number)))
        };
        *whole
            || any(inner.by_name.get(name))
            // Most policies name no tags. Folding the case of every tag of every skill would then
            // be wasted work.
            || !inner.by_tag.is_empty()
                && tags
                    .iter()
                    .any(|tag| any(inner.by_tag.get(&*fold_case(tag.as_ref().trim()))))
    }

    /// Returns the names of the granted groups that hold this skill, in order. For an owner the
    /// list is empty, since no group limits the owner.
    pub fn groups_of<T: AsRef<str>>(&self, name: &SkillName, tags: &[T]) -> Vec<&str> {
        self.numbers_of(name.as_str(), tags)
            .into_iter()
            .map(|number| self.group_name(number))
            .collect()
    }

    pub(crate) fn numbers_of<T: AsRef<str>>(&self, name: &str, tags: &[T]) -> Vec<usize> {
        match &self.0 {
            Scope::Everything => Vec::new(),
            Scope::Groups { policy, groups, .. } => policy
                .0
                .group_numbers_of_skill(name, tags)
                .into_iter()
                .filter(|number| groups.contains(*number))
                .collect(),
        }
    }

    /// Returns the name of a group by its number; empty if there is no such group.
    pub(crate) fn group_name(&self, number: usize) -> &str {
        match &self.0 {
            Scope::Everything => "",
            Scope::Groups { policy, .. } => policy.0.names.get(number).map_or("", String::as_str),
        }
    }

    /// Tells whether the group with this number is granted.
    pub(crate) fn holds(&self, number: usize) -> bool {
        matches!(&self.0, Scope::Groups { groups, .. } if groups.contains(number))
    }

    /// The profile from which the grant follows; `None` for a caller without access, and for an
    /// owner.
    pub fn profile(&self) -> Option<&str> {
        match &self.0 {
            Scope::Everything => None,
            Scope::Groups { profile, .. } => profile.as_deref(),
        }
    }

    /// Tells whether the grant is an owner's, which no policy limits.
    pub const fn is_everything(&self) -> bool {
        matches!(self.0, Scope::Everything)
    }

    /// Names of the granted groups, in order; none for an owner.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.numbers().map(|number| self.group_name(number))
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        let groups = match &self.0 {
            Scope::Everything => None,
            Scope::Groups { groups, .. } => Some(groups),
        };
        groups.into_iter().flat_map(GroupSet::iter)
    }

    /// Tells whether a tool of this name is granted (by a group, or to every known caller) and not
    /// disabled.
    pub fn allows_tool(&self, tool: &str) -> bool {
        let Scope::Groups { policy, .. } = &self.0 else {
            return true;
        };
        !policy
            .0
            .disabled
            .iter()
            .any(|pattern| pattern.matches(tool))
            && self
                .tool_patterns()
                .iter()
                .any(|text| Pattern::new(text).matches(tool))
    }

    /// Returns the granted patterns of tools as the policy writes them, in order. Patterns that the
    /// policy disables are included.
    fn tool_patterns(&self) -> BTreeSet<&str> {
        let Scope::Groups {
            policy,
            profile: Some(_),
            groups,
            ..
        } = &self.0
        else {
            return BTreeSet::new();
        };
        let policy = policy.policy();
        let always = policy
            .always
            .as_ref()
            .and_then(|always| always.tools.as_ref());
        policy
            .groups
            .iter()
            .flatten()
            .enumerate()
            .filter(|(number, _)| groups.contains(*number))
            .filter_map(|(_, (_, group))| group.tools.as_ref())
            .chain(always)
            .flatten()
            .map(String::as_str)
            .collect()
    }

    /// Returns the granted tools as names and patterns, in order, without those that are disabled.
    /// If a disabled pattern covers only a part of a granted one, it follows at the end as
    /// `!pattern`.
    pub fn tools(&self) -> Vec<String> {
        let Scope::Groups { policy, .. } = &self.0 else {
            return vec!["*".to_owned()];
        };
        let disabled = &policy.0.disabled;
        let granted: Vec<Pattern> = self
            .tool_patterns()
            .into_iter()
            .map(Pattern::new)
            // Only a pattern that is covered completely disappears here; a partly covered one is
            // kept.
            .filter(|granted| {
                !disabled
                    .iter()
                    .any(|disabled| disabled.matches(granted.as_str()))
            })
            .collect();
        let but: BTreeSet<String> = disabled
            .iter()
            .filter(|disabled| granted.iter().any(|granted| granted.may_meet(disabled)))
            .map(|disabled| format!("!{}", disabled.as_str()))
            .collect();
        granted
            .iter()
            .map(|pattern| pattern.as_str().to_owned())
            .chain(but)
            .collect()
    }

    /// Returns the names of the granted MCP servers, in order. For an owner the list is empty:
    /// owners read the servers in the policy.
    pub fn mcp_servers(&self) -> Vec<String> {
        let Scope::Groups { policy, groups, .. } = &self.0 else {
            return Vec::new();
        };
        let servers: BTreeSet<&String> = policy
            .policy()
            .groups
            .iter()
            .flatten()
            .enumerate()
            .filter(|(number, _)| groups.contains(*number))
            .flat_map(|(_, (_, group))| group.mcp_servers.iter().flatten())
            .collect();
        servers.into_iter().cloned().collect()
    }

    /// Returns the cache key for the set of skills that this grant allows.
    pub fn view(&self) -> View {
        View(match &self.0 {
            Scope::Everything => None,
            // The policy's hash is part of the key, because a number means another group in another
            // policy.
            Scope::Groups { policy, groups, .. } => Some((policy.hash(), groups.clone())),
        })
    }
}

/// A set of groups of one policy, by number.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct GroupSet(Vec<u64>);

impl GroupSet {
    pub(super) fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn all(count: usize) -> Self {
        let mut groups = Self::none(count);
        (0..count).for_each(|number| groups.insert(number));
        groups
    }

    pub(super) fn insert(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// Adds groups, then removes groups: one in both lists is removed.
    pub(super) fn change(&mut self, add: &[usize], remove: &[usize]) {
        for number in add {
            self.insert(*number);
        }
        for number in remove {
            self.remove(*number);
        }
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.0
            .get(number / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(super) fn has_common(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .any(|(one, other)| one & other != 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(place, word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| place * 64 + bit)
        })
    }
}
