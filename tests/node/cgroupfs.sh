# The cgroupfs driver: a pod from before the watcher, one after it, one removed.
# Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
before=55555555-5555-4555-8555-555555555555
after=66666666-6666-4666-8666-666666666666

s1=$(pod $before); c1=$(container "$s1" app -- threads 30)
check "the cgroup has the name of the cgroupfs driver" eval 'same "/sys/fs/cgroup/kubepods/besteffort/pod$before/$c1" "$(cgroup_of $c1)"'
check "a container runs before the pipeline" soon eval '[ "$(tasks_of $c1 | wc -l)" = 31 ]'
check "the package is installed" package
check "a pod from before" soon told_is $before "Exists 0/0, Exists 1/1"
check "its 31 threads are in its group" in_group $before "$c1" 31
s2=$(pod $after); c2=$(container "$s2" app -- fork 10); c3=$(container "$s2" side -- threads 10)
check "a new pod of two containers" soon told_is $after "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2"
check "children are in its group" soon in_group $after "$c2" 11
check "threads are in its group" soon in_group $after "$c3" 11
check "its group holds these and no other" group_holds $after "$c2" "$c3"
check "everything agrees" agree
cri stopp "$s1" >/dev/null 2>&1; cri rmp "$s1" >/dev/null 2>&1
check "a removed pod" soon told_is $before "Exists 0/0, Exists 1/1, Exists 0/0, Removed"
check "its group is gone" soon no_group $before
check "everything agrees after the removal" soon agree
check "the event log is whole, and the table's own" log_sound
finish
