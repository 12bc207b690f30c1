package ctl

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
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
	onMount, exact := mountDevice(path, st.Dev)
	pid, err := flockHolder(a.proc("locks"), st.Ino, st.Dev, onMount)
	switch {
	case err != nil || pid == 0 && !exact:
		return tryLock(path)
	case pid == 0:
		return stopped, 0
	}
	return runs, max(pid, 0)
}

// mountDevice is the device number of the mount that path is on, which is the
// one that /proc/locks has; exact says that stat(2) has the same (not on btrfs
// and overlayfs).
func mountDevice(path string, dev uint64) (onMount uint64, exact bool) {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return dev, false
	}
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) { // the later covers the earlier
			best = m
		}
	}
	if best == nil {
		return dev, false
	}
	onMount = unix.Mkdev(uint32(best.Major), uint32(best.Minor))
	return onMount, onMount == dev
}

// flockHolder finds in /proc/locks (proc_locks(5)) who has an exclusive flock
// on the file with this inode on one of the devices: 0 is nobody, -1 somebody
// in another PID namespace.
func flockHolder(locks string, ino uint64, devices ...uint64) (pid int, err error) {
	f, err := os.Open(locks)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var files []string
	for _, dev := range devices {
		files = append(files, fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino))
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  WRITE 712 00:1a:1234 0 EOF ("->" first: it waits)
		w := strings.Fields(lines.Text())
		if len(w) < 6 || w[1] != "FLOCK" || w[3] != "WRITE" || !slices.Contains(files, w[5]) {
			continue
		}
		if pid, err = strconv.Atoi(w[4]); err != nil || pid <= 0 {
			pid = -1
		}
		return pid, nil
	}
	return 0, lines.Err()
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
