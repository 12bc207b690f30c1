# Pods from before the watcher and after it; a stray; the applier killed, away and
# back; containerd restarted.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
before=11111111-1111-4111-8111-111111111111
after=22222222-2222-4222-8222-222222222222
meanwhile=33333333-3333-4333-8333-333333333333
last=44444444-4444-4444-8444-444444444444

configure vanished_after '"10s"'

# --- before the watcher

s1=$(pod $before -privileged)
c1=$(container "$s1" threads -- threads 50)
c2=$(container "$s1" nested -privileged -- cgroups 3 2)
check "two containers run before the pipeline" soon eval '[ "$(tasks_of $c1 | wc -l)" = 51 ] && [ "$(tasks_of $c2 | wc -l)" = 7 ]'
check "the package is installed" package
check "resctrl is mounted for everybody" mountpoint -q $root
check "a pod from before: (0,0), then each container" soon told_is $before "Exists 0/0, Exists 1/1, Exists 2/2"
check "every one of 51 threads is in its group" in_group $before "$c1" 51
check "every task of nested cgroups is in its group" in_group $before "$c2" 7
check "the group holds these tasks and no other" group_holds $before "$c1" "$c2"
check "the pause process is in no group" in_no_group "$s1"
check "state of the pod from before" row_is $before "Exists 2/2"

# --- after it

s2=$(pod $after)
check "a new pod is told at once" soon told_is $after "Exists 0/0"
c3=$(container "$s2" app -mount /tmp:/host -- first /host/first threads 20)
c4=$(container "$s2" side -- fork 5)
check "a new pod: each container known, then reconciled" soon told_is $after "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2"
check "threads started by the program are in its group" soon in_group $after "$c3" 21
check "children forked by the program are in its group" soon in_group $after "$c4" 6
check "the new group holds these tasks and no other" group_holds $after "$c3" "$c4"
check "state of the new pod" row_is $after "Exists 2/2"
check "state of its container" container_is "$c3" Reconciled
check "the group counts" counts_up $after 0
check "everything agrees" agree

# --- a stray: born by exec, outside the group

systemctl stop resctrl-retry.timer
check "no job runs" soon eval '[ "$(systemctl is-active resctrl-retry.service)" = inactive ]'
cri -timeout 900s exec -t 900 "$c3" /bin/busybox sleep 900 >/dev/null 2>&1 & exec_job=$!
check "the exec'd process runs" soon eval '[ "$(tasks_of $c3 | wc -l)" = 22 ]'
stray() { local t; for t in $(tasks_of "$c3"); do [ "$(cat "/proc/$t/comm")" = workload ] || echo "$t"; done 2>/dev/null; }
check "it is born outside the group" kernel_group_is "$(stray)" //
events=$(wc -l <$log)
systemctl start resctrl-retry.timer
check "the retry timer moves it" soon in_group $after "$c3" 22
check "that is no event" same "$events" "$(wc -l <$log)"
kill "$(stray)"; wait $exec_job

# --- the applier killed

ids="$(group_id $before) $(group_id $after)"; bytes=$(counter $before)
pid=$(main_pid resctrl-applier)
kill -9 "$pid"
check "the killed applier comes back by itself" soon runs_anew resctrl-applier "$pid"
check "it adopts the old pod with its counters" soon told_is $before "Exists 0/0, Exists 1/1, Exists 2/2, Exists 2/2"
check "and the new one" soon told_is $after "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 2/2"
check "the groups are the same ones" same "$ids" "$(group_id $before) $(group_id $after)"
check "their bandwidth counts on" counts_up $before "$bytes"
check "everything agrees after the kill" agree

# --- a container's end, and a pod's

cri stop "$c4" >/dev/null 2>&1
check "an exited container stays counted" soon container_is "$c4" Exited
check "its end is no event" told_is $after "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 2/2"
cri rm "$c4" >/dev/null 2>&1
check "its removal is one" soon told_is $after "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 2/2, Exists 1/1"

# --- the applier away while pods come and go

systemctl stop resctrl-retry.timer resctrl-applier
s3=$(pod $meanwhile); c5=$(container "$s3" app -- threads 10)
check "a container starts without the applier" soon eval '[ "$(tasks_of $c5 | wc -l)" = 11 ]'
cri stopp "$s1" >/dev/null 2>&1; cri rmp "$s1" >/dev/null 2>&1
systemctl start resctrl-retry.timer resctrl-applier
check "a pod that came meanwhile" soon told_is $meanwhile "Exists 0/0, Exists 1/1"
check "its 11 threads are in its group" in_group $meanwhile "$c5" 11
check "a pod that went meanwhile" soon ends_with $before Removed
check "its group is gone" soon no_group $before
check "everything agrees after the absence" soon agree

# --- containerd restarted

pid=$(main_pid containerd); watcher=$(main_pid nri-watcher)
bytes=$(counter $after) ids="$(group_id $after) $(group_id $meanwhile)"
events=$(wc -l <$log)
systemctl restart containerd
check "containerd is back" soon runs_anew containerd "$pid"
check "the watcher synchronizes again: one event for each pod" soon eval '[ "$(wc -l <$log)" = $((events+2)) ]'
check "the watcher is the same process" same "$watcher" "$(main_pid nri-watcher)"
check "the groups are still the same ones" same "$ids" "$(group_id $after) $(group_id $meanwhile)"
check "their bandwidth still counts on" counts_up $after "$bytes"
s4=$(pod $last); c6=$(container "$s4" app -- threads 5)
check "a pod after the restart" soon told_is $last "Exists 0/0, Exists 1/0, Exists 1/1"
check "its threads are in its group" soon in_group $last "$c6" 6
check "everything agrees after the restart" soon agree

# --- the end of all

cri rmall >/dev/null 2>&1
check "a removed pod is told, container by container" soon told_is $last "Exists 0/0, Exists 1/0, Exists 1/1, Exists 0/0, Removed"
# The restarted containerd says nothing of the end of pods from before.
check "of a pod from before the restart only the container's end is told" soon ends_with $after "Exists 0/0"
kubelet_removes $after; kubelet_removes $meanwhile
check "the job removes those that ended without a word" soon ends_with $after "Exists 0/0, Removed"
check "both of them" soon ends_with $meanwhile "Exists 0/0, Removed"
check "these events name the job" same resctrl-retry "$(jq -rs 'last.source' $log)"
check "no group is left" soon eval '! ls -d $groups/pod_* >/dev/null 2>&1'
check "no row is left" soon eval 'same "0 0 0" "$(q "select (select count(*) from pods)||char(32)||(select count(*) from sandboxes)||char(32)||(select count(*) from containers)")"'
check "the event log is whole, and the table's own" log_sound
check "the state is sound" state_sound
check "no unit failed" same "" "$(systemctl --failed --no-legend --plain | cut -d' ' -f1 | paste -sd ' ')"
check "nothing crashed" eval '! journalctl -b --no-pager -u nri-watcher -u resctrl-applier -u resctrl-retry | grep -E "panic:|fatal error|DATA RACE|segfault"'
finish
