# The end-to-end tests of the tool that this one replaces, on a real runtime and a
# real resctrl: full_flow, startup_cleanup, capacity_retry.  Runs on a node of its
# own (see run); with RESCTRL_E2E=1 on a machine with RDT.
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/leaks.sh"
before=11111111-1111-4111-8111-111111111111
after=22222222-2222-4222-8222-222222222222
waits=33333333-3333-4333-8333-333333333333
uid() { printf '%08d-0000-4000-8000-000000000000' "$1"; }
remove() { cri stopp "$1" >/dev/null 2>&1; cri rmp "$1" >/dev/null 2>&1; } # SANDBOX
declare -A sandbox container

# --- leftovers of an earlier life, for startup_cleanup

flow=startup_cleanup
mountpoint -q $root || mount -t resctrl resctrl $root
sleep 900 & kept=$!
mkdir $groups/pod_leftover $groups/foreign
check "leftovers are there" [ -d $groups/pod_leftover ]
# A CPU that only monitors has no control groups.
if mkdir $root/pod_empty $root/pod_busy $root/other 2>/dev/null; then
  mkdir $root/other/mon_groups/pod_inside; echo $kept >$root/pod_busy/tasks
  controls=1
fi

# --- full_flow

flow=full_flow
s1=$(pod $before); c1=$(container "$s1" app -- threads 20)
check "a container runs before the watcher registers" soon eval '[ "$(tasks_of $c1 | wc -l)" = 21 ]'
check "the package is installed" package
check "a pod from before" soon told_is $before "Exists 0/0, Exists 1/1"
check "its 21 threads are in its group" in_group $before "$c1" 21
s2=$(pod $after); c2=$(container "$s2" app -- fork 5); c3=$(container "$s2" side -- threads 10)
check "a pod from after it, of two containers" soon told_is $after "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2"
check "all their tasks are in its group" eval 'soon in_group $after $c2 6 && soon in_group $after $c3 11'
c4=$(container "$s2" debugger -target-pid "$c3" -- threads 3)
check "an ephemeral container that joins one of them" soon ends_with $after "Exists 2/2, Exists 3/2, Exists 3/3"
check "its threads are in the pod's group" soon in_group $after "$c4" 4
check "the group holds these tasks and no other" group_holds $after "$c2" "$c3" "$c4"
check "everything agrees" soon agree

flow=startup_cleanup
cleanup() { journalctl -b --no-pager -o cat -u resctrl-applier | grep -o 'startup cleanup.*'; }
if [ -n "${controls-}" ]; then
  check "the applier tells of it once" same 'startup cleanup" removed=2 failed=0 raced=0 not_ours=3' "$(cleanup)"
  check "an empty control group with our prefix is removed" [ ! -e $root/pod_empty ]
  check "one with tasks is kept, with them" eval '[ -d $root/pod_busy ] && grep -qx $kept $root/pod_busy/tasks'
  check "control groups of others, and what is in them, are kept" [ -d $root/other/mon_groups/pod_inside ]
else
  check "the applier tells of it once" same 'startup cleanup" removed=1 failed=0 raced=0 not_ours=1' "$(cleanup)"
fi
check "a leftover monitoring group is removed" [ ! -e $groups/pod_leftover ]
check "monitoring groups of others are kept" [ -d $groups/foreign ]
check "the pods' groups are kept" [ -d $groups/pod_$before -a -d $groups/pod_$after ]
check "that is no event" same 0 "$(jq -r .pod_uid $log | grep -c 'leftover\|empty\|busy\|inside')"
kill $kept; wait $kept 2>/dev/null
rmdir $groups/foreign; [ -z "${controls-}" ] || rmdir $root/pod_busy $root/other

flow=full_flow
remove "$s1"; remove "$s2"
check "a removed pod is told, container by container" soon eval 'ends_with $before "Exists 0/0, Removed" && ends_with $after "Exists 0/0, Removed"'
check "its group is gone" soon eval 'no_group $before && no_group $after'
check "its containers' rows, too" same "0 0 0" "$(rows)"

# --- capacity_retry: others hold all RMIDs but seven

flow=capacity_retry
check "others take all RMIDs" fill
free() { rmdir "$groups/fill_$1"; }
for n in 0 1 2 3 4 5 6; do [ ! -d $groups/fill_$n ] || free $n; done
for n in 1 2 3 4 5 6 7; do
  sandbox[$n]=$(pod "$(uid $n)"); container[$n]=$(container "${sandbox[$n]}" app -- sleep)
done
check "seven pods have the rest" soon eval 'for n in 1 2 3 4 5 6 7; do row_is "$(uid $n)" "Exists 1/1" || exit 1; done'
s8=$(pod $waits); c8=$(container "$s8" app -- threads 10)
check "the eighth runs all the same" soon eval '[ "$(tasks_of $c8 | wc -l)" = 11 ]'
check "it is Failed for capacity" soon told_is $waits "Failed(capacity) 0/0, Failed(capacity) 1/0"
check "the kernel has no group for it" no_group $waits
check "its tasks stay in the default group" in_no_group "$c8"
check "its row" row_is $waits "Failed(capacity) 1/0"
check "its container waits" container_is "$c8" Partial
check "the view of failed pods names it" same $waits "$(q 'select pod_uid from failed_pods')"
check "the view of unreconciled containers names its own" same "$c8" "$(q 'select container_id from unreconciled')"
check "the other seven are whole" agree
check "passes of the job end, without a free RMID" eval 'new_pass && new_pass'
check "they say that there is no capacity" same 75 "$(systemctl show -p ExecMainStatus --value resctrl-retry.service)"
check "that is no failure of the unit" eval '! systemctl -q is-failed resctrl-retry.service'
check "and no event" told_is $waits "Failed(capacity) 0/0, Failed(capacity) 1/0"
remove "${sandbox[3]}"
check "a pod leaves" soon ends_with "$(uid 3)" Removed
check "the job serves the one that waited: its group, then its container" soon told_is $waits \
  "Failed(capacity) 0/0, Failed(capacity) 1/0, Exists 1/0, Exists 1/1"
check "its 11 threads are in its group" in_group $waits "$c8" 11
check "its group holds these and no other" group_holds $waits "$c8"
check "nobody waits any more" same "0 0" "$(q "select (select count(*) from failed_pods)||' '||(select count(*) from unreconciled)")"
check "the events of the job name it" same resctrl-retry "$(jq -rs --arg u $waits '[.[] | select(.pod_uid == $u)] | last | .source' $log)"
check "everything agrees" agree
unfill
for s in "${sandbox[@]}" "$s8"; do remove "$s"; done
check "all are removed" soon eval 'same "0 0 0" "$(rows)" && ! ls -d $groups/pod_* 2>/dev/null'
check "the event log is whole, and the table's own" log_sound
check "the state is sound" state_sound
finish
