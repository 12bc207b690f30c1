# The package's units: resctrl mounted late, daemons and a job that hang, a wrong
# configuration, no runtime.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
one=77777777-7777-4777-8777-777777777777
late=99999999-9999-4999-8999-999999999999
hung=aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa

check "the package is installed" package
check "everything runs" soon everything_runs
s1=$(pod $one); c1=$(container "$s1" app -- threads 20)
check "a new pod" soon told_is $one "Exists 0/0, Exists 1/0, Exists 1/1"

# --- resctrl comes late

check "resctrl can be unmounted beside the running programs" soon umount $root
applier=$(main_pid resctrl-applier)
s3=$(pod $late); c3=$(container "$s3" app -- threads 5)
check "a pod without resctrl is told so" soon told_is $late "Failed(not_mounted) 0/0, Failed(not_mounted) 1/0"
check "resctrl is mounted again" systemctl start sys-fs-resctrl.mount
check "the job sees the mount: all pods have their groups" soon eval 'row_is $one "Exists 1/1" && row_is $late "Exists 1/1"'
cri stopp "$s3" >/dev/null 2>&1; cri rmp "$s3" >/dev/null 2>&1
check "so does the applier, which runs since before it" eval 'soon no_group $late && same "$applier" "$(main_pid resctrl-applier)" && same resctrl-applier "$(jq -rs last.source $log)"'
systemctl stop resctrl-applier resctrl-retry.timer; umount $root
systemctl start --job-mode=ignore-dependencies resctrl-applier
check "an applier that starts without resctrl runs" soon runs resctrl-applier
mount -t resctrl resctrl $root
s3=$(pod $late); c3=$(container "$s3" app -- threads 5)
check "it makes groups when resctrl is mounted under it" soon ends_with $late "Exists 0/0, Exists 1/0, Exists 1/1"
check "their threads are in them" in_group $late "$c3" 6
systemctl start resctrl-retry.timer
check "everything agrees" soon agree

# --- hanging

watcher=$(main_pid nri-watcher) applier=$(main_pid resctrl-applier)
kill -STOP "$watcher" "$applier"; begin=$SECONDS
s4=$(pod $hung); c4=$(container "$s4" app -- threads 5)
check "a container starts while both daemons hang" soon eval '[ "$(tasks_of $c4 | wc -l)" = 6 ]'
patience=$((patience+180))
check "a hanging watcher is started anew" soon runs_anew nri-watcher "$watcher"
check "a hanging applier is started anew" soon runs_anew resctrl-applier "$applier"
echo "# both were started anew within $((SECONDS-begin)) s"
check "by the watchdog" eval 'for u in nri-watcher resctrl-applier; do journalctl -b --no-pager -u $u | grep -q "Watchdog timeout" || exit 1; done'
patience=$((patience-180))
check "the pod from meanwhile is in its group" soon row_is $hung "Exists 1/1"
check "everything agrees after the hang" soon agree
applier=$(main_pid resctrl-applier)
stop_job() { systemctl start --no-block resctrl-retry.service; systemctl kill -s STOP resctrl-retry.service && [ "$(ps -o state= -p "$(main_pid resctrl-retry.service)")" = T ]; }
check "the job hangs" soon stop_job
job=$(main_pid resctrl-retry.service)
check "it is ended" soon eval '[ ! -e /proc/'"$job"' ]'
check "and started again" eval new_pass
check "the applier did not suffer" same "$applier" "$(main_pid resctrl-applier)"
systemctl reset-failed resctrl-retry.service

# --- never giving up

echo 'bogus = 1' >>/etc/nri-resctrl/config.toml
systemctl restart nri-watcher resctrl-applier 2>/dev/null
restarts() { systemctl show -p NRestarts --value "$1"; }
check "with a wrong configuration they are started again and again" soon eval '[ "$(restarts nri-watcher)" -gt 4 ] && [ "$(restarts resctrl-applier)" -gt 4 ]'
check "saying what is wrong" eval 'for u in nri-watcher resctrl-applier; do journalctl -b --no-pager -u $u >/tmp/said; grep -q status=78 /tmp/said && grep -q bogus /tmp/said || exit 1; done'
check "the job says it as well: its unit keeps no warning from the journal" soon eval 'journalctl -b --no-pager -o cat -u resctrl-retry | grep -q bogus'
sed -i '/^bogus/d' /etc/nri-resctrl/config.toml
check "once it is right they run" soon everything_runs
systemctl stop containerd
check "the target starts without a runtime" eval 'systemctl restart nri-resctrl.target && soon everything_runs'
systemctl start containerd
check "and follows the runtime when it comes" soon eval 'systemctl show -p StatusText nri-watcher | grep -q "watching the runtime; the applier reads" && agree'
check "no unit failed" same "" "$(failed)"

finish
