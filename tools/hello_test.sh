#!/bin/sh
# hello_test.sh HELLO - the example of the README does what it says, twice on the same directory.
set -eu
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/cohort-hello.XXXXXX")
trap 'rm -rf "$dir"' EXIT
for run in 1 2; do
    out=$("$1" "$dir/db")
    [ "$out" = "hello, world" ] || { echo "run $run: got '$out'"; exit 1; }
done
echo "1 passed, 0 failed"
