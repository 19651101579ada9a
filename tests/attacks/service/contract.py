"""The written contract: the service accepts nothing that docs/openapi.json forbids."""

import json
import pathlib

from harness import Service, finish, row

DOCUMENT = json.loads((pathlib.Path(__file__).parents[3] / "docs" / "openapi.json").read_text(encoding="utf-8"))
# Bodies that may have further members, in the document and in the service.
OPEN = {
    # A draft has a format of its own, with its own parser.
    "POST /admin/vaults/{slug}/drafts",
    # Older programs send more, and the service reads past it.
    "POST /admin/vaults/{slug}/objects/missing",
    "POST /admin/vaults/{slug}/pin/reset",
}
service = Service()
token = service.tenant("team")


def refers(schema):
    """A schema with its reference followed."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


# Every JSON body that is an object of named members.
open_bodies = []
for path, methods in DOCUMENT["paths"].items():
    for method, operation in methods.items():
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema") if isinstance(operation, dict) else None
        if body is None or not path.startswith("/admin/"):
            continue
        schema = refers(body)
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            open_bodies.append(f"{method.upper()} {path}")
open_bodies = [body for body in open_bodies if body not in OPEN]
row("the document lets a member through that the service refuses", not open_bodies, len(DOCUMENT["paths"]) > 50, f"open: {open_bodies[:5]}")

answer = service.api(token, "POST", "/admin/users", {"email": "x@example.com", "operator": True})
honest = service.api(token, "POST", "/admin/users", {"email": "x@example.com"})
row("a member that no route names is taken", answer.status == 400, honest.status == 201, str(answer))
for name, value in (("since", ""), ("since", "yesterday"), ("limit", "0"), ("limit", "1000000")):
    answer = service.api(token, "GET", f"/admin/audit?{name}={value}")
    honest = service.api(token, "GET", "/admin/audit?limit=1")
    row(f"/admin/audit?{name}={value} is taken", answer.status in (400, 422), honest.status == 200, str(answer))
answer = service.send("GET", "/", [("Accept", "application/json")])
row("GET / of a program is a page", answer.status == 404, answer.headers["content-type"] == "application/problem+json", str(answer))
finish()
