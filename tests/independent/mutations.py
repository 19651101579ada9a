"""Takes out each check of the reader, one at a time, and names the first vector that notices. Run by hand, some minutes: `mutations.py [CHECK]...`."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def checks():
    """The names of all checks, in the order of the files."""
    code = "".join((HERE / name).read_text() for name in ("formats.py", "objects.py", "device.py", "vectors.py", "skill_md.py"))
    found = re.findall(r'\bneed\("([^"]+)"|"([^"]+)" (?:not )?in OFF|(?:pattern|standard_base64)\(.*?, "([^"]+)"\)|checked\("([^"]+)"', code)
    computed = ["types", "E3", "C22", "C22 hash", "C24", "C24 hash", "index sorted", "profile sorted"]
    return dict.fromkeys([name for names in found for name in names if name] + computed)


def main(chosen):
    missed = []
    for check in chosen or checks():
        command = [sys.executable, str(HERE / "vectors.py"), "--first"]
        done = subprocess.run(command, env={**os.environ, "CHECKS_OFF": check}, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).strip().splitlines()
        print(f"{check:20}", lines[-1][:150] if done.returncode else "NO VECTOR NOTICES", flush=True)
        if not done.returncode:
            missed.append(check)
    print(f"{len(missed)} of {len(chosen or checks())} checks are not noticed:", ", ".join(missed))


if __name__ == "__main__":
    main(sys.argv[1:])
