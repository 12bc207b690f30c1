package sim

import (
	"fmt"
	"strings"
	"syscall"
)

// TaskFile makes up a file of proc(5)'s /proc/<tid> from what a source knows:
// status, stat and comm. ESRCH where there is no such task, ENOENT for every
// other file.
func TaskFile(source TaskSource, tid int, file string) (string, error) {
	t, ok := source.Task(tid)
	state := "S (sleeping)"
	switch {
	case !ok:
		return "", syscall.ESRCH
	case t.Zombie:
		state = "Z (zombie)"
	}
	switch file {
	case "status":
		return fmt.Sprintf("Name:\ttask\nState:\t%s\nTgid:\t%d\nPid:\t%d\nPPid:\t%d\nUid:\t%d\t%d\t%d\t%d\n",
			state, t.TGID, t.TID, t.PPID, t.UID, t.UID, t.UID, t.UID), nil
	case "stat": // starttime is field 22, counted from 1
		return fmt.Sprintf("%d (task) %c %d%s %d 0\n", t.TID, state[0], t.PPID, strings.Repeat(" 0", 17), t.Start), nil
	case "comm":
		return "task\n", nil
	}
	return "", syscall.ENOENT
}
