#!/usr/bin/env python3
"""Checks the files of a release before somebody signs them: check.py FOLDER. Prints version and commit.

Every file must be a provenance statement or a subject of one, unchanged since its builder listed it. All statements must name one version and one
commit, and the package that npm installs must name only packages of this release.
"""

import hashlib
import json
import pathlib
import re
import sys
import tarfile

folder = pathlib.Path(sys.argv[1])


def stop(message):
    sys.exit(f"check.py: {message}")


names = {path.name for path in folder.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
for name in sorted(names):
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name) or not (folder / name).is_file() or (folder / name).is_symlink():
        stop(f"{name!r} is not a file of a release")
statements = sorted(name for name in names if name.endswith(".provenance.json"))
if not statements:
    stop("there is no provenance statement: this is not what release/build makes")
versions, commits, subjects = set(), set(), set()
for name in statements:
    statement = json.loads((folder / name).read_text())
    definition = statement["predicate"]["buildDefinition"]
    versions.add(definition["externalParameters"]["version"])
    commits |= {one["digest"]["gitCommit"] for one in definition["resolvedDependencies"] if "gitCommit" in one["digest"]}
    archive = name.replace(".provenance.json", ".tar.gz")
    if archive not in {subject["name"] for subject in statement["subject"]}:
        stop(f"{name} does not name {archive}")
    for subject in statement["subject"]:
        path = folder / subject["name"]
        if subject["name"] not in names or hashlib.sha256(path.read_bytes()).hexdigest() != subject["digest"]["sha256"]:
            stop(f"{subject['name']} is missing, or differs from {name}")
        subjects.add(subject["name"])
for name in sorted(names - subjects - set(statements)):
    stop(f"no statement names {name}")
if len(versions) != 1 or len(commits) != 1:
    stop(f"the statements name several versions or commits: {sorted(versions)}, {sorted(commits)}")
(version,), (commit,) = versions, commits
launcher = folder / f"vault-skills-{version}.tgz"
if launcher.exists():
    with tarfile.open(launcher) as tar:
        manifest = json.load(tar.extractfile("package/package.json"))
    for name in manifest["optionalDependencies"]:
        if f"{name}-{version}.tgz" not in names:
            print(f"check.py: {launcher.name} names {name}, which is not in the release: register that name before you publish", file=sys.stderr)
print(version, commit)
