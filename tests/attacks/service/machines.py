"""Machines: what a copy of a signed request is good for."""

from harness import Home, Machine, Service, finish, next_second, row

# Few enough that a script can use them up.
service = Service(VAULT_LIMIT_CATALOG="20")
token = service.tenant("team")
Home(service, "owner").publish("team", "alpha")
code = service.api(token, "POST", "/admin/vaults/team/enrolment-codes", {"uses": 2}).json["code"]
machine, other = Machine(service), Machine(service)
for one in (machine, other):
    one.enrol("team", code=code)
    one.get("/v/team/catalog.json")

# A stranger has one signed request, from a log for example, and sends it again and again while it is valid.
path = "/v/team/catalog.json"
copy = machine.sign("GET", path)
first = machine.get(path, copy).status
copies = [machine.service.send("GET", path, copy + [("X-Forwarded-For", "198.51.100.7")]).status for _ in range(119)]
# A machine that signs the same request in the same second makes the same bytes, which nobody can tell from a copy.
next_second()
honest = machine.get(path)
row(
    "copies of one request use up the reads of its machine",
    honest.status == 200,
    first == 200 and copies.count(429) > 90,
    f"copies {copies.count(200)} x 200, {copies.count(429)} x 429; then the machine {honest}",
)
bundle = machine.service.send("GET", "/v/team/devices/current", copy)
row("a copy of a request is good for another path", bundle.status == 401, machine.get("/v/team/devices/current").status == 200, str(bundle))
next_second()
posted = machine.service.send("POST", path, copy, "")
row("a copy of a request is good for another method", posted.status == 401, machine.get(path).status == 200, str(posted))
neighbour = other.get(path)
row("copies use up the reads of another machine", neighbour.status == 200, True, str(neighbour))

# Keys cost nothing, so a stranger makes a new one for each request.
strangers = [Machine(service, f"2001:db8:1:{n:x}::1").get("/v/team/devices/current").status for n in range(300)]
row("requests of made-up keys reset or use up the reads of a machine", other.get(path).status == 200, set(strangers) <= {401, 429}, f"{len(strangers)} keys: {sorted(set(strangers))}")
finish()
