#!/bin/sh
# hello_test.sh PROGRAM TEXT - an example prints what it should, twice on the same database. Examples put
# theirs into the current directory or where they are told to.
set -eu
program=$(realpath "$1")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/cohort-hello.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for run in 1 2; do
    out=$("$program" "$dir/db")
    [ "$out" = "$2" ] || { echo "run $run: got '$out'"; exit 1; }
done
echo "1 passed, 0 failed"
