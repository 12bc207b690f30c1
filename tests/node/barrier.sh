# barrier.sh [STARTS] [PARALLEL]: what the start barrier does for containers that
# start many at a time beside a job that never rests.  Each program's first act is
# to record its own group.  Figures only: this guest is slow, and a time means
# something next to the others of the same run at most.
. /t/lib.sh
starts=${1:-50} parallel=${2:-8} pods=5
uid() { printf '%08d-0000-4000-8000-000000000000' "$1"; }

configure level '"debug"'
configure start_barrier "\"${START_BARRIER:-100ms}\""
pipeline_start
soon mountpoint -q $root || exit 1
list=/run/barrier; mkdir -p $list /tmp/first
for n in $(seq $pods); do s[n]=$(pod "$(uid "$n")"); done
soon eval '[ $(ls $groups | grep -c ^pod_) = $pods ]' || exit 1
for i in $(seq "$starts"); do
  n=$((i % pods + 1))
  c=$(cri create -pod "${s[n]}" -name "c$i" -mount /tmp/first:/host -- first "/host/$i" sleep) || exit 1
  echo "$c $(uid $n) $i"
done >$list/containers

systemctl stop resctrl-retry.timer
( while [ ! -e $list/stop ]; do resctrl-retry --json >/dev/null 2>&1; echo >>$list/passes; done ) & job=$!
soon test -s $list/passes || exit 1
t0=$EPOCHREALTIME
cut -d' ' -f1 $list/containers | xargs -P "$parallel" -n 1 cri -timeout 15m start 2>$list/said
t1=$EPOCHREALTIME
touch $list/stop; wait $job
sed -n 's/^start //p' $list/said >$list/times

inside=0 recorded=0
while read -r _ u i; do
  [ -s "/tmp/first/$i" ] || continue
  recorded=$((recorded+1)); ! grep -q "mon:pod_$u\$" "/tmp/first/$i" || inside=$((inside+1))
done <$list/containers

# percentiles: of times like 812µs, 1.5ms or 1.2s on standard input, in ms.
percentiles() {
  sed -nE 's/^([0-9.]+)(ns|µs|us|ms|s)$/\1 \2/p' |
    awk '{ f = $2 == "s" ? 1000 : $2 == "ms" ? 1 : $2 == "ns" ? 1e-6 : 1e-3; print $1 * f }' | sort -n |
    awk '{ v[NR] = $1 } END { if (!NR) { print "none"; exit }
      printf "p50 %.1f ms, p99 %.1f ms, longest %.1f ms, of %d\n", v[int((NR + 1) / 2)], v[int(NR * .99 + .99)], v[NR], NR }'
}
counted() { resctrlctl status --json | jq -c '[paths(type == "number") as $p | {($p | join(".")): getpath($p)}] | add | with_entries(select(.key | test("barrier")))'; }
patience=30; soon eval '[ "$(counted | jq "[.[]] | add")" -ge $starts ]'   # told with the next heartbeat

# callbacks: how long our StartContainer callbacks held the runtime, by its own
# histogram: with a barrier of 1s that is the time to the acknowledgement.
callbacks() {
  curl -s http://127.0.0.1:1338/v1/metrics | sed -n 's/^containerd_nri_plugin_latency_seconds_\(bucket\|sum\|count\){operation="StartContainer",plugin="10-resctrl"\(,le="\(.*\)"\)\?} /\1 \3 /p' |
    awk '$1 == "bucket" { le[++n] = $2; at[n] = $3 } $1 == "sum" { sum = $2 } $1 == "count" { count = $2 }
      function within(share,  i) { for (i = 1; i < n; i++) if (at[i] >= share * count) return "within " le[i] * 1000 " ms"; return "above " le[n - 1] * 1000 " ms" }
      END { if (count) printf "mean %.0f ms, p50 %s, p99 %s, of %d\n", sum / count * 1000, within(.5), within(.99), count; else print "none" }'
}

echo "$starts starts, $parallel at a time, in $(awk "BEGIN { printf \"%.1f\", $t1 - $t0 }") s, beside $(wc -l <$list/passes) passes of resctrl-retry"
echo "refused starts: $(grep -c '^cri:' $list/said)"; grep '^cri:' $list/said | sort | uniq -c
echo "first instruction in the pod's group: $inside of $recorded recorded"
echo "watcher: $(counted)"
echo "start to acknowledgement: $(journalctl -b --no-pager -o cat -u nri-watcher | sed -nE 's/.*ack_wait=([^ ]+).*/\1/p' | percentiles)"
echo "StartContainer callbacks, as containerd timed them: $(callbacks)"
echo "cri start: $(percentiles <$list/times)"
