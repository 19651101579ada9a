"""Checks an OCI image layout and unpacks its root folder: image.py FILE.oci.tar FOLDER."""

import gzip
import hashlib
import json
import pathlib
import sys
import tarfile

source, folder = map(pathlib.Path, sys.argv[1:])
layout, root = folder / "layout", folder / "root"
root.mkdir(parents=True)
with tarfile.open(source) as tar:
    tar.extractall(layout, filter="data")


def blob(descriptor):
    """The bytes that a descriptor names, with the right hash and size."""
    kind, digest = descriptor["digest"].split(":")
    content = (layout / "blobs" / kind / digest).read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest and len(content) == descriptor["size"], descriptor
    return content


assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
(entry,) = json.loads((layout / "index.json").read_text())["manifests"]
manifest = json.loads(blob(entry))
config = json.loads(blob(manifest["config"]))
# `podman load` takes name and tag from here.
version = config["config"]["Labels"]["org.opencontainers.image.version"]
assert entry["annotations"]["org.opencontainers.image.ref.name"] == f"vault-skills:{version}", entry
assert config["config"]["User"].split(":")[0] not in ("", "0", "root"), "the image runs as root"
(layer,) = manifest["layers"]
packed = blob(layer)
plain = gzip.decompress(packed)
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
(folder / "layer.tar").write_bytes(plain)
with tarfile.open(folder / "layer.tar") as tar:
    tar.extractall(root, filter="tar", numeric_owner=True)
names = {str(path.relative_to(root)) for path in root.rglob("*")}
for name in ("usr/bin/vault", "etc/ssl/certs/ca-certificates.crt", "etc/passwd", "data", "tmp"):
    assert name in names, f"the image has no {name}"
assert not any(name.startswith(("bin/", "usr/bin/sh", "usr/bin/bash")) for name in names), "the image has a shell"
print(f"{len(names)} files, {len(plain):,} bytes unpacked", file=sys.stderr)
