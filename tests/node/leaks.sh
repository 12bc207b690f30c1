# Sourced by the scripts that play many lives: what must not grow.

rows() { q "select (select count(*) from pods)||' '||(select count(*) from sandboxes)||' '||(select count(*) from containers)"; }

# measure NAME: what both daemons hold, for no_more and the reader.
declare -A descriptors memory
measure() {
  local u pid
  for u in nri-watcher resctrl-applier; do
    pid=$(main_pid $u)
    descriptors[$1 $u]=$(ls "/proc/$pid/fd" | wc -l) memory[$1 $u]=$(sed -n 's/^VmRSS:[^0-9]*//p' "/proc/$pid/status")
    echo "# $1: $u holds ${descriptors[$1 $u]} descriptors, ${memory[$1 $u]}"
  done
  echo "# $1: pods, sandboxes, containers: $(rows); events: $(q 'select count(*) from events')"
}

# no_more descriptors BY: neither daemon holds more than before, but for BY.
no_more() {
  local u
  for u in nri-watcher resctrl-applier; do
    [ "${descriptors[after $u]}" -le $((${descriptors[before $u]}+$2)) ] ||
      { echo "$u: ${descriptors[before $u]} $1 before, ${descriptors[after $u]} after"; ls -l "/proc/$(main_pid $u)/fd"; return 1; }
  done
}

# fill: takes all RMIDs that are left; unfill gives them back.  (One that was freed
# is in limbo for a while: the kernel then says EBUSY, not ENOSPC.)
fill() {
  local n=0 said
  while :; do
    if said=$(LC_ALL=C mkdir "$groups/fill_$n" 2>&1); then n=$((n+1))
    else case $said in *"No space"*) return 0;; *busy*) sleep 0.2;; *) echo "$said"; return 1;; esac; fi
  done
}
unfill() { rmdir $groups/fill_*; }

# rmids_free: every RMID that no group has can be had.
rmids_free() {
  local all made
  fill || return 1
  all=$(cat $root/info/L3_MON/num_rmids) made=$(($(ls $groups | wc -l)+1))
  unfill
  same "$all" "$made"
}
