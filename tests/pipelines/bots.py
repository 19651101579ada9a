"""Runs Renovate with renovate/vault-lock.json over a project whose skills have changed in their repository, and finishes its proposal with vault.

bots.py ROOT WORK VAULT NODE RENOVATE: the repository, an empty folder, the program, the program of Node 24, the folder of the package renovate.
Nothing leaves the machine: git reads the repositories from a folder, and Renovate looks nothing else up.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT, WORK, VAULT, NODE, RENOVATE = map(pathlib.Path, sys.argv[1:])
HOME, PROJECT, UPSTREAM = WORK / "home", WORK / "project", WORK / "skills"
# Entries that the preset leaves as they are: other sources, a commit that a person chose, and addresses.
OTHERS = '''
[[skill]]
name = "own"
source = "./own"

[[skill]]
name = "site"
source = "wellknown:https://docs.example.com/site"
revision = "sha256:%(digest)s"
digest = "%(digest)s"

[[skill]]
name = "mirror"
source = "github:acme/skills/lint"
address = "https://git.example.com/mirror.git"
revision = "%(old)s"
tree = "%(old)s"
digest = "%(digest)s"

[[skill]]
name = "odd"
source = "github:acme/$(touch pwned)"
revision = "%(old)s"
digest = "%(digest)s"

[[skill]]
name = "pinned"
source = "github:acme/skills/lint"
ref = "%(old)s"
revision = "%(old)s"
digest = "%(digest)s"

[[skill]]
name = "pinned-to-digits"
source = "github:acme/skills/lint"
ref = "f1cff236a82d331b52a3233995089ed024884f34"
revision = "f1cff236a82d331b52a3233995089ed024884f34"
digest = "%(digest)s"

[[skill]]
name = "branch-with-a-number"
source = "github:acme/skills/lint"
ref = "release-1"
revision = "%(old)s"
digest = "%(digest)s"
'''


def check(condition, *text):
    if not condition:
        raise SystemExit("bots: " + " ".join(map(str, text)))


def run(*command, folder=PROJECT, code=0, **more):
    variables = {"HOME": str(HOME), "PATH": f"{NODE.parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "VAULT_SOURCES_ALLOW_LOOPBACK": "true",
                 # Renovate keeps what it has looked up in this folder.
                 "RENOVATE_BASE_DIR": str(WORK / "renovate"), **more}
    ran = subprocess.run([str(word) for word in command], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check(ran.returncode == code, command, "ended with", ran.returncode, "instead of", code, "\n" + ran.stdout[-4000:] + ran.stderr[-4000:])
    return ran.stdout


def git(folder, *arguments):
    return run("git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments, folder=folder).strip()


def commit_skill(text, tag):
    (UPSTREAM / "lint").mkdir(exist_ok=True)
    (UPSTREAM / "lint/SKILL.md").write_text(f"---\nname: lint\ndescription: Checks the style of texts. Use it for drafts and notes.\n---\n{text}\n")
    git(UPSTREAM, "add", "--all")
    git(UPSTREAM, "commit", "--quiet", "-m", text)
    git(UPSTREAM, "tag", tag)
    return git(UPSTREAM, "rev-parse", "HEAD")


def main():
    for folder in (HOME, PROJECT, UPSTREAM):
        folder.mkdir()
    # vault and Renovate write the address with and without this ending.
    (WORK / "skills.git").symlink_to(UPSTREAM)
    (HOME / ".gitconfig").write_text(f'[url "file://{UPSTREAM}"]\n\tinsteadOf = https://github.com/acme/skills\n\tinsteadOf = https://git.example.com/skills\n')
    git(UPSTREAM, "init", "--quiet", "-b", "main")
    old = commit_skill("Read the text.", "v1.1.0")
    lock = PROJECT / "vault.lock"
    entries = {"branch": ("github:acme/skills/lint", "main"), "default": ("github:acme/skills/lint", ""), "tag": ("github:acme/skills/lint", "v1.1.0"),
               "other": ("git:https://git.example.com/skills.git//lint", "main")}
    lock.write_text("schema = 1\n" + "".join(
        f'\n[[skill]]\nname = "{name}"\nsource = "{source}"\n' + (f'ref = "{reference}"\n' if reference else "")
        for name, (source, reference) in entries.items()))
    run(VAULT, "install")
    run(VAULT, "install", "--frozen")
    resolved = lock.read_text()
    check(resolved.count(f'revision = "{old}"') == len(entries), "vault install pinned", resolved)

    # This branch stays where it is.
    git(UPSTREAM, "branch", "release-1")
    new = commit_skill("Read the text twice.", "v1.2.0")
    others = OTHERS % {"old": old, "digest": "0" * 64}
    lock.write_text(resolved + others)
    (PROJECT / "renovate.json").write_text((ROOT / "renovate/vault-lock.json").read_text())
    git(PROJECT, "init", "--quiet")
    git(PROJECT, "add", "--all")
    log = WORK / "renovate.log"
    log.write_text(run(NODE, RENOVATE / "dist/renovate.js", "--platform=local", "--onboarding=false", LOG_LEVEL="debug", LOG_FORMAT="json",
                       RENOVATE_ENABLED_MANAGERS='["custom.regex"]'))
    print(run(NODE, ROOT / "tests/pipelines/renovate.mjs", RENOVATE, log, lock), end="", file=sys.stderr)
    proposed = lock.read_text()
    check(proposed.endswith(others), "Renovate changed an entry that it cannot update:", proposed)
    proposed = proposed.removesuffix(others)
    check(proposed.count(f'revision = "{new}"') == len(entries) and old not in proposed, "Renovate proposed", proposed)
    check('ref = "v1.2.0"' in proposed and "v1.1.0" not in proposed and proposed.count('ref = "main"') == 2, "Renovate proposed", proposed)
    check("digest" not in proposed and "tree" not in proposed, "what the old commit had is still there:", proposed)
    check(not (PROJECT / "pwned").exists(), "the name of a repository was executed")

    # The proposal is not installed unseen: without the digest of a person or pipeline that has fetched and judged it, --frozen stops.
    lock.write_text(proposed)
    run(VAULT, "install", "--frozen", code=3)
    run(VAULT, "install")
    run(VAULT, "install", "--frozen")
    finished = lock.read_text()
    check(finished.count(f'revision = "{new}"') == len(entries) and len(re.findall("^digest = ", finished, re.M)) == len(entries), finished)
    for name in entries:
        check("twice" in (PROJECT / f".vault/skills/{name}/SKILL.md").read_text(), name, "was not updated")
    print("== Renovate proposes newer commits and tags of vault.lock, and vault install completes them", file=sys.stderr)


main()
