#!/bin/sh
# Shows what would be committed: staged.sh [folder]. Reads only.
set -eu
cd "${1:-${VAULT_CALLED_FROM:-.}}"

if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "staged: $(pwd) is not a git working tree" >&2
  exit 1
fi
if git diff --cached --quiet; then
  echo "Nothing is staged."
  git status --short | head -20
  exit 0
fi

echo "Staged:"
git diff --cached --stat

also=$(git diff --name-only)
both=$(git diff --cached --name-only | while IFS= read -r file; do
  printf '%s\n' "$also" | grep -Fxq -- "$file" && printf '  %s\n' "$file" || true
done)
if [ -n "$both" ]; then
  echo
  echo "Staged in part (more changes of the same file are not staged):"
  echo "$both"
fi

large=$(git diff --cached --name-only --diff-filter=A | while IFS= read -r file; do
  size=$(git cat-file -s ":$file" 2>/dev/null || echo 0)
  [ "$size" -gt 500000 ] && printf '  %s (%s bytes)\n' "$file" "$size" || true
done)
if [ -n "$large" ]; then
  echo
  echo "New large files:"
  echo "$large"
fi

likely=$(git diff --cached --name-only --diff-filter=A | grep -E '(^|/)(\.env|id_(rsa|ed25519)|.*\.(pem|p12|key)|\.DS_Store)$' || true)
if [ -n "$likely" ]; then
  echo
  echo "New files that are seldom meant to be committed:"
  echo "$likely" | sed 's/^/  /'
fi
