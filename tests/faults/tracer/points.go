//go:build linux && amd64

package tracer

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Point is a kind of system call that leaves a trace.
type Point struct {
	Name  string
	calls []uint64
	file  func(path string) bool // of the descriptor that is the first argument; nil: whatever
	makes func(path string) bool // of the file that an open may make
}

func named(parts ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(path, p) })
	}
}

var (
	writes = []uint64{syscall.SYS_WRITE, syscall.SYS_PWRITE64, syscall.SYS_WRITEV}
	syncs  = []uint64{syscall.SYS_FSYNC, syscall.SYS_FDATASYNC}
)

// sysRenameat2 is missing in package syscall.
const sysRenameat2 = 316

// Points are all kinds, the first that fits counts.
func Points() []Point {
	at := func(name string, calls ...uint64) Point { return Point{Name: name, calls: calls} }
	of := func(file func(string) bool, p Point) Point { p.file = file; return p }
	return []Point{
		at("mkdir", syscall.SYS_MKDIR, syscall.SYS_MKDIRAT),
		at("rmdir", syscall.SYS_RMDIR, syscall.SYS_UNLINK, syscall.SYS_UNLINKAT),
		at("rename", syscall.SYS_RENAME, syscall.SYS_RENAMEAT, sysRenameat2),
		of(named("/tasks"), at("task", writes...)),
		of(named("state.db-wal"), at("wal", writes...)),
		of(named("state.db", "etilqs"), at("database", writes...)),
		of(named("events.jsonl"), at("log", writes...)),
		of(named("ack.pipe"), at("ack", writes...)),
		of(named("state.db"), at("syncstate", syncs...)),
		of(named("events.jsonl"), at("synclog", syncs...)),
		at("syncdir", syncs...),
		of(named(".lock", "writer.turn"), at("lock", append([]uint64{syscall.SYS_FTRUNCATE}, writes...)...)),
		at("truncate", syscall.SYS_TRUNCATE, syscall.SYS_FTRUNCATE, syscall.SYS_FALLOCATE),
		at("chmod", syscall.SYS_CHMOD, syscall.SYS_FCHMOD, syscall.SYS_FCHMODAT, syscall.SYS_MKNOD, syscall.SYS_MKNODAT),
		at("flock", syscall.SYS_FLOCK),
		{Name: "newlog", calls: []uint64{syscall.SYS_OPENAT}, makes: named("events.jsonl")},
	}
}

// Writes says whether a call of the point writes, and so can be cut in half.
func (p Point) Writes() bool { return slices.Contains(p.calls, syscall.SYS_WRITE) }

// pointOf is the point that a call at its entry is, and the path of its file.
func pointOf(pid int, regs *syscall.PtraceRegs) (string, string) {
	for _, p := range Points() {
		if !slices.Contains(p.calls, regs.Orig_rax) {
			continue
		}
		if p.makes != nil {
			if path := resolve(pid, regs.Rdi, text(pid, regs.Rsi)); regs.Rdx&syscall.O_CREAT != 0 && p.makes(path) {
				return p.Name, path
			}
			continue
		}
		if p.file == nil {
			return p.Name, fmt.Sprintf("call %d", regs.Orig_rax)
		}
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, regs.Rdi))
		if err == nil && p.file(path) {
			return p.Name, path
		}
	}
	return "", ""
}
