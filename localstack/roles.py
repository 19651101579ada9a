"""Enforces the roles of infra/functions.tf in front of an emulator, which checks none.

    roles.py serve STATE EMULATOR RECORD    prints each function's address, as JSON; SIGTERM ends it
    roles.py check STATE RECORD [--whole]   reports what RECORD shows

Each function calls an address of its own, which says whose role judges the call. The roles are those in Terraform's state, the file STATE, which is
read again when it changes. A call that the role does not allow gets the answer of AWS; any other goes to EMULATOR. RECORD gets a line for
the first call of each function, action and target (the class of a partition or object), and for the first one that was refused. Calls of other
tables and buckets than the deployment's are refused too, but not recorded.

`check` fails if a call was refused, and names the right that is missing. With --whole, after a run of all tests, it also fails if a role has a
right that no call used, unless localstack/unreached.json says why the tests cannot use it.

It judges what these roles have: Allow, with actions, resources with `*`, and the conditions ForAllValues:StringLike, StringLike and Null. Any other
condition allows nothing. Where several parts of a transaction need the same action, their partitions are judged together.
Exit: 1 a finding, 2 wrong usage.
"""

import fnmatch
import http.client
import http.server
import json
import pathlib
import re
import signal
import sys
import threading
import urllib.parse

PARTITIONS = pathlib.Path(__file__).parent.parent / "infra/partitions.json"
UNREACHED = pathlib.Path(__file__).with_name("unreached.json")
TRANSACTION = {"Get": "GetItem", "Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
OBJECT_ACTIONS = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
# Headers of one connection, which are not passed on.
HOP = {"connection", "content-length", "transfer-encoding", "expect", "host", "date", "server"}


def listed(value):
    return value if isinstance(value, list) else [value]


def matches(text, patterns):
    """Whether one of the patterns, in which only `*` is special, matches the text."""
    return any(fnmatch.fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in listed(patterns))


# --- roles --------------------------------------------------------------------------------------


class Roles:
    """The roles in a state file of Terraform, by function."""

    def __init__(self, path):
        self.path, self.read_at, self.lock = pathlib.Path(path), None, threading.Lock()
        self.policies, self.table, self.bucket = {}, None, None

    def refresh(self):
        with self.lock:
            try:
                changed_at = self.path.stat().st_mtime_ns
                if changed_at == self.read_at:
                    return
                state = json.loads(self.path.read_text(encoding="utf-8"))
            except (FileNotFoundError, json.JSONDecodeError):
                return  # Not deployed yet, or Terraform is writing it.
            for resource in state["resources"]:
                for instance in resource["instances"]:
                    if resource["type"] == "aws_iam_role_policy":
                        self.policies[instance["index_key"]] = json.loads(instance["attributes"]["policy"])["Statement"]
                    elif resource["type"] == "aws_dynamodb_table":
                        self.table = instance["attributes"]["arn"]
                    elif resource["type"] == "aws_s3_bucket":
                        self.bucket = instance["attributes"]["arn"]
            self.read_at = changed_at

    def arn(self, service, resource):
        """The ARN of a resource in the account and region of the table."""
        partition, _, region, account = self.table.split(":")[1:5]
        return f"arn:{partition}:{service}:{region}:{account}:{resource}"

    def owns(self, call):
        """Whether the call is about the deployment's table or bucket, and no other: the tests of wrong settings name others."""
        service, resource = call.action.partition(":")[0], call.resource.partition("/")
        return {"dynamodb": call.resource == self.table, "s3": resource[0] == self.bucket}.get(service, True)

    def allows(self, function, call):
        return any(is_allowed(statement, call) for statement in self.policies.get(function, []))


def is_allowed(statement, call):
    return (
        statement["Effect"] == "Allow"
        and matches(call.action, statement["Action"])
        and matches(call.resource, statement["Resource"])
        and all(
            holds(operator, call.context.get(key), expected)
            for operator, keys in statement.get("Condition", {}).items()
            for key, expected in keys.items()
        )
    )


def holds(operator, values, expected):
    """Whether a condition holds for the values of its key; None if the call does not have the key."""
    if operator == "Null":
        return listed(expected) == ["true" if values is None else "false"]
    if operator == "ForAllValues:StringLike":
        return all(matches(value, expected) for value in values or [])
    if operator == "StringLike":
        return values is not None and all(matches(value, expected) for value in values)
    return False


class Call:
    """An action on a resource. The targets say in a few words what it reaches."""

    def __init__(self, action, resource, context=None, targets=None):
        self.action, self.resource, self.context = action, resource, context or {}
        self.targets = targets if targets is not None else [resource]


def partition_class(partition):
    first, slash, _ = partition.partition("/")
    return f"{first}/*" if slash else first


def read_calls(roles, method, path, headers, body):
    """What a request asks for: the calls that its function's role must allow."""
    target = headers.get("X-Amz-Target", "")
    if target.startswith("DynamoDB_"):
        return table_calls(roles, target.split(".")[1], json.loads(body))
    if target.startswith("AmazonSSM."):
        name = json.loads(body).get("Name", "").removeprefix("/")
        return [Call(f"ssm:{target.split('.')[1]}", roles.arn("ssm", f"parameter/{name}"))]
    return bucket_calls(method, path)


def table_calls(roles, operation, request):
    if operation.startswith("Transact"):
        parts = [(TRANSACTION[kind], part) for item in request["TransactItems"] for kind, part in item.items()]
    else:
        parts = [(operation, request)]
    partitions = {}
    for action, part in parts:
        partitions.setdefault((action, part.get("TableName", "")), []).append(partition_of(part))
    calls = []
    for (action, table), keys in partitions.items():
        context = {} if None in keys else {"dynamodb:LeadingKeys": keys}
        targets = sorted({partition_class(key or "") for key in keys})
        calls.append(Call(f"dynamodb:{action}", roles.arn("dynamodb", f"table/{table}"), context, targets))
    return calls


def partition_of(part):
    """The partition that one item or one query names; None if it names none."""
    item = part.get("Key") or part.get("Item")
    if item:
        return item["pk"]["S"]
    names, values = part.get("ExpressionAttributeNames", {}), part.get("ExpressionAttributeValues", {})
    for name, value in re.findall(r"([#\w]+)\s*=\s*(:\w+)", part.get("KeyConditionExpression", "")):
        if names.get(name, name) == "pk":
            return values[value]["S"]
    return None


def bucket_calls(method, path):
    url = urllib.parse.urlsplit(path)
    query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
    bucket, _, key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    if key:
        return [Call(f"s3:{OBJECT_ACTIONS.get(method, method)}", f"{arn}/{key}", targets=[object_class(key)])]
    if method in ("GET", "HEAD"):
        prefix = query.get("prefix")
        return [Call("s3:ListBucket", arn, {"s3:prefix": prefix} if prefix else {}, [object_class(prefix[0]) if prefix else ""])]
    return [Call(f"s3:{method}{'?' if query else ''}{','.join(sorted(query))}", arn)]


def object_class(key):
    """`ns/<namespace>/<class>/…` without its names."""
    parts = key.split("/")
    return f"ns/*/{parts[2]}/*" if len(parts) == 4 and parts[0] == "ns" else key


# --- the proxy ----------------------------------------------------------------------------------


class Record:
    """The file that gets one line for each kind of call."""

    def __init__(self, path):
        self.file, self.lock, self.seen = open(path, "a", buffering=1, encoding="utf-8"), threading.Lock(), set()

    def note(self, function, action, targets, allowed):
        for target in targets:
            line = json.dumps({"function": function, "action": action, "target": target, "allowed": allowed})
            with self.lock:
                if line not in self.seen:
                    self.seen.add(line)
                    self.file.write(line + "\n")


class Handler(http.server.BaseHTTPRequestHandler):
    """Judges one request of a function and passes it on."""

    protocol_version = "HTTP/1.1"
    roles, record, emulator, function = None, None, None, None

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.roles.refresh()
        for call in read_calls(self.roles, self.command, self.path, self.headers, body):
            if not self.judge(call):
                return self.refuse(call)
        status, headers, content = self.ask(body)
        # AWS tells that an object is absent only to a role that may list all of its bucket. To the others it refuses the answer; the record does not
        # have this, because the function then asks for a list.
        bucket, _, key = self.path.partition("?")[0].lstrip("/").partition("/")
        if status == 404 and key and self.command in ("GET", "HEAD"):
            absence = Call("s3:ListBucket", f"arn:aws:s3:::{bucket}", targets=["absent object"])
            if not self.roles.allows(self.function, absence):
                return self.refuse(absence)
            self.judge(absence)
        self.send(status, headers, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def judge(self, call):
        allowed = self.roles.allows(self.function, call)
        if self.roles.owns(call):
            self.record.note(self.function, call.action, call.targets if allowed else self.culprits(call), allowed)
        return allowed

    def culprits(self, call):
        """Of several partitions that are judged together, those that are not allowed by themselves."""
        alone = {target: Call(call.action, call.resource, {"dynamodb:LeadingKeys": [target]}) for target in call.targets}
        return [target for target, one in alone.items() if not self.roles.allows(self.function, one)] or call.targets

    def ask(self, body):
        connection = http.client.HTTPConnection(self.emulator, timeout=30)
        connection.putrequest(self.command, self.path, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP]
        # The length of a HEAD is that of the object.
        headers.append(("Content-Length", answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))))
        connection.close()
        return answer.status, headers, content

    def refuse(self, call):
        why = f"User is not authorized to perform: {call.action} on resource: {call.resource}"
        if self.headers.get("X-Amz-Target"):
            status, kind = 400, "application/x-amz-json-1.0"
            content = json.dumps({"__type": "com.amazonaws#AccessDeniedException", "message": why}).encode()
        else:
            status, kind = 403, "application/xml"
            content = f'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>{why}</Message></Error>'.encode()
        self.send(status, [("Content-Type", kind), ("Content-Length", str(len(content)))], content)

    def send(self, status, headers, content):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # Many functions start at once.
    request_queue_size = 256

    def handle_error(self, request, client_address):
        # The emulator stops a function as soon as it has answered, in the middle of its requests.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def serve(state, emulator, record):
    shared = {"roles": Roles(state), "record": Record(record), "emulator": urllib.parse.urlsplit(emulator).netloc}
    addresses = {}
    for function in json.loads(PARTITIONS.read_text(encoding="utf-8")):
        server = Server(("127.0.0.1", 0), type("FunctionHandler", (Handler,), shared | {"function": function}))
        addresses[function] = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(json.dumps(addresses), flush=True)
    signal.pause()


# --- the report ---------------------------------------------------------------------------------


def check(state, record, whole):
    roles = Roles(state)
    roles.refresh()
    lines = [json.loads(line) for line in pathlib.Path(record).read_text(encoding="utf-8").splitlines()]
    findings = [missing_right(line) for line in lines if not line["allowed"]]
    # A record without calls would prove nothing: the functions did not go through here, or there is no such deployment.
    silent = sorted(set(roles.policies) - {line["function"] for line in lines})
    if not roles.policies or not lines or (whole and silent):
        findings.append(f"no call of {', '.join(silent) or 'any function'} was recorded: do the functions go through roles.py?")
    if whole:
        findings += unused_rights(roles.policies, lines, json.loads(UNREACHED.read_text(encoding="utf-8")))
    for finding in findings:
        print(f"roles.py: {finding}", file=sys.stderr)
    if not findings:
        print(f"the roles allowed all {len(lines)} kinds of calls" + (", and no right is unused" if whole else ""))
    return 1 if findings else 0


def missing_right(line):
    function, action, target = line["function"], line["action"], line["target"]
    said = f"{function} was refused {action} on {target}"
    if not action.startswith("dynamodb:"):
        return f"{said}: if it should be allowed, add it to the function in infra/functions.tf"
    kind = "write" if action in ("dynamodb:PutItem", "dynamodb:UpdateItem") else "read"
    return f'{said}: if it should be allowed, add "{target}" to "{function}", "{kind}" in infra/partitions.json'


def unused_rights(policies, lines, unreached):
    """The rights that no call used. Of a statement, each action must be used on some target, and each target by some action."""
    findings, explained = [], set()
    for function, statements in policies.items():
        used = [(line["action"], line["target"]) for line in lines if line["function"] == function and line["allowed"]]
        for statement in statements:
            actions, targets = listed(statement["Action"]), targets_of(statement)
            here = [(a, t) for a, t in used if matches(a, actions) and any(reaches(target, t) for target in targets)]
            rights = [(right, any(matches(action, right) for action, _ in here)) for right in actions]
            rights += [(right, any(reaches(right, target) for _, target in here)) for right in targets]
            for right, is_used in rights:
                name = f"{function} {statement['Sid']} {right}"
                reason = next((pattern for pattern in unreached if fnmatch.fnmatchcase(name, pattern)), None)
                if reason:
                    # Some are used in some runs: what another process does first, for instance.
                    explained.add(reason)
                elif not is_used:
                    findings.append(f"no test used {name}: take the right away, or add the reason to localstack/unreached.json")
    findings += [f"localstack/unreached.json explains {pattern}, which no role has" for pattern in unreached if pattern not in explained]
    return findings


def targets_of(statement):
    """What a statement allows to reach: the partitions or prefixes of its condition, or else its resources."""
    conditions = statement.get("Condition", {})
    keys = conditions.get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys") or conditions.get("StringLike", {}).get("s3:prefix")
    return listed(keys) if keys else listed(statement["Resource"])


def reaches(right, target):
    """Whether the target of a call, which for objects has no bucket, is one of the right's."""
    if right.startswith("arn:aws:s3:::"):
        _, slash, right = right.partition("/")
        return not slash or matches(target, right)
    return matches(target, right)


def main(arguments):
    match arguments:
        case ["serve", state, emulator, record]:
            serve(state, emulator, record)
        case ["check", state, record]:
            sys.exit(check(state, record, False))
        case ["check", state, record, "--whole"]:
            sys.exit(check(state, record, True))
    print(__doc__, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
