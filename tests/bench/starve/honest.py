"""The honest tenant: machines, an owner, agents and the sign-in page, each at its own pace. A request is due at a fixed time, and its time counts
from there, so that a server that stalls cannot slow the measure down."""

import asyncio
import json
import random
import time

from wire import JSON, MCP, Connection, bearer, tool_call

# Requests a second.
PACES = {"machine": 30, "owner reads": 5, "owner writes": 5, "agent": 10, "sign-in page": 5}
GRACE = 30


class Times:
    """The answered requests of one kind."""

    def __init__(self):
        self.due, self.seconds, self.refused = 0, [], {}

    def share(self):
        return len(self.seconds) / max(1, self.due)

    def percentile(self, part):
        ordered = sorted(self.seconds)
        return ordered[int(len(ordered) * part)] if ordered else float("inf")


class Honest:
    """The people and machines of the vault `quiet`."""

    def __init__(self, target):
        self.target, self.signed, self.turn, self.written = target, {}, 0, 0

    def sign(self, machine, path):
        # One signature a second for each machine and path: more would be the same bytes.
        key = (machine.public, path, int(time.time()))
        if key not in self.signed:
            self.signed = {held: value for held, value in self.signed.items() if held[2] >= key[2] - 1}
            self.signed[key] = machine.sign("GET", path)
        return self.signed[key]

    async def machine(self, connection):
        self.turn += 1
        machine = self.target["machines"][self.turn % len(self.target["machines"])]
        paths = self.target["bundles"]
        path = "/v/quiet/catalog.json" if self.turn % 20 == 0 else paths[self.turn % len(paths)]
        return await connection.send("GET", path, self.sign(machine, path) + [("X-Forwarded-For", "203.0.113.9")])

    async def owner_reads(self, connection):
        return await connection.send("GET", "/admin/users", bearer(self.target["owners"][0], "203.0.113.10"))

    async def owner_writes(self, connection):
        self.written += 1
        users = self.target["users"]
        path = f"/admin/users/{users[self.written % len(users)]}/profile"
        body = json.dumps({"profile": f"profile-{random.randrange(9)}"}).encode()
        return await connection.send("PUT", path, bearer(self.target["owners"][1], "203.0.113.10") + [JSON], body)

    async def agent(self, connection):
        token = random.choice(self.target["agents"])
        return await connection.send("POST", "/mcp", bearer(token, "203.0.113.11") + MCP, tool_call("skill_list", {}))

    async def sign_in_page(self, connection):
        return await connection.send("GET", "/account", [("X-Forwarded-For", "203.0.113.12")])


async def keep_pace(ask, port, pace, seconds):
    times, free, tasks = Times(), asyncio.Queue(), []
    for _ in range(16):
        free.put_nowait(Connection(port))

    async def send(due_at):
        connection = await free.get()
        status = await ask(connection)
        free.put_nowait(connection)
        if status in (200, 201):
            times.seconds.append(time.time() - due_at)
        else:
            times.refused[status] = times.refused.get(status, 0) + 1

    due_at = time.time()
    end = due_at + seconds
    while due_at < end:
        times.due += 1
        tasks.append(asyncio.create_task(send(due_at)))
        due_at += 1 / pace
        await asyncio.sleep(max(0, due_at - time.time()))
    await asyncio.wait(tasks, timeout=GRACE)
    for task in tasks:
        task.cancel()
    return times


async def _measure(target, seconds):
    honest = Honest(target)
    asks = [getattr(honest, name.replace(" ", "_").replace("-", "_")) for name in PACES]
    running = [keep_pace(ask, target["port"], pace, seconds) for ask, pace in zip(asks, PACES.values(), strict=True)]
    return dict(zip(PACES, await asyncio.gather(*running), strict=True))


def measure(target, seconds):
    """The times of each kind of request within so many seconds."""
    return asyncio.run(_measure(target, seconds))
