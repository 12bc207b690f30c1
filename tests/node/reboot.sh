# A node that loses power, with pods; rebooted.sh goes on.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/rebootlib.sh"

check "the package is installed" package
check "everything runs" soon everything_runs
for u in $stays $leaves; do s=$(pod $u); container "$s" app -- threads 5 >/dev/null; done
check "two pods" soon eval 'row_is $stays "Exists 1/1" && row_is $leaves "Exists 1/1"'
check "everything agrees" soon agree
[ $failures = 0 ] || finish
q "select (select max(seq) from events)||' '||(select value from meta where key = 'boot_id')" >/var/tmp/before
sync /var/tmp/before
reboot -ff
