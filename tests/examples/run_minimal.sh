#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_minimal.sh DEVSERVER MINIMAL: the example stores and loads, and fails as it should.
set -euo pipefail
devserver=$1 minimal=$2

fail() { echo "run_minimal: $*" >&2; exit 1; }

# The server ends with its stdin, whatever becomes of this script.
coproc SERVER { exec "$devserver" --port 0; }
server=$SERVER_PID
read -r word hosts <&"${SERVER[0]}"
[ "$word" = ready ] || fail "the server said: $word $hosts"

out=$("$minimal" "$hosts") || fail "exit code $?"
[ "$out" = hello ] || fail "printed: $out"

code=0
"$minimal" || code=$?
[ "$code" = 2 ] || fail "without arguments: exit code $code"

kill "$server"
wait "$server" || true

# Nobody listens there any more.
code=0
errors=$("$minimal" "$hosts" 2>&1) || code=$?
[ "$code" = 3 ] || fail "without a server: exit code $code"
case $errors in *"$hosts"*) ;; *) fail "the message does not name the host: $errors" ;; esac
