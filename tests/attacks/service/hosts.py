"""Host names: a page of a stranger whose name leads to the service (DNS rebinding)."""

from harness import Browser, OPERATOR, Service, finish, row

service = Service()
for path in ("/", "/account", "/console", "/oauth/authorize", "/admin/vaults", "/mcp", "/.well-known/oauth-authorization-server"):
    refused = [service.send("GET", path, host=host) for host in ("evil.example", f"evil.example:{service.port}", "")]
    own = service.send("GET", path)
    row(f"GET {path} under a foreign or empty name", all(answer.status in (400, 403, 421) for answer in refused), own.status != 403, f"{[str(answer) for answer in refused]}, own name {own.status}")
register = [("Content-Type", "application/json")], '{"client_name":"x","redirect_uris":["http://127.0.0.1:9/"]}'
refused, own = service.send("POST", "/oauth/register", *register, host="evil.example"), service.send("POST", "/oauth/register", *register)
row("an app is registered under a foreign name", refused.status in (400, 403, 421), own.status == 201, f"{refused}, own name {own.status}")
row("a browser signs in under the own name", True, Browser(service).log_in(*OPERATOR).status == 303)
row("a probe asks for the health by address", True, service.send("GET", "/healthz", host="10.0.0.7").status == 200)
finish()
