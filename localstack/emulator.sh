# Starts, recognises and stops the emulator, and what enforces roles in front of it. Sourced by `up` and `down`, after infra/common.sh.

state="$state_home/localstack"
deployment=vault-local

# A process is recognised by its id and its start time, because ids are reused.
began() { ps -o lstart= -p "$1" 2>/dev/null | tr -s ' '; }

# process_runs FILE: whether the process with the id and the start time in the file still runs.
process_runs() {
    local pid when
    [ -f "$1" ] || return 1
    { read -r pid && IFS= read -r when; } <"$1" || return 1
    [ -n "$when" ] && [ "$(began "$pid")" = "$when" ]
}

running() { process_runs "$state/pid"; }

# start_emulator PYTHON PORT: in its own process group, and without the caller's environment, which the functions would inherit.
start_emulator() {
    local python="$1" port="$2" pid tries
    if curl -s -o /dev/null --max-time 2 "http://127.0.0.1:$port/"; then
        fail 1 "port $port is in use; choose another with --port"
    fi
    # The emulator keeps everything in memory, so an earlier deployment is gone.
    stop_process "$state/roles.pid"
    rm -rf "$state/vault" "$state/home" "$state/roles.record"
    mkdir -p "$state/home"
    say "starting the emulator at http://127.0.0.1:$port"
    set -m
    env -i PATH="${python%/*}:/usr/local/bin:/usr/bin:/bin" LANG=C.UTF-8 HOME="$state/home" TMPDIR="$state/home" \
        BIND_HOST=127.0.0.1 GATEWAY_PORT="$port" AWS_ENDPOINT_URL="http://127.0.0.1:$port" \
        "$python" -m ministack </dev/null >"$state/emulator.log" 2>&1 &
    pid=$!
    set +m
    for tries in $(seq 150); do
        kill -0 "$pid" 2>/dev/null || fail 1 "the emulator stopped at once; the log is $state/emulator.log"
        printf '%s\n%s\n' "$pid" "$(began "$pid")" >"$state/pid"
        curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$port/_ministack/health" && return 0
        sleep 0.2
    done
    stop_emulator
    fail 1 "the emulator did not answer within 30 seconds; the log is $state/emulator.log"
}

# start_helper NAME SAID [VARIABLE=VALUE]... COMMAND...: a program that writes its address to the file NAME once it listens, unless it runs.
# It has no other variables of the caller. Returns 1 if it does not start; its log is NAME.log.
start_helper() {
    local name="$1" said="$2" tries
    shift 2
    process_runs "$state/$name.pid" && return 0
    rm -f "$state/$name"
    say "$said"
    set -m
    env -i PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 HOME="$state/home" "$@" </dev/null >"$state/$name" 2>"$state/$name.log" &
    printf '%s\n%s\n' "$!" "$(began "$!")" >"$state/$name.pid"
    set +m
    for tries in $(seq 100); do
        [ ! -s "$state/$name" ] || return 0
        process_runs "$state/$name.pid" || break
        sleep 0.1
    done
    return 1
}

# start_roles PYTHON ENDPOINT: localstack/roles.py, unless it runs. The address of each function is in the file `roles`.
start_roles() {
    start_helper roles "enforcing the roles of the functions" \
        "$1" "$root/localstack/roles.py" serve "$state/vault/infra/$deployment/terraform.tfstate" "$2" "$state/roles.record" && return 0
    stop_process "$state/roles.pid"
    fail 1 "localstack/roles.py did not start; the log is $state/roles.log"
}

# stop_process FILE: ends the process group of the process in the file, and nothing else.
stop_process() {
    local pid tries
    process_runs "$1" || return 0
    read -r pid <"$1"
    kill -TERM -- "-$pid" 2>/dev/null || true
    for tries in $(seq 50); do
        kill -0 -- "-$pid" 2>/dev/null || break
        sleep 0.2
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    rm -f "$1"
}

# Stops the emulator and the functions that it runs.
stop_emulator() { stop_process "$state/pid"; }

# live_zips PYTHON BUILD FOLDER: zips whose program is a script that runs BUILD/<function>. The emulator starts a process for each call, so what
# cargo builds there is deployed at once.
live_zips() {
    "$1" - "$2" "$3" $functions <<'END'
import pathlib, shlex, sys, zipfile

build, folder, *functions = sys.argv[1:]
for function in functions:
    program = shlex.quote(f"{build}/{function}")
    # While cargo replaces the program, it is not there for a moment.
    script = f"#!/bin/sh\nfor wait in 1 2 3 4 5 6 7 8 9 10; do\n    [ ! -x {program} ] || exec {program}\n    sleep 0.2\ndone\nexec {program}\n"
    # A fixed time: the same script gives the same zip.
    entry = zipfile.ZipInfo("bootstrap", (2020, 1, 1, 0, 0, 0))
    entry.external_attr = 0o100755 << 16
    path = pathlib.Path(folder, function, "bootstrap.zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(entry, script)
END
}
