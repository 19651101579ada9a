//! Paths that leave the folder or clash in it, in manifests that the right key signed: nothing is
//! written anywhere.

use serde_json::{Value, json};
use vault_format::bundle::EncodedBundle;
use vault_format::hash::Digest;
use vault_tests::signed::{bundle_of, skill};

use crate::bundles::taken_apart;
use crate::support::{INTEGRITY, Scene, refused};

/// A skill with a file of each path, signed whatever the paths are.
fn with_paths(paths: &[&str]) -> EncodedBundle {
    let (mut manifest, files) = taken_apart(&skill("alpha", 3, &[]));
    let mut pairs: Vec<(Value, Value)> = vec![(manifest["files"][0].clone(), files[0].clone())];
    for path in paths {
        let content = "planted\n";
        pairs.push((
            json!({ "path": path, "size": content.len(), "sha256": Digest::of(content.as_bytes()), "mode": "0755" }),
            json!({ "path": path, "encoding": "utf-8", "content": content }),
        ));
    }
    pairs.sort_by(|a, b| a.0["path"].as_str().cmp(&b.0["path"].as_str()));
    let (entries, files): (Vec<Value>, Vec<Value>) = pairs.into_iter().unzip();
    manifest["files"] = json!(entries);
    bundle_of(&manifest, &json!(files))
}

#[test]
fn nothing_is_written_under_a_path_that_no_skill_may_have() {
    let scene = Scene::new();
    let outside = scene.machine.path().join("outside");
    let absolute = outside.to_str().unwrap().to_owned();
    let long_segment = "s".repeat(101);
    let long = format!("{}/x", vec!["s".repeat(50); 5].join("/"));
    let deep = vec!["d"; 17].join("/");
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("climbs", vec!["../outside"]),
        (
            "climbs far",
            vec!["../../../../../../../../../../tmp/vault-planted"],
        ),
        ("climbs from within", vec!["a/../../outside"]),
        ("climbs and comes back", vec!["a/../b"]),
        ("a dot", vec!["./a"]),
        ("a dot within", vec!["a/./b"]),
        ("two dots alone", vec![".."]),
        ("absolute", vec![&absolute]),
        ("absolute, twice", vec!["//tmp/x"]),
        ("a drive", vec!["C:/x"]),
        ("a drive without a slash", vec!["C:x"]),
        ("a share", vec!["\\\\host\\share"]),
        ("backslashes", vec!["..\\..\\outside"]),
        ("a stream", vec!["a.md:stream"]),
        ("empty", vec![""]),
        ("an empty segment", vec!["a//b"]),
        ("a slash at its end", vec!["a/"]),
        ("NUL", vec!["a\0b"]),
        ("NUL before a climb", vec!["a\0/../../b"]),
        ("a line end", vec!["a\nb"]),
        ("escape", vec!["a\u{1b}[2Jb"]),
        ("delete", vec!["a\u{7f}b"]),
        ("C1", vec!["a\u{85}b"]),
        ("a line separator", vec!["a\u{2028}b"]),
        ("right to left", vec!["a\u{202e}dm.exe"]),
        ("an isolate", vec!["a\u{2066}b"]),
        ("zero width", vec!["a\u{200b}b"]),
        ("a BOM", vec!["\u{feff}a"]),
        ("not NFC", vec!["cafe\u{301}.md"]),
        ("a Hangul syllable in pieces", vec!["\u{1100}\u{1161}.md"]),
        ("a dot at its end", vec!["a."]),
        ("a blank at its end", vec!["a "]),
        ("a blank at a folder's end", vec!["a /b"]),
        ("a device", vec!["CON"]),
        ("a device with an ending", vec!["nul.tar.gz"]),
        ("a device as a folder", vec!["Lpt1/x"]),
        ("a device with a superscript digit", vec!["COM¹"]),
        ("the console", vec!["CONIN$"]),
        ("a repository", vec![".git/config"]),
        ("a repository below a folder", vec!["a/.git/config"]),
        ("a repository in other letters", vec![".GIT/config"]),
        ("a hook", vec![".Git/hooks/pre-commit"]),
        ("a repository by its short name", vec!["GIT~1/config"]),
        ("a repository with a joiner", vec![".g\u{200c}it/config"]),
        ("a soft hyphen", vec!["a\u{ad}b.md"]),
        ("a grapheme joiner", vec!["a\u{34f}b.md"]),
        ("an Arabic mark", vec!["a\u{61c}b.md"]),
        ("a Hangul filler", vec!["a\u{115f}b.md"]),
        ("a direction mark", vec!["a\u{200e}b.md"]),
        ("a word joiner", vec!["a\u{2060}b.md"]),
        ("a variation selector", vec!["a\u{fe0f}b.md"]),
        ("a tag character", vec!["a\u{e0041}b.md"]),
        ("a blank that is no space", vec!["a\u{a0}b.md"]),
        ("wildcards", vec!["a*.md"]),
        ("a question", vec!["a?.md"]),
        ("quotes", vec!["a\".md"]),
        ("a pipe", vec!["a|b"]),
        ("angles", vec!["<a>"]),
        ("ours", vec![".vault"]),
        ("a long segment", vec![&long_segment]),
        ("long", vec![&long]),
        ("deep", vec![&deep]),
        ("case", vec!["notes.md", "NOTES.md"]),
        ("case of SKILL.md", vec!["skill.md"]),
        ("case of folders", vec!["Bin/x", "bin/y"]),
        ("case of a folder and a file", vec!["Bin", "bin/y"]),
        ("case beyond ASCII", vec!["straße", "STRASSE"]),
        ("case of Greek", vec!["ΣΑΣ", "σας"]),
        ("a file and a folder", vec!["a", "a/b"]),
        ("SKILL.md as a folder", vec!["SKILL.md/x"]),
        ("twice", vec!["a.md", "a.md"]),
    ];
    for (name, paths) in cases {
        let namespace = scene.with_bundle("alpha", 3, &with_paths(&paths));
        let ran = scene.rejects(name, namespace, "bundle_refused");
        assert!(
            !ran.stdout.contains("checked again"),
            "{name}: {}",
            ran.stdout
        );
        assert!(!outside.exists(), "{name}");
    }
    assert!(!std::path::Path::new("/tmp/vault-planted").exists());
    // The same hand writes a good one.
    let good = with_paths(&["notes/fine – gut.md", "a/.vault-state", "z"]);
    scene.host.serve(scene.with_bundle("alpha", 3, &good));
    let ran = scene.machine.run("cloud pull --json");
    assert_eq!(ran.code, 0, "{}", ran.stdout);
}

#[test]
fn nothing_is_written_through_links_that_lie_in_the_way() {
    // Another program of the same user planted links where the next release would be written.
    let scene = Scene::new();
    let elsewhere = scene.machine.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let store = scene.machine.vault().join("store");
    std::os::unix::fs::symlink(&elsewhere, store.join(scene.bundles[0].hash.to_string())).unwrap();
    scene.host.serve(scene.next.clone());
    let ran = scene.machine.run("cloud pull --json");
    assert!([0, 1, INTEGRITY].contains(&ran.code), "{}", ran.stdout);
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn names_and_tags_of_a_selection_are_not_paths() {
    let scene = Scene::new();
    scene.host.serve(scene.next.clone());
    for (flag, value) in [
        ("--skill", "../alpha"),
        ("--skill", "Alpha"),
        ("--skill", "a/b"),
        ("--as", "../alpha"),
        ("--as", "con"),
        ("--agent", "../x"),
    ] {
        let mut command = vec!["cloud", "pull", "--json"];
        if flag == "--as" {
            command.extend(["--skill", "alpha"]);
        }
        command.extend([flag, value]);
        refused(&scene.machine, value, &command, 2, "usage");
    }
    scene.arrives();
}
