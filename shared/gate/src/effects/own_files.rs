//! The files of a skill, by the paths and names of modules under which its code knows them.

use std::collections::{BTreeSet, HashMap};

/// Largest number of files that a path may mean.
const MOST_SAME: usize = 256;
/// Largest number of pairs of a file and one that it gets over a package.
const MOST_REEXPORTED: usize = 1 << 14;
/// Endings that the name of a module leaves out. A folder is known by the file that stands for it.
const ENDINGS: [&str; 13] = [
    "",
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".sh",
    ".ps1",
    ".psm1",
    "/__init__.py",
    "/index.js",
    "/index.mjs",
    "/index.ts",
];

/// The files of a skill.
#[derive(Default)]
pub(super) struct OwnFiles {
    /// The numbers of the files with a name, which is the last part of the path.
    by_name: HashMap<String, Vec<u32>>,
    paths: HashMap<u32, String>,
}

impl OwnFiles {
    pub(super) fn add(&mut self, path: &str, number: u32) {
        let mut parts = path.rsplit('/');
        let name = parts.next().unwrap_or(path);
        self.by_name
            .entry(name.to_owned())
            .or_default()
            .push(number);
        if is_package(path)
            && let Some(folder) = parts.next()
        {
            let both = format!("{folder}/{name}");
            self.by_name.entry(both).or_default().push(number);
        }
        self.paths.insert(number, path.to_owned());
    }

    /// Returns the files that a path or the name of a module may mean: those whose paths end in it,
    /// or else all with its last part. Also returns whether a bound left some out.
    pub(super) fn find(&self, path: &str) -> (Vec<u32>, bool) {
        let path = path.trim_matches(['"', '\'', ' ']).replace('\\', "/");
        let path = path.trim_end_matches('/');
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.is_empty() || name.len() > 256 {
            return (Vec::new(), false);
        }
        let named = ENDINGS.iter().filter_map(|ending| {
            let numbers = self.by_name.get(&format!("{name}{ending}"))?;
            Some(numbers.iter().map(move |number| (*number, *ending)))
        });
        let mut found: Vec<(u32, &str)> = named.flatten().take(MOST_SAME + 1).collect();
        // Nothing is lost if only documents are left out, because code imports none.
        let is_cut = found.len() > MOST_SAME && found.iter().any(|one| is_code(self.path(one.0)));
        found.truncate(MOST_SAME);
        let parts = path.split('/');
        let wanted: Vec<&str> = parts.filter(|part| !matches!(*part, "." | "..")).collect();
        let wanted = wanted.join("/");
        let ends = |(number, ending): &&(u32, &str)| {
            let path = self.path(*number);
            let path = path.strip_suffix(ending).unwrap_or(path);
            let rest = path.strip_suffix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let mut best: Vec<u32> = found.iter().filter(ends).map(|one| one.0).collect();
        if best.is_empty() {
            best = found.iter().map(|one| one.0).collect();
        }
        (best, is_cut)
    }

    fn path(&self, number: u32) -> &str {
        self.paths.get(&number).map_or("", String::as_str)
    }

    /// Returns pairs of a file that imports a package, and a file that the package imports.
    pub(super) fn reexported(&self, imports: &BTreeSet<(u32, u32)>) -> BTreeSet<(u32, u32)> {
        let mut pairs = BTreeSet::new();
        for (file, package) in imports {
            if !self.paths.get(package).is_some_and(|path| is_package(path)) {
                continue;
            }
            for (_, other) in imports.range((*package, 0)..=(*package, u32::MAX)) {
                if other != file && pairs.len() < MOST_REEXPORTED {
                    pairs.insert((*file, *other));
                }
            }
        }
        pairs
    }
}

/// Whether the name of a file ends like one of code.
fn is_code(path: &str) -> bool {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    matches!(
        ending,
        "py" | "js" | "mjs" | "cjs" | "ts" | "sh" | "ps1" | "psm1"
    )
}

/// Whether a file stands for its folder.
fn is_package(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "__init__.py" || name.starts_with("index.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_paths() {
        let mut files = OwnFiles::default();
        for (number, path) in (0..).zip([
            "scripts/a/lib.py",
            "scripts/util/lib.py",
            "scripts/net/__init__.py",
            "scripts/up/index.js",
            "scripts/send.py",
        ]) {
            files.add(path, number);
        }
        for (path, wanted) in [
            ("util/lib", vec![1]),
            ("./a/lib.py", vec![0]),
            ("lib", vec![0, 1]),
            ("other/lib", vec![0, 1]),
            ("net", vec![2]),
            ("./up", vec![3]),
            ("scripts/send.py", vec![4]),
            ("../scripts/send", vec![4]),
            ("none", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(files.find(path), (wanted, false), "{path}");
        }
    }
}
