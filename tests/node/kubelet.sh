# What a kubelet does to pods: a sandbox made anew, a completed pod that lingers,
# probes by exec.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/leaks.sh"
twice=33333333-3333-4333-8333-333333333333
job=55555555-5555-4555-8555-555555555555

configure vanished_after '"10s"'
check "the package is installed" package
check "everything runs" soon everything_runs
s1=$(pod $twice); c1=$(container "$s1" app -- threads 10); c2=$(container "$s1" side -- fork 5)
check "a pod" soon eval 'row_is $twice "Exists 2/2" && agree'
measure before

# --- the sandbox made anew

sandboxes() { q "select count(*) from sandboxes where pod_uid = '$twice'"; }
id=$(group_id $twice)
kill -9 "$(tasks_of "$s1" | head -n 1)"   # the pause process
s5=$(pod $twice -attempt 1); c5=$(container "$s5" app -attempt 1 -- threads 10)
check "a second sandbox of the same pod" soon row_is $twice "Exists 3/3"
{ cri stopp "$s1"; cri rm "$c1"; cri rm "$c2"; cri rmp "$s1"; } >/dev/null 2>&1
check "the first one goes with its containers" soon eval 'row_is $twice "Exists 1/1" && same 1 "$(sandboxes)"'
check "the pod is not Removed, its group is the same" eval '! told $twice | grep -q Removed && same $id "$(group_id $twice)"'
check "everything agrees" soon agree

# --- a completed pod that lingers

s6=$(pod $job); c6=$(container "$s6" once -- exit 0)
check "a container that ended" soon container_is "$c6" Exited
cri stopp "$s6" >/dev/null 2>&1
events=$(told $job)
not_ready() { cri pods | grep "$1" | tee /dev/stderr | grep -q NOTREADY; }
check "its sandbox is not ready" soon not_ready "$s6"
check "and stays" eval 'new_pass && same "$events" "$(told $job)" && soon agree'
kubelet_removes $job
check "when its cgroup is gone the job removes it" soon ends_with $job Removed
events=$(told $twice); systemctl restart resctrl-applier
check "a new snapshot is applied" soon told_is $twice "$events, Exists 1/1"
check "it does not bring it back" eval 'no_group $job && ends_with $job Removed'
{ cri rm "$c6"; cri rmp "$s6"; } >/dev/null 2>&1
check "everything agrees" soon agree

# --- probes by exec, one a second

probes=${PROBES:-60}
events=$(wc -l <$log)
for n in $(seq "$probes"); do
  { if [ $((n % 3)) = 0 ]; then cri -timeout 900s exec -t 900 "$c5" /bin/busybox sleep 900
    else cri -timeout 300s exec -t 300 "$c5" /bin/busybox true; fi; } >/dev/null 2>&1 &
  sleep 1
done
strays() { local t n=0; for t in $(tasks_of "$c5"); do [ "$(cat "/proc/$t/comm")" = workload ] || { n=$((n+1)); [ -z "${1-}" ] || kill "$t"; }; done 2>/dev/null; echo $n; }
check "$((probes/3)) of $probes probes stay" soon eval '[ "$(strays)" = '$((probes/3))' ]'
check "after a sweep every stray is in the group" eval 'new_pass && in_group $twice $c5 $((11+probes/3))'
check "that is no event" same "$events" "$(wc -l <$log)"
strays kill >/dev/null; wait

# --- the end

check "everything agrees" soon agree
measure after
check "no descriptor leaks" no_more descriptors 2
check "no RMID leaks" rmids_free
cri rmall >/dev/null 2>&1
check "no group, no row is left" soon eval '! ls -d $groups/pod_* >/dev/null 2>&1 && same "0 0 0" "$(rows)"'
check "no event was lost, none repeated" log_sound
check "the state is sound" state_sound
check "nothing crashed" eval '! journalctl -b --no-pager -u nri-watcher -u resctrl-applier -u resctrl-retry | grep -E "panic:|fatal error|DATA RACE|segfault"'
finish
