# Sourced by the scripts that run on the node.  What is true comes from the
# kernel (/proc, /sys/fs/cgroup, /sys/fs/resctrl) and from the runtime (cri); the
# state is read with sqlite3, the event log with jq.  None of the project's own
# code is asked.

root=/sys/fs/resctrl groups=/sys/fs/resctrl/mon_groups
db=/var/lib/nri-resctrl/state.db
log=/var/log/nri-resctrl/events.jsonl
tests=${NODE_TESTS:-/t} deb=${NODE_PACKAGE:-/pkg/new.deb}    # these files, and what make deb makes: see run
patience=${PATIENCE:-180}               # seconds that a condition may take; the guest is slow
failures=0 flow=                        # flow: stands before the names of cases

# check NAME COMMAND...: one case.  What the command says stands below a failure;
# what took long since the last case is told.
checked=0
check() {
  local name=${flow:+$flow: }$1 said; shift
  if said=$("$@" 2>&1); then echo "ok - $name"
  else
    echo "not ok - $name"; sed 's/^/#   /' <<<"$said"; failures=$((failures+1))
  fi
  [ $((SECONDS-checked)) -lt 10 ] || echo "#   (after $((SECONDS-checked)) s)"
  checked=$SECONDS
}

# soon COMMAND...: polls until the command succeeds, for as long as patience.
soon() {
  local end=$((SECONDS+patience)) said
  until said=$("$@" 2>&1); do
    [ $SECONDS -lt $end ] || { echo "not within $patience s: $*"; echo "$said"; return 1; }
    sleep 0.5
  done
}

# finish: the last words of a script; its status tells whether all was well.
finish() {
  if [ $failures -gt 0 ]; then
    echo "# the journal's end:"; journalctl --no-pager -o short-monotonic -n 80 \
      -u nri-watcher -u resctrl-applier -u resctrl-retry | sed 's/^/#   /'
    echo "# the event log's end:"; tail -n 20 $log | sed 's/^/#   /'
    echo "# pods:"; sqlite3 -readonly -header $db 'select * from pods; select * from containers' | sed 's/^/#   /'
  fi
  echo "script done"
  exit $((failures > 0))
}

same() { # WANT GOT
  [ "$1" = "$2" ] || { echo "want: $1"; echo "got:  $2"; return 1; }
}

# --- the kernel

cgroup_of() { # CONTAINER: its directory
  find /sys/fs/cgroup -type d \( -name "cri-containerd-$1.scope" -o -name "$1" \) -print -quit
}

# tasks_of CONTAINER: the ids of all threads in its cgroup and those below.
tasks_of() {
  local d; d=$(cgroup_of "$1"); [ -n "$d" ] || return 1
  find "$d" -name cgroup.threads -exec cat {} + | sort -n
}

# kernel_group TASK: sets group to the one the kernel has the thread in, as
# CONTROL/MONITORING: // is the default one, //m is m under the root.  Fails when
# the thread has ended.  (Without a process of its own: there are many threads.)
kernel_group() {
  local control= monitoring=
  { read -r control; read -r monitoring; } 2>/dev/null <"/proc/$1/cpu_resctrl_groups" || return 1
  group=${control#res:}/${monitoring#mon:}
}
kernel_group_is() { kernel_group "$1" && same "$2" "$group"; } # TASK GROUP

# in_group UID CONTAINER [AT-LEAST]: every thread of the container is in the
# pod's group, and there are as many as AT-LEAST.
in_group() {
  local t n=0 bad=0 group
  for t in $(tasks_of "$2"); do
    kernel_group "$t" || continue       # it ended meanwhile
    n=$((n+1))
    [ "$group" != "//pod_$1" ] || continue
    bad=$((bad+1)); [ $bad -gt 5 ] || echo "task $t ($(cat "/proc/$t/comm")) is in $group, not in pod_$1"
  done
  [ $n -ge "${3:-1}" ] || { echo "container $2 has $n tasks, not ${3:-1}"; return 1; }
  [ $bad = 0 ] || { echo "$bad of $n tasks are not in pod_$1"; return 1; }
}

in_no_group() { # CONTAINER
  local t n=0 group
  for t in $(tasks_of "$1"); do
    kernel_group "$t" || continue
    n=$((n+1)); [ "$group" = // ] || { echo "task $t of $1 is in $group"; return 1; }
  done
  [ $n -gt 0 ] || { echo "$1 has no task"; return 1; }
}

# group_holds UID CONTAINER...: the kernel's list of the group's tasks is that of
# the containers, no more and no less.
group_holds() {
  local uid=$1 c; shift
  same "$(for c; do tasks_of "$c"; done | sort -n | paste -sd ' ')" "$(sort -n "$groups/pod_$uid/tasks" | paste -sd ' ')"
}

no_group() { [ ! -e "$groups/pod_$1" ] || { echo "pod_$1 is still there"; return 1; }; }

# group_id UID: what changes when a group is made anew.
group_id() { stat -c %i "$groups/pod_$1"; }

counts_up() { # UID BYTES: the group's counter is a number, and not below BYTES
  local now; now=$(cat "$groups/pod_$1/mon_data/mon_L3_00/mbm_total_bytes") || return 1
  [ "$now" -ge "$2" ] || { echo "mbm_total_bytes is $now, was $2"; return 1; }
}
counter() { cat "$groups/pod_$1/mon_data/mon_L3_00/mbm_total_bytes"; }

# --- state and events

q() { sqlite3 -readonly -cmd '.timeout 5000' "$db" "$1"; }

# told UID: the pod's events, as "Exists 0/0, Exists 1/1, Removed".
told() {
  jq -rs --arg u "$1" '[.[] | select(.pod_uid == $u)
    | if .type == "Removed" then "Removed"
      else "\(.group_state)\(if .reason then "(" + .reason + ")" else "" end) \(.total_containers)/\(.reconciled_containers)" end]
    | join(", ")' $log
}
told_is() { same "$2" "$(told "$1")"; } # UID EVENTS: all of the pod's
ends_with() { # UID EVENTS: the pod's last ones
  local all; all=$(told "$1")
  case ", $all" in *", $2") ;; *) echo "want, at the end: $2"; echo "got: $all"; return 1;; esac
}

row() { # UID: the pod's row, as "Exists 2/2"
  q "select group_state || case reason when '' then '' else coalesce('(' || reason || ')', '') end || ' ' ||
       total_containers || '/' || reconciled_containers from pods where pod_uid = '$1' and not removing"
}
row_is() { same "$2" "$(row "$1")"; } # UID ROW
container_is() { same "$2" "$(q "select state from containers where container_id = '$1'")"; }

# log_sound: every line is whole, numbered without gap or repeat, of one log, and
# the very line that the table has.
log_sound() {
  jq -e . $log >/dev/null || return 1
  [ "$(tail -c 1 $log | od -An -tx1 | tr -d ' ')" = 0a ] || { echo "the last line is torn"; return 1; }
  same 1 "$(jq -r .log $log | sort -u | wc -l)" || return 1
  same "$(seq "$(wc -l <$log)" | paste -sd ' ')" "$(jq -r .seq $log | paste -sd ' ')" || return 1
  same "" "$(jq -c 'select((.time and .type and .pod_uid and .node and .source) | not)' $log)" || return 1
  diff <(q "select rtrim(line, char(10)) from events order by seq") $log
}

state_sound() {
  same ok "$(q 'pragma integrity_check')" && same "" "$(q 'pragma foreign_key_check')" &&
    same "" "$(q 'select pod_uid from pods p where not removing
      and total_containers <> (select count(*) from containers c where c.pod_uid = p.pod_uid)')"
}

. "${BASH_SOURCE%/*}/agree.sh"

# --- the programs

main_pid() { systemctl show -p MainPID --value "$1"; }
runs() { [ "$(systemctl is-active "$1")" = active ] && [ "$(main_pid "$1")" != 0 ]; } # UNIT
runs_anew() { runs "$1" && [ "$(main_pid "$1")" != "$2" ]; }                          # UNIT OLD-PID
quietly() { "$@" >/tmp/said 2>&1 || { cat /tmp/said; return 1; }; }

# package: installs what is shipped, as it is shipped; the package starts everything.
package() { quietly dpkg -i --force-confold "$deb"; }

# configure KEY VALUE: in the configuration file, before or after the package comes.
configure() {
  [ -e /etc/nri-resctrl/config.toml ] || dpkg-deb --fsys-tarfile "$deb" | tar -x -C / ./etc/nri-resctrl/config.toml
  sed -i "s/^$1 = .*/$1 = $2/" /etc/nri-resctrl/config.toml
}

# kubelet_removes UID: the pod's own cgroup, as the kubelet does after the pod.
kubelet_removes() { systemctl stop "kubepods-besteffort-pod${1//-/_}.slice"; }

# pod UID [OPTIONS]: a sandbox; container SANDBOX NAME [OPTIONS] -- ARGS: a started
# container.  They print the id.
pod() { local uid=$1; shift; cri -timeout 10m runp -name "${uid%%-*}" -uid "$uid" "$@" 2>/dev/null; }
container() { local s=$1 name=$2; shift 2; cri -timeout 10m run -pod "$s" -name "$name" "$@" 2>/dev/null; }
