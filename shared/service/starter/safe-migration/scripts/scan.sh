#!/bin/sh
# Marks risky statements in SQL files: scan.sh <file or folder>... Reads only. Exit 3 when something was marked.
set -eu
cd "${VAULT_CALLED_FROM:-.}"
[ $# -gt 0 ] || set -- .

found=$(find "$@" -type f -name '*.sql' -exec awk '
  function mark(what) { printf "%s:%d: %s\n", FILENAME, FNR, what }
  FNR == 1 { timeout = 0 }
  { text = toupper($0); sub(/--.*/, "", text) }
  text ~ /LOCK_TIMEOUT/ { timeout = 1 }
  text ~ /DROP[ \t]+TABLE/ { mark("drops a table: cannot be taken back") }
  text ~ /DROP[ \t]+COLUMN/ { mark("drops a column: running code may still read it") }
  text ~ /RENAME[ \t]+(TO|COLUMN)/ { mark("renames: running code breaks; expand, move, contract") }
  text ~ /ALTER[ \t]+(COLUMN[ \t]+)?[A-Z_"]+[ \t]+(SET[ \t]+DATA[ \t]+)?TYPE/ { mark("changes a type: may rewrite the table") }
  text ~ /SET[ \t]+NOT[ \t]+NULL/ { mark("SET NOT NULL scans the table under a lock") }
  text ~ /CREATE[ \t]+(UNIQUE[ \t]+)?INDEX/ && text !~ /CONCURRENTLY/ { mark("index without CONCURRENTLY blocks writes") }
  text ~ /FOREIGN[ \t]+KEY/ && text ~ /ADD/ && text !~ /NOT[ \t]+VALID/ { mark("foreign key without NOT VALID locks both tables") }
  text ~ /TRUNCATE/ { mark("TRUNCATE empties the table at once") }
  text ~ /^[ \t]*UPDATE[ \t]/ && text !~ /WHERE/ && text ~ /;/ { mark("UPDATE without WHERE") }
  text ~ /^[ \t]*DELETE[ \t]+FROM/ && text !~ /WHERE/ && text ~ /;/ { mark("DELETE without WHERE") }
  text ~ /ALTER[ \t]+TABLE/ && !timeout { mark("no lock_timeout set before it"); timeout = 1 }
' {} +)

if [ -z "$found" ]; then
  echo "Nothing marked. A clean scan is no proof: read the migration."
  exit 0
fi
printf '%s\n' "$found"
exit 3
