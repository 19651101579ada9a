"""The client of PyPI, mcp: the whole walk from the address alone, in the era named by the first argument: `legacy` (initialize) or
`new` (2026-07-28)."""

import asyncio
import base64
import hashlib
import html
import json
import os
import re
import socket
import sys
import time
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata

# Named rather than found out: a probe that takes long would silently end in the older one.
MODE = "2026-07-28" if sys.argv[1] == "new" else "legacy"
TITLE = "pypi mcp 2.3.0 " + ("old" if MODE == "legacy" else "new")
URL = os.environ["VAULT_REMOTE_URL"].rstrip("/") + "/mcp"
# Nothing listens there: the walk reads the address.
CALLBACK = "http://127.0.0.1:33419/callback"

_look_up = socket.getaddrinfo


def look_up(host, *rest, **named):
    """Names below localhost are this machine (RFC 6761), whatever its resolver says."""
    name = host.decode() if isinstance(host, bytes) else host
    return _look_up("127.0.0.1" if name and name.endswith(".localhost") else host, *rest, **named)


socket.getaddrinfo = look_up


class Failed(Exception):
    pass


def expect(good, words):
    if not good:
        raise Failed(f"expected {words}")


async def step(name, work):
    """Runs a step and prints its line; the walk ends at the first that fails."""
    begun = time.monotonic()

    def line(state, note=""):
        passed = int((time.monotonic() - begun) * 1000)
        print(f"{state:<7} {TITLE:<18} {name:<22} {passed:>6} ms  {note}".rstrip(), flush=True)

    try:
        done = await work
    except BaseException as error:
        line("failed")
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"        {type(error).__name__}: {error}"[:1200], flush=True)
        os._exit(1)
    line("ok", done if isinstance(done, str) else "")
    return done


class Storage:
    """What a client keeps, in memory."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Person:
    """Who sits at the browser: signs in, ticks the scopes, allows."""

    def __init__(self):
        self.scopes = ["read"]
        self.back = None
        self.walks = []

    async def redirect(self, asked):
        query = parse_qs(urlsplit(asked).query)
        expect(query["code_challenge_method"] == ["S256"], "PKCE with S256")
        expect(query["resource"] == [URL], f"resource={URL}")
        self.back, statuses = await self.consent(asked)
        self.walks.append(f"PKCE S256, scope {query['scope'][0]}; {statuses}")

    async def callback(self):
        query = parse_qs(urlsplit(self.back).query)
        one = lambda name: query.get(name, [None])[0]
        return AuthorizationCodeResult(code=one("code"), state=one("state"), iss=one("iss"))

    async def consent(self, asked):
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(asked))
        statuses, signed_in = [], False
        async with httpx2.AsyncClient(follow_redirects=False, timeout=30) as browser:
            response = await browser.get(asked)
            for _ in range(8):
                statuses.append(str(response.status_code))
                if response.status_code in (302, 303):
                    target = urljoin(asked, response.headers["location"])
                    if not target.startswith(origin + "/"):
                        expect(response.status_code == 302 and "code=" in target, "302 with a code")
                        return target, ", ".join(statuses)
                    response = await browser.get(target)
                    continue
                expect(response.status_code == 200, f"a page, not {response.status_code}")
                forms = {}
                for part in response.text.split("<form")[1:]:
                    part = part.split("</form>")[0]
                    action = html.unescape(re.search(r'action="([^"]*)"', part)[1])
                    forms[action.rsplit("/", 1)[-1]] = (action, part)
                action, part = forms.get("consent") or forms["login"]
                hidden = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', part)
                fields = [(name, html.unescape(value)) for name, value in hidden]
                if "consent" in forms:
                    fields += [("scope", scope) for scope in self.scopes if f'value="{scope}"' in part]
                    radio = re.search(r'name="namespace" value="([^"]*)"', part)
                    if radio and not any(name == "namespace" for name, _ in fields):
                        fields.append(("namespace", radio[1]))
                    fields.append(("decision", "approve"))
                else:
                    expect(not signed_in, "a password that is right")
                    signed_in = True
                    fields += [("email", os.environ["VAULT_ADMIN_EMAIL"]), ("password", os.environ["VAULT_ADMIN_PASSWORD"])]
                response = await browser.post(urljoin(asked, action), data=dict_of(fields), headers={"origin": origin})
        raise Failed("sign-in never came to an end")


def dict_of(fields):
    """Repeated names become lists, as the client library wants them."""
    data = {}
    for name, value in fields:
        data.setdefault(name, []).append(value)
    return data


async def call(client, name, arguments):
    result = await client.call_tool(name, arguments)
    expect(not result.is_error, f"a result of {name}, not {result.content}")
    return result.structured_content


async def tools(client):
    listed = (await client.list_tools()).tools
    names = {tool.name for tool in listed}
    expect({"get_skill", "skill_list", "skill_fetch", "skill_publish"} <= names, "the tools of the interface")
    return f"{len(listed)} tools"


async def get_skill(client, skill):
    await call(client, "get_skill", {"query": skill["description"][:60]})
    await call(client, "get_skill", {"name": skill["name"], "include_resources": True})
    return f"by query, then {skill['name']} by name"


async def fetch(client, skill):
    answer = await call(client, "skill_fetch", {"id": skill["id"]})
    envelope = answer["manifest"]
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    message = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(answer["public_key"] + "="))
    key.verify(base64.b64decode(answer["signature"]), message)
    manifest = json.loads(payload)
    files = {file["path"]: file for file in answer["files"]}
    for entry in manifest["files"]:
        file = files[entry["path"]]
        content = answer["skill_md"] if entry["path"] == "SKILL.md" else file.get("content")
        if content is not None:
            content = base64.b64decode(content) if file.get("encoding") == "base64" else content.encode()
            expect(hashlib.sha256(content).hexdigest() == entry["sha256"], f"{entry['path']} as it was signed")
    return f"{answer['id']} version {manifest['version']}, {len(manifest['files'])} files, signature good"


async def resource(client, skill):
    read = await client.read_resource(skill["uri"])
    expect(read.contents[0].text.startswith("---"), "SKILL.md as text")
    return skill["uri"]


async def refresh(client, provider, storage, person):
    before = storage.tokens.refresh_token
    # This client refreshes what it knows to be over, and asks the person again where a token is refused.
    provider.context.token_expiry_time = 1
    await call(client, "skill_list", {})
    expect(storage.tokens.refresh_token != before, "a new refresh token")
    expect(len(person.walks) == 1, "no browser")
    return "a token past its time: refreshed, no browser"


async def write(client):
    name = "from-" + re.sub("[^a-z0-9]+", "-", TITLE)
    skill_md = f"---\nname: {name}\ndescription: Written by a client in a test, to see a write through.\n---\nNothing to do.\n"
    if os.environ.get("CLIENTS_PUBLISH") == "yes":
        answer = await call(client, "skill_publish", {"skill_md": skill_md})
        return f"skill_publish: {answer.get('status')}"
    answer = await call(client, "propose_skill", {"skill_md": skill_md, "check": True})
    return f"propose_skill, check only: {answer.get('status')}"


async def main():
    storage, person = Storage(), Person()
    metadata = OAuthClientMetadata(
        client_name=TITLE,
        redirect_uris=[CALLBACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    provider = OAuthClientProvider(URL, metadata, storage, person.redirect, person.callback)
    http = create_mcp_http_client(auth=provider)
    client = Client(streamable_http_client(URL, http_client=http), mode=MODE)

    async def connect():
        await client.__aenter__()
        # With a revision that is named there is nothing to ask before the first request.
        await client.list_tools()
        expect(MODE == "legacy" or client.protocol_version == MODE, f"{MODE}, not {client.protocol_version}")
        expect(storage.tokens.scope == "read", f"the scope read, not {storage.tokens.scope}")
        return f"{person.walks[0]}; revision {client.protocol_version}"

    async def stepped_up():
        person.scopes = ["read", "write"]
        said = await write(client)
        expect(len(person.walks) == 2, "the consent page once more")
        expect(set(storage.tokens.scope.split()) == {"read", "write"}, f"both scopes, not {storage.tokens.scope}")
        return f"{person.walks[1]}; {said}"

    await step("connect", connect())
    await step("tools/list", tools(client))
    skills = (await call(client, "skill.list", {}))["skills"]
    if skills:
        await step("get_skill", get_skill(client, skills[0]))
        await step("skill_fetch", fetch(client, skills[0]))
        await step("resources", resource(client, skills[0]))
    else:
        print("        the vault is empty: get_skill and skill_fetch have nothing to show")
    await step("refresh", refresh(client, provider, storage, person))
    await step("step-up, write", stepped_up())
    await client.__aexit__(None, None, None)
    await http.aclose()


asyncio.run(asyncio.wait_for(main(), 300))
