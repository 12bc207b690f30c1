package ctl

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// running says whether a daemon runs.
type running string

const (
	runs    running = "running"
	stopped running = "stopped"
	unknown running = "unknown" // no permission to look
)

// daemon says whether the daemon with this name has its instance lock, and as
// which process. The lock itself is not tried where /proc/locks tells: a
// daemon that starts at this moment would take us for another of its kind.
func (a *app) daemon(daemon string) (running, int) {
	path := filepath.Join(filepath.Dir(a.cfg.Pipe.Path), daemon+".lock")
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stopped, 0
	case err != nil:
		return unknown, 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return unknown, 0
	}
	pid, sure, err := flockHolder(a.proc("locks"), st)
	switch {
	case err != nil || !sure:
		return tryLock(path)
	case pid == 0:
		return stopped, 0
	}
	return runs, max(pid, 0)
}

// flockHolder finds in /proc/locks (proc_locks(5)) who has an exclusive flock
// on a file: 0 is nobody, -1 somebody in another PID namespace. sure is false
// where only the inode's number matches: some filesystems (btrfs, overlayfs)
// have another device number there than in stat(2).
func flockHolder(locks string, st *syscall.Stat_t) (pid int, sure bool, err error) {
	f, err := os.Open(locks)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	dev := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
	sure = true
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  WRITE 712 00:1a:1234 0 EOF ("->" first: it waits)
		w := strings.Fields(lines.Text())
		if len(w) < 6 || w[1] != "FLOCK" || w[3] != "WRITE" {
			continue
		}
		device, inode, _ := cutLast(w[5], ":")
		if inode != strconv.FormatUint(st.Ino, 10) {
			continue
		}
		if device != dev {
			sure = false
			continue
		}
		if pid, err = strconv.Atoi(w[4]); err != nil || pid <= 0 {
			pid = -1
		}
		return pid, true, nil
	}
	return 0, sure, lines.Err()
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// tryLock tells by the lock itself, held for no longer than the two calls take.
func tryLock(path string) (running, int) {
	f, err := os.Open(path)
	if err != nil {
		return unknown, 0
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		text, _ := os.ReadFile(path) // lib/lock writes the process id into it
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return runs, max(pid, 0)
	case err != nil:
		return unknown, 0
	}
	return stopped, 0
}
