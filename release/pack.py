#!/usr/bin/env python3
"""Packs the files of a release. The same input gives the same bytes: names are sorted, times are that of the commit, owners are root.

  pack.py archive  STAGE OUT                 OUT: .tar.gz of the folder STAGE, under its name
  pack.py npm      STAGE OUT VERSION PLATFORM  packages for npm: the one for this platform, and the one that finds it
  pack.py wheel    STAGE OUT VERSION PLATFORM  a wheel for PyPI
  pack.py image    ROOT OUT VERSION PLATFORM   an OCI image layout of the folder ROOT, and its .tar
  pack.py zip      PROGRAM OUT               a zip for AWS Lambda
  pack.py sbom     FILE                      takes random and changing members out of a CycloneDX document
  pack.py statement OUT VERSION PLATFORM     the provenance statement of the files in OUT
  pack.py sums     OUT                       SHA256SUMS of the files in OUT

SOURCE_DATE_EPOCH is the time of all members, in seconds since 1970.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile
import time
import zipfile

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
# How hard to compress, 1 to 9; a test need not pack small.
LEVEL = int(os.environ.get("PACK_LEVEL", "9"))
# The name of vault's packages: `vault` belongs to others on npm and PyPI.
NAME = "vault-skills"
SUMMARY = "Scans, signs and distributes skills for AI agents"
LICENCE = "Apache-2.0"
# Platform: system and processor as Node names them, as PyPI tags them, as OCI names them.
PLATFORMS = {
    "x86_64-unknown-linux-gnu": (("linux", "x64"), "manylinux_2_17_x86_64.manylinux2014_x86_64", ("linux", "amd64")),
    "aarch64-unknown-linux-gnu": (("linux", "arm64"), "manylinux_2_17_aarch64.manylinux2014_aarch64", ("linux", "arm64")),
    "x86_64-apple-darwin": (("darwin", "x64"), "macosx_11_0_x86_64", None),
    "aarch64-apple-darwin": (("darwin", "arm64"), "macosx_11_0_arm64", None),
}
# Members of the OCI image.
IMAGE_USER = 65532
LAUNCHER = """#!/usr/bin/env node
// Runs the program of the package for this platform. No script runs at installation.
"use strict";
const { spawn } = require("node:child_process");
const name = `vault-skills-${process.platform}-${process.arch}`;
let path;
try {
  path = require.resolve(`${name}/bin/vault`);
} catch {
  console.error(`vault: there is no package ${name}, or npm left out optional dependencies`);
  process.exit(1);
}
const program = spawn(path, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to both; other programs send signals to this one alone.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => program.kill(signal));
program.on("error", (error) => {
  console.error(`vault: ${error.message}`);
  process.exit(1);
});
program.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code ?? 1);
  }
});
"""


def write_tar(out, members, owners={}):
    """Writes (name, content, mode) to a tar stream: bytes make a file, text a symbolic link to it, None a folder. `owners` has the numbers of
    users by name of a member; the rest belongs to root."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.mtime, info.mode = EPOCH, mode
            info.uid = info.gid = owners.get(name, 0)
            if content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def tar_gz(members, owners={}):
    plain = io.BytesIO()
    write_tar(plain, members, owners)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=LEVEL) as out:
        out.write(plain.getvalue())
    return packed.getvalue(), plain.getvalue()


def members_of(folder, prefix):
    """The files and folders below a folder, sorted, with modes 755 and 644; a symbolic link's content is its target as str."""
    paths = sorted(folder.rglob("*"), key=lambda path: path.as_posix())
    for path in paths:
        name = prefix + path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield name, os.readlink(path), 0o777
        elif path.is_dir():
            yield name, None, 0o1777 if name == "tmp" else 0o755
        else:
            yield name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644


def write_zip(out, members):
    with zipfile.ZipFile(out, "w") as packed:
        for name, content, mode in members:
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.create_system, entry.external_attr = 3, (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content, compresslevel=LEVEL)


def archive(stage, out):
    stage = pathlib.Path(stage)
    prefix = stage.name + "/"
    pathlib.Path(out).write_bytes(tar_gz([(stage.name, None, 0o755), *members_of(stage, prefix)])[0])


def notices(stage):
    return [(name, (stage / name).read_bytes()) for name in ("LICENSE", "NOTICE", "THIRD-PARTY-NOTICES.md")]


def npm(stage, out, version, platform):
    stage, out = pathlib.Path(stage), pathlib.Path(out)
    system, processor = PLATFORMS[platform][0]
    readme = (stage / "README.md").read_bytes()

    def package(name, manifest, files):
        manifest = {"name": name, "version": version, "description": SUMMARY, "license": LICENCE, **manifest}
        text = (json.dumps(manifest, indent=2) + "\n").encode()
        rows = [("package.json", text, 0o644), ("README.md", readme, 0o644), *files]
        rows += [(name, content, 0o644) for name, content in notices(stage)]
        data = tar_gz([("package/" + row[0], *row[1:]) for row in sorted(rows)])[0]
        (out / f"{name}-{version}.tgz").write_bytes(data)

    program = (stage / "vault").read_bytes()
    libc = {"libc": ["glibc"]} if system == "linux" else {}
    package(f"{NAME}-{system}-{processor}", {"os": [system], "cpu": [processor], **libc}, [("bin/vault", program, 0o755)])
    # The package without a program is the same for all platforms: one of them makes it.
    if platform != "x86_64-unknown-linux-gnu":
        return
    optional = {f"{NAME}-{s}-{p}": version for (s, p), _, _ in PLATFORMS.values()}
    package(
        NAME,
        {"bin": {"vault": "bin/vault.js"}, "engines": {"node": ">=18"}, "optionalDependencies": optional},
        [("bin/vault.js", LAUNCHER.encode(), 0o755)],
    )


def wheel(stage, out, version, platform):
    stage, out = pathlib.Path(stage), pathlib.Path(out)
    module, tag = NAME.replace("-", "_"), PLATFORMS[platform][1]
    # PEP 440 writes a pre-release without hyphen: 1.0.0-rc.1 is 1.0.0rc1.
    number, _, suffix = version.partition("-")
    version = number + suffix.replace(".", "")
    info = f"{module}-{version}.dist-info"
    readme = (stage / "README.md").read_text()
    metadata = (
        f"Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: {LICENCE}\n"
        + "".join(f"License-File: {name}\n" for name, _ in notices(stage))
        + f"Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    rows = [
        (f"{module}-{version}.data/scripts/vault", (stage / "vault").read_bytes(), 0o755),
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: vault release\nRoot-Is-Purelib: false\n{tags}".encode(), 0o644),
        *[(f"{info}/licenses/{name}", content, 0o644) for name, content in notices(stage)],
    ]
    digest = lambda content: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content, _ in rows) + f"{info}/RECORD,,\n"
    rows.append((f"{info}/RECORD", record.encode(), 0o644))
    write_zip(out / f"{module}-{version}-py3-none-{tag}.whl", rows)


def image(root, out, version, platform):
    root, out = pathlib.Path(root), pathlib.Path(out)
    system, processor = PLATFORMS[platform][2]
    layer, plain = tar_gz(members_of(root, ""), {"data": IMAGE_USER})
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    blobs = {}

    def blob(content, kind):
        if not isinstance(content, bytes):
            content = json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": processor,
        "os": system,
        "created": created,
        "config": {
            "User": f"{IMAGE_USER}:{IMAGE_USER}",
            "Entrypoint": ["/usr/bin/vault"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin", "HOME=/data", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "WorkingDir": "/data",
            "Volumes": {"/data": {}},
            "ExposedPorts": {"8080/tcp": {}},
            "Labels": {"org.opencontainers.image.title": "vault", "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": LICENCE, "org.opencontainers.image.description": SUMMARY},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
        "history": [{"created": created, "created_by": "release/build"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(config, "config.v1+json"),
        "layers": [blob(layer, "layer.v1.tar+gzip")],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            **blob(manifest, "manifest.v1+json"),
            "platform": {"architecture": processor, "os": system},
            # The name under which `podman load` keeps it; with a version alone that would be the image's whole name.
            "annotations": {"org.opencontainers.image.ref.name": f"{NAME}:{version}"},
        }],
    }
    files = [("blobs", None, 0o755), ("blobs/sha256", None, 0o755)]
    files += [(f"blobs/sha256/{digest}", content, 0o644) for digest, content in sorted(blobs.items())]
    files += [("index.json", json.dumps(index, sort_keys=True).encode(), 0o644),
              ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644)]
    with open(out / f"vault-{version}-{platform}.oci.tar", "wb") as tar:
        write_tar(tar, files)


def sbom(path):
    path = pathlib.Path(path)
    document = json.loads(path.read_text())
    document.pop("serialNumber", None)
    document.get("metadata", {})["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    text = json.dumps(document, indent=1, sort_keys=True)
    # The name of the folder in which it was made.
    text = text.replace(os.environ["RELEASE_ROOT"], "/vault")
    path.write_text(text + "\n")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def statement(out, version, platform):
    out = pathlib.Path(out)
    inputs = json.loads(os.environ["RELEASE_INPUTS"])
    name = f"vault-{version}-{platform}.provenance.json"
    made = [path for path in sorted(out.iterdir()) if path.is_file() and path.name not in (name, "SHA256SUMS", "SHA256SUMS.sig")]
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in made],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:vault:release-build:1",
                "externalParameters": {"platform": platform, "version": version},
                "internalParameters": {"tools": inputs["tools"]},
                "resolvedDependencies": [
                    {"uri": inputs["source"], "digest": {"gitCommit": inputs["commit"]}},
                    {"uri": "file:Cargo.lock", "digest": {"sha256": inputs["lock"]}},
                    *[{"uri": uri, "digest": {"sha256": digest}} for uri, digest in sorted(inputs["packages"].items())],
                ],
            },
            "runDetails": {"builder": {"id": inputs["builder"]}},
        },
    }
    (out / name).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def sums(out):
    out = pathlib.Path(out)
    names = sorted(path.name for path in out.iterdir() if path.is_file() and not path.name.startswith("SHA256SUMS"))
    (out / "SHA256SUMS").write_text("".join(f"{sha256(out / name)}  {name}\n" for name in names))


def lambda_zip(program, out):
    write_zip(out, [("bootstrap", pathlib.Path(program).read_bytes(), 0o755)])


COMMANDS = {"archive": (archive, 2), "npm": (npm, 4), "wheel": (wheel, 4), "image": (image, 4), "zip": (lambda_zip, 2),
            "sbom": (sbom, 1), "statement": (statement, 3), "sums": (sums, 1)}

if __name__ == "__main__":
    command, count = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if command is None or len(sys.argv) - 2 != count:
        sys.exit(__doc__)
    command(*sys.argv[2:])
