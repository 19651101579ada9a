"""Takes out each check of the reader and the device, one at a time, and names the first vector, or else the first host of
tests/vectors/servers.py or story, that notices: `mutations.py [--write] [CHECK]...`, some minutes. With --write it writes
tests/vectors/checks.json, which says of each numbered check of the pages where it is shown. Exit: 0 if every check is noticed or is implied
by another one, 1 if not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import device
import reader
import vectors

HERE = Path(__file__).resolve().parent
# Another check refuses the same with the same word, so that no vector can tell.
IMPLIED = {
    "K2": "no y from p to p + 18 is that of a point of good order (K4, K5)",
    "K3": "x is 0 for two points alone, which are of small order (K4)",
    "K5 point": "the arithmetic of a reader gives what is no point no good order (K5)",
    "S1": "no library verifies another length",
    "S2": "OpenSSL refuses S + L itself",
    "E8": "E4 and E7 leave each key one entry",
    "root threshold": "R9 needs as many signatures as the threshold says",
    "manifest name": "M6 has the same error, and no catalog names such a skill",
    "C1": "a client stops reading at the ceiling",
    "M2": "an unknown signer counts nowhere (M5)",
    "A2": "a stored release is not its own previous one (A4)",
    "H3": "a header that is not there has no value to verify",
    "parts count": "B5 counts the parts",
    "part size": "B5 compares the sizes",
    "integer": "J7 gives any other number a type that no table has",
    "status": "any state but active is refused",
    "base64": "B8 writes each part anew, and a device reports either as bundle_refused",
    "B1 parts": "B5 holds all parts to the sizes of the files, which M3 bounds",
    "B5 hash": "B6 hashes the whole file",
}
# What devices need not read, so that no vector has it.
TESTED = {"index lists": "a test of the service, an_index_of_other_skills_is_not_published"}
# Numbered checks; all others are rules of tables, and what the words of a row have beside them.
ROW = re.compile(r"^[A-Z][0-9]+(?= |$)")


def rules(kind, name=""):
    """The checks that the rules of lists are, by the name of the member."""
    if isinstance(kind, dict):
        if {"least", "most"} & {*kind}:
            yield f"{name} count"
        yield from (f"{name} {rule}" for rule in ("sorted", "unique") if rule in kind)
        for member, one in kind.items():
            yield from rules(one, name if member in ("list", "optional", "or null") else member)


def checks():
    """The names of all checks, in the order of the files."""
    code = "".join((HERE / name).read_text() for name in ("reader.py", "device.py", "vectors.py", "skill_md.py"))
    found = re.findall(r'\bneed\("([^"]+)"|"([^"]+)" (?:not )?in OFF|from_base64\(.*?, "([^"]+)"\)', code)
    computed = ["C22", "C22 hash", "C24", "C24 hash", "J5 map", "J5", *(name for name in reader.TYPES if name != "program"), *reader.INTEGERS, *reader.GIVEN["paths"]]
    names = [name for names in found for name in names if name] + computed
    for table in reader.TABLES.values():
        names += rules(table)
    return dict.fromkeys(names)


def without(check, action):
    """What `action` prints, and whether it succeeds, in a process in which this check is taken out."""
    source, sink = os.pipe()
    process = os.fork()
    if process == 0:
        reader.OFF.add(check)
        if check[0] in "KS":
            reader.check_key.cache_clear()
            reader.verifies.cache_clear()
        os.close(source)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        try:
            good = action()
        except SystemExit as end:
            good = not end.code
        except Exception as fault:
            good = bool(print(f"an exception: {fault!r}"))
        sys.stdout.flush()
        os._exit(0 if good else 1)
    os.close(sink)
    with open(source) as said:
        text = said.read()
    return text, os.waitpid(process, 0)[1] == 0


def play_vectors():
    vectors.only_first = True
    vectors.run_cases()
    return True


def noticed(check):
    """Where it is seen that this check is missing; None if nowhere."""
    players = [play_vectors]
    for options in (["--servers", "--first"], []):
        command = [sys.executable, str(vectors.VECTORS / "run"), *options, sys.executable, str(HERE / "mutations.py"), "--device", check]
        players.append(lambda command=command: subprocess.run(command).returncode == 0)
    for player in players:
        text, good = without(check, player)
        if not good:
            line = next((line for line in text.splitlines() if line.strip()), "")
            case = re.match(r"(\S+\.json) (.*?): |failed  (.*?): ends with", line)
            if not case:
                return "an exception"
            if case[1]:
                return f"{case[1]}: {case[2]}"
            return f"servers.py: {case[3]}" if player is players[1] else f"roots/stories.json: {case[3].split()[0]}"
    return None


def main(words):
    if words[:1] == ["--device"]:
        reader.OFF.add(words[1])
        return device.main(*words[2:])
    chosen, missed, implied, shown = [word for word in words if word != "--write"], [], 0, {}
    if not vectors.main():  # It also fills what is remembered, for all that follow.
        return 1
    vectors.counts.clear()
    for check in chosen or checks():
        where = noticed(check) or TESTED.get(check)
        print(f"{check:20}", where or f"implied: {IMPLIED[check]}" if where or check in IMPLIED else "NOTHING NOTICES", flush=True)
        if not where and check not in IMPLIED:
            missed.append(check)
        implied += not where and check in IMPLIED
        row = ROW.match(check)
        if row and where and where != "an exception":
            shown.setdefault(row[0], where)
    total = len(chosen or checks())
    print(f"{total} checks: {total - implied - len(missed)} are noticed, {implied} are implied by others, {len(missed)} are not noticed:", ", ".join(missed))
    if "--write" in words:
        path = vectors.VECTORS / "checks.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **shown}, indent=1, ensure_ascii=False) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
