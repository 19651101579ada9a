# Read by scripts of the tests, not run: a PostgreSQL cluster in a folder of its own.
# shellcheck shell=bash

# Prints the folder of the programs of PostgreSQL; status 1 where there is none.
postgres_bin() {
    for folder in /usr/lib/postgresql/*/bin /usr/local/pgsql/bin /opt/homebrew/opt/postgresql*/bin; do
        [ -x "$folder/initdb" ] && { echo "$folder"; return 0; }
    done
    command -v initdb >/dev/null && dirname "$(command -v initdb)"
}

# start_postgres DATABASE...: starts a cluster with these databases; the address of one is "$postgres_at/DATABASE". Status 1 where PostgreSQL
# is missing. The script ends it with end_postgres.
start_postgres() {
    local port name
    postgres_programs=$(postgres_bin) || return 1
    postgres_folder=$(mktemp -d)
    postgres_as=()
    if [ "$(id -u)" = 0 ]; then
        # PostgreSQL refuses to run as root.
        chown nobody "$postgres_folder"
        postgres_as=(runuser -u nobody --)
    fi
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    postgres_at="postgres://vault@127.0.0.1:$port"
    run_postgres initdb -D "$postgres_folder/data" -U vault -A trust --no-sync || stop 1 "PostgreSQL made no cluster"
    run_postgres pg_ctl -D "$postgres_folder/data" -w -l "$postgres_folder/log" \
        -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$postgres_folder -c fsync=off" start || stop 1 "PostgreSQL did not start"
    for name in "$@"; do
        run_postgres createdb -h 127.0.0.1 -p "$port" -U vault "$name" || stop 1 "PostgreSQL made no database $name"
    done
}

# Runs a program of PostgreSQL; the server that it may start keeps no pipe open.
run_postgres() {
    local program=$1
    shift
    (cd / && ${postgres_as[@]+"${postgres_as[@]}"} "$postgres_programs/$program" "$@" >/dev/null 2>&1 </dev/null)
}

# Ends the cluster, if there is one.
end_postgres() {
    [ -n "${postgres_folder:-}" ] || return 0
    run_postgres pg_ctl -D "$postgres_folder/data" -m immediate stop || true
    rm -rf "$postgres_folder"
    postgres_folder=''
}
