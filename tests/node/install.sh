# Without the package: what make install and make uninstall do on a live node, and
# the queries of state/README.md by those who may read.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
one=77777777-7777-4777-8777-777777777777

# --- the README's lines (there is no make on this node: the script that it calls)

s1=$(pod $one); c1=$(container "$s1" app -- threads 20)
check "make install" quietly /src/conf/install
check "nothing is started by that" active nri-resctrl.target inactive
check "the configuration leaves the mount to its unit" grep -qx 'auto_mount = false' /etc/nri-resctrl/config.toml
check "systemctl enable --now nri-resctrl.target" quietly systemctl enable --now nri-resctrl.target
check "everything runs" soon everything_runs
check "from where it was installed" same "/usr/local/bin/resctrl-applier /usr/local/bin/nri-watcher" \
  "$(readlink "/proc/$(main_pid resctrl-applier)/exe" "/proc/$(main_pid nri-watcher)/exe" | paste -sd ' ')"
check "a pod from before" soon told_is $one "Exists 0/0, Exists 1/1"
check "its threads are in its group" in_group $one "$c1" 21
check "resctrlctl status knows nothing wrong" soon eval '! resctrlctl status | grep "What is wrong"'
check "resctrlctl doctor finds nothing that fails" eval 'resctrlctl doctor | tee /tmp/doctor; ! grep "^fail" /tmp/doctor'

# --- the state's queries, as they stand in its README

# queries: each on a line, from between ```sql and ```.
queries() { awk '/^```sql/ { on = 1; q = ""; next } /^```/ { if (on) print q; on = 0 } on { q = q " " $0 }' /src/state/README.md; }
run_all() { # COMMAND...: every query runs; says which does not, and how many did
  local query n=0 said
  while IFS= read -r query; do
    said=$("$@" sqlite3 -readonly -bail "$db" "$query" 2>&1) || { echo "$query: $said"; return 1; }
    n=$((n+1))
  done < <(queries)
  [ $n -gt 20 ] || { echo "only $n queries"; return 1; }
}
member=$(getent group nri-resctrl | cut -d: -f3)
check "the applier runs: root's queries" run_all
check "the applier runs: those of a member of nri-resctrl" run_all as_nobody "$member"
check "others are refused" eval '! as_nobody 65534 sqlite3 -readonly $db .tables'
systemctl stop resctrl-retry.timer resctrl-retry.service resctrl-applier
check "the applier is down: root's queries" run_all
if said=$(run_all as_nobody "$member"); then echo "# the applier is down: a member's queries run"; else echo "# the applier is down: a member's query: ${said##*: }"; fi
systemctl start resctrl-applier resctrl-retry.timer
check "the applier is up again: a member's queries" soon run_all as_nobody "$member"

# --- upgraded, removed

ids=$(group_id $one) watcher=$(main_pid nri-watcher) applier=$(main_pid resctrl-applier)
configure vanished_after '"30s"'
check "make install, again" quietly /src/conf/install
check "it keeps the configuration" eval 'grep -q "^vanished_after = \"30s\"" /etc/nri-resctrl/config.toml && grep -q "^kept: /etc/nri-resctrl/config.toml" /tmp/said'
check "systemctl restart nri-resctrl.target" quietly systemctl restart nri-resctrl.target
check "both daemons are new" eval 'soon runs_anew nri-watcher $watcher && soon runs_anew resctrl-applier $applier'
check "the group is the same" same "$ids" "$(group_id $one)"
check "everything agrees" soon agree
check "make uninstall" quietly /src/conf/install --uninstall
check "nothing of it runs" eval '! pgrep -x "nri-watcher|resctrl-applier|resctrl-retry"'
check "no file of it is left" same "" "$(find /usr/local /etc/systemd -name '*resctrl*' -o -name 'nri-watcher*' | paste -sd ' ')"
check "no unit is left" eval 'systemctl reset-failed; same "" "$(systemctl list-units --all --no-legend --plain "nri-*" "resctrl-*" | paste -sd " ")"'
check "configuration, state, log and groups stay" eval '[ -s /etc/nri-resctrl/config.toml ] && [ -s $db ] && log_sound && same $ids "$(group_id $one)"'
rmdir /sys/fs/resctrl/mon_groups/pod_* /sys/fs/resctrl/*/mon_groups/pod_* 2>/dev/null
check "rmdir takes the groups" eval 'no_group $one && in_no_group $c1'
check "no unit failed" same "" "$(failed)"
finish
