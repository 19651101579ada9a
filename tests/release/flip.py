"""Changes one byte after another of a signed release: flip.py RELEASE CHECKOUT PROGRAM.

install.sh of CHECKOUT and `vault version --verify` of PROGRAM must refuse each change. All bytes of the signature are changed; of the other files
every so many that some 200 changes remain, so that it takes a minute.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

release, checkout, program = map(pathlib.Path, sys.argv[1:])
archive = next(release.glob("vault-*.tar.gz"))
statement = next(release.glob("vault-*.provenance.json"))
signature = release / "SHA256SUMS.sig"


def accepted_by(place):
    """Who accepts the release in a folder."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "VAULT_RELEASES": str(place), "VAULT_NO_SETUP": "1"}
        run = lambda *command: subprocess.run(command, env=environment, capture_output=True).returncode == 0
        if run("sh", str(checkout / "install.sh")):
            yield "install.sh"
        if run(str(program), "version", "--verify", str(place / archive.name), "--signers", str(checkout / "release/allowed_signers")):
            yield "vault version --verify"


def changes():
    """(file, index, bit) of each change."""
    for path in (signature, release / "SHA256SUMS", statement, archive):
        size = path.stat().st_size
        step = 1 if path == signature else max(1, size // (10 if path == archive else 60))
        for index in range(0, size, step):
            yield path, index, 0
    # The last byte of each file, and other bits of the signature.
    for path in (signature, release / "SHA256SUMS", statement, archive):
        yield path, path.stat().st_size - 1, 2


def try_change(change):
    path, index, bit = change
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for file in (archive, statement, signature, release / "SHA256SUMS"):
            if file != path:
                (place / file.name).symlink_to(file)
        content = bytearray(path.read_bytes())
        content[index] ^= 1 << bit
        (place / path.name).write_bytes(content)
        return [f"{who} accepts {path.name} with byte {index} changed" for who in accepted_by(place)]


tried = list(changes())
with ThreadPoolExecutor(os.cpu_count()) as pool:
    wrong = [line for lines in pool.map(try_change, tried) for line in lines]
print("\n".join(wrong))
print(f"{len(tried)} changes, {len(wrong)} accepted", file=sys.stderr)
sys.exit(1 if wrong else 0)
