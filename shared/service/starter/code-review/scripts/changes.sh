#!/bin/sh
# Prints what changed against a base branch: changes.sh [base] [folder]. Reads only.
set -eu
cd "${2:-${VAULT_CALLED_FROM:-.}}"

if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "changes: $(pwd) is not a git working tree" >&2
  exit 1
fi

base=${1:-}
if [ -z "$base" ]; then
  for candidate in origin/main origin/master main master; do
    if git rev-parse --verify --quiet "$candidate^{commit}" >/dev/null; then
      base=$candidate
      break
    fi
  done
fi
[ -n "$base" ] || base=HEAD
from=$(git merge-base "$base" HEAD 2>/dev/null || git rev-parse HEAD)

echo "Changed against $base, committed or not, largest first:"
git diff --numstat "$from" | sort -k1,1nr | awk '{ printf "%6s + %6s -  %s\n", $1, $2, $3 }'

echo
echo "Added lines that often should not be merged:"
git diff --unified=0 --no-color "$from" | awk '
  /^\+\+\+ b\// { file = substr($0, 7) }
  /^@@/ { split($3, at, ","); line = substr(at[1], 2) - 1 }
  /^\+/ && !/^\+\+\+/ {
    line++
    if ($0 ~ /(<<<<<<<|>>>>>>>)/) print file ":" line ": conflict marker"
    else if ($0 ~ /(console\.log|dbg!|pdb\.set_trace|var_dump|debugger;)/) print file ":" line ": debugging output"
    else if ($0 ~ /(TODO|FIXME|XXX)/) print file ":" line ": unfinished work"
    else if ($0 ~ /(-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16})/) print file ":" line ": looks like a secret"
    else if ($0 ~ /[ \t]+$/) print file ":" line ": blanks at the end of the line"
  }' | head -50

untracked=$(git ls-files --others --exclude-standard | head -20)
if [ -n "$untracked" ]; then
  echo
  echo "Not under version control:"
  echo "$untracked" | sed 's/^/  /'
fi
