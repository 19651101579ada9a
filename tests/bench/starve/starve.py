"""Measures what attackers leave to an honest tenant: see `run` beside this file."""

import argparse
import base64
import json
import multiprocessing
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter

import attack
from harness import PASSWORD, Browser, Home, Machine, Service, free_port, owner_of
from honest import PACES, measure

QUIET_SECONDS = 20
# The targets; docs/limits.md has them with the figures.
WRITES_P95, RATIO, MEMORY_MB = 1.0, 1.5, 128


def cookies(browser):
    return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def invited(service, owner, email):
    """The id of a user whom the owner invites."""
    made = service.api(owner, "POST", "/admin/users", {"email": email, "scopes": ["read", "write"]})
    assert made.status == 201, made.text
    return made.json["id"]


def member(service, owner, slug):
    """A token of a member of the vault."""
    email = f"member-{slug}@example.com"
    service.account(email)
    invited(service, owner, email)
    return service.app.sign_in(email, PASSWORD, vault=slug, prompt="login")


def agent(service, slug):
    return service.app.sign_in(owner_of(slug), PASSWORD, vault=slug, resource=service.url + "/mcp")


class Scene:
    """A server with a vault of the attackers, `busy`, and one of honest people, `quiet`."""

    def __init__(self, database=None):
        # The harness switches off some limits for its scripts; here they have their defaults.
        switched_off = ("REGISTER", "REGISTER_UNUSED", "SIGN_IN", "GRANT", "NAMESPACE")
        fresh = {f"VAULT_LIMIT_{name}": None for name in switched_off}
        self.service = Service(**fresh, **({"VAULT_DATABASE_URL": database} if database else {}))
        self.at = {"port": self.service.port, "url": self.service.url}
        self.owners = {slug: self.service.tenant(slug) for slug in ("busy", "quiet")}
        self.has_sqlite = database is None

    def attacked(self):
        """What the attackers have."""
        service = self.service
        Home(service, "busy").publish("busy", *[f"skill-{n}" for n in range(5)])
        browser, anonymous = Browser(service), Browser(service)
        browser.log_in(owner_of("busy"), PASSWORD)
        form = anonymous.form(anonymous.get("/account"), "/oauth/login")
        return {
            **self.at,
            "owners": [self.owners["busy"]] + [service.owner("busy") for _ in range(2)],
            "member": member(service, self.owners["busy"], "busy"),
            "agent": agent(service, "busy"),
            "cookies": cookies(browser),
            "anonymous": cookies(anonymous),
            "form": {**dict(form["hidden"]), "return_to": "/account"},
            "app": service.app.id,
        }

    def honest(self):
        """What the honest people and machines have."""
        service, owner = self.service, self.owners["quiet"]
        Home(service, "quiet").publish("quiet", *[f"skill-{n}" for n in range(30)])
        code = service.api(owner, "POST", "/admin/vaults/quiet/enrolment-codes", {"uses": 15}).json["code"]
        machines = [Machine(service) for _ in range(15)]
        for machine in machines:
            assert machine.enrol("quiet", code=code).status in (200, 201)
        catalog = machines[0].get("/v/quiet/catalog.json").json
        payload = base64.b64decode(catalog["payload"] + "==").decode(errors="replace")
        paths = [f"/v/quiet/bundles/{digest}.json" for digest in sorted(set(re.findall(r"[0-9a-f]{64}", payload)))]
        return {
            **self.at,
            "owners": [service.owner("quiet") for _ in range(2)],
            "agents": [agent(service, "quiet") for _ in range(2)],
            # Many, since two writes of one record at once are a conflict of the owner with herself.
            "users": [invited(service, owner, f"user-{n}@example.com") for n in range(20)],
            "machines": machines,
            "bundles": [path for path in paths if machines[0].get(path).status == 200],
        }

    def peak_memory_mb(self):
        status = open(f"/proc/{self.service.process.pid}/status").read()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stored(self):
        """Objects, bytes and log rows of the attackers' vault; `None` where the database is not a file."""
        if not self.has_sqlite:
            return None
        database = sqlite3.connect(f"file:{self.service.folder}/vault.db?mode=ro", uri=True)
        record = database.execute("select document from records where partition = 'ns/busy' and key = 'ns'").fetchone()
        namespace = json.loads(record[0])["id"]
        objects = database.execute("select count(*), sum(size) from objects where namespace = ?", [namespace]).fetchone()
        rows = database.execute("select count(*) from records where partition = ?", [f"audit/{namespace}"]).fetchone()
        database.close()
        return (*objects, *rows)


def under_attack(target, honest, seconds, parts):
    """The honest times while both attackers attack, and the answers that those got."""
    answers, end = multiprocessing.Queue(), time.time() + seconds
    attackers = [
        multiprocessing.Process(target=attack.run, args=(who, target, end, parts, answers)) for who in (attack.Tenant, attack.Stranger)
    ]
    for process in attackers:
        process.start()
    time.sleep(1)
    times = measure(honest, seconds - 2)
    counts = Counter()
    for _ in attackers:
        counts.update(answers.get(timeout=200))
    for process in attackers:
        process.join()
    return times, counts


def cell(times):
    return f"{times.share():.0%}, {times.percentile(0.5) * 1e3:.0f} / {times.percentile(0.95) * 1e3:.0f}"


def label(name):
    """The name of a row in docs/limits.md."""
    return {"machine": "machines", "agent": "agents"}.get(name, name)


def report(database, before, attacked, control):
    print("\nShare answered, and p50 / p95 in milliseconds; the control is the same attack on another server:\n")
    print(f"| {database} | before | attacked | control |\n|---|---|---|---|")
    for name in PACES:
        print(f"| {label(name)} | {cell(before[name])} | {cell(attacked[name])} | {cell(control[name])} |")
    for name in PACES:
        if attacked[name].refused:
            print(f"refused while attacked: {name} {attacked[name].refused}")


def judge(attacked, control, memory):
    """The targets of docs/limits.md, each with what missed it."""
    writes = attacked["owner writes"]
    reads = {name: times for name, times in attacked.items() if name != "owner writes"}
    # Below 20 ms a ratio says nothing about a machine with other work.
    ratios = {name: times.percentile(0.95) / max(0.02, control[name].percentile(0.95)) for name, times in reads.items()}
    slow_writes = [f"{writes.share():.1%} answered, p95 {writes.percentile(0.95) * 1e3:.0f} ms"]
    return {
        "all writes of the owner are answered, 95 % within a second": slow_writes
        if writes.share() < 1 or writes.percentile(0.95) > WRITES_P95
        else [],
        "all reads are answered": [f"{label(name)} {times.share():.1%}" for name, times in reads.items() if times.share() < 1],
        f"p95 of the reads is at most {RATIO} times that of the control": [
            f"{label(name)} {ratio:.2f} times" for name, ratio in ratios.items() if ratio > RATIO
        ],
        f"{MEMORY_MB} MB of memory": [f"{memory:.0f} MB"] if memory > MEMORY_MB else [],
    }


def run(database, address, seconds, parts):
    """Measures over one database; the missed targets."""
    scene, other = Scene(address[0] if address else None), Scene(address[1] if address else None)
    target, honest, elsewhere = scene.attacked(), scene.honest(), other.honest()
    before = measure(honest, QUIET_SECONDS)
    attacked, counts = under_attack(target, honest, seconds, parts)
    memory, stored = scene.peak_memory_mb(), scene.stored()
    control, _ = under_attack(target, elsewhere, seconds, parts)
    report(database, before, attacked, control)
    print("\nattackers:", ", ".join(f"{name} {status} × {number}" for (name, status), number in sorted(counts.items(), key=str)))
    print(f"peak memory of the server: {memory:.0f} MB; load of the machine: {open('/proc/loadavg').read().split()[0]}")
    if stored:
        print(f"stored for the attackers: {stored[0]} objects, {stored[1] / 1e6:.0f} MB, {stored[2]} log rows", flush=True)
    print("\n| Target | Met |\n|---|---|")
    missed = []
    for wanted, reasons in judge(attacked, control, memory).items():
        print(f"| {wanted} | {'no: ' + ', '.join(reasons) if reasons else 'yes'} |", flush=True)
        missed += reasons
    scene.service.stop()
    other.service.stop()
    return missed


class Cluster:
    """A PostgreSQL cluster with two databases, in a folder that ends with it."""

    def __init__(self, binaries):
        self.folder, self.port = tempfile.mkdtemp(prefix="vault-starve-"), free_port()
        self.binaries, self.user = binaries, None
        if os.getuid() == 0:
            # PostgreSQL refuses to run as root.
            self.user = "nobody"
            shutil.chown(self.folder, self.user)
        self.call("initdb", "-D", self.folder, "-U", "vault", "-A", "trust", "--no-sync")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self.call("pg_ctl", "-D", self.folder, "-w", "-o", options, "-l", f"{self.folder}/log", "start")
        for name in ("one", "other"):
            self.call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "vault", name)

    def call(self, program, *arguments):
        path = f"{self.binaries}/{program}" if self.binaries else program
        # Without pipes: the server that pg_ctl starts would keep them open.
        subprocess.run([path, *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/", user=self.user)

    def addresses(self):
        return [f"postgres://vault@127.0.0.1:{self.port}/{name}" for name in ("one", "other")]

    def stop(self):
        self.call("pg_ctl", "-D", self.folder, "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    every = [name for names in attack.ATTACKS.values() for name in names]
    options = argparse.ArgumentParser(description=__doc__)
    programs = os.environ.get("POSTGRES_PROGRAMS", "")
    help_text = "measure over PostgreSQL too; FOLDER has its programs"
    options.add_argument("--postgres", nargs="?", const=programs, metavar="FOLDER", help=help_text)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--parts", default=",".join(every), help="attacks: " + ", ".join(every))
    given = options.parse_args()
    parts = given.parts.split(",")
    missed = run("SQLite", None, given.seconds, parts)
    if given.postgres is not None:
        cluster = Cluster(given.postgres)
        try:
            missed += run("PostgreSQL", cluster.addresses(), given.seconds, parts)
        finally:
            cluster.stop()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
