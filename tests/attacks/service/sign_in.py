"""Sign-in: strangers who keep a person out, and what a stolen password or refresh token gives."""

import base64
import hmac
import re
import time

from harness import App, Browser, OPERATOR, PASSWORD, Service, finish, owner_of, row

# The limits of an installation, unlike in the other scripts.
service = Service(VAULT_LIMIT_SIGN_IN="30")
service.tenant("team")
email = owner_of("team")

# One address fails 25 times at a chosen person.
stranger = Browser(service, "198.51.100.5")
tried = [stranger.log_in(email, f"wrong {n}").status for n in range(25)]
honest = Browser(service, "203.0.113.77").log_in(email, PASSWORD)
row("one stranger keeps a person out of a new browser", honest.status == 303, 429 in tried, f"{tried.count(422)} x 422, {tried.count(429)} x 429; then the person {honest.status}")

# Many addresses of one network, and of many.
for n in range(40):
    Browser(service, f"198.51.100.{100 + n}").log_in(email, "wrong")
    Browser(service, f"2001:db8:9:{n:x}::1").log_in(email, "wrong")
honest = Browser(service, "203.0.113.78").log_in(email, PASSWORD)
row("strangers of two networks keep a person out of a new browser", honest.status == 303, True, str(honest.status))
later = Browser(service, "198.51.100.5").log_in(email, PASSWORD)
row("a stranger who failed often is let in with the right password at once", later.status == 429, honest.status == 303, str(later.status))

# The operator's way back.
operator = service.operator()
reset = service.confirmed(operator, OPERATOR[0], "POST", f"/admin/operator/accounts/{email}/reset", password=OPERATOR[1])
browser = Browser(service, "198.51.100.5")
browser.set_password(reset.json["invite_url"], "another password of the person")
back = browser.log_in(email, "another password of the person")
row("a stranger keeps a person out after the operator's reset, in the browser that set the new password", back.status == 303, reset.status == 200, str(back.status))


def totp(secret, step=0):
    """The code of an authenticator app (RFC 6238)."""
    counter = (int(time.time()) // 30 + step).to_bytes(8, "big")
    digest = hmac.digest(base64.b32decode(secret + "=" * (-len(secret) % 8)), counter, "sha1")
    at = digest[-1] & 15
    return f"{(int.from_bytes(digest[at:at + 4], 'big') & 0x7FFFFFFF) % 1_000_000:06}"


# A thief knows the password of a person with a second factor, and uses up the tries for recovery codes.
name = "careful@example.com"
person = service.account(name)
person.log_in(name, PASSWORD)
page = person.get("/account/second-factor")
form = person.form(page, "/account/second-factor")
secret = dict(form["hidden"])["secret"]
done = person.post(form, [("new_code", totp(secret)), ("password", PASSWORD)])
codes = re.findall(r"<li><code>([^<]+)</code>", done.text)
answers = []
for source in ("198.51.100.9", "2001:db8:7::1"):
    thief = Browser(service, source)
    page = thief.log_in(name, PASSWORD)
    for n in range(60):
        form = thief.form(page, "/oauth/second-factor")
        if form is None:
            break
        page = thief.post(form, [("code", f"aaaaa-bbbbb-ccccc-{n:05}")])
        answers.append(page.status)
owner = Browser(service, "203.0.113.90")
form = owner.form(owner.log_in(name, PASSWORD), "/oauth/second-factor")
used = owner.post(form, [("code", codes[0])])
row("a thief with the password uses up the tries for the person's recovery codes", used.status == 303, 429 in answers, f"thief {answers.count(422)} x 422, {answers.count(429)} x 429; person {used.status}")

# A refresh token that was copied.
app = App(service)
first = app.grant(*OPERATOR, scope="read write").json
lost = app.token(grant_type="refresh_token", refresh_token=first["refresh_token"]).json
again = app.token(grant_type="refresh_token", refresh_token=first["refresh_token"]).json
used = service.api(lost["access_token"], "GET", "/admin/vaults")
stolen = app.token(grant_type="refresh_token", refresh_token=first["refresh_token"])
other = App(service).token(grant_type="refresh_token", refresh_token=lost["refresh_token"])
row("a copied refresh token is good after the new pair was used", stolen.status == 400, used.status == 200 and again.get("access_token") == lost["access_token"], str(stolen.status))
row("another app refreshes with it", other.status == 400, True, str(other.status))
finish()
