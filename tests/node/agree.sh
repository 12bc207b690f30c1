# Sourced by lib.sh: the four witnesses of a node, in a handful of processes
# however many pods there are.

# agree: runtime, kernel, state and the last word of the event log, of every pod
# of the node: no group too many, none missing, every thread where it belongs,
# every counter what the kernel says.
agree() {
  local -A pod_row pod_of counted threads total inside
  local ps pods id st uid word rest
  ps=$(cri ps) && pods=$(cri pods) && read_state && read_threads || return 1
  same "$(sed -n 's/.* uid=\([^ ]*\) .*/\1/p' <<<"$pods" | sort -u)" "$(printf '%s\n' "${!pod_row[@]}" | sed '/^$/d' | sort)" || { echo "of the pods"; return 1; }
  same "$(ls -d $groups/pod_* 2>/dev/null | sort)" "$(q "select group_path from pods where group_state = 'Exists'" | sort)" || { echo "of the groups"; return 1; }
  same "$(cut -d' ' -f1 <<<"$ps" | sed '/^$/d' | sort)" "$(printf '%s\n' "${!counted[@]}" | sed '/^$/d' | sort)" || { echo "of the containers"; return 1; }
  while read -r id st word rest; do
    [ -z "$id" ] || container_true "$id" "$st" "${pod_of[${word#pod=}]-}" || return 1
  done <<<"$ps"
  for uid in "${!pod_row[@]}"; do
    same "${total[$uid]:-0}/${inside[$uid]:-0}" "${pod_row[$uid]##* }" || { echo "of $uid: containers, and those in its group"; return 1; }
  done
  while read -r uid word; do
    same "${pod_row[$uid]:-Removed}" "$word" || { echo "of $uid: its row, and the log's last word"; return 1; }
    unset "pod_row[$uid]"
  done < <(jq -rn 'reduce inputs as $e ({}; .[$e.pod_uid] = if $e.type == "Removed" then "Removed" else
      "\($e.group_state)\(if $e.reason then "(" + $e.reason + ")" else "" end) \($e.total_containers)/\($e.reconciled_containers)" end)
    | to_entries[] | "\(.key) \(.value)"' $log)
  same "" "${!pod_row[*]}" || { echo "of these pods the log says nothing"; return 1; }
}

# read_state: pod_row[uid]="Exists 2/2", pod_of[sandbox]=uid, counted[container]=0 or 1.
read_state() {
  local what key value
  while IFS='|' read -r what key value; do
    case $what in pod) pod_row[$key]=$value;; box) pod_of[$key]=$value;; ctr) counted[$key]=$value;; esac
  done < <(q "begin; select 'pod', pod_uid, group_state || case reason when '' then '' else coalesce('(' || reason || ')', '') end || ' ' ||
      total_containers || '/' || reconciled_containers from pods where not removing;
    select 'box', sandbox_id, pod_uid from sandboxes; select 'ctr', container_id, reconciled from containers" || echo "pod|unreadable|")
}

# read_threads: threads[container or sandbox]="id id ...", of its cgroup and those below.
read_threads() {
  local file t
  while IFS= read -r file; do
    [[ $file =~ [0-9a-f]{64} ]] && mapfile -t t 2>/dev/null <"$file" && threads[${BASH_REMATCH[0]}]+=" ${t[*]}"
  done < <(find /sys/fs/cgroup -path '*kubepods*' -name cgroup.threads 2>/dev/null)
  return 0
}

# container_true ID STATE UID: adds it to the pod's total, and to those inside when
# its threads are in the group, which those of a pod with a group must be; those
# of a pod without one must be in none.  One that does not run counts as the state has it.
container_true() {
  local t n=0 group want=//
  [ -n "$3" ] && [ -n "${pod_row[$3]-}" ] || { echo "container $1 is in no sandbox of a pod that the state has"; return 1; }
  total[$3]=$((${total[$3]-0}+1))
  if [ "$2" != CONTAINER_RUNNING ]; then inside[$3]=$((${inside[$3]-0}+${counted[$1]})); return; fi
  case ${pod_row[$3]} in Exists*) want=//pod_$3;; esac
  for t in ${threads[$1]-}; do
    kernel_group "$t" || continue
    n=$((n+1)); [ "$group" = "$want" ] || { echo "task $t of $1 is in $group, not in $want"; return 1; }
  done
  [ $n -gt 0 ] || { echo "container $1 has no task"; return 1; }
  [ $want = // ] || inside[$3]=$((${inside[$3]-0}+1))
}
