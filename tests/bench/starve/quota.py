"""Measures how much a tenant stores beyond its quota while it uploads as fast as it can: see `run` beside this file."""

import argparse
import asyncio
import json
import sqlite3
import sys
import time

import attack
from harness import Service

# Small, so that a few seconds reach it.
QUOTA = {"bytes": 64 * 1024**2, "objects": 20_000}
PARTS = ("packs", "blobs")


def stored(service, slug):
    """The bytes and objects of a vault that lie in the database, whatever the service has counted."""
    database = sqlite3.connect(f"file:{service.folder}/vault.db?mode=ro", uri=True)
    record = database.execute("select document from records where partition = ? and key = 'ns'", (f"ns/{slug}",)).fetchone()
    namespace = json.loads(record[0])["id"]
    found = database.execute("select coalesce(sum(size), 0), count(*) from objects where namespace = ?", (namespace,)).fetchone()
    database.close()
    return dict(zip(("bytes", "objects"), found))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=60)
    seconds = options.parse_args().seconds
    service = Service(VAULT_LIMIT_GRANT=None, VAULT_LIMIT_NAMESPACE=None)
    owners = [service.tenant("busy")] + [service.owner("busy") for _ in range(2)]
    limited = service.api(service.operator(), "POST", "/admin/operator/namespaces/busy/quota", QUOTA)
    assert limited.status == 200, limited.text
    target = {"port": service.port, "url": service.url, "owners": owners}
    counts = asyncio.run(attack.attack_all(attack.Tenant, target, time.time() + seconds, PARTS))
    held = stored(service, "busy")
    counted = service.api(owners[0], "GET", "/admin/vaults/busy").json["usage"]
    service.stop()
    print("answers:", ", ".join(f"{name} {status} × {number}" for (name, status), number in sorted(counts.items(), key=str)))
    print("| what | quota | stored | beyond | counted |\n|---|---|---|---|---|")
    for what, limit in QUOTA.items():
        print(f"| {what} | {limit} | {held[what]} | {max(0, held[what] - limit)} | {counted[what]} |")
    missed = [f"{what} beyond the quota" for what, limit in QUOTA.items() if held[what] > limit]
    missed += [f"{what} that are not counted" for what in QUOTA if held[what] > counted[what]]
    if not any(status == 413 for _, status in counts):
        missed.append("the quota was never reached")
    for line in missed:
        print(f"missed: {line}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
