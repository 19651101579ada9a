"""Measures how many rounds of garbage collection another tenant waits behind one with 900,000 unused objects: see `run` beside this file."""

import hashlib
import json
import sqlite3
import sys
import time

from harness import Service

OBJECTS = 900_000
# The target, as docs/limits.md states it.
ROUNDS = 2
# The first round begins after one minute, and each further one five minutes after the last.
WAIT_SECONDS = 60 + ROUNDS * (5 * 60 + 30)
MARKED_SECONDS_AGO = 2 * 24 * 3600


def digests(seed, count):
    return (hashlib.sha256(f"{seed} {number}".encode()).digest() for number in range(count))


def marked_at():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - MARKED_SECONDS_AGO))


class Stored:
    """The database of the service, beside the service."""

    def __init__(self, service):
        self.database = sqlite3.connect(f"{service.folder}/vault.db", timeout=60)

    def namespace(self, slug):
        key = ("ns/" + slug,)
        row = self.database.execute("select document from records where partition = ? and key = 'ns'", key).fetchone()
        return json.loads(row[0])["id"]

    def add_garbage(self, slug, count):
        """Objects that no release names, with marks whose grace period is over."""
        namespace, mark = self.namespace(slug), json.dumps({"doomed_at": marked_at(), "deleting_since": None})
        objects = ((namespace, "bundles", digest, 1, b"x") for digest in digests(slug, count))
        self.database.executemany("insert into objects (namespace, class, digest, size, bytes) values (?, ?, ?, ?, ?)", objects)
        marks = ((f"doomed/{namespace}", f"bundles/{digest.hex()}", 1, mark) for digest in digests(slug, count))
        self.database.executemany("insert into records (partition, key, revision, document) values (?, ?, ?, ?)", marks)
        self.database.commit()

    def count_garbage(self, slug):
        key = (self.namespace(slug),)
        return self.database.execute("select count(*) from objects where namespace = ?", key).fetchone()[0]

    def rounds(self):
        """The runs of background work that have ended, by the changes of their record."""
        row = self.database.execute("select revision from records where partition = 'work' and key = 'background'").fetchone()
        return row[0] if row else None


def main():
    service = Service()
    # The busy one comes first: both were never visited, and names decide then.
    for slug in ("busy", "quiet"):
        service.tenant(slug)
    stored = Stored(service)
    stored.add_garbage("busy", OBJECTS)
    stored.add_garbage("quiet", 1)
    print(f"{OBJECTS} objects of one tenant and 1 of another wait for their collection", flush=True)
    begun, rounds, last = time.time(), 0, stored.rounds()
    while time.time() < begun + WAIT_SECONDS and rounds <= ROUNDS:
        # The look at the objects first: what is gone now is gone in the round that is counted next at the latest.
        left, now = stored.count_garbage("quiet"), stored.rounds()
        if now != last:
            rounds, last = rounds + 1, now
            print(f"round {rounds}: {stored.count_garbage('busy')} and {stored.count_garbage('quiet')} are left", flush=True)
        if left == 0:
            break
        time.sleep(1)
    is_collected = stored.count_garbage("quiet") == 0
    waited = max(rounds, 1)
    print(f"the other tenant's object was {'collected within' if is_collected else 'not collected in'} {waited} rounds")
    service.stop()
    sys.exit(0 if is_collected and waited <= ROUNDS else 1)


if __name__ == "__main__":
    main()
