# Sourced by run, node and build: where the parts are, and starting a guest.
# Callers set vm (this directory); vm_work sets work (a private directory).

vm_smp=2 vm_tcg=multi vm_domains=1 vm_mem=512 vm_kernel=6.12 vm_cpu= vm_append= vm_timeout=300
vm_more= vm_verbose= vm_qemu=() vm_files=() vm_env=() vm_outs=() vm_args=()

cache=${RDT_VM_CACHE:-${HOME:-/root}/.cache/rdt-vm}
. "$vm/versions"

die() { echo "${0##*/}: $*" >&2; exit 125; }
if [ -n "${RDT_VM-}" ]; then RDT_VM=$(cd "$RDT_VM" 2>/dev/null && pwd) || die "RDT_VM: no such directory"; export RDT_VM; fi
quiet() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "failed: $*"; }; }

# vm_option LETTER ARG: the options that run and node share.
vm_options=s:D:k:m:a:t:c:MAq:f:d:e:o:1vh
vm_option() {
  case $1 in
    s) vm_smp=$2;; D) vm_domains=$2;; k) vm_kernel=$2;; m) vm_mem=$2;; a) vm_append+=" $2";;
    t) vm_timeout=$2;; c) vm_cpu+=,$2;; M) vm_cpu+=,rdt-a=off;; A) vm_cpu+=,rdt-m=off;;
    q) local q; read -ra q <<<"$2"; vm_qemu+=("${q[@]}");;
    f|d) vm_files+=("$2");; e) vm_env+=("$2");; o) vm_outs+=("$2");; 1) vm_tcg=single;; v) vm_verbose=1;;
    h) usage; exit 0;;
    *) usage >&2; exit 2;;
  esac
}

# need_packages PACKAGE...: installs those that this machine lacks (root, apt),
# or names the command that does.
need_packages() {
  local p missing=()
  for p; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "packages are missing; install them as root: apt-get install ${missing[*]}"
  echo "${0##*/}: installing ${missing[*]}" >&2
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600)
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >"$work/log" 2>&1 </dev/null ||
    { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$work/log" 2>&1 </dev/null ||
    { tail -n 20 "$work/log" >&2; die "could not install: ${missing[*]}"; }
}

# cached PART: where a part that was built here lies.  The name holds a sum of
# all that it is made from: what changes is built anew beside the old.
cached() {
  local sum
  case $1 in
    qemu) sum=$(sum_of "$qemu_version" qemu/build-qemu.sh qemu/rdt.patch);;
    kernel-6.12) sum=$(sum_of "$kernel_6_12" kernel/modules);;
    kernel-6.1) sum=$(sum_of "$kernel_6_1" kernel/modules);;
    busybox) sum=$(sum_of "$busybox_version");;
    x) sum=$(sum_of "" guest/x.c);;
    node) sum=$(sum_of "$debian $containerd_version $runc_version $busybox_version" rootfs go workload);;
  esac
  echo "$cache/$1-$sum"
}
sum_of() { # TEXT FILE-OR-DIRECTORY...
  local text=$1; shift
  (cd "$vm"; echo "$text"; [ $# = 0 ] || find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-12
}

# find_PART: sets the variable of that name.  A prebuilt kit (RDT_VM) comes
# first, then what was built here; what is in neither is built.
in_kit() { # FILE-PATTERN
  [ -n "${RDT_VM-}" ] || return 1
  local f; for f in "$RDT_VM"/$1; do [ -e "$f" ] && { echo "$f"; return 0; }; done
  return 1
}
built() { # PART
  local d; d=$(cached "$1")
  [ -e "$d" ] || "$vm/build" "$1" >&2 || die "could not build $1"
  echo "$d"
}
find_busybox() { busybox=$(in_kit guest/busybox) || { busybox=$(built busybox) && busybox+=/busybox; }; }
find_x() { x=$(in_kit guest/x) || { x=$(built x) && x+=/x; }; }
find_qemu() { qemu=$(in_kit qemu/qemu-system-x86_64) || { qemu=$(built qemu) && qemu+=/qemu-system-x86_64; }; }
find_kernel() { # sets vmlinuz and modules (a /lib/modules/VERSION)
  local d
  case $vm_kernel in
    6.12|6.1)
      if vmlinuz=$(in_kit "kernel/vmlinuz-$vm_kernel.*"); then d=${vmlinuz%/*}
      else d=$(built "kernel-$vm_kernel"); vmlinuz=$(echo "$d"/vmlinuz-*); fi
      modules=$d/lib/modules/${vmlinuz##*/vmlinuz-};;
    *) vmlinuz=$vm_kernel modules=; [ -e "$vmlinuz" ] || die "no kernel $vm_kernel (6.12, 6.1 or the path of a vmlinuz)";;
  esac
}

# module_files NAME...: the files of these modules and of those they need.
module_files() {
  local m
  [ -n "$modules" ] || return 0
  for m; do
    { grep -E "/${m//_/[-_]}\.ko:" "$modules/modules.dep" || true; } | tr -d : | tr ' ' '\n'
  done | sort -u | sed '/^$/d'
}
copy_modules() { # ROOT NAME...: into ROOT/lib/modules
  local r=$1/lib/modules/${modules##*/} f; shift
  [ -n "$modules" ] || return 0
  mkdir -p "$r"
  for f in $(module_files "$@"); do mkdir -p "$r/$(dirname "$f")"; cp "$modules/$f" "$r/$f"; done
  cp "$modules"/modules.* "$r/"
}

quote() { local q=\'; printf "'%s'" "${1//$q/$q\\$q$q}"; }

# payload ROOT: the files of -f and -d, and /rdt/{env,args,outs}, into ROOT.
payload() {
  local r=$1 x src dst
  mkdir -p "$r/rdt"
  for x in ${vm_files[@]+"${vm_files[@]}"}; do
    src=${x%%:*} dst=${x#"$src"}; dst=${dst#:}
    [ -e "$src" ] || die "no such file: $src"
    dst=${dst:-/$(basename "$(readlink -f "$src")")}
    [ "${dst%/}" = "$dst" ] || dst=$dst$(basename "$src")
    if [ -d "$src" ]; then mkdir -p "$r/$dst"; cp -R "$src/." "$r/$dst"
    else mkdir -p "$r/$(dirname "$dst")"; cp -L "$src" "$r/$dst"; fi
  done
  for x in ${vm_env[@]+"${vm_env[@]}"}; do
    case $x in *=*) ;; *) x=$x=${!x-};; esac
    echo "export ${x%%=*}=$(quote "${x#*=}")"
  done > "$r/rdt/env"
  for x in ${vm_args[@]+"${vm_args[@]}"}; do quote "$x"; echo; done > "$r/rdt/args"
  for x in ${vm_outs[@]+"${vm_outs[@]}"}; do echo "${x%%:*}"; done > "$r/rdt/outs"
}

# boot INITRD [QEMU ARGS]: runs the guest until it is off; sets rc.
# Ports: out (standard output of the script), rc (its status, and marks).  A
# guest that reboots ends QEMU: a reset under TCG takes half a minute, a new
# QEMU a second.
boot() {
  local initrd=$1 q; shift
  [ "$vm_smp" -ge "$vm_domains" ] || vm_smp=$vm_domains
  [ $((vm_smp % vm_domains)) = 0 ] || vm_smp=$((vm_domains * (vm_smp / vm_domains + 1)))
  truncate -s 4G "$work/out.tar"; : >"$work/rc"
  rm -f "$work/out"; mkfifo "$work/out"; cat "$work/out" & vm_cat=$!
  # thread=multi lets the guest die now and then, of its own code patching (README.md).
  # la57=off: one level less of page tables to walk.  no_timer_check: on a busy machine
  # the timer looks broken to a booting kernel, which panics ("IO-APIC + timer").
  TMPDIR=$work timeout --foreground -k 5 "$vm_timeout" nice "$qemu" -L "${qemu%/*}" \
    -M pc -accel tcg,thread=$vm_tcg -cpu "max,vendor=GenuineIntel,family=6,model=106,stepping=6,la57=off$vm_cpu" \
    -smp "$vm_smp,sockets=$vm_domains" -m "$vm_mem" -nodefaults -no-user-config -display none -vga none -no-reboot \
    -rtc base=utc -serial "file:$work/console" \
    -device virtio-serial-pci -chardev "file,id=out,path=$work/out" -chardev "file,id=rc,path=$work/rc" \
    -device virtserialport,chardev=out,nr=1,name=out -device virtserialport,chardev=rc,nr=2,name=rc \
    -object rng-random,id=rng,filename=/dev/urandom -device virtio-rng-pci,rng=rng \
    "$@" ${vm_qemu[@]+"${vm_qemu[@]}"} -kernel "$vmlinuz" -initrd "$initrd" \
    -append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check $vm_append" </dev/null &
  vm_pid=$!
  wait "$vm_pid" && q=0 || q=$?
  vm_pid=
  wait "$vm_cat"; vm_cat=
  rc=$(sed -n 's/^rc=\([0-9]*\).*/\1/p' "$work/rc" | tail -1)
  if [ -n "$vm_verbose" ]; then sed 's/^/console: /' "$work/console" >&2; fi
  if [ -z "$rc" ] && [ "$q" = 0 ] && [ -n "$vm_more" ]; then return; fi  # it rebooted, as it may
  if [ -z "$rc" ]; then
    if [ "$q" = 124 ] || [ "$q" = 137 ]; then rc=124; echo "${0##*/}: not done after $vm_timeout s" >&2
    else rc=125; echo "${0##*/}: the guest ended before the script did (QEMU: $q)" >&2; fi
    [ -n "$vm_verbose" ] || tail -n 15 "$work/console" 2>/dev/null | sed 's/^/console: /' >&2
  fi
}

# collect: the files of -o, from the tar that the guest wrote.
collect() {
  local x src dst
  [ ${#vm_outs[@]} -gt 0 ] && grep -q '^outs=1' "$work/rc" || { [ ${#vm_outs[@]} = 0 ] || echo "${0##*/}: the guest sent no files" >&2; return 0; }
  mkdir -p "$work/o"; tar -x --no-same-owner -f "$work/out.tar" -C "$work/o"
  for x in "${vm_outs[@]}"; do
    src=${x%%:*} dst=${x#"$src"}; dst=${dst#:}; dst=${dst:-$(basename "$src")}
    [ -e "$work/o/$src" ] || { echo "${0##*/}: not in the guest: $src" >&2; continue; }
    if [ -d "$work/o/$src" ]; then mkdir -p "$dst"; cp -R "$work/o/$src/." "$dst"
    else mkdir -p "$(dirname "$dst")"; cp "$work/o/$src" "$dst"; fi
  done
}

vm_cleanup() {
  local p
  for p in ${vm_pid-} ${vm_cat-}; do kill "$p" 2>/dev/null && wait "$p" 2>/dev/null; done
  rm -rf "$work"
}
vm_work() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/rdt-vm.XXXXXX")
  trap vm_cleanup EXIT; trap 'exit 130' INT; trap 'exit 143' TERM HUP
}
