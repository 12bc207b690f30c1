# Sourced by start.sh and barrier.sh: containers that start many at a time, in
# five pods; each program's first act is to record its own group.
pods=5
uid() { printf '%08d-0000-4000-8000-000000000000' "$1"; }

five_pods() {
  local n
  mkdir -p /run/starts /tmp/first
  for n in $(seq $pods); do s[n]=$(pod "$(uid "$n")"); done
  soon eval '[ $(ls $groups | grep -c ^pod_) = $pods ]'
}

# create NAME COUNT PARALLEL [ACT]: containers that are yet to start; ACT is what
# they go on with (exit).
create() {
  local i
  for i in $(seq "$2"); do echo "${s[i % pods + 1]} $(uid $((i % pods + 1))) $1.$i"; done |
    xargs -P "$3" -L 1 bash -c 'c=$(cri -timeout 15m create -pod "$1" -name "$3" -mount /tmp/first:/host -- first "/host/$3" '"${4:-exit 0}"') && echo "$c $2 $3"' - >"/run/starts/$1"
  [ "$(wc -l <"/run/starts/$1")" = "$2" ]
}

# start NAME PARALLEL: starts them; what cri says of each is in /run/starts/NAME.said.
start() {
  cut -d' ' -f1 "/run/starts/$1" | xargs -P "$2" -n 1 cri -timeout 15m start 2>"/run/starts/$1.said"
  sed -n 's/^start //p' "/run/starts/$1.said" >"/run/starts/$1.times"
}
refused() { grep -c '^cri:' "/run/starts/$1.said"; } # NAME

# firsts NAME: of each container of NAME its id, and whether its first act was in its pod's
# group (in) or not (out).
firsts() {
  local c u i
  while read -r c u i; do
    [ -s "/tmp/first/$i" ] || continue
    if grep -q "mon:pod_$u\$" "/tmp/first/$i"; then echo "$c in"; else echo "$c out"; fi
  done <"/run/starts/$1"
}

# waits: how long the watcher held each start, and whether the answer came, since
# SINCE: container, seconds since 1970, milliseconds, true or false.
waits() {
  journalctl -b --no-pager -o short-unix -u nri-watcher --since "@$1" |
    sed -nE 's/^([0-9.]+) .*container_id=([0-9a-f]+) ack_wait=([0-9.]+)(ns|µs|us|ms|s) acknowledged=(true|false).*/\2 \1 \3 \4 \5/p' |
    awk '{ f = $4 == "s" ? 1000 : $4 == "ms" ? 1 : $4 == "ns" ? 1e-6 : 1e-3; print $1, $2, $3 * f, $5 }'
}

# milliseconds: of times like 812µs, 1.5ms or 1.2s.
milliseconds() {
  sed -nE 's/^([0-9.]+)(ns|µs|us|ms|s)$/\1 \2/p' |
    awk '{ f = $2 == "s" ? 1000 : $2 == "ms" ? 1 : $2 == "ns" ? 1e-6 : 1e-3; print $1 * f }'
}

# percentiles: of numbers of milliseconds.
percentiles() {
  sort -n | awk '{ v[NR] = $1 } END { if (!NR) { print "none"; exit }
    printf "p50 %.1f ms, p99 %.1f ms, longest %.1f ms, of %d\n", v[int((NR + 1) / 2)], v[int(NR * .99 + .99)], v[NR], NR }'
}

# callbacks: how long our StartContainer callbacks held the runtime, by its own
# histogram, since it started.
callbacks() {
  curl -s http://127.0.0.1:1338/v1/metrics | sed -n 's/^containerd_nri_plugin_latency_seconds_\(bucket\|sum\|count\){operation="StartContainer",plugin="10-resctrl"\(,le="\(.*\)"\)\?} /\1 \3 /p' |
    awk '$1 == "bucket" { le[++n] = $2; at[n] = $3 } $1 == "sum" { sum = $2 } $1 == "count" { count = $2 }
      function within(share,  i) { for (i = 1; i < n; i++) if (at[i] >= share * count) return "within " le[i] * 1000 " ms"; return "above " le[n - 1] * 1000 " ms" }
      END { if (count) printf "mean %.0f ms, p50 %s, p99 %s, all %s, of %d\n", sum / count * 1000, within(.5), within(.99), within(1), count; else print "none" }'
}
