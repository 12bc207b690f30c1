# A crowd: 110 pods at once, and containers that crash and are made anew RESTARTS
# times.  Nothing may leak.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/leaks.sh"
pods=${PODS:-110} restarts=${RESTARTS:-1000} loops=6
uid() { printf '%08d-0000-4000-8000-000000000000' "$1"; }

check "this CPU has more RMIDs than pods" eval 'mount -t resctrl resctrl $root && [ "$(cat $root/info/L3_MON/num_rmids)" -gt $((pods+10)) ]'
check "the package is installed" package
check "everything runs" soon everything_runs
warm=$(pod "$(uid 0)"); container "$warm" app -- threads 5 >/dev/null
check "a first pod" soon row_is "$(uid 0)" "Exists 1/1"
measure before

# --- all at once

begin=$SECONDS
one_pod() { local s; s=$(pod "$(uid "$1")") && container "$s" app -- threads 3 >/dev/null && echo "$s"; }
for n in $(seq "$pods"); do
  one_pod "$n" >"/run/pod.$n" &
  [ "$(jobs -rp | wc -l)" -lt 8 ] || wait -n
done
wait
check "$pods pods run" eval 'same "$pods" "$(cat /run/pod.* | wc -l)"'
echo "# in $((SECONDS-begin)) s"
check "everything agrees" soon agree
check "each is told in three events" same "$((3*pods+3))" "$(q 'select count(*) from events')"
check "all are in the one summary" same "$((pods+1))" "$(q 'select pods_exists from node_summary' 2>/dev/null || q "select count(*) from pods where group_state = 'Exists'")"

# --- crash loops, some at a time: a container that ends at once, removed, made anew

begin=$SECONDS events=$(q 'select count(*) from events') per_loop=$((restarts/loops+1))
for n in $(seq $loops); do cri -timeout 2h bench -pod "$(cat "/run/pod.$n")" -n $per_loop -- exit 1 >"/run/loop.$n" 2>&1 & done
wait
restarts=$((loops*per_loop))
check "$restarts containers crashed" same $loops "$(cat /run/loop.* | grep -c "^start *n=$per_loop ")"
echo "# in $((SECONDS-begin)) s"
check "everything agrees" soon agree
more=$(($(q 'select count(*) from events')-events))
echo "# $more events of $restarts restarts"
check "a restart has two or three events" eval '[ $more -ge $((2*restarts)) ] && [ $more -le $((3*restarts)) ]'

# --- all removed

begin=$SECONDS
cat /run/pod.* | xargs -P 6 -n 1 sh -c 'cri -timeout 15m stopp "$0" && cri -timeout 15m rmp "$0"' >/dev/null 2>&1
echo "# removed in $((SECONDS-begin)) s"
check "the first pod is left, and agrees" soon eval 'same "1 1 1" "$(rows)" && agree'
measure after
check "no descriptor leaks" no_more descriptors 2
check "no RMID leaks" rmids_free
check "no event was lost, none repeated" log_sound
check "the state is sound" state_sound
check "no unit failed" same "" "$(failed)"
check "nothing crashed" eval '! journalctl -b --no-pager -u nri-watcher -u resctrl-applier -u resctrl-retry | grep -E "panic:|fatal error|DATA RACE|segfault"'
finish
