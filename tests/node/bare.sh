# The Debian package on a node without RDT: nothing fails, and pods are told to
# have no group.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
uid=cccccccc-cccc-4ccc-8ccc-cccccccccccc

check "this node has no resctrl" [ ! -e $root ]
check "the package is installed" package
check "both daemons run" soon eval 'runs nri-watcher && runs resctrl-applier'
check "the mount was not tried" same "inactive no" "$(systemctl is-active sys-fs-resctrl.mount) $(systemctl show -p ConditionResult --value sys-fs-resctrl.mount)"
s=$(pod $uid); c=$(container "$s" app -- threads 5)
check "a container runs" soon eval '[ "$(tasks_of $c | wc -l)" = 6 ]'
check "its pod is told to have no group" soon eval 'told $uid | grep -Eqx "Failed\((not_mounted|unsupported)\) 0/0, Failed\((not_mounted|unsupported)\) 1/0"'
check "a pass of the job ends well" systemctl start resctrl-retry.service
check "the person is told" eval 'resctrlctl doctor | grep "^fail" | grep -q resctrl'
cri rmall >/dev/null 2>&1
check "its end is told" soon ends_with $uid Removed
check "no unit failed" same "" "$(systemctl --failed --no-legend --plain | cut -d' ' -f1 | paste -sd ' ')"
check "the package is purged" dpkg -P nri-resctrl
check "no unit failed" same "" "$(systemctl --failed --no-legend --plain | cut -d' ' -f1 | paste -sd ' ')"
finish
