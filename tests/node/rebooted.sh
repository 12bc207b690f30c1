# After reboot.sh: the units come by themselves, no pod runs any more, and the
# kubelet makes one of them anew.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/rebootlib.sh"
read -r seq boot </var/tmp/before

check "everything runs, by itself" soon everything_runs
check "resctrl is mounted" mountpoint -q $root
boot_id() { q "select value from meta where key = 'boot_id'"; }
check "the state is of this boot" soon eval '[ "$(boot_id)" = "$(cat /proc/sys/kernel/random/boot_id)" ]'
check "which is another one" [ "$boot" != "$(cat /proc/sys/kernel/random/boot_id)" ]
check "no pod has a group: all ended with the power" soon eval '! ls -d $groups/pod_* 2>/dev/null && same "" "$(q "select pod_uid from pods where not removing")"'
check "both are told to be gone" eval 'told_is $stays "Exists 0/0, Exists 1/0, Exists 1/1, Removed" && told_is $leaves "Exists 0/0, Exists 1/0, Exists 1/1, Removed"'
check "no event from before the power cut was lost" eval '[ "$(wc -l <$log)" -ge $seq ] && log_sound'
old=$(cri pods | sed -n "s/^\([^ ]*\) .*uid=$stays .*/\1/p")
s=$(pod $stays -attempt 1); c=$(container "$s" app -attempt 1 -- threads 5)
check "the kubelet makes one anew" soon ends_with $stays "Removed, Exists 0/0, Exists 1/0, Exists 1/1"
check "its threads are in its group" in_group $stays "$c" 6
for s in $old $(cri pods | sed -n "s/^\([^ ]*\) .*uid=$leaves .*/\1/p"); do cri rmp "$s" >/dev/null 2>&1; done
check "the old sandboxes go, and everything agrees" soon agree
check "the new one is not Removed with them" soon ends_with $stays "Removed, Exists 0/0, Exists 1/0, Exists 1/1"
check "the event log is whole, and the table's own" log_sound
check "the state is sound" state_sound
check "no unit failed" same "" "$(failed)"
finish
