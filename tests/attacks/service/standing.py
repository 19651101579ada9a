"""Suspended and lapsed vaults: what an owner keeps, and what nobody gets without a subscription."""

import base64
import json
import re

from harness import Browser, Home, Machine, PASSWORD, Service, finish, owner_of, row

service = Service()
token = service.tenant("team")
Home(service, "owner").publish("team", "alpha", "beta")
code = service.api(token, "POST", "/admin/vaults/team/enrolment-codes", {"uses": 1}).json["code"]
machine = Machine(service)
machine.enrol("team", code=code)
catalog = machine.get("/v/team/catalog.json").json
hashes = sorted(set(re.findall(r"[0-9a-f]{64}", base64.b64decode(catalog["payload"] + "==").decode("utf-8", "replace"))))


def owner_browser():
    browser = Browser(service)
    browser.log_in(owner_of("team"), PASSWORD)
    return browser


def bundles():
    return [hash for hash in hashes if machine.get(f"/v/team/bundles/{hash}.json").status == 200]


def content(token):
    """How often content comes by another way: the owner's route of objects, and the tools."""
    found = [hash for hash in paid if service.api(token, "GET", f"/admin/vaults/team/objects/bundles/{hash}").status == 200]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "skill_fetch", "arguments": {"id": "team/alpha"}}}
    result = service.api(token, "POST", "/mcp", message).json.get("result", {})
    return len(found), result.get("isError", True)


paid = bundles()
change = lambda what: service.api(service.operator(), "POST", f"/admin/operator/namespaces/team/{what}").status
before = content(token)
lapse = change("lapse")
token = service.owner("team")
export = owner_browser().get("/console/team/export.jsonl")
got, (objects, is_error) = bundles(), content(token)
row("content of a lapsed vault by the machine's route", got == [], lapse == 200 and len(paid) >= 2, f"{len(got)} of {len(paid)} bundles")
row("content of a lapsed vault by the owner's route or the tools", objects == 0 and is_error, before == (len(paid), False), f"before {before}, lapsed {(objects, is_error)}")
row("an operator withholds an owner's records by lapsing the vault", export.status == 200, machine.get("/v/team/catalog.json").status == 200, f"export {export.status}, {len(export.body)} bytes")
change("renew")
again = bundles()
row("a renewed vault stays closed", again == paid, content(token) == before, f"{len(again)} of {len(paid)} bundles")

suspend = change("suspend")
export = owner_browser().get("/console/team/export.jsonl")
lines = [json.loads(line) for line in export.text.splitlines()] if export.status == 200 else []
row("an operator withholds an owner's records by suspending the vault", export.status == 200 and len(lines) > 1, suspend == 200, f"export {export.status}, {len(lines)} lines")
reads = machine.get("/v/team/catalog.json"), service.api(token, "GET", "/admin/users")
row("a suspended vault serves its machines or its owner's other routes", all(answer.status == 403 for answer in reads), suspend == 200, str([str(answer) for answer in reads]))
finish()
