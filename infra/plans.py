"""Plans the Terraform files for AWS, without AWS, and checks the plans.

    python3 infra/plans.py FOLDER

FOLDER has copies of the files, and a provider (`prepare_terraform` of infra/common.sh). A plan asks AWS only whose account it is for; a server
on the loopback address answers that. Exit: 1 a finding.
"""

import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

# What the tests on the emulator judge calls with judges the plans too.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "localstack"))
sys.dont_write_bytecode = True
from roles import Call, is_allowed, listed  # noqa: E402

ACCOUNT = "123456789012"
FUNCTIONS = {"oauth", "mcp", "admin", "devices", "catalog"}
# Texts that must be nowhere but where a check below expects them.
PASSWORD = "the-password-of-the-first-owner"
ORIGIN = ["the-newest-secret-of-cloudfront-0001", "the-secret-that-it-sent-before-0002"]
CERTIFICATE = f"arn:aws:acm:us-east-1:{ACCOUNT}:certificate/one"
KEY = f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/one"
PARAMETERS = f"arn:aws:ssm:eu-central-1:{ACCOUNT}:parameter"

EDGE = {
    "public_url": "https://vault.example.com",
    "origin_secrets": ORIGIN,
    "edge": {"certificate": CERTIFICATE, "gateway_certificate": CERTIFICATE.replace("us-east-1", "eu-central-1")},
}
EVERYTHING = EDGE | {
    "alarm_email": "alarms@example.com",
    "budget": {"usd": 20, "email": "budget@example.com"},
    "concurrency": {"oauth": 50, "devices": 20},
    "table_throughput": {"read": 4000, "write": 1000},
    "kms_key_arn": KEY,
    "oidc_client_secret_parameter": "/vault/oidc",
    "payment_secrets_parameter": "/vault/payment",
    "smtp_url_parameter": "/vault/smtp",
    "mail_from": "vault@example.com",
}

TABLE = f"arn:aws:dynamodb:eu-central-1:{ACCOUNT}:table/vault-records"
OBJECTS = f"arn:aws:s3:::vault-objects-{ACCOUNT}-eu-central-1"

# Calls that the roles allow or not: function, action, partitions or the resource, and whether it is allowed.
CALLS = [
    ("catalog", "dynamodb:UpdateItem", ["seen/a"], True),
    ("catalog", "dynamodb:UpdateItem", ["seen/a", "seen/b"], True),
    ("catalog", "dynamodb:UpdateItem", ["seen/a", "ns/a"], False),
    ("catalog", "dynamodb:UpdateItem", ["seen"], False),
    # A call that names no partition, such as one of PartiQL, reaches none.
    ("catalog", "dynamodb:GetItem", None, False),
    ("admin", "dynamodb:PutItem", None, False),
    ("admin", "dynamodb:DeleteItem", ["draft/a"], False),
    ("admin", "dynamodb:Scan", None, False),
    ("admin", "dynamodb:PutItem", ["acct/a", "accounts"], True),
    ("admin", "dynamodb:PutItem", ["unknown/a"], False),
    # Strangers reach `devices`; it makes no account, session, token or member.
    ("devices", "dynamodb:PutItem", ["dev/a"], True),
    ("devices", "dynamodb:PutItem", ["acct/a"], False),
    ("devices", "dynamodb:PutItem", ["service"], False),
    ("devices", "dynamodb:PutItem", ["session/a"], False),
    ("devices", "dynamodb:PutItem", ["tok/a"], False),
    ("devices", "dynamodb:PutItem", ["user/a"], False),
    # An app that an owner ended stays ended.
    ("devices", "dynamodb:PutItem", ["conn/a"], False),
    ("mcp", "dynamodb:GetItem", ["draft/a"], True),
    ("devices", "s3:GetObject", f"{OBJECTS}/ns/a/bundles/b", False),
    # A listing has the prefix of its keys behind the bucket.
    ("devices", "s3:ListBucket", OBJECTS, False),
    ("devices", "s3:ListBucket", f"{OBJECTS}?ns/a/bundles/b", False),
    ("catalog", "s3:ListBucket", OBJECTS, False),
    ("catalog", "s3:ListBucket", f"{OBJECTS}?ns/a/bundles/b", True),
    ("catalog", "s3:ListBucket", f"{OBJECTS}?ns/a/drafts/b", False),
    ("catalog", "s3:ListBucket", f"{OBJECTS}?ns/", False),
    ("mcp", "s3:ListBucket", f"{OBJECTS}?ns/a/policies/b", True),
    ("mcp", "s3:ListBucket", f"{OBJECTS}?ns/a/closures/b", False),
    ("oauth", "s3:ListBucket", OBJECTS, False),
    ("oauth", "s3:ListBucket", f"{OBJECTS}?ns/a/drafts/b", True),
    ("oauth", "s3:ListBucket", f"{OBJECTS}?ns/a/bundles/", False),
    ("admin", "s3:ListBucket", OBJECTS, True),
    ("admin", "s3:ListBucket", f"{OBJECTS}?ns/a/bundles/", True),
    ("catalog", "s3:GetObject", f"{OBJECTS}/ns/a/bundles/b", True),
    ("catalog", "s3:GetObject", f"{OBJECTS}/ns/a/drafts/b", False),
    ("catalog", "s3:PutObject", f"{OBJECTS}/ns/a/bundles/b", False),
    ("mcp", "s3:PutObject", f"{OBJECTS}/ns/a/drafts/b", True),
    ("mcp", "s3:PutObject", f"{OBJECTS}/ns/a/bundles/b", False),
    ("mcp", "s3:DeleteObject", f"{OBJECTS}/ns/a/drafts/b", False),
    ("mcp", "dynamodb:PutItem", ["service"], False),
    ("oauth", "ssm:GetParameter", f"{PARAMETERS}/vault/admin-password", True),
    ("mcp", "ssm:GetParameter", f"{PARAMETERS}/vault/admin-password", False),
]

# What the plan has only with the variable behind it.
VARIANTS = {
    "aws_apigatewayv2_api_mapping", "aws_apigatewayv2_domain_name", "aws_budgets_budget", "aws_cloudfront_distribution",
    "aws_cloudfront_origin_request_policy", "aws_cloudwatch_log_metric_filter", "aws_cloudwatch_metric_alarm", "aws_sns_topic", "aws_sns_topic_subscription",
    "aws_sqs_queue", "aws_wafv2_web_acl",
}

findings = []


def check(holds, text):
    if not holds:
        findings.append(text)


class Sts(http.server.BaseHTTPRequestHandler):
    """Answers GetCallerIdentity, and nothing else."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        known = b"Action=GetCallerIdentity" in body
        answer = (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
            f"<Arn>arn:aws:iam::{ACCOUNT}:user/test</Arn><UserId>test</UserId><Account>{ACCOUNT}</Account>"
            "</GetCallerIdentityResult></GetCallerIdentityResponse>"
        ).encode()
        self.send_response(200 if known else 400)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Plan:
    """A plan for an account in which nothing exists yet."""

    def __init__(self, document):
        self.text = json.dumps(document)
        self.resources = {r["address"]: r.get("values", {}) for r in document["planned_values"]["root_module"]["resources"]}
        self.written = {r["address"]: r.get("expressions", {}) for r in document["configuration"]["root_module"]["resources"]}

    def one(self, address):
        return self.resources[address]

    def references(self, resource, argument):
        """What an argument is made of. Its value may be known only after the plan."""
        return self.written[resource].get(argument, {}).get("references", [])

    def types(self):
        return {address.split(".")[0] for address in self.resources}

    def environment(self, function):
        return self.one(f'aws_lambda_function.function["{function}"]')["environment"][0]["variables"]

    def statements(self, function):
        policy = json.loads(self.one(f'aws_iam_role_policy.function["{function}"]')["policy"])
        return {statement["Sid"]: statement for statement in policy["Statement"]}


def run(folder, sts, variables):
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("AWS_", "TF_VAR_"))}
    environment |= {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL_STS": sts, "AWS_EC2_METADATA_DISABLED": "true",
        "TF_VAR_region": "eu-central-1", "TF_VAR_zips": "zips", "TF_VAR_admin_email": "ann@example.com", "TF_VAR_admin_password": PASSWORD,
    }
    for name, value in variables.items():
        environment[f"TF_VAR_{name}"] = value if isinstance(value, str) else json.dumps(value)
    command = ["terraform", f"-chdir={folder}", "plan", "-no-color", "-input=false", "-lock=false", "-out=checked.plan"]
    return subprocess.run(command, env=environment, capture_output=True, text=True), environment


def plan(folder, sts, variables):
    done, environment = run(folder, sts, variables)
    if done.returncode != 0:
        sys.exit(f"the plan failed:\n{done.stderr}")
    shown = subprocess.run(["terraform", f"-chdir={folder}", "show", "-json", "checked.plan"], env=environment, capture_output=True, text=True, check=True)
    return Plan(json.loads(shown.stdout))


def refused(folder, sts, variables, reason):
    done, _ = run(folder, sts, variables)
    told = re.sub(r"[\s│]+", " ", done.stderr)
    check(done.returncode != 0 and reason in told, f"{variables} is not refused because “{reason}”: {told[-600:]}")


def check_secrets(made):
    """No plan has a password; only CloudFront and the state have its secrets."""
    check(PASSWORD not in made.text, "the first owner's password is in the plan")
    for function in FUNCTIONS:
        environment = json.dumps(made.environment(function))
        check(not any(secret in environment for secret in ORIGIN), f"{function} has a secret of CloudFront in its variables")


def check_plain(made):
    check(not made.types() & VARIANTS, f"without variables the plan has {made.types() & VARIANTS}")
    check(made.one("aws_apigatewayv2_api.service").get("disable_execute_api_endpoint") is None, "the gateway's address is touched")
    for function in FUNCTIONS:
        values = made.one(f'aws_lambda_function.function["{function}"]')
        check(values["reserved_concurrent_executions"] == -1, f"{function} has reserved concurrency")
        names = {"VAULT_TABLE"} | ({"VAULT_ADMIN_EMAIL", "VAULT_ADMIN_PASSWORD_PARAMETER"} if function in ("oauth", "admin") else set())
        check(set(made.environment(function)) <= names | {"VAULT_BUCKET", "VAULT_PUBLIC_URL"}, f"{function} has further variables")
    table = made.one("aws_dynamodb_table.records")
    check(not table["on_demand_throughput"] or table["on_demand_throughput"] == [{}], "the table has a throughput")
    rule = made.one("aws_s3_bucket_server_side_encryption_configuration.objects")["rule"][0]
    check(rule["apply_server_side_encryption_by_default"][0]["sse_algorithm"] == "AES256", "the bucket has another key")


def check_edge(made):
    check(made.one("aws_apigatewayv2_api.service")["disable_execute_api_endpoint"] is True, "the gateway's own address is open")
    name = made.one("aws_apigatewayv2_domain_name.edge[0]")
    check(name["domain_name"] == "vault.example.com", "the gateway has another name than the public one, so Host would change")
    mapping = made.one("aws_apigatewayv2_api_mapping.edge[0]")
    check(not mapping.get("api_mapping_key"), "the mapping has a path, which would be a prefix of signed paths")

    front = made.one("aws_cloudfront_distribution.edge[0]")
    check(front["aliases"] == ["vault.example.com"], "CloudFront has another name")
    check(not front["ordered_cache_behavior"], "CloudFront treats some paths differently")
    check(not front["logging_config"], "CloudFront logs paths, and that of an invitation is a secret")
    behavior = front["default_cache_behavior"][0]
    check(behavior["viewer_protocol_policy"] == "https-only", "CloudFront takes http, or redirects it")
    check(behavior["cache_policy_id"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad", "CloudFront caches answers")
    check(len(behavior["allowed_methods"]) == 7, "CloudFront refuses methods")
    kept = {error["error_code"]: error["error_caching_min_ttl"] for error in front["custom_error_response"]}
    # https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/HTTPStatusCodes.html
    cached = {400, 403, 404, 405, 414, 416, 500, 501, 502, 503, 504}
    check(set(kept) == cached and set(kept.values()) == {0}, f"CloudFront keeps errors: {kept}")
    origin = front["origin"][0]
    check(origin["custom_header"] == [{"name": "X-Vault-Origin", "value": ORIGIN[0]}], "CloudFront does not send the newest secret")
    check(origin["custom_origin_config"][0]["origin_protocol_policy"] == "https-only", "CloudFront asks the gateway over http")
    headers = made.one("aws_cloudfront_origin_request_policy.edge[0]")["headers_config"][0]
    passed = ("allViewerAndWhitelistCloudFront", ["CloudFront-Viewer-Address"])
    check((headers["header_behavior"], headers["headers"][0]["items"]) == passed, "CloudFront does not pass on all headers and the viewer's address")

    acl = made.one("aws_wafv2_web_acl.edge[0]")
    check(acl["scope"] == "CLOUDFRONT", "the web ACL is not for CloudFront")
    limits = []
    for rule in json.loads(acl["rule_json"]):
        statement = rule["Statement"]["RateBasedStatement"]
        limits.append((statement["AggregateKeyType"], statement.get("CustomKeys"), statement["Limit"]))
        answer = rule["Action"]["Block"]["CustomResponse"]
        check(answer["ResponseCode"] == 429 and answer["ResponseHeaders"][0]["Name"] == "Retry-After", "WAF's answer is no 429")
        check(rule["VisibilityConfig"]["SampledRequestsEnabled"] is False, "WAF samples paths")
    check(limits == [("IP", None, 2000), ("CUSTOM_KEYS", [{"ASN": {}}], 20000)], f"the limits are {limits}")
    check(acl["visibility_config"][0]["sampled_requests_enabled"] is False, "WAF samples paths")

    digests = ",".join(hashlib.sha256(secret.encode()).hexdigest() for secret in ORIGIN)
    for function in FUNCTIONS:
        check(made.environment(function)["VAULT_ORIGIN_DIGESTS"] == digests, f"{function} does not check that requests came through CloudFront")


def check_rest(made):
    for function in FUNCTIONS:
        values = made.one(f'aws_lambda_function.function["{function}"]')
        wanted = {"oauth": 50, "devices": 20}.get(function, -1)
        check(values["reserved_concurrent_executions"] == wanted, f"{function} has another concurrency")
        check(values["kms_key_arn"] == KEY, f"{function} has another key")
        check(made.one(f'aws_cloudwatch_log_group.function["{function}"]')["kms_key_id"] == KEY, f"the logs of {function} have another key")
        key = made.statements(function)["Key"]
        check(key["Resource"] == KEY and "kms:ViaService" in key["Condition"]["StringEquals"], f"{function} may use the key by itself")
    check(made.one("aws_cloudwatch_log_group.api")["kms_key_id"] == KEY, "the access log has another key")
    check(made.one("aws_ssm_parameter.admin_password[0]")["key_id"] == KEY, "the password has another key")
    table = made.one("aws_dynamodb_table.records")
    check(table["on_demand_throughput"] == [{"max_read_request_units": 4000, "max_write_request_units": 1000}], "the table has another throughput")
    check(table["server_side_encryption"] == [{"enabled": True, "kms_key_arn": KEY}], "the table has another key")
    rule = made.one("aws_s3_bucket_server_side_encryption_configuration.objects")["rule"][0]
    by_default = rule["apply_server_side_encryption_by_default"][0]
    check((by_default["sse_algorithm"], by_default["kms_master_key_id"]) == ("aws:kms", KEY), "the bucket has another key")

    told = {n["notification_type"]: (n["threshold"], n["subscriber_email_addresses"]) for n in made.one("aws_budgets_budget.month[0]")["notification"]}
    mail = [EVERYTHING["budget"]["email"]]
    check(told == {"ACTUAL": (80, mail), "FORECASTED": (100, mail)}, f"the budget tells {told}")
    alarms = {address for address in made.resources if address.startswith("aws_cloudwatch_metric_alarm.")}
    check(len(alarms) == 8, f"the alarms are {alarms}")
    topic = "aws_sns_topic.alarms[0].arn"
    for resource in {address.split("[")[0] for address in alarms}:
        check(topic in made.references(resource, "alarm_actions"), f"{resource} tells nobody")
    told = made.one("aws_sns_topic_subscription.alarms[0]")
    check((told["protocol"], told["endpoint"]) == ("email", EVERYTHING["alarm_email"]), f"the alarms tell {told['endpoint']}")
    check(topic in made.references("aws_sns_topic_subscription.alarms", "topic_arn"), "nobody is told of the alarms")
    # Each trace of background work that failed, was skipped in part, is late, or never ran has an alarm that sees it.
    measured = {}
    for name, line in {"incomplete_work": "background work failed", "late_collection": "garbage collection is late"}.items():
        logged = made.one(f"aws_cloudwatch_log_metric_filter.{name}[0]")
        sought = f'{{ $.message = "{line}" }}'
        check((logged["pattern"], logged["log_group_name"]) == (sought, "/aws/lambda/vault-admin"), f"no alarm finds the line: {line}")
        metric = logged["metric_transformation"][0]
        check(metric["value"] == "1", f"the line does not count: {line}")
        measured[name] = (metric["namespace"], metric["name"], "Sum", 300, 1, "GreaterThanThreshold", 0, "notBreaching")
    check(len(set(measured.values())) == 2, "two traces count as one")
    traces = {
        **measured,
        "failed_work": ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", 300, 1, "GreaterThanThreshold", 0, "notBreaching"),
        "missing_work": ("AWS/Events", "Invocations", "Sum", 1800, 1, "LessThanThreshold", 1, "breaching"),
    }
    watched = ("namespace", "metric_name", "statistic", "period", "evaluation_periods", "comparison_operator", "threshold", "treat_missing_data")
    for name, wanted in traces.items():
        alarm = made.one(f"aws_cloudwatch_metric_alarm.{name}[0]")
        found = tuple(alarm[key] for key in watched)
        check(found == wanted, f"the alarm {name} watches {found}")
        check(alarm.get("actions_enabled") is not False, f"the alarm {name} tells nobody")
    queue = made.one("aws_sqs_queue.failed_work[0]")["name"]
    check(made.one("aws_cloudwatch_metric_alarm.failed_work[0]")["dimensions"] == {"QueueName": queue}, "no alarm watches the queue of failed work")
    rule = made.one("aws_cloudwatch_event_rule.work")["name"]
    check(made.one("aws_cloudwatch_metric_alarm.missing_work[0]")["dimensions"] == {"RuleName": rule}, "no alarm watches the schedule")
    for name, metric in {"errors": "Errors", "throttles": "Throttles"}.items():
        counted = made.one(f'aws_cloudwatch_metric_alarm.sum["{name}"]')["metric_query"]
        counted = {(m["metric_name"], m["dimensions"]["FunctionName"]) for query in counted for m in query["metric"]}
        check(counted == {(metric, f"vault-{function}") for function in FUNCTIONS}, f"the alarm {name} counts {counted}")
    for name, metrics in {"table": {"ReadThrottleEvents", "WriteThrottleEvents"}, "gateway": {"5xx"}}.items():
        counted = made.one(f'aws_cloudwatch_metric_alarm.sum["{name}"]')["metric_query"]
        counted = {m["metric_name"] for query in counted for m in query["metric"]}
        check(counted == metrics, f"the alarm {name} counts {counted}")
    ends = made.one("aws_lambda_function_event_invoke_config.work")["destination_config"]
    check([len(end["on_failure"]) for end in ends] == [1], "a run that failed leaves no event in the queue")
    failed = made.statements("admin")["FailedWork"]
    check(failed["Action"] == "sqs:SendMessage" and failed["Resource"].endswith(":vault-failed-work"), "admin cannot report failed work")


def check_rights(made, with_parameters):
    """Each parameter is read by the one function that needs it."""
    readers = {"admin-password": {"oauth", "admin"}}
    if with_parameters:
        readers |= {"oidc": {"oauth"}, "payment": {"admin"}, "smtp": {"admin"}}
    found = {}
    for function in FUNCTIONS:
        for statement in made.statements(function).values():
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            check(not any("*" in action for action in actions if not action.startswith("kms:")), f"{function} may {actions}")
            if any(action.startswith("ssm:") for action in actions):
                found.setdefault(statement["Resource"].removeprefix(f"{PARAMETERS}/vault/"), set()).add(function)
                deletes = "ssm:DeleteParameter" in actions
                check(deletes == statement["Resource"].endswith("/admin-password"), f"{function} may delete {statement['Resource']}")
    check(found == readers, f"the readers of parameters are {found}")


def check_calls(made):
    """The roles allow the calls that they should, and no others."""
    for function, action, reached, allowed in CALLS:
        if isinstance(reached, str):
            resource, question, prefix = reached.partition("?")
            call = Call(action, resource, {"s3:prefix": [prefix]} if question else {})
        else:
            call = Call(action, TABLE, {} if reached is None else {"dynamodb:LeadingKeys": reached})
        found = any(is_allowed(statement, call) for statement in made.statements(function).values())
        check(found == allowed, f"{function} {'may not' if allowed else 'may'} {action} {reached}")
    for function in FUNCTIONS:
        for statement in made.statements(function).values():
            keys = listed(statement.get("Condition", {}).get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys", []))
            check("dynamodb" not in json.dumps(statement["Action"]) or keys, f"{function} may reach all of the table")
            check(not any(key.startswith("*") for key in keys), f"{function} may reach {keys}")


def check_unlimited(made):
    """Without limits of partitions the functions reach all of the table, also by calls that name no partition."""
    for reached in (["acct/a"], None):
        call = Call("dynamodb:GetItem", TABLE, {} if reached is None else {"dynamodb:LeadingKeys": reached})
        found = any(is_allowed(statement, call) for statement in made.statements("catalog").values())
        check(found, f"catalog may not read {reached} although limit_partitions is false")


def main(folder):
    for function in FUNCTIONS:
        zipped = pathlib.Path(folder, "zips", function, "bootstrap.zip")
        zipped.parent.mkdir(parents=True, exist_ok=True)
        zipped.write_bytes(b"not read by a plan")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sts)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sts = f"http://127.0.0.1:{server.server_port}"

    # With an address, because the variables of a function are unknown as long as one of them is.
    plain = plan(folder, sts, {"public_url": "https://vault.example.com"})
    check_plain(plain)
    check_secrets(plain)
    check_rights(plain, False)
    check_calls(plain)
    everything = plan(folder, sts, EVERYTHING)
    check_edge(everything)
    check_rest(everything)
    check_secrets(everything)
    check_rights(everything, True)

    check_unlimited(plan(folder, sts, {"public_url": "https://vault.example.com", "limit_partitions": False}))

    for name in ("VAULT_PAYMENT_SECRETS", "VAULT_SMTP_URL"):
        refused(folder, sts, {"settings": {name: "x"}}, "settings must not hold secrets")
    refused(folder, sts, EDGE | {"public_url": ""}, "public_url must be https")
    refused(folder, sts, EDGE | {"origin_secrets": ["short"]}, "origin_secrets must have one or two")
    refused(folder, sts, {"roles_endpoints": {"admin": "http://127.0.0.1:1"}}, "roles_endpoints is for an emulator")
    refused(folder, sts, {"concurrency": {"ouath": 5}}, "concurrency has the names")
    for finding in findings:
        print(f"plans.py: {finding}", file=sys.stderr)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main(sys.argv[1])
