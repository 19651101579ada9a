"""What the attacks on a running service share: the server, a browser, an app, a machine, and the table of rows.

A row has an attack and, beside it, an honest control: what a person, app or machine does that may. A row is `held` where the attack got
nothing and the control got what it asked for, and `fell` where the attack worked. Where only the control failed, the row is `void`, since it
shows nothing.

VAULT_BIN names the program, ATTACKS_DATABASE an empty database for it in place of a file. Each script starts its own `vault serve` on a free port of this machine, in a folder that ends with it.
"""

import atexit
import base64
import hashlib
import html.parser
import http.client
import json
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PROGRAM = os.path.abspath(os.environ["VAULT_BIN"])
OPERATOR = ("operator@example.com", "correct horse battery staple 1")
PASSWORD = "twelve characters at least 1"
# The address from which honest people come. The proxy in front of the service is this machine.
HOME = "203.0.113.5"
ROWS = []


def row(name, attack_failed, control_worked, seen=""):
    """Prints one row: whether the attack failed, whether its control worked, and what was seen."""
    word = "fell" if not attack_failed else "held" if control_worked else "void"
    ROWS.append(word)
    print(f"{word:5} {name}: {seen}", flush=True)


def finish():
    """Ends the script: 0 if all rows held."""
    counts = {word: ROWS.count(word) for word in sorted(set(ROWS))}
    print(f"{len(ROWS)} rows: {counts}")
    sys.exit(0 if ROWS and set(ROWS) == {"held"} else 1)


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def next_second():
    """Waits until the clock shows another second."""
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.02)


def unpadded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Answer:
    """Status, headers in lower case, and body of an answer."""

    def __init__(self, answer):
        self.status, self.body = answer.status, answer.read()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.cookies = answer.headers.get_all("Set-Cookie") or []

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        """The JSON document of the answer; empty if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    def __str__(self):
        return f"{self.status} {self.json.get('code', '') if isinstance(self.json, dict) else ''}".strip()


class Service:
    """A running `vault serve`."""

    def __init__(self, public=None, **settings):
        self.port = free_port()
        self.url = public or f"http://127.0.0.1:{self.port}"
        self.host = urllib.parse.urlsplit(self.url).netloc
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="vault-attack-"))
        (self.folder / "home").mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "VAULT_MODE": "remote",
            "VAULT_PUBLIC_URL": self.url,
            "VAULT_PORT": str(self.port),
            "VAULT_BIND": "127.0.0.1",
            "VAULT_STORAGE_PATH": str(self.folder / "library"),
            "VAULT_DATABASE_URL": os.environ.get("ATTACKS_DATABASE") or str(self.folder / "vault.db"),
            "VAULT_ADMIN_EMAIL": OPERATOR[0],
            "VAULT_ADMIN_PASSWORD": OPERATOR[1],
            "VAULT_TRUSTED_PROXIES": "127.0.0.1/32",
            # The set-up of a script makes more sign-ins from one address than a day of a person.
            "VAULT_LIMIT_REGISTER": "0",
            "VAULT_LIMIT_REGISTER_UNUSED": "0",
            "VAULT_LIMIT_SIGN_IN": "0",
            "VAULT_LIMIT_GRANT": "0",
            "VAULT_LIMIT_NAMESPACE": "0",
            **settings,
        }
        # `None` leaves a variable out, so that its default counts.
        self.environment = {name: value for name, value in self.environment.items() if value is not None}
        self.log = self.folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve"],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        atexit.register(self.stop)
        for _ in range(300):
            try:
                if self.send("GET", "/healthz").status == 200:
                    break
            except OSError:
                time.sleep(0.1)
            if self.process.poll() is not None:
                break
        else:
            raise SystemExit("the server does not answer: " + self.log.read_text()[-800:])
        self._app = None

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method, target, headers=(), body=None, host=None):
        """Sends one request without following redirects. `headers` are pairs."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, target.removeprefix(self.url), skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", self.host if host is None else host)
        for name, value in headers:
            connection.putheader(name, value)
        if isinstance(body, str):
            body = body.encode()
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def api(self, token, method, path, value=None, source=HOME):
        """Calls a route with a token and a JSON body."""
        headers = [("Authorization", f"Bearer {token}"), ("X-Forwarded-For", source)]
        body = None
        if value is not None:
            headers.append(("Content-Type", "application/json"))
            body = json.dumps(value)
        return self.send(method, path, headers, body)

    @property
    def app(self):
        """The app that the set-up uses."""
        if self._app is None:
            self._app = App(self)
        return self._app

    def operator(self):
        """A token of the operator."""
        return self.app.sign_in(*OPERATOR, scope="read write operator", prompt="login")

    def account(self, email, password=PASSWORD):
        """An account with a password."""
        made = self.api(self.operator(), "POST", "/admin/operator/accounts", {"email": email})
        assert made.status == 201, made.text
        browser = Browser(self)
        browser.set_password(made.json["invite_url"], password)
        return browser

    def tenant(self, slug):
        """A vault with an owner; the owner's token."""
        owner = owner_of(slug)
        self.account(owner)
        made = self.api(self.operator(), "POST", "/admin/operator/namespaces", {"slug": slug, "owner": owner})
        assert made.status == 201, made.text
        return self.owner(slug)

    def owner(self, slug):
        """A token of the vault's owner."""
        return self.app.sign_in(owner_of(slug), PASSWORD, vault=slug, prompt="login")

    def confirmed(self, token, email, method, path, value=None, password=PASSWORD):
        """Calls a route as an honest person: who is asked to confirm it in the browser, does."""
        answer = self.api(token, method, path, value)
        if answer.json.get("code") == "confirmation_needed":
            Browser(self).confirm(answer.json["confirmation"]["url"], email, password)
            answer = self.api(token, method, path, value)
        return answer


def owner_of(slug):
    return f"owner-{slug}@example.com"


class Forms(html.parser.HTMLParser):
    """The forms of a page, each with its action and fields."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "form":
            self.found.append({"action": values.get("action") or "", "hidden": [], "boxes": []})
        elif self.found and tag == "input":
            kind, field = values.get("type"), (values.get("name"), values.get("value") or "")
            if kind == "hidden":
                self.found[-1]["hidden"].append(field)
            elif kind in ("checkbox", "radio"):
                self.found[-1]["boxes"].append(field)


class Browser:
    """A browser with cookies, at one address."""

    def __init__(self, service, source=HOME):
        self.service, self.source, self.cookies = service, source, {}

    def request(self, method, target, fields=None, source=None):
        headers = [("Accept", "text/html,*/*"), ("X-Forwarded-For", source or self.source)]
        if self.cookies:
            headers.append(("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items())))
        body = None
        if fields is not None:
            headers += [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", self.service.url)]
            body = urllib.parse.urlencode(fields)
        answer = self.service.send(method, target, headers, body)
        for cookie in answer.cookies:
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    def get(self, target):
        return self.request("GET", target)

    def form(self, page, end):
        """The form whose action ends so; `None` if the page has none."""
        forms = [form for form in Forms(page.text).found if form["action"].split("?")[0].endswith(end)]
        return forms[0] if forms else None

    def post(self, form, fields, source=None):
        return self.request("POST", form["action"], form["hidden"] + list(fields), source)

    def set_password(self, link, password):
        page = self.get(link)
        form = Forms(page.text).found[0]
        return self.post({**form, "action": form["action"] or link}, [("password", password)])

    def log_in(self, email, password, source=None):
        """Types address and password into the sign-in page; the answer to the form."""
        form = self.form(self.get("/account"), "/oauth/login")
        return self.post(form, [("email", email), ("password", password)], source)

    def confirm(self, address, email, password):
        """Opens the page of a confirmation and confirms it."""
        page = self.get(address)
        form = self.form(page, "/oauth/login")
        if form:
            self.post(form, [("email", email), ("password", password)])
            page = self.get(address)
        form = self.form(page, "/account/confirm")
        return form and self.post(form, [("decision", "confirm"), ("sure", "yes")])

    def authorize(self, target, email, password, scopes=None):
        """Walks the pages of an authorize request to its end; the address that the app gets."""
        answer = self.get(target)
        for _ in range(10):
            if answer.status in (302, 303):
                target = answer.headers["location"]
                if not target.startswith(("/", self.service.url + "/")):
                    return target
                answer = self.get(target)
                continue
            login, invited, consent = (
                self.form(answer, end) for end in ("/oauth/login", "/account/invitations", "/oauth/consent")
            )
            if login:
                answer = self.post(login, [("email", email), ("password", password)])
            elif invited:
                answer = self.post(invited, [("decision", "accept")])
            elif consent:
                chosen = [box for box in consent["boxes"] if box[0] == "scope" and (scopes is None or box[1] in scopes)]
                vaults = [box for box in consent["boxes"] if box[0] == "namespace"][:1]
                answer = self.post(consent, chosen + vaults + [("decision", "approve")])
            else:
                raise RuntimeError(f"a page that leads nowhere: {answer.status} {answer.text[-600:]}")
        raise RuntimeError("the sign-in did not end after 10 pages")


class App:
    """An app that anybody registers."""

    def __init__(self, service, name="An app"):
        self.service, self.redirect = service, "http://127.0.0.1:9/callback"
        metadata = {
            "client_name": name,
            "redirect_uris": [self.redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        made = service.send("POST", "/oauth/register", [("Content-Type", "application/json")], json.dumps(metadata))
        self.id = made.json["client_id"]

    def grant(self, email, password, vault=None, browser=None, **parameters):
        """Signs a person in; the answer of the token endpoint."""
        verifier = secrets.token_urlsafe(48)
        query = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect,
            "code_challenge": unpadded(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
            "scope": "read write",
            "state": "s",
            **({"vault_namespace": vault} if vault else {}),
            **parameters,
        }
        target = "/oauth/authorize?" + urllib.parse.urlencode(query)
        back = (browser or Browser(self.service)).authorize(target, email, password)
        found = urllib.parse.parse_qs(urllib.parse.urlsplit(back).query)
        if "code" not in found:
            raise RuntimeError(f"the sign-in was refused: {found}")
        return self.token(grant_type="authorization_code", code=found["code"][0], redirect_uri=self.redirect, code_verifier=verifier)

    def sign_in(self, email, password, vault=None, browser=None, **parameters):
        """As `grant`; the access token."""
        answer = self.grant(email, password, vault, browser, **parameters)
        assert answer.status == 200, answer.text
        return answer.json["access_token"]

    def token(self, **fields):
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        return self.service.send("POST", "/oauth/token", form, urllib.parse.urlencode({"client_id": self.id, **fields}))


class Machine:
    """A machine with its key."""

    def __init__(self, service, source=HOME):
        self.service, self.source = service, source
        self.key = Ed25519PrivateKey.generate()
        self.public = unpadded(self.key.public_key().public_bytes_raw())

    def sign(self, method, path):
        """The headers of a request that is signed now."""
        now = str(int(time.time()))
        signature = unpadded(self.key.sign(f"{method}\n{path}\n{now}".encode()))
        return [("X-Vault-Device", self.public), ("X-Vault-Timestamp", now), ("X-Vault-Signature", signature)]

    def get(self, path, headers=None):
        headers = self.sign("GET", path) if headers is None else headers
        return self.service.send("GET", path, headers + [("X-Forwarded-For", self.source)])

    def enrol(self, slug, hostname="laptop", code=None):
        path = f"/v/{slug}/devices"
        headers = self.sign("POST", path) + [("Content-Type", "application/json"), ("X-Forwarded-For", self.source)]
        body = {"public_key": self.public, "hostname": hostname, **({"code": code} if code else {})}
        return self.service.send("POST", path, headers, json.dumps(body))


class Home:
    """A machine with the command `vault`."""

    def __init__(self, service, name):
        self.service, self.folder = service, service.folder / name
        self.folder.mkdir()
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    def run(self, *arguments):
        done = subprocess.run(
            [PROGRAM, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def publish(self, slug, *names):
        """Publishes skills of these names as the owner of the vault."""
        for name in names:
            skill = self.folder / "skills" / name
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: A made-up skill of an attack\n---\nBody of {name}.\n")
            code, said = self.run("add", str(skill), "--yes")
            assert code == 0, said
        connecting = subprocess.Popen(
            [PROGRAM, "cloud", "connect", f"{self.service.url}/v/{slug}", "--no-browser"],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = ""
        for line in connecting.stdout:
            said += line
            at = line.find(self.service.url + "/oauth/authorize?")
            if at >= 0:
                target = line[at:].split()[0]
                back = Browser(self.service).authorize(target, owner_of(slug), PASSWORD)
                connecting.communicate(back + "\n", timeout=120)
                break
        assert connecting.wait() == 0, said
        code, said = self.run("sync", "--cloud")
        assert code == 0, said
