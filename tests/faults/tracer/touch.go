//go:build linux && amd64

package tracer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysOpenat2 is missing in package syscall.
const sysOpenat2 = 437

// touched gives the paths that a call at its entry makes, removes, renames,
// changes or opens for writing.
func touched(pid int, r *syscall.PtraceRegs) []string {
	const here = ^uint64(99) // AT_FDCWD, -100
	at := func(dir, name uint64) string { return resolve(pid, dir, text(pid, name)) }
	changing := func(flags uint64) bool {
		return flags&(syscall.O_WRONLY|syscall.O_RDWR|syscall.O_CREAT|syscall.O_TRUNC) != 0
	}
	switch r.Orig_rax {
	case syscall.SYS_OPEN:
		if changing(r.Rsi) {
			return []string{at(here, r.Rdi)}
		}
	case syscall.SYS_OPENAT:
		if changing(r.Rdx) {
			return []string{at(r.Rdi, r.Rsi)}
		}
	case sysOpenat2, syscall.SYS_MKDIRAT, syscall.SYS_UNLINKAT, syscall.SYS_FCHMODAT, syscall.SYS_FCHOWNAT, syscall.SYS_MKNODAT:
		return []string{at(r.Rdi, r.Rsi)}
	case syscall.SYS_MKDIR, syscall.SYS_RMDIR, syscall.SYS_UNLINK, syscall.SYS_CHMOD, syscall.SYS_CHOWN,
		syscall.SYS_LCHOWN, syscall.SYS_TRUNCATE, syscall.SYS_CREAT, syscall.SYS_MKNOD, syscall.SYS_MOUNT:
		return []string{at(here, r.Rdi)}
	case syscall.SYS_RENAME, syscall.SYS_LINK, syscall.SYS_SYMLINK:
		return []string{at(here, r.Rdi), at(here, r.Rsi)}
	case syscall.SYS_RENAMEAT, sysRenameat2, syscall.SYS_LINKAT:
		return []string{at(r.Rdi, r.Rsi), at(r.Rdx, r.R10)}
	}
	return nil
}

// resolve gives a path below a directory's descriptor as an absolute one.
func resolve(pid int, dir uint64, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	link := fmt.Sprintf("/proc/%d/cwd", pid)
	if int32(dir) != unix.AT_FDCWD {
		link = fmt.Sprintf("/proc/%d/fd/%d", pid, int32(dir))
	}
	base, err := os.Readlink(link)
	if err != nil {
		base = "?"
	}
	return base + "/" + name // not cleaned: a ".." in it is of interest
}

// text reads a string of the traced process.
func text(pid int, addr uint64) string {
	var all []byte
	page := make([]byte, 256)
	for len(all) < 2*unix.PathMax {
		n, err := syscall.PtracePeekData(pid, uintptr(addr)+uintptr(len(all)), page)
		if i := bytes.IndexByte(page[:n], 0); i >= 0 {
			return string(append(all, page[:i]...))
		}
		all = append(all, page[:n]...)
		if err != nil || n == 0 {
			break
		}
	}
	return string(all) + "…"
}
