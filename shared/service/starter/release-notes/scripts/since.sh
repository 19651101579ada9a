#!/bin/sh
# Lists what changed since the last tag: since.sh [tag] [folder]. Reads only.
set -eu
cd "${2:-${VAULT_CALLED_FROM:-.}}"

if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "since: $(pwd) is not a git working tree" >&2
  exit 1
fi

tag=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
if [ -n "$tag" ]; then
  range="$tag..HEAD"
  echo "Since $tag ($(git log -1 --format=%as "$tag")): $(git rev-list --count "$range") commits"
else
  range=HEAD
  echo "There is no tag: the whole history, $(git rev-list --count HEAD) commits"
fi

echo
echo "Commits, newest first:"
git log --no-merges --format='  %h %as %s' "$range" | head -200

echo
echo "Areas (commits that touch each top folder):"
git log --no-merges --name-only --format='commit %h' "$range" | awk '
  /^commit / { id = $2; next }
  NF { split($0, part, "/"); key = id SUBSEP part[1]; if (!(key in seen)) { seen[key] = 1; count[part[1]]++ } }
  END { for (area in count) printf "%6d  %s\n", count[area], area }' | sort -nr | head -20

if [ -n "$tag" ]; then
  echo
  echo "Files where breaking changes often hide:"
  git diff --name-status "$range" |
    grep -E '(^D|migrat|schema|openapi|\.proto$|config|settings|cli|args|package\.json|Cargo\.toml|pyproject\.toml|go\.mod)' |
    head -30 | sed 's/^/  /' || true
fi
