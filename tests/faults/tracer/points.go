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
}

func named(parts ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(path, p) })
	}
}

var writes = []uint64{syscall.SYS_WRITE, syscall.SYS_PWRITE64, syscall.SYS_WRITEV}

// sysRenameat2 is missing in package syscall.
const sysRenameat2 = 316

// Points are all kinds, the first that fits counts.
func Points() []Point {
	return []Point{
		{"mkdir", []uint64{syscall.SYS_MKDIR, syscall.SYS_MKDIRAT}, nil},
		{"rmdir", []uint64{syscall.SYS_RMDIR, syscall.SYS_UNLINK, syscall.SYS_UNLINKAT}, nil},
		{"rename", []uint64{syscall.SYS_RENAME, syscall.SYS_RENAMEAT, sysRenameat2}, nil},
		{"task", writes, named("/tasks")},
		{"wal", writes, named("state.db-wal")},
		{"database", writes, named("state.db", "etilqs")},
		{"log", writes, named("events.jsonl")},
		{"ack", writes, named("ack.pipe")},
		{"syncstate", []uint64{syscall.SYS_FSYNC, syscall.SYS_FDATASYNC}, named("state.db")},
		{"synclog", []uint64{syscall.SYS_FSYNC, syscall.SYS_FDATASYNC}, named("events.jsonl")},
		{"syncdir", []uint64{syscall.SYS_FSYNC, syscall.SYS_FDATASYNC}, nil},
		{"lock", append([]uint64{syscall.SYS_FTRUNCATE}, writes...), named(".lock", "writer.turn")},
		{"truncate", []uint64{syscall.SYS_TRUNCATE, syscall.SYS_FTRUNCATE, syscall.SYS_FALLOCATE}, nil},
		{"chmod", []uint64{syscall.SYS_CHMOD, syscall.SYS_FCHMOD, syscall.SYS_FCHMODAT, syscall.SYS_MKNOD, syscall.SYS_MKNODAT}, nil},
		{"flock", []uint64{syscall.SYS_FLOCK}, nil},
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
