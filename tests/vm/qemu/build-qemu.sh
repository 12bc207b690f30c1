#!/bin/bash
# build-qemu.sh SOURCE DIR: builds qemu-system-x86_64 and its firmware into DIR
# from Debian's source package (a directory SOURCE with qemu_*.dsc) and
# rdt.patch.  About 4 minutes on 2 cores.  Called by build, which gets the source
# and what is needed to build it.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
src=$(readlink -f "$1"); mkdir -p "$2"; out=$(readlink -f "$2")
quiet() { "$@" >log 2>&1 || { tail -n 30 log; echo "build-qemu.sh: failed: $*"; exit 1; }; }

cd "$src"
quiet dpkg-source --no-check -x qemu_*.dsc tree
(cd tree && patch -s -p1 --no-backup-if-mismatch) < "$here/rdt.patch"
mkdir build; cd build
# The system's python3: another one may lack what meson needs.
PATH=/usr/bin:/bin quiet nice ../tree/configure --static --target-list=x86_64-softmmu \
  --without-default-features --without-default-devices --with-devices-x86_64=rdt \
  --enable-system --enable-tcg --enable-fdt=system \
  --extra-cflags="-ffile-prefix-map=$src/tree=. -ffile-prefix-map=../tree=." \
  --disable-werror --disable-debug-info --disable-docs --disable-tools
PATH=/usr/bin:/bin quiet nice ninja -j"$(nproc)" qemu-system-x86_64
# Debian's source has no firmware: the BIOS is of the package seabios; the rom
# that loads -kernel is built here.
printf 'TOPSRC_DIR=%s\nCC=gcc\nOBJCOPY=objcopy\nPYTHON=/usr/bin/python3\n' "$src/tree" > pc-bios/optionrom/config.mak
quiet make -s -C pc-bios/optionrom linuxboot_dma.bin kvmvapic.bin
strip -o "$out/qemu-system-x86_64" qemu-system-x86_64
cp pc-bios/optionrom/{linuxboot_dma,kvmvapic}.bin /usr/share/seabios/bios-256k.bin "$out/"
