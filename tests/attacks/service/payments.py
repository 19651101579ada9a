"""Payments: events of the payment provider that pay for something else, collide or are forged; names without payment."""

import hmac
import json
import re
import secrets
import time

from harness import Browser, PASSWORD, Service, finish, row

SECRET = "whsec_attack_0123456789"
service = Service(
    VAULT_SIGN_UP_VAULTS="on",
    VAULT_PLANS="small=https://buy.example/small plink_small,team=https://buy.example/team plink_team eur",
    VAULT_PAYMENT_SECRETS=SECRET,
)


def signed(body, secret=SECRET):
    now = int(time.time())
    return f"t={now},v1=" + hmac.digest(secret.encode(), f"{now}.".encode() + body, "sha256").hex()


def event(kind, thing, live=True, source="192.0.2.1", secret=SECRET):
    """Delivers an event; status and outcome of the answer."""
    document = {"id": "evt_" + secrets.token_hex(6), "object": "event", "type": kind, "created": int(time.time()), "livemode": live, "data": {"object": thing}}
    body = json.dumps(document).encode()
    headers = [("Content-Type", "application/json"), ("Stripe-Signature", signed(body, secret)), ("X-Forwarded-For", source)]
    answer = service.send("POST", "/hooks/payment", headers, body)
    return answer.status, answer.json.get("outcome") or answer.json.get("code")


def checkout(reference, subscription, **changed):
    return {"client_reference_id": reference, "subscription": subscription, "customer": "cus_1", "payment_status": "paid", "mode": "subscription", "payment_link": "plink_team", "currency": "eur", **changed}


def sign_up(browser, slug, plan="team"):
    """Signs up for a vault; the answer to the form, and the reference of the newest sign-up."""
    form = browser.form(browser.get("/account/new-vault"), "/account/new-vault")
    answer = browser.post(form, [("slug", slug), ("plan", plan)])
    found = re.findall(r"client_reference_id=([0-9a-f]+)", browser.get("/").text)
    return answer, found[-1] if found else None


def access(slug):
    """What the vault's subscription is; `None` without a vault."""
    return service.api(service.operator(), "GET", f"/admin/operator/namespaces/{slug}").json.get("subscription")


def person(name):
    browser = service.account(f"{name}@example.com")
    browser.log_in(f"{name}@example.com", PASSWORD)
    return browser


COMPLETED, DELETED = "checkout.session.completed", "customer.subscription.deleted"
ann, eve = person("ann"), person("eve")
_, cheap = sign_up(eve, "eves")
for name, changed, live in (
    ("the link of a cheaper plan", {"payment_link": "plink_small"}, True),
    ("a link of another product", {"payment_link": "plink_other"}, True),
    ("no link", {"payment_link": None}, True),
    ("another currency", {"currency": "idr"}, True),
    ("test money", {}, False),
):
    outcome = event(COMPLETED, checkout(cheap, "sub_eve", **changed), live)
    row(f"{name} pays for the plan", outcome == (200, "refused") and access("eves") is None, True, str(outcome))
outcome = event(COMPLETED, checkout(cheap, "sub_eve"), secret="whsec_guess")
row("a forged event pays for the plan", outcome[0] == 400 and access("eves") is None, True, str(outcome))
outcome = event(COMPLETED, checkout(cheap, "sub_eve"))
row("the right payment", True, access("eves") == "active", str(outcome))

_, reference = sign_up(ann, "anns")
event(COMPLETED, checkout(reference, "sub_1"))
event(COMPLETED, checkout(reference, "sub_2"))
event(DELETED, {"id": "sub_1", "status": "canceled"})
after = access("anns")
event(DELETED, {"id": "sub_2", "status": "canceled"})
row("the end of one of two payments ends the vault", after == "active", access("anns") == "lapsed", f"{after}, and after both {access('anns')}")

# Whoever learns a reference pays first and cancels.
bob = person("bob")
_, reference = sign_up(bob, "bobs")
event(COMPLETED, checkout(reference, "sub_attacker"))
event(COMPLETED, checkout(reference, "sub_bob"))
event(DELETED, {"id": "sub_attacker", "status": "canceled"})
row("a payment of somebody else that ends takes the vault from who paid", access("bobs") == "active", True, str(access("bobs")))

stranger = "198.51.100.20"
answers = [event("invoice.paid", {"subscription": "sub_x"}, source=stranger, secret="whsec_guess")[0] for _ in range(60)]
honest = event("invoice.paid", {"subscription": "sub_2"}, source=stranger)
row("a stranger sends forged events without limit", answers[-1] == 429, honest[0] == 200, f"{answers.count(400)} x 400, {answers.count(429)} x 429; a signed one {honest}")

# Names that nobody pays for.
names = [sign_up(eve, f"squat-{n}")[0].status for n in range(5)]
row("one person reserves names without limit", names[-1] == 409, 303 in names, str(names))
_, held = sign_up(eve, "squat-0")
form = eve.form(eve.get("/account/new-vault"), "/account/new-vault")
renamed = [eve.post({**form, "action": "/account/new-vault/name"}, [("reference", held), ("slug", f"name-{n}")]).status for n in range(5)]
log = service.api(service.operator(), "GET", "/admin/operator/audit?limit=100").text
row("a name that is not paid for is exchanged for others without limit", 303 not in renamed and "name-4" not in log, sign_up(person("dan"), "name-4")[0].status == 303, str(renamed))
finish()
