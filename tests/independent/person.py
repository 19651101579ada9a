"""Somebody at a browser: `person.py ADDRESS E-MAIL PASSWORD` fills in the forms of the pages until no form is left."""

import sys
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, build_opener

import localhost  # noqa: F401


class Forms(HTMLParser):
    """The forms of a page: address and fields, with every box ticked and the first button that does not decline."""

    def __init__(self, page):
        super().__init__()
        self.forms = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "form":
            self.forms.append((found.get("action", ""), []))
        elif self.forms and tag in ("input", "button") and found.get("name"):
            fields = self.forms[-1][1]
            again = found["name"] in dict(fields) and found.get("type") != "checkbox"
            if not again and found.get("value") not in ("deny", "decline"):
                fields.append((found["name"], found.get("value") or "on"))


def main(address, email, password):
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    answer = browser.open(address, timeout=60)
    for _ in range(6):
        forms = [form for form in Forms(answer.read().decode()).forms if "logout" not in form[0]]
        if not forms:
            return
        # A page may offer other ways to sign in below the password.
        action, given = next((form for form in forms if "password" in dict(form[1])), forms[-1])
        known = {"email": email, "password": password}
        fields = [(name, known.get(name, value)) for name, value in given]
        answer = browser.open(urljoin(answer.url, action), urlencode(fields).encode(), timeout=60)


if __name__ == "__main__":
    main(*sys.argv[1:4])
