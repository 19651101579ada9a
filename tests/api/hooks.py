"""What schemathesis cannot know: who asks, which vault and member there are, and how a pack of objects is written.

Read by schemathesis through SCHEMATHESIS_HOOKS. The state folder has the passwords, as localstack/namespace.py wants them.
"""

import json
import os
import pathlib
import sys

import schemathesis

sys.path.insert(0, os.environ["API_NAMESPACE"])
import namespace  # noqa: E402

ADDRESS = os.environ["VAULT_REMOTE_URL"]
STATE = os.environ["API_STATE"]
SLUG, OWNER = "fuzzed", "fuzzed@example.com"

sys.argv = ["namespace.py", ADDRESS, SLUG, OWNER, os.environ["VAULT_ADMIN_EMAIL"], STATE]
namespace.main()
password = lambda name: pathlib.Path(STATE, f"{name}.password").read_text(encoding="ascii").strip()
SITE = namespace.Site(ADDRESS)
OPERATOR_TOKEN = namespace.sign_in(namespace.Site(ADDRESS), os.environ["VAULT_ADMIN_EMAIL"], password("operator"))
OWNER_TOKEN = namespace.sign_in(SITE, OWNER, password("owner"))
ELSEWHERE = {"slug": "elsewhere", "owner": OWNER}
STATUS, _, TEXT = SITE.json(
    "POST", "/admin/operator/namespaces", ELSEWHERE, {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
)
namespace.expect(STATUS, 201, "namespace", TEXT)
STATUS, _, TEXT = SITE.json(
    "POST", "/admin/users", {"email": "member@example.com"}, {"Authorization": f"Bearer {OWNER_TOKEN}"}
)
namespace.expect(STATUS, 201, "member", TEXT)
MEMBER = json.loads(TEXT)["id"]


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Asks as the operator where that is needed, else as the owner, and for what is there.

    What would lock the owner out is asked of others: schemathesis also sends what it has seen in answers.
    """
    operator = case.path.startswith("/admin/operator/")
    case.headers["Authorization"] = f"Bearer {OPERATOR_TOKEN if operator else OWNER_TOKEN}"
    if "slug" in case.path_parameters:
        case.path_parameters["slug"] = ELSEWHERE["slug"] if operator else SLUG
    # Each ends the token that asks. The word that a person has to write is left out.
    if case.path.endswith("/sign-out") and case.path.startswith("/admin/") and case.method == "POST":
        case.body = {"confirm": "nobody", "slug": "nobody"}
    if "email" in (case.path_parameters or {}):
        case.path_parameters["email"] = "member@example.com"
    if case.path == "/admin/clients/{id}":
        case.path_parameters["id"] = "cli_" + "0" * 26
    if case.path.startswith("/admin/users/{id}") and case.method != "DELETE":
        case.path_parameters["id"] = MEMBER


@schemathesis.serializer("application/vnd.vault.pack")
def pack(_context, value):
    """A pack is bytes."""
    return value if isinstance(value, bytes) else str(value).encode()
