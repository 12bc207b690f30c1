# Sourced by run when RESCTRL_E2E=1: the scripts on this machine itself, which has
# RDT, instead of a virtual one.  It must be a node of its own: scripts install and
# purge the package, restart containerd and take all RMIDs for moments.  Needs repo, debs.

# complete: says what this machine lacks.
complete() {
  local missing=() tool
  [ "$(id -u)" = 0 ] || missing+=("root")
  [ -d /run/systemd/system ] || missing+=("systemd as this machine's init")
  [ -e /sys/fs/cgroup/cgroup.controllers ] || missing+=("cgroup v2 at /sys/fs/cgroup")
  [ -d /sys/fs/resctrl ] || missing+=("/sys/fs/resctrl: a CPU and a kernel with RDT (BIOS, CONFIG_X86_CPU_RESCTRL, rdt= of the command line)")
  [ -e /proc/self/cpu_resctrl_groups ] || missing+=("/proc/PID/cpu_resctrl_groups: CONFIG_PROC_CPU_RESCTRL")
  [ -S /run/containerd/containerd.sock ] || missing+=("containerd at /run/containerd/containerd.sock")
  [ -S /var/run/nri/nri.sock ] || missing+=("containerd's NRI at /var/run/nri/nri.sock")
  for tool in dpkg ctr sqlite3 jq go gcc busybox; do command -v $tool >/dev/null || missing+=("the command $tool"); done
  [ ${#missing[@]} = 0 ] || { printf '# this machine lacks %s\n' "${missing[@]}"; return 1; }
}

# unused: what belongs to others stays untouched; with any of it, nothing is played.
unused() {
  local others=() dir pods
  ! dpkg-query -W nri-resctrl >/dev/null 2>&1 || others+=("nri-resctrl is installed: apt-get purge nri-resctrl")
  for dir in /etc/nri-resctrl /var/lib/nri-resctrl /var/log/nri-resctrl; do [ ! -e $dir ] || others+=("$dir is there, of an installation: move it away"); done
  pods=$("$debs/cri" pods) && [ -z "$pods" ] || others+=("the runtime has pods, or does not tell: $pods")
  [ -z "$(find /sys/fs/resctrl -mindepth 1 -maxdepth 2 -type d ! -path '*/info*' ! -path '*/mon_data*' ! -name mon_groups)" ] ||
    others+=("resctrl has groups already, of somebody else")
  [ ${#others[@]} = 0 ] || { printf '# this machine is in use: %s\n' "${others[@]}"; return 1; }
}

# tools: cri and the image of the workload, as the virtual node has them.
tools() {
  (cd "$repo/tests/vm/go" && CGO_ENABLED=0 GOWORK=off go build -trimpath -buildvcs=false -o "$debs/" ./cri ./mkimage) &&
    gcc -O1 -static -pthread -s -o "$debs/workload" "$repo/tests/vm/workload/workload.c" &&
    "$debs/mkimage" -o "$debs/workload.tar" -name localhost/workload:1 -entry /workload "$debs/workload:/workload" \
      "$(command -v busybox):/bin/busybox:sh,sleep,cat,ls,true,false"
}

# hardware SCRIPTS: plays them here, one after another, and clears up after each.
hardware() {
  local s
  complete || return 1
  tools || { echo "# the tools of tests/vm could not be made"; return 1; }
  unused || return 1
  ctr -n k8s.io images import --local "$debs/workload.tar" >/dev/null || return 1
  for s; do
    case $s in e2e|pods|start|crowd) ;; *) echo "# $s ended with status 2: on hardware there are e2e, pods, start, crowd"; continue;; esac
    echo "# $s begins, $(date +%T)"
    NODE_TESTS=$here NODE_PACKAGE=$debs/new.deb PATH=$debs:$PATH bash "$here/$s.sh"
    echo "# $s ended with status $?, $(date +%T)"
    "$debs/cri" -timeout 15m rmall >/dev/null 2>&1      # unused saw that there were none before
    dpkg -P nri-resctrl >/dev/null 2>&1
    rmdir /sys/fs/resctrl/mon_groups/fill_* 2>/dev/null
  done
  ctr -n k8s.io images rm localhost/workload:1 >/dev/null
}
