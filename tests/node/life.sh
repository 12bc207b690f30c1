# A node's life: watcher, applier and job killed and stopped in every order, the
# runtime killed and replaced while pods go, the clock set back.  Runs on the node
# (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/leaks.sh"
stays=11111111-1111-4111-8111-111111111111
guest=22222222-2222-4222-8222-222222222222
old=33333333-3333-4333-8333-333333333333
full=44444444-4444-4444-8444-444444444444

configure vanished_after '"10s"'
check "the package is installed" package
check "everything runs" soon everything_runs
s1=$(pod $stays); c1=$(container "$s1" app -- threads 10); c2=$(container "$s1" side -- fork 5)
s2=$(pod $old); container "$s2" app -- threads 5 >/dev/null
check "two pods" soon eval 'row_is $stays "Exists 2/2" && row_is $old "Exists 1/1" && agree'
ids="$(group_id $stays) $(group_id $old)" bytes=$(counter $stays)
measure before

# --- watcher, applier, job in every order, while a container comes and goes

unit_of() { case $1 in w) echo nri-watcher.service;; a) echo resctrl-applier.service;; j) echo resctrl-retry.service;; esac; }
killed() { # UNIT: with -9, wherever it is; the job at the begin of a pass
  [ "$1" != resctrl-retry.service ] || systemctl start --no-block $1
  systemctl kill -s KILL "$1" 2>/dev/null; :
}
stopped() { case $1 in resctrl-retry.service) systemctl stop resctrl-retry.timer $1;; *) systemctl stop "$1";; esac; }
started() { case $1 in resctrl-retry.service) systemctl start resctrl-retry.timer;; *) systemctl start "$1";; esac; }
turn() { # HOW ORDER: each in this order; a container is started before, and its fellow of the last turn removed after
  local how=$1 order=$2 was=$guest_container u
  { guest_container=$(container "$s3" "$how$order" -- threads 3); echo "$guest_container" >/run/guest; } & local busy=$!
  for u in ${order:0:1} ${order:1:1} ${order:2:1}; do
    if [ "$how" = kill ]; then killed "$(unit_of "$u")"; else stopped "$(unit_of "$u")"; fi
  done
  wait $busy; guest_container=$(cat /run/guest)
  [ -z "$was" ] || { cri stop -t 0 "$was" && cri rm "$was"; } >/dev/null 2>&1
  [ "$how" = kill ] || for u in ${order:0:1} ${order:1:1} ${order:2:1}; do started "$(unit_of "$u")"; done
}
s3=$(pod $guest) guest_container=
for how in kill stop; do
  for order in waj wja awj ajw jwa jaw; do
    turn $how $order
    check "$how $order: everything runs, and agrees" eval 'soon everything_runs && soon row_is $guest "Exists 1/1" && soon agree'
  done
done
check "no group was made anew" same "$ids" "$(group_id $stays) $(group_id $old)"
check "counters count on" counts_up $stays "$bytes"
check "no event was lost, none repeated" log_sound
systemctl reset-failed

# --- the runtime killed, and upgraded in place, while pods go

pid=$(main_pid containerd) watcher=$(main_pid nri-watcher)
kill -9 "$pid"; check "containerd is killed, and comes back" soon runs_anew containerd "$pid"
soon cri version >/dev/null
{ cri stopp "$s2"; cri rmp "$s2"; } >/dev/null 2>&1; kubelet_removes $old
check "a pod that went meanwhile, of which it tells nothing, is removed" soon ends_with $old Removed
check "everything agrees" soon agree
pid=$(main_pid containerd) binary=$(readlink -f "/proc/$(main_pid containerd)/exe")
cp "$binary" "$binary.new" && mv "$binary.new" "$binary"
systemctl restart containerd
check "containerd is replaced, and another one runs" eval 'soon runs_anew containerd $pid && soon cri version && [ "$(stat -Lc %i /proc/$(main_pid containerd)/exe)" = "$(stat -c %i $binary)" ]'
{ cri stopp "$s3"; cri rmp "$s3"; } >/dev/null 2>&1; kubelet_removes $guest
check "another pod that went so" soon ends_with $guest Removed
check "the watcher is still the same process" same "$watcher" "$(main_pid nri-watcher)"
check "everything agrees" soon agree

# --- the clock set back, and forward again, with a pod that waits for an RMID

fill
s4=$(pod $full)
check "a pod without an RMID" soon row_is $full "Failed(capacity) 0/0"
attempts() { q "select attempts from pods where pod_uid = '$full'"; }
heartbeat() { q "select value from meta where key = 'last_heartbeat'"; }
tried=$(attempts) seq=$(q 'select max(seq) from events') beat=$(heartbeat)
date -s '-1 hour' >/dev/null
check "an hour back, passes go on, and try it" soon eval '[ "$(attempts)" -gt $((tried+1)) ]'
check "the watcher's heart beats on" soon eval '[ "$(heartbeat)" != "$beat" ]'
c4=$(container "$s4" app -- threads 5)
check "a container in the hour that comes twice" soon row_is $full "Failed(capacity) 1/0"
unfill
check "with a free RMID it is served" soon told_is $full "Failed(capacity) 0/0, Failed(capacity) 1/0, Exists 1/0, Exists 1/1"
later() { q "select (select time from events where seq = $seq) > time from events order by seq desc limit 1"; }
check "with a higher seq and an earlier time" same 1 "$(later)"
check "the status knows nothing wrong" same "[]" "$(resctrlctl status --json | jq -c '.problems // []')"
check "everything agrees" soon agree
date -s '+1 hour' >/dev/null
check "and forward again" eval 'new_pass && soon everything_runs && soon agree && log_sound'
{ cri stopp "$s4"; cri rmp "$s4"; } >/dev/null 2>&1
check "its end" soon ends_with $full Removed

# --- the end

check "everything agrees" soon agree
measure after
check "no descriptor leaks" no_more descriptors 2
check "no RMID leaks" rmids_free
cri rmall >/dev/null 2>&1; kubelet_removes $stays   # it is from before the runtime's restarts
check "no group, no row is left" soon eval '! ls -d $groups/pod_* >/dev/null 2>&1 && same "0 0 0" "$(rows)"'
check "no event was lost, none repeated" log_sound
check "the state is sound" state_sound
check "nothing crashed" eval '! journalctl -b --no-pager -u nri-watcher -u resctrl-applier -u resctrl-retry | grep -E "panic:|fatal error|DATA RACE|segfault"'
finish
