"""Apps: what an app does with the power of the person who signed in to it."""

from harness import App, Browser, Home, Machine, PASSWORD, Service, finish, owner_of, row

service = Service()
service.tenant("team")
email = owner_of("team")

# The person types the password on the way to the app, and presses Allow. Nothing else is asked.
app = App(service, "Nice notes")
token = app.sign_in(email, PASSWORD, vault="team")
invite = ("POST", "/admin/users", {"email": "mallory@example.com", "role": "role:owner", "scopes": ["read", "write"]})
answer = service.api(token, *invite)
honest = service.confirmed(service.owner("team"), email, *invite)
row("an app makes an owner without the person's confirmation", answer.json.get("code") == "confirmation_needed", honest.status == 201, f"{answer}; confirmed {honest}")

answer = service.api(token, "POST", "/admin/vaults/team/enrolment-codes", {"uses": 10_000})
honest = service.api(token, "POST", "/admin/vaults/team/enrolment-codes", {"uses": 2})
row("an app makes a code for 10,000 machines", answer.json.get("code") == "confirmation_needed", honest.status == 201, f"{answer}; for 2 {honest}")

asked = service.api(token, "DELETE", "/admin/vaults/team", {"slug": "team"})
address = asked.json.get("confirmation", {}).get("url", "/nothing")
other = service.api(token, "POST", "/admin/vaults/team/pin/reset", {"slug": "team"})
stranger = service.account("mallory2@example.com")
page = stranger.get(address)
row(
    "a confirmation is opened by another person, or serves another act",
    stranger.form(page, "/account/confirm") is None and other.json.get("code") == "confirmation_needed",
    asked.json.get("code") == "confirmation_needed",
    f"page {page.status}, pin {other}",
)

# An app admits its own machine and makes a code; then the owner ends it with what it made.
home = Home(service, "owner")
home.publish("team", "alpha")
bad = App(service, "App gone wrong")
token = bad.sign_in(email, PASSWORD, vault="team")
code = service.api(token, "POST", "/admin/vaults/team/enrolment-codes", {"uses": 10}).json.get("code")
machine, honest = Machine(service), Machine(service)
before = machine.enrol("team", code=code).json.get("status"), machine.get("/v/team/catalog.json").status
own = service.api(service.owner("team"), "POST", "/admin/vaults/team/enrolment-codes", {"uses": 1}).json["code"]
honest.enrol("team", code=own)
browser = Browser(service)
browser.log_in(email, PASSWORD)
ended = service.confirmed(service.owner("team"), email, "DELETE", f"/admin/clients/{bad.id}")
later = Machine(service).enrol("team", code=code)
row(
    "a code of an ended app admits further machines",
    before == ("active", 200) and later.status == 403,
    honest.get("/v/team/catalog.json").status == 200,
    f"before {before}, ended {ended}, then {later}",
)

# The machine that the app admitted itself ends with it where the owner says so.
before = machine.get("/v/team/catalog.json").status
ended = service.api(service.owner("team"), "DELETE", f"/admin/clients/{bad.id}?end=machines")
after = machine.get("/v/team/catalog.json")
row(
    "a machine of an ended app reads on",
    before == 200 and after.status == 403,
    ended.status == 200 and honest.get("/v/team/catalog.json").status == 200,
    f"before {before}, then {after}",
)

# A member, whose role and membership the app would change.
service.account("bob@example.com")
invited = service.api(service.owner("team"), "POST", "/admin/users", {"email": "bob@example.com", "role": "role:member"}).json["id"]
service.app.sign_in("bob@example.com", PASSWORD, vault="team", scope="read")
token = app.sign_in(email, PASSWORD, vault="team")


def members():
    """The members of the vault, as the owner sees them: each address with its role."""
    listed = service.api(service.owner("team"), "GET", "/admin/users").json["items"]
    return {user["email"]: user["role"] for user in listed}


for name, call, done in (
    ("changes a role", ("PUT", f"/admin/users/{invited}/role", {"role": "role:publisher"}), lambda: members()["bob@example.com"] == "role:publisher"),
    ("removes a member", ("DELETE", f"/admin/users/{invited}", None), lambda: "bob@example.com" not in members()),
    ("resets the pin", ("POST", "/admin/vaults/team/pin/reset", {"slug": "team"}), lambda: True),
):
    answer = service.api(token, *call)
    untouched = name == "resets the pin" or not done()
    confirmed = service.confirmed(service.owner("team"), email, *call)
    row(
        f"an app {name} without the person's confirmation",
        answer.json.get("code") == "confirmation_needed" and untouched,
        confirmed.status == 200 and done(),
        f"{answer}; confirmed {confirmed}",
    )

# At last, since nothing is left of the vault.
token = app.sign_in(email, PASSWORD, vault="team")
delete = ("DELETE", "/admin/vaults/team", {"slug": "team"})
answer = service.api(token, *delete)
kept = service.api(service.owner("team"), "GET", "/admin/vaults/team").status
honest = service.confirmed(service.owner("team"), email, *delete)
row("an app deletes the vault within minutes of the sign-in", answer.status == 403 and kept == 200, honest.status == 200, f"{answer}; confirmed {honest}")
finish()
