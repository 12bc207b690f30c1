# From the first instruction: each program's first act is to record its own
# group, STARTS times with a start barrier of 1s and with the default one; starts
# with and without us side by side; starts while the applier is dead, stopped and
# slow.  Runs on the node (see run).
. "${NODE_TESTS:-/t}/lib.sh"
. "$tests/packagelib.sh"
. "$tests/startlib.sh"
starts=${STARTS:-200} few=20 parallel=6
declare -a s

barrier_is() { configure start_barrier "\"$1\""; systemctl restart nri-watcher; synchronized; }
synchronized() { soon eval 'systemctl show -p StatusText nri-watcher | grep -q "watching the runtime; the applier reads"'; }
told_barrier() { # SINCE NAME: figures of a play
  local log; log=$(waits "$1")
  echo "# $(wc -l <"/run/starts/$2") starts, $parallel at a time: $(grep -c true <<<"$log") hits, $(grep -c false <<<"$log") misses, the rest skips;" \
    "first act in the pod's group: $(firsts "$2" | grep -c in$)"
  echo "# start to acknowledgement: $(grep true <<<"$log" | cut -d' ' -f3 | percentiles)"
  echo "# cri start: $(milliseconds <"/run/starts/$2.times" | percentiles)"
}
# hits_inside NAME SINCE: each start that the watcher held until its answer came had
# its first act in its pod's group.
hits_inside() {
  local hits; hits=$(waits "$2" | awk '$4 == "true" { print $1 }' | sort)
  [ -n "$hits" ] || { echo "no hit"; return 1; }
  same "" "$(comm -23 <(echo "$hits") <(firsts "$1" | sed -n 's/ in$//p' | sort))"
}
all_ran() { same "$2 0" "$(firsts "$1" | wc -l) $(refused "$1")"; } # NAME COUNT

configure level '"debug"'
check "the package is installed" package
check "everything runs" soon everything_runs
five_pods; check "five pods have their groups" same $pods "$(ls $groups | grep -c ^pod_)"

# --- 1s: every one

barrier_is 1s
check "$starts containers are created" create whole "$starts" $parallel
since=$EPOCHREALTIME; start whole $parallel
check "start_barrier 1s: all start" soon all_ran whole "$starts"
told_barrier "$since" whole
check "start_barrier 1s: $starts of $starts first acts are in the pod's group" same "$starts" "$(firsts whole | grep -c in$)"
check "every hit is" hits_inside whole "$since"
echo "# StartContainer callbacks, as containerd timed them: $(callbacks)"

# --- 100ms, the default: every hit

barrier_is 100ms
check "$starts containers are created" create default "$starts" $parallel
since=$EPOCHREALTIME; start default $parallel
check "start_barrier 100ms: all start" soon all_ran default "$starts"
told_barrier "$since" default
check "start_barrier 100ms: every hit is in its group" hits_inside default "$since"

# --- with us and without us, in turns

for turn in 1 2 3 4; do
  systemctl stop nri-watcher; create "without$turn" 5 1 && start "without$turn" 1
  systemctl start nri-watcher; synchronized; create "with$turn" 5 1 && start "with$turn" 1
done
for how in without with; do
  echo "# cri start, one after another, $how us: $(cat /run/starts/$how?.times | milliseconds | percentiles)"
done
check "none is refused, with us or without" same 0 "$(cat /run/starts/with*.said | grep -c '^cri:')"

# --- the applier dead, stopped, slow

# longest_second SINCE: the most that starts were held within one second, in ms.
longest_second() {
  waits "$1" | awk '{ end[NR] = $2; ms[NR] = $3 }
    END { for (i = 1; i <= NR; i++) { sum = 0; for (j = i; j <= NR && end[j] - end[i] < 1; j++) sum += ms[j]; if (sum > most) most = sum } printf "%.0f\n", most }'
}
held() { # NAME SINCE
  echo "# $few starts, applier $1: $(waits "$2" | wc -l) held, the longest $(waits "$2" | cut -d' ' -f3 | percentiles); all within one second $(longest_second "$2") ms"
  echo "# cri start: $(milliseconds <"/run/starts/$1.times" | percentiles)"
}
connection() { journalctl -b --no-pager -o cat -u nri-watcher | grep -c 'synchronized with the runtime'; }
watcher=$(main_pid nri-watcher) epochs=$(connection)

create dead $few $parallel; create stopped $few $parallel; create slow $few $parallel
systemctl stop resctrl-retry.timer resctrl-applier; since=$EPOCHREALTIME; start dead $parallel
check "applier dead: no start is refused" soon all_ran dead $few
held dead "$since"
check "applier dead: no start is held" same 0 "$(waits "$since" | wc -l)"
systemctl start resctrl-applier; synchronized

kill -STOP "$(main_pid resctrl-applier)"; since=$EPOCHREALTIME; start stopped $parallel
check "applier stopped: no start is refused" soon all_ran stopped $few
held stopped "$since"
check "applier stopped: one start is held, and none after the miss" same "1 false" "$(waits "$since" | wc -l) $(waits "$since" | cut -d' ' -f4)"
kill -CONT "$(main_pid resctrl-applier)"
soon agree >/dev/null

( while [ ! -e /run/fast ]; do p=$(main_pid resctrl-applier); kill -STOP "$p"; sleep 0.3; kill -CONT "$p"; sleep 0.1; done ) & slow=$!
since=$EPOCHREALTIME; start slow $parallel; touch /run/fast; wait $slow
check "applier slow: no start is refused" soon all_ran slow $few
held slow "$since"
# What a slow guest adds to a timer of 100 ms is its own; that it is not 100 ms for each start is ours.
check "applier slow: all starts of any second together are held for 100 ms, and a slow guest's share" [ "$(longest_second "$since")" -lt 300 ]
check "the watcher lived through it, with its connection" same "$watcher $epochs" "$(main_pid nri-watcher) $(connection)"
echo "# StartContainer callbacks, as containerd timed them: $(callbacks)"
check "everything agrees" soon agree
check "no event was lost, none repeated" log_sound
check "no unit failed" same "" "$(failed)"
finish
