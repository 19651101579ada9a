"""The identity provider: one that does not say when a person entered credentials confirms nothing."""

import html
import http.server
import json
import re
import secrets
import threading
import time
import urllib.parse

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness import App, Browser, Service, finish, free_port, owner_of, row, unpadded

PORT = free_port()
ISSUER = f"http://127.0.0.1:{PORT}"
CLIENT, KEY = "vault", Ed25519PrivateKey.generate()
# The claims that the provider gives for each code, and whether it says when credentials were entered.
CODES, STATES_TIME = {}, [True]


def signed(claims):
    parts = [{"alg": "EdDSA", "kid": "one", "typ": "JWT"}, claims]
    text = ".".join(unpadded(json.dumps(part).encode()) for part in parts)
    return f"{text}.{unpadded(KEY.sign(text.encode()))}"


class Provider(http.server.BaseHTTPRequestHandler):
    """The provider's routes for programs. Its page for people is `walk`."""

    def log_message(self, *_):
        pass

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/keys":
            public = unpadded(KEY.public_key().public_bytes_raw())
            self.answer({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": "one", "x": public}]})
            return
        routes = {name: f"{ISSUER}/{path}" for name, path in (("authorization_endpoint", "authorize"), ("token_endpoint", "token"), ("jwks_uri", "keys"))}
        self.answer(
            {
                "issuer": ISSUER,
                **routes,
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["EdDSA"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.answer({"access_token": "x", "token_type": "Bearer", "expires_in": 60, "id_token": signed(CODES.pop(form["code"][0]))})


threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Provider).serve_forever, daemon=True).start()
service = Service(VAULT_SIGN_IN="both", VAULT_OIDC_ISSUER=ISSUER, VAULT_OIDC_CLIENT_ID=CLIENT, VAULT_OIDC_CLIENT_SECRET="a secret of the service")
email = owner_of("team")
made = service.api(service.operator(), "POST", "/admin/operator/namespaces", {"slug": "team", "owner": email})
assert made.status == 201, made.text


def at_provider(address):
    """What the person does at the provider; the address that leads back."""
    query = {name: values[0] for name, values in urllib.parse.parse_qs(urllib.parse.urlsplit(address).query).items()}
    now, code = int(time.time()), secrets.token_urlsafe(16)
    CODES[code] = {
        "iss": ISSUER,
        "sub": "person-1",
        "aud": CLIENT,
        "iat": now,
        "exp": now + 300,
        "nonce": query["nonce"],
        "email": email,
        "email_verified": True,
        **({"auth_time": now} if STATES_TIME[0] else {}),
    }
    return query["redirect_uri"] + "?" + urllib.parse.urlencode({"code": code, "state": query["state"], "iss": ISSUER})


def walk(browser, target):
    """Opens an address, signing in at the provider where the service asks for it; the last page, or the address of an app."""
    answer = browser.get(target)
    for _ in range(14):
        if answer.status in (302, 303):
            target = answer.headers["location"]
            if target.startswith(ISSUER):
                target = at_provider(target)
            elif not target.startswith(("/", service.url + "/")):
                return target
            answer = browser.get(target)
            continue
        link = re.search(f'href="({re.escape(ISSUER)}/authorize[^"]*)"', answer.text)
        if link:
            answer = browser.get(at_provider(html.unescape(link.group(1))))
            continue
        start, invited, consent = (browser.form(answer, end) for end in ("/oauth/oidc/start", "/account/invitations", "/oauth/consent"))
        if start:
            answer = browser.post(start, [])
        elif invited:
            answer = browser.post(invited, [("decision", "accept")])
        elif consent:
            chosen = [box for box in consent["boxes"] if box[0] == "scope"]
            vaults = [box for box in consent["boxes"] if box[0] == "namespace"][:1]
            answer = browser.post(consent, chosen + vaults + [("decision", "approve")])
        else:
            return answer
    raise RuntimeError("the sign-in did not end")


class PersonAtProvider(Browser):
    """A browser whose person signs in at the provider."""

    def authorize(self, target, *_):
        found = walk(self, target)
        assert isinstance(found, str), found.text[-800:]
        return found


def delete(states_time):
    """Asks to delete the vault and opens the page of the confirmation; the page's form, and the status of the second call."""
    STATES_TIME[0] = states_time
    token = App(service).sign_in(email, "", vault="team", browser=PersonAtProvider(service))
    asked = service.api(token, "DELETE", "/admin/vaults/team", {"slug": "team"})
    assert asked.json.get("code") == "confirmation_needed", asked.text
    browser = Browser(service)
    page = walk(browser, asked.json["confirmation"]["url"])
    form = browser.form(page, "/account/confirm") if not isinstance(page, str) else None
    if form:
        browser.post(form, [("decision", "confirm"), ("sure", "yes")])
    return form is not None, service.api(token, "DELETE", "/admin/vaults/team", {"slug": "team"}).status


silent = delete(False)
stated = delete(True)
row("a sign-in of which the provider states no time confirms a deletion", silent == (False, 403), stated == (True, 200), f"silent {silent}, stated {stated}")
finish()
