# Eight RMIDs, seven groups: the eighth pod waits, until one leaves and the retry
# job serves it.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
uid() { printf '%08d-0000-4000-8000-000000000000' "$1"; }
declare -A sandbox container

check "this CPU has eight RMIDs" eval 'mount -t resctrl resctrl $root && same 8 "$(cat $root/info/L3_MON/num_rmids)"'
check "the package is installed" package
synchronized() { same 1 "$(q "select count(*) from meta where key = 'boot_id'")"; }
check "a first snapshot is applied" soon synchronized
for n in 1 2 3 4 5 6 7; do
  sandbox[$n]=$(pod "$(uid $n)"); container[$n]=$(container "${sandbox[$n]}" app -- sleep)
done
check "seven pods have their groups" soon eval 'for n in 1 2 3 4 5 6 7; do told_is "$(uid $n)" "Exists 0/0, Exists 1/0, Exists 1/1" || exit 1; done'
sandbox[8]=$(pod "$(uid 8)"); container[8]=$(container "${sandbox[8]}" app -- threads 10)
check "the eighth runs all the same" soon eval '[ "$(tasks_of ${container[8]} | wc -l)" = 11 ]'
check "the eighth is Failed for capacity" soon told_is "$(uid 8)" "Failed(capacity) 0/0, Failed(capacity) 1/0"
check "the kernel has no group for it" no_group "$(uid 8)"
check "its tasks stay in the default group" in_no_group "${container[8]}"
check "its row" row_is "$(uid 8)" "Failed(capacity) 1/0"
check "its container waits" container_is "${container[8]}" Partial
check "the view of failed pods names it" same "$(uid 8)" "$(q 'select pod_uid from failed_pods')"
check "the view of unreconciled containers names its own" same "${container[8]}" "$(q 'select container_id from unreconciled')"
check "the other seven are whole" agree

pass_end() { systemctl show -p ExecMainExitTimestampMonotonic --value resctrl-retry.service; }
old=$(pass_end); check "a pass of the job ends" soon eval '[ "$(pass_end)" != $old ]'
old=$(pass_end); check "another one, without a free RMID" soon eval '[ "$(pass_end)" != $old ]'
check "it says that there is no capacity" same 75 "$(systemctl show -p ExecMainStatus --value resctrl-retry.service)"
check "that is no failure of its unit" eval '! systemctl -q is-failed resctrl-retry.service'
check "and no event" told_is "$(uid 8)" "Failed(capacity) 0/0, Failed(capacity) 1/0"

cri stopp "${sandbox[3]}" >/dev/null 2>&1; cri rmp "${sandbox[3]}" >/dev/null 2>&1
check "a pod leaves" soon told_is "$(uid 3)" "Exists 0/0, Exists 1/0, Exists 1/1, Exists 0/0, Removed"
check "the job serves the one that waited: its group, then its container" soon told_is "$(uid 8)" \
  "Failed(capacity) 0/0, Failed(capacity) 1/0, Exists 1/0, Exists 1/1"
check "its 11 threads are in its group" in_group "$(uid 8)" "${container[8]}" 11
check "its group holds these and no other" group_holds "$(uid 8)" "${container[8]}"
check "its row tells so" row_is "$(uid 8)" "Exists 1/1"
check "nobody waits any more" same "0 0" "$(q "select (select count(*) from failed_pods)||' '||(select count(*) from unreconciled)")"
check "the events of the job name it" same resctrl-retry "$(jq -rs --arg u "$(uid 8)" '[.[] | select(.pod_uid == $u)] | last | .source' $log)"
check "everything agrees" agree
check "the event log is whole, and the table's own" log_sound
check "the state is sound" state_sound
finish
