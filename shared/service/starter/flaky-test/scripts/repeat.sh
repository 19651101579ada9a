#!/bin/sh
# Runs a command many times: repeat.sh <times> <command> [arguments...]. Keeps the output of the first failure.
set -u
cd "${VAULT_CALLED_FROM:-.}" || exit 1

case ${1:-} in
  '' | *[!0-9]* | 0) echo "usage: repeat <times> <command> [arguments...]" >&2; exit 2 ;;
esac
times=$1
shift
[ $# -gt 0 ] || { echo "usage: repeat <times> <command> [arguments...]" >&2; exit 2; }

output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
trap 'exit 130' INT TERM
failed=0
first=
run=0
while [ "$run" -lt "$times" ]; do
  run=$((run + 1))
  if ! "$@" >"$output" 2>&1; then
    failed=$((failed + 1))
    if [ -z "$first" ]; then
      first=$run
      echo "Run $run failed first. The end of its output:"
      tail -n 40 "$output" | sed 's/^/  | /'
    fi
  fi
done
echo "$failed of $times runs failed."
[ "$failed" -eq 0 ]
