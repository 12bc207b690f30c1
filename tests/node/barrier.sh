# barrier.sh [STARTS] [PARALLEL]: what the start barrier does for containers that
# start many at a time beside a job that never rests.  Each program's first act is
# to record its own group.  Figures only: this guest is slow, and a time means
# something next to the others of the same run at most.
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/startlib.sh"
starts=${1:-50} parallel=${2:-8}
declare -a s

configure level '"debug"'
configure start_barrier "\"${START_BARRIER:-100ms}\""
package && five_pods && create c "$starts" "$parallel" sleep || exit 1
systemctl stop resctrl-retry.timer
( while [ ! -e /run/stop ]; do resctrl-retry --json >/dev/null 2>&1; echo >>/run/passes; done ) & job=$!
soon test -s /run/passes || exit 1
t0=$EPOCHREALTIME
start c "$parallel"
t1=$EPOCHREALTIME
touch /run/stop; wait $job

counted() { resctrlctl status --json | jq -c '[paths(type == "number") as $p | {($p | join(".")): getpath($p)}] | add | with_entries(select(.key | test("barrier")))'; }
patience=30; soon eval '[ "$(counted | jq "[.[]] | add")" -ge $starts ]'   # told with the next heartbeat

echo "$starts starts, $parallel at a time, in $(awk "BEGIN { printf \"%.1f\", $t1 - $t0 }") s, beside $(wc -l </run/passes) passes of resctrl-retry"
echo "refused starts: $(refused c)"; grep '^cri:' /run/starts/c.said | sort | uniq -c
echo "first instruction in the pod's group: $(firsts c | grep -c in$) of $(firsts c | wc -l) recorded"
echo "watcher: $(counted)"
echo "start to acknowledgement: $(waits "$t0" | cut -d' ' -f3 | percentiles)"
echo "StartContainer callbacks, as containerd timed them: $(callbacks)"
echo "cri start: $(milliseconds </run/starts/c.times | percentiles)"
