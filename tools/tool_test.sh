#!/bin/sh
# tool_test.sh COHORT - the command from end to end: what it prints, what it exits with, bad input.
#
# Contract: exit 0, or 1 with exactly one line on stderr that names the error and the object.
set -u
cohort=$1
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/cohort-tool.XXXXXX")
holder=
trap 'test -n "$holder" && kill "$holder" 2>/dev/null; rm -rf "$dir"' EXIT
passed=0
failed=0
small="-o max_bytes=64M -o cache_bytes=4M"

verdict() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        cut -c1-300 "$dir/out" | sed 's/^/    out: /' | head -5
        cut -c1-300 "$dir/err" | sed 's/^/    err: /' | head -5
    fi
}

run() {
    "$cohort" "$@" >"$dir/out" 2>"$dir/err"
    status=$?
}

# ok NAME EXPECTED-OUTPUT ARGS: exit 0 and this output ('*' = any)
ok() {
    name=$1 want=$2
    shift 2
    run "$@"
    got=$(cat "$dir/out")
    verdict "$name" test "$status" -eq 0 -a \( "$want" = "*" -o "$got" = "$want" \)
}

# bad NAME PATTERN ARGS: exit 1 and one line on stderr that has the pattern
bad() {
    name=$1 pattern=$2
    shift 2
    run "$@"
    lines=$(wc -l <"$dir/err")
    grep -q -- "$pattern" "$dir/err"
    verdict "$name" test "$status$lines$?" = "110"
}

# json NAME PYTHON-EXPRESSION: each line of the last output is JSON, and the expression over `o`, the
# list of them, is true
json() {
    python3 -c '
import json, sys
o = [json.loads(line) for line in open(sys.argv[1]) if line.strip()]
sys.exit(0 if eval(sys.argv[2]) else 1)' "$dir/out" "$2" 2>>"$dir/err"
    verdict "$1" test $? -eq 0
}

long_key=$(head -c 1901 /dev/zero | tr '\0' k)
db=$dir/db

# ---- one entry ----
ok "version" "*" version
ok "help" "*" help
ok "help of a command" "*" help get
ok "help by option" "*" put --help
ok "help of a bench" "*" bench space --help
verdict "help of a bench names it" grep -q '^usage: cohort bench space \[OPTION\]' "$dir/out"
ok "help json" "*" help --json
json "help json" '"create" in [c["command"] for c in o]'
ok "create" "*" create "$db" $small
bad "create twice" "$db: already exists" create "$db"
ok "create in memory" "created sim:generic,bytes=64M: preset cohort, codec lz4; in memory, gone when this command ends" \
    create sim:generic,bytes=64M
ok "put" "" put "$db" key value
ok "get" "value" get "$db" key
ok "get json" '{"key":"key","value":"value"}' get "$db" key --json
ok "put replaces" "" put "$db" key other
ok "get replaced" "other" get "$db" key
bad "insert existing" "already exists: key 'key'" put "$db" key x --insert
bad "update missing" "not found: key 'nokey'" put "$db" nokey x --update
ok "empty value" "" put "$db" empty ""
ok "get empty value" "" get "$db" empty
ok "empty key" "" put "$db" "" nothing
ok "get empty key" "nothing" get "$db" ""
ok "hex" "" put "$db" --hex 00ff0a 0001
ok "get hex" "0001" get "$db" --hex 00FF0a
ok "json of bytes" "*" get "$db" --hex 00ff0a --json
json "json of bytes is hex" 'o == [{"key_hex": "00ff0a", "value_hex": "0001"}]'
ok "del" "" del "$db" key
bad "get deleted" "not found: key 'key'" get "$db" key
bad "del deleted" "not found: key 'key'" del "$db" key
printf 'from stdin' | "$cohort" put "$db" piped -
ok "value from stdin" "from stdin" get "$db" piped
ok "option after --" "" put "$db" -- --key --value
ok "get after --" "--value" get "$db" -- --key

# ---- bad input ----
bad "missing database" "no database there" get "$dir/nowhere" key
bad "missing parent" "$dir/no/such.*: No such file or directory$" create "$dir/no/such/db"
bad "directory below a file" ": Not a directory$" create "$dir/db/cohort.db/x"
if test "$(id -u)" -eq 0 && command -v setpriv >/dev/null; then # others may not enter $dir
    setpriv --reuid=65534 --regid=65534 --clear-groups "$cohort" get "$db" key >"$dir/out" 2>"$dir/err"
    verdict "no permission" test "$?$(grep -c ': Permission denied$' "$dir/err")" = "11"
fi
bad "unknown option" "unknown option" get "$db" key -o nonsense=1
bad "option out of range" "cache_bytes" get "$db" key -o cache_bytes=1
bad "option not a size" "cache_bytes" get "$db" key --cache 12Q
bad "size too large" "is too large" bench ycsb --value-bytes 99999999999T
bad "option not a name" "durability" put "$db" key v --durability sometimes
bad "option without value" "name=value" get "$db" key -o cache_bytes
bad "unknown flag" "--nonsense is not an option" get "$db" key --nonsense
bad "unknown letter" "-Z is not an option" get "$db" key -Z
bad "flag without value" "needs a value" get "$db" key --cache
bad "too few arguments" "get: .*needs DB KEY, got 1 argument;" get "$db"
bad "too many arguments" "get: .*needs DB KEY, got 3 arguments;" get "$db" a b
bad "arguments to a bench" "needs no arguments, got 1 argument;" bench ycsb x
bad "unknown command" "no command 'frobnicate'" frobnicate
bad "key too long" "key too long" put "$db" "$long_key" v
bad "get of a key too long" "key too long" get "$db" "$long_key"
bad "odd hex" "odd number" get "$db" --hex abc
bad "not hex" "not hex" get "$db" --hex zz
mkdir "$dir/wrong"
head -c 1048576 /dev/zero | tr '\0' x >"$dir/wrong/cohort.db"
bad "wrong magic" "$dir/wrong: not a Cohort database" get "$dir/wrong" key
mkdir "$dir/empty"
bad "empty directory" "no database there" get "$dir/empty" key
bad "a file" "$dir/wrong/cohort.db" get "$dir/wrong/cohort.db" key
bad "unknown drive" "sim:nonsense" create sim:nonsense,bytes=64M
bad "newline in key" "not found" get "$db" "a
b"

# ---- many entries ----
many=$dir/many
head -c 12000000 /dev/urandom | base64 -w 200 | awk '{printf "r%07d\t%s\n", NR, $0}' >"$dir/incompressible"
seq -f 'key%06.0f' 1 20000 | awk '{print $1 "\tvalue of " $1}' >"$dir/sorted"
sort -R "$dir/sorted" >"$dir/shuffled"
ok "load" "*" load "$many" "$dir/shuffled" --create $small --quiet
ok "count" "20000" scan "$many" --count
"$cohort" dump "$many" --quiet >"$dir/dumped"
verdict "dump equals what was loaded" cmp -s "$dir/sorted" "$dir/dumped"
ok "load from stdin" "*" load "$dir/again" "$dir/dumped" --create $small --json
json "load json" 'o[0]["entries"] == 20000'
ok "dump to a file" "" dump "$dir/again" "$dir/dumped2" --quiet
verdict "sorted load and dump" cmp -s "$dir/sorted" "$dir/dumped2"
ok "scan range" "$(sed -n 100,102p "$dir/sorted")" scan "$many" --from key000100 --to key000103
ok "scan limit" "$(sed -n 1,5p "$dir/sorted")" scan "$many" -n 5
ok "scan reverse" "$(tail -3 "$dir/sorted" | sort -r)" scan "$many" --reverse --limit 3
ok "scan reverse range" "$(sed -n '100,102p' "$dir/sorted" | sort -r)" \
    scan "$many" --reverse --from key000100 --to key000103
ok "scan prefix" "$(grep ^key01000 "$dir/sorted")" scan "$many" --prefix key01000
ok "scan prefix reverse" "$(grep ^key01000 "$dir/sorted" | sort -r)" \
    scan "$many" --prefix key01000 --reverse
ok "scan keys" "key000001" scan "$many" --keys-only -n 1
ok "scan nothing" "" scan "$many" --from z
ok "scan json" "*" scan "$many" --json -n 2
json "scan json" 'len(o) == 2 and o[1] == {"key": "key000002", "value": "value of key000002"}'
ok "check" "*" check "$many"
ok "check json" "*" check "$many" --json
json "check json" 'o[0]["entries"] == 20000 and o[0]["errors"] == 0 and o[0]["findings"] == []'
ok "info" "*" info "$many"
ok "info json" "*" info "$many" --json
json "info json" 'o[0]["preset"] == "cohort" and o[0]["codec"] == "lz4" and o[0]["pages"] > 100'
ok "stat" "*" stat "$many"
ok "stat json" "*" stat "$many" --json
json "stat json" 'o[0]["media_bytes"] is None and o[0]["pages"] > 100 and "user" in o[0]["bytes"]'
ok "options" "*" options
ok "options json" "*" options --json -o cache_bytes=32M
json "options json" '{p["name"]: p for p in o}["cache_bytes"]["value"] == "32M"'

# ---- named trees ----
trees=$dir/trees
ok "tree-create" "" tree-create "$trees" users --create $small
ok "tree-create with a codec" "" tree-create "$trees" packed --tree-codec zstd --tree-codec-level 3
bad "tree-create again" "already exists: tree 'users'" tree-create "$trees" users
bad "tree-create with no codec" "tree-create: .*codec" tree-create "$trees" x --tree-codec gzip
ok "put into a tree" "" put "$trees" --tree users ann "1 Main St"
ok "get from a tree" "1 Main St" get "$trees" ann --tree users
bad "not in the main tree" "not found: key 'ann'" get "$trees" ann
bad "no such tree" "not found: tree 'nobody'" get "$trees" ann --tree nobody
bad "put into no such tree" "not found: tree 'nobody'" put "$trees" a b --tree nobody
ok "put makes the tree" "" put "$trees" a b --tree made --create
ok "load into a tree" "*" load "$trees" "$dir/sorted" --tree packed --quiet
ok "load adds to a tree" "*" load "$trees" "$dir/shuffled" --tree packed --quiet
ok "scan of a tree" "$(sed -n 100,101p "$dir/sorted")" scan "$trees" --tree packed --from key000100 -n 2
"$cohort" dump "$trees" --tree packed --quiet >"$dir/dumped3"
verdict "dump of a tree" cmp -s "$dir/sorted" "$dir/dumped3"
bad "scan of no such tree" "not found: tree 'nobody'" scan "$trees" --tree nobody
ok "trees" "made	1
packed	20000
users	1" trees "$trees"
ok "trees by name" "made
packed
users" trees "$trees" --names
ok "trees json" "*" trees "$trees" --json
json "trees json" 'o == [{"tree": "made", "entries": 1}, {"tree": "packed", "entries": 20000}, {"tree": "users", "entries": 1}]'
ok "info tells trees" "*" info "$trees" --json
json "info tells trees" 'o[0]["trees"] == 3 and o[0]["transactions_prepared"] == 0'
ok "tree-rename" "" tree-rename "$trees" users people
bad "tree-rename of none" "not found: tree 'users'" tree-rename "$trees" users x
bad "tree-rename onto one" "already exists: tree 'packed'" tree-rename "$trees" people packed
ok "get after rename" "1 Main St" get "$trees" ann --tree people
ok "del from a tree" "" del "$trees" ann --tree people
bad "del again" "not found: key 'ann'" del "$trees" ann --tree people
ok "tree-truncate" "" tree-truncate "$trees" packed
ok "empty now" "0" scan "$trees" --tree packed --count
ok "tree-drop" "" tree-drop "$trees" packed
bad "tree-drop again" "not found: tree 'packed'" tree-drop "$trees" packed
ok "tree-drop of none" "" tree-drop "$trees" packed --if-exists
ok "check with trees" "*" check "$trees" --json
json "check with trees" 'o[0]["errors"] == 0 and o[0]["trees"] == 2'

# ---- large values, files ----
large=$dir/large
head -c 3000000 /dev/urandom >"$dir/blob"
ok "put of a file" "" put "$large" blob --file "$dir/blob" --create $small
ok "get to a file" "" get "$large" blob --file "$dir/blob2"
verdict "the same bytes" cmp -s "$dir/blob" "$dir/blob2"
"$cohort" put "$large" piped - <"$dir/blob"
"$cohort" get "$large" piped >"$dir/blob3"
verdict "through pipes, and a newline" test "$(wc -c <"$dir/blob3")" -eq 3000001
verdict "through pipes" cmp -s -n 3000000 "$dir/blob" "$dir/blob3"
od -An -v -tx1 "$dir/blob" | tr -d ' ' >"$dir/blob.hex"
"$cohort" put "$large" 686578 - --hex <"$dir/blob.hex"
ok "put of hex lines" "" get "$large" hex --file "$dir/blob4"
verdict "hex is bytes" cmp -s "$dir/blob" "$dir/blob4"
"$cohort" get "$large" 686578 --hex | tr -d '\n' >"$dir/blob5.hex"
tr -d '\n' <"$dir/blob.hex" >"$dir/blob6.hex"
verdict "get as hex" cmp -s "$dir/blob6.hex" "$dir/blob5.hex"
printf abc >"$dir/odd.hexfile"
bad "odd number of digits" "odd number" put "$large" 61 --hex --file "$dir/odd.hexfile"
bad "insert of what exists" "already exists: key 'blob'" put "$large" blob --insert --file "$dir/blob"
bad "update of what does not" "not found: key 'none'" put "$large" none --update --file "$dir/blob"
bad "neither value nor file" "needs a VALUE" put "$large" k
bad "value and file" "needs a VALUE" put "$large" k v --file "$dir/blob"
bad "no such file" "no-such-file" put "$large" k --file "$dir/no-such-file"
bad "file and json" "exclude" get "$large" blob --json --file "$dir/x"
bad "file that can't be" "no/such/dir" get "$large" blob --file "$dir/no/such/dir"
"$cohort" dump "$large" --quiet >"$dir/large.txt"
ok "load of large values" "*" load "$dir/large2" "$dir/large.txt" --create $small --quiet
ok "get of a loaded one" "" get "$dir/large2" blob --file "$dir/blob7"
verdict "large values come back" cmp -s "$dir/blob" "$dir/blob7"
ok "check with large values" "*" check "$large" --json
json "check with large values" 'o[0]["errors"] == 0 and o[0]["large_values"] == 3'
ok "del of a large value" "" del "$large" blob
ok "json get" "*" get "$large" hex --json

# ---- prepared transactions: none here ----
ok "prepared" "" prepared "$large"
bad "commit of none" "not found: prepared transaction 'x'" prepared "$large" --commit x
bad "abort of none" "not found: prepared transaction 'x'" prepared "$large" --abort x
bad "commit and abort" "exclude" prepared "$large" --commit x --abort x

# ---- bytes that text cannot hold ----
odd=$dir/odd
ok "odd bytes" "" put "$odd" --create $small --hex 09005c0aff 0a090d5c00
"$cohort" dump "$odd" --quiet >"$dir/odd.txt"
verdict "one line" test "$(wc -l <"$dir/odd.txt")" -eq 1
ok "load of escapes" "*" load "$dir/odd2" "$dir/odd.txt" --create $small --quiet
ok "escapes come back" "0a090d5c00" get "$dir/odd2" --hex 09005c0aff
"$cohort" dump "$odd" --json --quiet >"$dir/odd.json"
ok "load of JSON" "*" load "$dir/odd3" "$dir/odd.json" --create $small --jsonl --quiet
ok "JSON comes back" "0a090d5c00" get "$dir/odd3" --hex 09005c0aff
"$cohort" dump "$odd" --hex --quiet >"$dir/odd.hex"
ok "load of hex" "*" load "$dir/odd4" "$dir/odd.hex" --create $small --hex --quiet
ok "hex comes back" "0a090d5c00" get "$dir/odd4" --hex 09005c0aff
printf 'back\\slash\tv\\alue\n' >"$dir/raw"
bad "unknown escape" "line 1: .*escape" load "$odd" "$dir/raw"
ok "raw load" "*" load "$odd" "$dir/raw" --raw --quiet
ok "raw value" 'v\alue' get "$odd" 'back\slash'
printf 'good\tline\nno tab here\n' >"$dir/bad"
bad "line without tab" "bad line 2: no tab" load "$odd" "$dir/bad"
bad "load of nothing" "no-such-file" load "$odd" "$dir/no-such-file"
printf '%s\tv\n' "$long_key" >"$dir/long"
bad "load of a long key" "long line 1: key of 1901 bytes" load "$odd" "$dir/long"
printf '{"key": "a"}\n' >"$dir/half"
bad "JSON without value" 'no string "value"' load "$odd" "$dir/half" --jsonl
printf '{"key": \n' >"$dir/broken"
bad "broken JSON" "broken line 1: not a JSON object" load "$odd" "$dir/broken" --jsonl
run dump "$many" --quiet
"$cohort" dump "$many" >/dev/full 2>"$dir/err"
verdict "full output is an error" test $? -eq 1
"$cohort" version >/dev/full 2>"$dir/err"
verdict "full output is an error at the end, too" test $? -eq 1

# ---- what stands on the device ----
ok "dump root" "*" dump "$many" --root
verdict "one root in force" test "$(grep -c 'verdict = valid, in force' "$dir/out")" -eq 1
pages=$(sed -n 's/.* page_high = //p' "$dir/out" | sort -n | tail -1)
zones=$(sed -n 's/.* zones = //p' "$dir/out" | sort -n | tail -1)
ok "dump log" "*" dump "$many" --log
verdict "dump log ends at the tail" grep -q '^tail = [0-9]' "$dir/out"
ok "dump page" "*" dump "$many" --page 1
verdict "dump page is that page" grep -q ' page_id = 1$' "$dir/out"
verdict "dump page is whole" grep -q ' 0x[0-9a-f]*, right$' "$dir/out"
ok "dump page of an internal tree" "*" dump "$many" --page 2
verdict "dump page 2 is the list of trees" grep -q ', tree 6$' "$dir/out"
verdict "dump page 2 has the next id" grep -q ' next_id = [0-9]*$' "$dir/out"
bad "dump page without image" "page $pages has no image" dump "$many" --page "$pages"
bad "dump missing zone" "zone 99999999 does not exist" dump "$many" --zone 99999999
bad "dump root to a file" "print to stdout" dump "$many" "$dir/x" --root
bad "dump root as JSON" "text only" dump "$many" --root --json
bad "dump of nothing" "$dir/none" dump "$dir/none" --root
zone=0
: >"$dir/zones"
while [ "$zone" -lt "$zones" ]; do
    "$cohort" dump "$many" --zone "$zone" >>"$dir/zones" 2>>"$dir/err"
    zone=$((zone + 1))
done
run check "$many" --json
json "dump zone finds every live image" "o[0]['pages'] == $(grep '^slot ' "$dir/zones" | grep -o ' live' | wc -l)"
cp -r "$many" "$dir/hurt"
printf x | dd of="$dir/hurt/cohort.db" bs=1 seek=2000 conv=notrunc 2>/dev/null
printf x | dd of="$dir/hurt/cohort.db" bs=1 seek=34768 conv=notrunc 2>/dev/null
ok "dump damaged roots" "*" dump "$dir/hurt" --root
verdict "damaged roots are told" test "$(grep -c 'verdict = root record: checksum' "$dir/out")" -eq 2
bad "no log without a root" "root" dump "$dir/hurt" --log

# Of a database that was killed: the log has what the checkpoint does not.
mkfifo "$dir/killed.pipe"
"$cohort" load "$dir/killed" "$dir/killed.pipe" --create -o max_bytes=64M -o log_bytes=8M \
    -o cache_bytes=1M --quiet &
holder=$!
exec 9>"$dir/killed.pipe"
seq 1 60000 | awk '{print "key" $1 % 10 $1 "\tvalue of " $1}' >&9
for _ in 1 2 3 4 5 6 7 8 9 10; do # the cleaner has published something
    sleep 0.3
    test -s "$dir/killed/cohort.db" && break
done
sleep 1
kill -9 "$holder"
exec 9>&-
wait "$holder" 2>/dev/null
holder=
ok "dump log of a killed one" "*" dump "$dir/killed" --log
verdict "page changes in the log" grep -q '^record .* type 2,' "$dir/out"
mapped=$(awk '/^record/ { map = /type 1,/ } map && /page_id = / { id = $NF; next }
    map && /place = slot/ { print id }' "$dir/out" | tail -1)
verdict "MAP records in the log" test -n "$mapped"
ok "page of a MAP record" "*" dump "$dir/killed" --page "${mapped:-0}"
verdict "place of a MAP record" grep -q '^place_from = MAP record' "$dir/out"
verdict "its page" grep -q " page_id = $mapped\$" "$dir/out"
newer=0
for page in $(seq 1 100); do
    run dump "$dir/killed" --page "$page"
    grep -q '^newer_records = [1-9]' "$dir/out" && newer=$((newer + 1))
done
verdict "newer records of some pages, not of all" test "$newer" -gt 0 -a "$newer" -lt 100

# A file that may not grow, as on a full device: nothing lost, room again once it may.
printf 'a\tb\n' >"$dir/ab"
ok "load before the limit" "*" load "$dir/limited" "$dir/ab" --create -o log_bytes=4M -o zone_bytes=256K --quiet
blocks=$(($(wc -c <"$dir/limited/cohort.db") / 512))
(
    ulimit -f $((blocks + 2048))
    "$cohort" load "$dir/limited" "$dir/incompressible" --quiet >"$dir/out" 2>"$dir/err"
)
verdict "a limit of file size is an error" test $? -eq 1
verdict "named no space" grep -q ': no space left: ' "$dir/err"
ok "what was there" "b" get "$dir/limited" a
ok "check after it" "*" check "$dir/limited"
ok "room again" "*" load "$dir/limited" "$dir/incompressible" --quiet

# ---- a second opener ----
mkfifo "$dir/pipe"
"$cohort" load "$many" "$dir/pipe" --quiet 2>/dev/null &
holder=$!
exec 9>"$dir/pipe" # the loader opens its input, then the database
for _ in 1 2 3 4 5 6 7 8 9 10; do
    run get "$many" key000001
    test "$status" -eq 1 && break
    sleep 0.3
done
lines=$(wc -l <"$dir/err")
verdict "second opener" grep -q "$many: database is in use" "$dir/err"
verdict "second opener, one line" test "$lines" -eq 1
exec 9>&-
wait "$holder"
holder=
ok "free again" "value of key000001" get "$many" key000001

# ---- benches, small ----
ok "ycsb" "*" bench ycsb --device sim:generic,bytes=128M --records 20000 --ops 20000 --threads 2 \
    --json --quiet
json "ycsb counts" 'o[0]["ops"] == 20000 and o[0]["records"] == 20000 and o[0]["seed"] == 1'
fields="preset workload device model records value_bytes zipf_theta scrambled threads cache_bytes
    codec leaf_fill ops seconds ops_per_s latency_us payload_bytes page_writes reads_per_op hit_rate
    cpu_us_per_op cpu_percent rss_bytes metadata_bytes space_bytes live_bytes fill zones zone_bytes
    bytes host_bytes device_host_bytes media_bytes host_bytes_per_op compress_ratio
    compress_ratio_sd packed_ratio db_waf ssd_waf total_waf total_waf_with_log flash_bytes_per_op
    flash_bytes_per_payload_byte seed"
for field in $fields; do
    json "ycsb field $field" "'$field' in o[0]"
done
json "ycsb bytes add up" 'sum(o[0]["bytes"].values()) == o[0]["host_bytes"]'
for w in b c d e f; do
    ok "ycsb $w" "*" bench ycsb -d sim:generic,bytes=128M -w $w --records 5000 --ops 3000 \
        --threads 2 --json --quiet
    json "ycsb $w counts" 'o[0]["ops"] == 3000'
done
ok "ycsb on a directory" "*" bench ycsb -d "$dir/ycsb" --records 5000 --ops 2000 $small --json \
    --quiet --leaf-fill 70
json "leaf fill" '0.4 < o[0]["leaf_fill"] < 0.8'
json "unknown is null" 'o[0]["media_bytes"] is None and o[0]["ssd_waf"] is None'
ok "ycsb without load" "*" bench ycsb -d "$dir/ycsb" --records 5000 --ops 2000 --no-load \
    --cache 50% --json --quiet
bad "ycsb on what exists" "$dir/ycsb: already exists" bench ycsb -d "$dir/ycsb" --records 10
bad "unknown workload" "workload 'z'" bench ycsb -d sim:generic,bytes=64M -w z --records 10 --quiet
bad "unknown bench" "no bench 'x'" bench x
bad "bench without device" "device" bench ycsb
bad "theta out of range" "theta 6" bench ycsb -d "$dir/x" --theta 6
bad "value too large for a bench" "value-bytes" bench ycsb -d "$dir/x" --value-bytes 2000
bad "two ends" "one of" bench ycsb -d "$dir/x" --ops 1 --seconds 1
ok "fill" "*" bench ycsb -d sim:generic,bytes=64M --fill 30 --cache 20% --ops 1000 --json --quiet
json "fill is met" 'abs(o[0]["pages_loaded"] * 4096 / o[0]["capacity_bytes"] - 0.3) < 0.01'
json "cache is met" 'abs(o[0]["cache_bytes"] / (o[0]["pages_loaded"] * 4096) - 0.2) < 0.02'
ok "commit" "*" bench commit -d sim:generic,bytes=64M --records 1000 --ops 2000 --json --quiet
json "commit" 'o[0]["commits"] == 2000 and o[0]["commits_per_flush"] > 0.5'
ok "memory" "*" bench memory -d "$dir/memory" --records 30000 --cache 1M --seconds 1 --json --quiet
json "memory of a full cache" 'o[0]["anonymous_grown_bytes"] >= o[0]["cache_bytes"] == 1 << 20'
bad "memory of an empty cache" "did not fill" bench memory -d "$dir/memory2" --records 100 \
    --seconds 0.1 --quiet
ok "space" "*" bench space -d "$dir/space" --records 5000 --overwrites 2 $small --json --quiet
json "space" 'o[0]["live_bytes"] < o[0]["data_bytes"] < o[0]["file_bytes"] - o[0]["log_bytes"]'
ok "bench txn" "*" bench txn -d "$dir/bench-txn" --records 20000 --rounds 1 --seconds 0.05 --durable-ops 300 \
    --json --quiet
json "bench txn" 'all(f in o[0] for f in ("read_txn_cost", "write_txn_scaling", "commit_none_with_reader", "scan_per_s",
    "get_many_speedup", "durable_1_bytes", "durable_16_bytes", "bulk_load_speedup"))'
json "bulk load is dense" 'o[0]["bulk_load_leaf_fill_met"]'
verdict "bench txn removes what it made" test -z "$(ls "$dir/bench-txn")"
ok "bench txn, one part" "*" bench txn -d sim:generic,bytes=64M --records 2000 --rounds 1 --seconds 0.05 --part many
bad "bench txn, no such part" "part 'x'" bench txn -d "$dir/bench-txn" --records 10 --part x
ok "table1" "*" bench table1 -d sim:generic,bytes=128M,superblock=2M --zone-bytes 256K --fill 50 \
    --drive-writes 1 --json --quiet
json "table1 rows" '[r["preset"] for r in o] == ["inplace", "oop", "oop+pack"]'
json "table1 adds up" 'all(r["account_difference"] == 0 for r in o)'
json "table1 shape" 'o[0]["total_waf"] > o[1]["total_waf"] > o[2]["total_waf"]'

ok "ablation" "*" bench ablation --bytes 64M --superblock 1M --zone-bytes 256K --fill 50 --drive-writes 1 \
    --rows inplace,inplace-atomic,oop:codec=none,oop+pack --json --quiet
json "ablation rows" '[r["row"] for r in o] == ["inplace", "inplace-atomic", "oop:codec=none", "oop+pack"]'
json "ablation adds up" 'all(r["account_difference"] == 0 for r in o)'
json "ablation shape" 'o[0]["db_waf"] > 1.9 and o[1]["db_waf"] < 1.1 and o[3]["compress_ratio"] < 0.5'
ok "ablation as tables" "*" bench ablation --bytes 64M --superblock 1M \
    --zone-bytes 256K --fill 50 --drive-writes 1 --rows inplace,oop --quiet
verdict "ablation's tables" test "$(grep -c '^inplace \|^oop ' "$dir/out")" -eq 6
ok "ablation with tpcc" "*" bench ablation --bytes 128M --superblock 2M --zone-bytes 256K -w tpcc --warehouses 2 \
    --scale 50 --ops 500 --rows inplace,cohort --json --quiet
json "ablation with tpcc" 'len(o) == 2 and all(all(r["conditions"].values()) for r in o) and o[0]["ops"] == o[1]["ops"] == 500'
bad "ablation, no such row" "nix" bench ablation --rows nix
bad "ablation, no such model" "nix: no such drive" bench ablation --model nix
bad "ablation on a directory" "sim: drive in memory" bench ablation -d "$dir/ablation"
for w in pages rangehot shift hotcold; do
    ok "ycsb $w" "*" bench ycsb -d sim:generic,bytes=128M -w $w --records 30000 --ops 5000 --json --quiet --samples 4
    json "ycsb $w" 'o[0]["ops"] == 5000 and 1 <= len(o[0]["samples"]) <= 4 and "zone_map" in o[0]["samples"][-1]'
done
json "spread of ratios is none" 'o[0]["compress_ratio_sd"] < 0.02'
ok "spread of page ratios" "*" bench ycsb -d sim:generic,bytes=128M --records 200000 --cache 4M --ops 100000 \
    --compressibility-sd 0.075 --json --quiet
json "spread of page ratios" '0.04 < o[0]["compress_ratio_sd"] < 0.08 and 0.35 < o[0]["compress_ratio"] < 0.48'
bad "no such skew" "skew 'x'" bench ycsb -d "$dir/x" --skew x

ok "sweep" "*" bench sweep --axis fill=30,50 --axis theta=0,1.2 --rows inplace,oop+pack --bytes 64M --superblock 1M \
    --zone-bytes 256K --drive-writes 1 --json --quiet
json "sweep's grid" '[(r["axis_value"], r["row"]) for r in o] == [(f + "," + t, x) for f in ("30", "50") for t in ("0", "1.2")
    for x in ("inplace", "oop+pack")]'
json "sweep's values" 'all(abs(r["fill_before_compression"] * 100 - float(r["axis_value"].split(",")[0])) < 1e-6 for r in o)'
ok "sweep of an option" "*" bench sweep --axis codec=none,lz4 --axis checkpoint_percent=40 --rows oop+pack --bytes 64M \
    --superblock 1M --zone-bytes 256K --fill 40 --drive-writes 1 --quiet
verdict "sweep's lines" test "$(wc -l <"$dir/out")" -eq 3
bad "sweep without axis" "along what" bench sweep
bad "sweep, bad axis" "NAME=VALUE" bench sweep --axis fill
bad "sweep, no such option" "nix" bench sweep --axis nix=1
for i in 1 2 3; do
    "$cohort" bench ablation --bytes 64M --superblock 1M --zone-bytes 256K --fill 40 --drive-writes 1 --rows inplace,cohort \
        --json -q --samples 5 >"$dir/run$i.json" 2>/dev/null
done
"$cohort" bench sweep --axis fill=30,50 --rows cohort --bytes 64M --superblock 1M --zone-bytes 256K --drive-writes 1 --json \
    -q >"$dir/sweep.json" 2>/dev/null
ok "report" "*" report "$dir/run1.json" "$dir/run2.json" "$dir/sweep.json" -o "$dir/out.html" --title 'a <b> & "c"'
cat >"$dir/page.py" <<'EOF'
import html.parser, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
class Page(html.parser.HTMLParser):
    void, open_tags, seen = {"meta"}, [], {}
    def handle_starttag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag not in self.void:
            self.open_tags.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1
    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag, (tag, self.getpos())
p = Page(convert_charrefs=True)
p.feed(page)
p.close()
assert p.open_tags == [] and p.seen.get("b", 0) == 0, p.seen
assert not re.search(r'(src|href)=|url\(|@import|<script', page), "needs something from elsewhere"
assert "nan" not in page and "inf" not in page.replace("info", ""), "a number that is none"
for word in sys.argv[2:]:
    assert word in page, word
EOF
verdict "report is a page" python3 "$dir/page.py" "$dir/out.html" 'a &lt;b&gt; &amp; &quot;c&quot;' Zones Sweeps 'Total WAF' Runs
cat >"$dir/odd.json" <<'EOF'
{"preset":"<script>alert(1)</script>","workload":null,"db_waf":"x","ssd_waf":null,"bytes":{"user":null},"page_writes":10,
 "media_bytes":null,"samples":[{},{"drive_writes":null,"db_waf":1},3],"row":7}
[{}, {"total_waf": 1.5, "axis": "a&b", "axis_value": "1"}, {"axis": "a&b"}]
EOF
ok "report of odd runs" "*" report "$dir/odd.json" -o "$dir/odd.html"
verdict "odd runs make a page" python3 "$dir/page.py" "$dir/odd.html" '&lt;script&gt;' 'a&amp;b'
echo '{"a":1} {"b":' >"$dir/bad.json"
bad "report of half an object" "bad.json: not JSON at byte .*middle" report "$dir/bad.json" -o "$dir/bad.html"
echo '{"a":1} nonsense' >"$dir/bad.json"
bad "report of nonsense" "bad.json: not JSON at byte 9" report "$dir/bad.json" -o "$dir/bad.html"
echo '[1]' >"$dir/bad.json"
bad "report of a number" "not an object" report "$dir/bad.json" -o "$dir/bad.html"
: >"$dir/bad.json"
bad "report of nothing" "no runs" report "$dir/bad.json" -o "$dir/bad.html"
bad "report of a missing file" "missing.json" report "$dir/missing.json" -o "$dir/bad.html"
bad "report to nowhere" "where to" report "$dir/odd.json"
ok "peers" "*" bench peers -d "$dir/peers" --records 20000 --ops 20000 --rows oop+pack,cohort:codec=zstd --cache 1M \
    -o log_bytes=4M --json --quiet
json "peers" '[r["row"] for r in o] == ["oop+pack", "cohort:codec=zstd"] and all(r["ops"] == 5000 and r["host_bytes_per_op"] > 0
    and 0 < r["live_per_user_byte"] < r["file_per_user_byte"] for r in o)'
verdict "peers removes what it made" test -z "$(ls "$dir/peers")"
bad "peers on a simulated drive" "directory is needed" bench peers -d sim:generic
ok "ablation in virtual time" "*" bench ablation --model pm9a3 --bytes 64M --superblock 1M --zone-bytes 256K --fill 60 \
    --drive-writes 1 --timing --rows inplace,oop+pack --json --quiet
json "virtual time" 'all(r["clients"] == 64 and 1000 < r["ops_per_s"] < 64e6 / 4 and r["latency_us"]["p50"] >= 4 for r in o)'
json "less written is faster" 'o[1]["ops_per_s"] > o[0]["ops_per_s"]'
bad "clients in real time" "timing=virtual" bench ycsb -d sim:generic,bytes=64M --clients 4 --records 10
ok "probe" "*" probe sim:pm9a3,bytes=64M,superblock=1M --json --quiet
json "probe is exact" 'o[0]["unit_bytes"] == o[0]["group_bytes"] == 1 << 20 and o[0]["exact"] and o[0]["measured"]'
ok "probe, sizes only" "*" probe sim:generic,bytes=64M,superblock=512K --sizes-only --quiet
bad "probe asks first" "--yes" probe "sim:generic,bytes=64M,file=$dir/drive"
ok "probe with yes" "*" probe "sim:generic,bytes=64M,superblock=512K,file=$dir/drive" --yes --sizes-only -q
bad "probe of what holds data" "holds data" probe "sim:generic,bytes=64M,file=$dir/drive" --yes
bad "probe of a directory" "block device" probe "$dir"
ok "readtest" "*" device readtest "$dir/many/cohort.db" --seconds 0.01 --json
json "readtest cells" 'len(o) == 75 and all(r["reads_per_s"] is None or r["reads_per_s"] > 0 for r in o)'
bad "readtest of a simulated drive" "no speed" device readtest sim:generic
bad "device, no such test" "readtest is all" device x "$dir"

echo "$passed passed, $failed failed"
test "$failed" -eq 0
