"""Takes out each check of the reader and the device, one at a time, and names the first vector, or else the first host of tests/vectors/servers.py or story,
that notices. Run by hand, some minutes: `mutations.py [--write] [CHECK]...`. With --write it writes tests/vectors/checks.json, which says of each numbered check
of the pages where it is shown."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "vectors"
DEVICE = [sys.executable, str(HERE / "device.py")]
PLAYERS = (["vectors.py", "--first"], [str(VECTORS / "run"), "--servers", "--first", *DEVICE], [str(VECTORS / "run"), *DEVICE])
# Another check refuses the same with the same word, so that no vector can tell.
IMPLIED = {
    "K2": "no y from p to p + 18 is that of a point of good order (K4, K5)",
    "K3": "x is 0 for two points alone, which are of small order (K4)",
    "K5 point": "the arithmetic of a reader gives what is no point no good order (K5)",
    "S1": "no library verifies another length",
    "S2": "OpenSSL refuses S + L itself",
    "E8": "E4 and E7 leave each key one entry",
    "R1 number": "no more than 591 envelopes fit 512 KiB (R3)",
    "root version": "R1 and R10 bound the number",
    "C1": "a client stops reading at the ceiling",
    "M2": "an unknown signer counts nowhere (M5)",
    "A2": "a stored release is not its own previous one (A4)",
    "H3": "a header that is not there has no value to verify",
    "B1 encoding": "B4 gives the same word",
    "B1 parts": "B5 counts the parts",
    "B5 hash": "B6 hashes the whole file",
    "B1 part size": "B5 compares the sizes",
}
# Checks that no numbered row of the pages has: rules of tables, and what the words of a row have beside them.
ROW = re.compile(r"^[A-Z][0-9]+(?= |$)")


def checks():
    """The names of all checks, in the order of the files."""
    code = "".join((HERE / name).read_text() for name in ("formats.py", "objects.py", "device.py", "vectors.py", "skill_md.py"))
    found = re.findall(r'\bneed\("([^"]+)"|"([^"]+)" (?:not )?in OFF|(?:pattern|standard_base64)\(.*?, "([^"]+)"\)|checked\("([^"]+)"', code)
    computed = ["types", "E3", "C22", "C22 hash", "C24", "C24 hash", "index sorted", "profile sorted"]
    return dict.fromkeys([name for names in found for name in names if name] + computed)


def noticed(check):
    """Where it is seen that this check is missing; None if nowhere."""
    for player in PLAYERS:
        done = subprocess.run([sys.executable, *player], cwd=HERE, env={**os.environ, "CHECKS_OFF": check}, capture_output=True, text=True)
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            case = re.match(r"(\S+\.json) (.*?): |failed  (.*?): ends with", lines[0] if lines else "")
            if not case:
                return "an exception"
            if case[1]:
                return f"{case[1]}: {case[2]}"
            return f"servers.py: {case[3]}" if "--servers" in player else f"roots/stories.json: {case[3].split()[0]}"
    return None


def main(words):
    chosen, missed, rows = [word for word in words if word != "--write"], [], {}
    for check in chosen or checks():
        where = noticed(check)
        print(f"{check:20}", where or f"implied: {IMPLIED[check]}" if where or check in IMPLIED else "NOTHING NOTICES", flush=True)
        if not where and check not in IMPLIED:
            missed.append(check)
        row = ROW.match(check)
        if row and where and where != "an exception":
            rows.setdefault(row[0], where)
    print(f"{len(missed)} of {len(chosen or checks())} checks are not noticed:", ", ".join(missed))
    if "--write" in words:
        path = VECTORS / "checks.json"
        known = json.loads(path.read_bytes()) if path.exists() else {}
        path.write_text(json.dumps({**known, **rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
