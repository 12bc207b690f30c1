# The Debian package: installed, what its units may do, an upgrade from an older
# schema while pods run, the log rotated, removed, purged.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
one=77777777-7777-4777-8777-777777777777
two=88888888-8888-4888-8888-888888888888
away=aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa
during=bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb

# --- installed

s1=$(pod $one); c1=$(container "$s1" app -- threads 20)
check "the package is installed" quietly dpkg -i /pkg/old.deb
check "everything runs" soon everything_runs
check "the target is enabled" eval 'for u in nri-resctrl.target nri-watcher resctrl-applier resctrl-retry.timer; do systemctl -q is-enabled $u || exit 1; done'
check "resctrl is mounted for everybody" eval 'mountpoint -q $root && active sys-fs-resctrl.mount active'
check "a pod from before" soon told_is $one "Exists 0/0, Exists 1/1"
check "its 21 threads are in its group" in_group $one "$c1" 21
s2=$(pod $two); c2=$(container "$s2" app -- first /bin/true threads 5)
check "a new pod" soon told_is $two "Exists 0/0, Exists 1/0, Exists 1/1"
check "everything agrees" soon agree

# --- what the units may do

status_of() { sed -n "s/^$2:\t//p" "/proc/$(main_pid "$1")/status"; } # UNIT FIELD
check "the watcher is root without a capability" same "0 0000000000000000" "$(status_of nri-watcher Uid | cut -f1) $(status_of nri-watcher CapEff)"
check "the applier has CAP_CHOWN and CAP_DAC_OVERRIDE" same "0 0000000000000003" "$(status_of resctrl-applier Uid | cut -f1) $(status_of resctrl-applier CapEff)"
for u in nri-watcher resctrl-applier; do
  check "$u: no more privileges, and a filter of system calls" same "1 2" "$(status_of $u NoNewPrivs) $(status_of $u Seccomp)"
  check "$u: a network without interfaces" same "lo:" "$(awk 'NR > 2 { print $1 }' "/proc/$(main_pid $u)/net/dev" | paste -sd ' ')"
  check "$u: nothing to write in /etc, /usr, /sys/kernel" eval \
    'for d in etc usr sys/kernel; do [ "$(stat -f -c %i "/proc/$(main_pid '$u')/root/$d")" ] && grep -q "^[^ ]* [^ ]* [^ ]* [^ ]* / ro" "/proc/$(main_pid '$u')/mountinfo" || exit 1; done; ! nsenter -t "$(main_pid '$u')" -m touch /etc/x /usr/x 2>/dev/null'
done
for u in $units; do
  check "the exposure of $u is below 2.0" eval "systemd-analyze security --no-pager --threshold=19 $u >/dev/null"
  echo "# $u: $(systemd-analyze security --no-pager $u | tail -n 1 | sed 's/[^ -~]//g; s/^ *//')"
done

# --- the readers

group=$(getent group nri-resctrl | cut -d: -f3)
check "a member of nri-resctrl reads the state" eval 'same 2 "$(as_nobody '"$group"' sqlite3 -readonly $db "select count(*) from pods")"'
check "and the event log" eval '[ -n "$(as_nobody '"$group"' tail -n 1 $log)" ]'
check "and sees the status" eval 'as_nobody '"$group"' resctrlctl pods | grep -q '"$one"
for what in "a pass of the job" "a new applier"; do
  if [ "$what" = "a new applier" ]; then systemctl restart resctrl-applier; soon agree >/dev/null; else new_pass; fi
  check "$what leaves them the group's" same "$(yes nri-resctrl | head -n 4 | paste -sd ' ')" "$(stat -c %G ${db%/*} $db ${log%/*} $log | paste -sd ' ')"
done
check "others do not" eval '! as_nobody 65534 cat $log 2>/dev/null && ! as_nobody 65534 sqlite3 -readonly $db .tables 2>/dev/null'
check "everybody reads a group's counters" eval 'as_nobody 65534 cat $groups/pod_'$one'/mon_data/mon_L3_00/mbm_total_bytes >/dev/null'

# --- strays, under these restrictions

cri -timeout 900s exec -t 900 "$c1" /bin/busybox sleep 900 >/dev/null 2>&1 & exec_job=$!
check "an exec'd process runs" soon eval '[ "$(tasks_of $c1 | wc -l)" = 22 ]'
check "the job moves it" soon in_group $one "$c1" 22
for t in $(tasks_of "$c1"); do [ "$(cat "/proc/$t/comm")" = workload ] || kill "$t"; done; wait $exec_job

# --- upgraded while pods run

configure vanished_after '"10s"'
s3=$(pod $away)
check "a pod that will go" soon told_is $away "Exists 0/0"
schema=$(q 'pragma user_version')
ids="$(group_id $one) $(group_id $two)" bytes=$(counter $one)
watcher=$(main_pid nri-watcher) applier=$(main_pid resctrl-applier) events=$(wc -l <$log)
{ s5=$(pod $during); container "$s5" app -- threads 5 >/dev/null; cri stopp "$s3" >/dev/null 2>&1; cri rmp "$s3" >/dev/null 2>&1; } & busy=$!
check "the package is upgraded" quietly dpkg -i /pkg/new.deb
wait $busy
check "it is the new one" eval 'same "$(dpkg-deb -f /pkg/new.deb Version)" "$(dpkg-query -W -f "\${Version}" nri-resctrl)"'
check "its programs are position-independent" same "3 3 3 3" "$(for p in nri-watcher resctrl-applier resctrl-retry resctrlctl; do od -An -tu2 -j16 -N2 /usr/bin/$p; done | xargs)"
check "everything runs" soon everything_runs
check "the state has a newer schema" eval '[ "$(q "pragma user_version")" -gt $schema ]'
check "both daemons are new" eval 'runs_anew nri-watcher $watcher && runs_anew resctrl-applier $applier'
check "the pod that came meanwhile" soon row_is $during "Exists 1/1"
check "its threads are in its group" soon eval 'in_group $during "$(cri ps | awk "/pod=$(cri pods | sed -n "s/^\([^ ]*\) .*uid=$during .*/\1/p")/ { print \$1 }")" 6'
check "the pod that went meanwhile" soon eval 'no_group $away && ends_with $away Removed'
check "no other group was made anew" same "$ids" "$(group_id $one) $(group_id $two)"
check "counters count on" counts_up $one "$bytes"
check "no event was lost, none repeated" log_sound
check "there are more of them" eval '[ "$(wc -l <$log)" -gt $events ]'
check "the administrator's configuration stays" grep -q '^vanished_after = "10s"' /etc/nri-resctrl/config.toml
check "everything agrees after the upgrade" soon agree
systemctl stop resctrl-retry.timer
check "a timer that somebody stopped stays so over an upgrade" eval 'quietly dpkg -i /pkg/new.deb && active resctrl-retry.timer inactive'
systemctl start resctrl-retry.timer
check "no unit failed" same "" "$(failed)"

# --- the log rotated

check "everything runs" soon everything_runs
check "logrotate rotates" quietly logrotate -f /etc/logrotate.d/nri-resctrl
s5=$(cri pods | sed -n "s/^\([^ ]*\) .*uid=$during .*/\1/p")
cri stopp "$s5" >/dev/null 2>&1; cri rmp "$s5" >/dev/null 2>&1
check "the next event is in a new file" soon eval '[ -s $log ] && ends_with $during Removed'
check "no event was lost, none repeated" eval 'same "$(seq "$(cat $log.1 $log | wc -l)" | paste -sd " ")" "$(cat $log.1 $log | jq -r .seq | paste -sd " ")"'
check "the new file can be read as the old one" same "$(stat -c '%a %U %G' $log.1)" "$(stat -c '%a %U %G' $log)"

# --- removed, installed again, purged

mkdir $groups/foreign
ids="$(group_id $one) $(group_id $two)"
check "the package is removed" quietly dpkg -r nri-resctrl
check "nothing of it runs" eval '! pgrep -x "nri-watcher|resctrl-applier|resctrl-retry"'
check "the groups stay" same "$ids" "$(group_id $one) $(group_id $two)"
check "state, log and configuration stay" eval '[ -s $db ] && [ -s $log ] && [ -s /etc/nri-resctrl/config.toml ]'
check "no unit failed" same "" "$(failed)"
check "it is installed again" quietly dpkg -i /pkg/new.deb
check "and runs" soon everything_runs
synchronized() { same "$(systemctl show -p StatusText --value resctrl-applier | grep -c '^following')" 1; }
check "and has synchronized" soon synchronized
check "the groups are the same" same "$ids" "$(group_id $one) $(group_id $two)"
check "with their tasks" in_group $one "$c1" 21
check "the package is purged" quietly dpkg -P nri-resctrl
check "no group of ours is left" eval '! ls -d $groups/pod_* $root/*/mon_groups/pod_* 2>/dev/null'
check "groups of others are" [ -d $groups/foreign ]
check "containers run on, in the default group" in_no_group "$c1"
check "no file is left" eval '! ls -d /etc/nri-resctrl /etc/logrotate.d/nri-resctrl /run/nri-resctrl /var/lib/nri-resctrl /var/log/nri-resctrl /usr/bin/resctrl* /usr/bin/nri-watcher 2>/dev/null &&
  same "" "$(find /etc/systemd /usr/lib/systemd /lib/systemd/system /var/lib/systemd -name "*resctrl*" -o -name "nri-watcher*" | paste -sd " ")"'
check "no unit is left" eval 'systemctl reset-failed; same "" "$(systemctl list-units --all --no-legend --plain "nri-*" "resctrl-*" | paste -sd " ")"'
finish
