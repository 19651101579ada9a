"""Creates a namespace and its owner through the service's pages and routes, as an operator does with a browser.

    namespace.py ADDRESS SLUG OWNER OPERATOR STATE

Passwords are read from STATE/operator.password and STATE/owner.password. An existing namespace is left alone.
Names under .localhost are this machine (RFC 6761), whatever the resolver answers.
"""

import base64
import hashlib
import html.parser
import http.client
import json
import pathlib
import secrets
import sys
import urllib.parse


class Site:
    """One service, with a browser's cookies and nothing else."""

    def __init__(self, address):
        self.address = address
        self.parts = urllib.parse.urlsplit(address)
        self.cookies = {}

    def send(self, method, target, body=None, headers=None):
        """Sends one request without following redirects. Returns status, headers and text."""
        url = urllib.parse.urlsplit(urllib.parse.urljoin(self.address + "/", target))
        if url.netloc != self.parts.netloc:
            raise SystemExit(f"the service redirects to another host: {url.netloc}")
        host = url.hostname
        if host.endswith(".localhost"):
            host = "127.0.0.1"
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(host, url.port, timeout=60)
        path = url.path + (f"?{url.query}" if url.query else "")
        sent = {"Host": url.netloc, "Accept": "*/*"}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent.update(headers or {})
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name.strip()] = value.strip()
        connection.close()
        return answer.status, answer.headers, text

    def form(self, target, fields):
        """Sends a form as the service's own page would."""
        origin = f"{self.parts.scheme}://{self.parts.netloc}"
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": origin}
        return self.send("POST", target, urllib.parse.urlencode(fields), headers)

    def json(self, method, target, value, headers=None):
        """Sends JSON."""
        headers = {"Content-Type": "application/json", **(headers or {})}
        return self.send(method, target, json.dumps(value), headers)


class Form(html.parser.HTMLParser):
    """The fields of the form with this action."""

    def __init__(self, page, action):
        super().__init__()
        self.wanted, self.inside, self.action, self.fields = action, False, None, []
        self.feed(page)
        if self.action is None:
            raise SystemExit(f"the page has no form for {action}")

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "form":
            self.inside = self.wanted in (values.get("action") or "")
            if self.inside:
                self.action = values["action"]
        elif self.inside and tag == "input":
            kind, name = values.get("type"), values.get("name")
            if kind == "hidden" or (kind == "radio" and "checked" in values):
                self.fields.append((name, values.get("value", "")))

    def handle_endtag(self, tag):
        if tag == "form":
            self.inside = False


def sign_in(site, email, password):
    """Signs in as operator with the authorization code flow and PKCE; returns an access token."""
    redirect = "http://127.0.0.1:9/callback"
    status, _, text = site.json(
        "POST",
        "/oauth/register",
        {"client_name": "localstack/up", "redirect_uris": [redirect], "token_endpoint_auth_method": "none"},
    )
    expect(status, 201, "registration", text)
    client = json.loads(text)["client_id"]
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    target = "/oauth/authorize?" + urllib.parse.urlencode(
        {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": redirect,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "scope": "read write operator",
            "prompt": "login",
            "state": "s",
        }
    )
    answer = site.send("GET", target)
    for _ in range(8):
        status, headers, text = answer
        if status == 302:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(headers["Location"]).query)
            if "code" not in query:
                raise SystemExit(f"the sign-in was refused: {query}")
            grant = {
                "grant_type": "authorization_code",
                "code": query["code"][0],
                "redirect_uri": redirect,
                "client_id": client,
                "code_verifier": verifier,
            }
            status, _, text = site.form("/oauth/token", grant)
            expect(status, 200, "token", text)
            return json.loads(text)["access_token"]
        if status == 303:
            answer = site.send("GET", headers["Location"])
        elif status == 200 and 'name="password"' in text:
            page = Form(text, "/oauth/login")
            answer = site.form(page.action, page.fields + [("email", email), ("password", password)])
        elif status == 200:
            page = Form(text, "/oauth/consent")
            answer = site.form(
                page.action, page.fields + [("scope", "read"), ("scope", "write"), ("decision", "approve")]
            )
        else:
            expect(status, 200, "sign-in", text)
    raise SystemExit("the sign-in did not finish after 8 pages")


def expect(status, wanted, what, text):
    """Ends the program with the service's answer, unless the status is the wanted one."""
    if status != wanted:
        raise SystemExit(f"{what}: status {status} instead of {wanted}: {text[:300]}")


def main():
    """Signs in as the operator, creates the namespace, sets the owner's password."""
    address, slug, owner, operator, state = sys.argv[1:]
    read = lambda name: pathlib.Path(state, f"{name}.password").read_text(encoding="ascii").strip()
    token = sign_in(Site(address), operator, read("operator"))
    site = Site(address)
    bearer = {"Authorization": f"Bearer {token}"}
    status, _, text = site.json("POST", "/admin/operator/namespaces", {"slug": slug, "owner": owner}, bearer)
    if status == 409:
        print(f"the namespace {slug} already exists")
        return
    expect(status, 201, "namespace", text)
    invitation = json.loads(text).get("invite_url")
    if invitation:
        status, _, text = site.send("GET", invitation)
        expect(status, 200, "invitation", text)
        page = Form(text, "/oauth/invite/")
        status, _, text = site.form(page.action, page.fields + [("password", read("owner"))])
        if status not in (200, 303):
            expect(status, 200, "password", text)


if __name__ == "__main__":
    main()
