package resctrl

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxWrite is the most that the kernel takes in one write to tasks: a page. A
// byte more is E2BIG, and nothing is applied (6.12).
const maxWrite = 4096

// What is known of comma lists in tasks: 6.12 takes them, 6.1 does not (EINVAL).
const (
	listsUnknown int32 = iota
	listsTaken
	listsRefused
)

// writer writes task ids to a group's tasks. The lock is held while it does.
type writer struct {
	fs    *FS
	group group
	moved []stray // written with success
}

// write writes all of strays: in lists where the kernel takes them, each by
// itself where it does not.
func (w *writer) write(strays []stray) error {
	for len(strays) > 0 {
		n := 1
		if w.fs.lists.Load() != listsRefused {
			n = fitting(strays)
		}
		done, err := w.writeList(strays[:n])
		if err != nil {
			return err
		}
		strays = strays[done:]
	}
	return nil
}

// fitting says how many task ids fit into one write.
func fitting(strays []stray) int {
	size := 0
	for i, s := range strays {
		size += len(strconv.Itoa(s.tid)) + 1 // and a comma
		if size-1 > maxWrite {
			return i
		}
	}
	return len(strays)
}

func join(strays []stray) []byte {
	var b []byte
	for i, s := range strays {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(s.tid), 10)
	}
	return b
}

// writeList makes one write, and says how many of the list are done with. The
// kernel applies a list from left to right and stops at the first failure, which
// it names in last_cmd_status only.
func (w *writer) writeList(list []stray) (done int, err error) {
	path := filepath.Join(w.fs.path(w.group), fileTasks)
	err = w.fs.os.WriteFile(path, join(list))
	if err == nil {
		if len(list) > 1 {
			w.fs.lists.Store(listsTaken)
		}
		w.moved = append(w.moved, list...)
		return len(list), nil
	}
	if gone(err) {
		if merr := w.fs.checkMount(); merr != nil {
			return 0, merr
		}
		return 0, goneError("assign tasks to", w.fs.path(w.group), err)
	}
	words := w.fs.lastCmdStatus()
	if len(list) == 1 {
		return 1, w.failed(list[0], err, words)
	}
	if at := failedTask(list, words); at >= 0 {
		w.fs.lists.Store(listsTaken)
		w.moved = append(w.moved, list[:at]...)
		return at + 1, w.failed(list[at], err, words)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ESRCH) {
		return 0, w.failed(list[0], err, words)
	}
	// Nothing says which one failed. A kernel that knows no lists says EINVAL and
	// leaves last_cmd_status as it was.
	if errors.Is(err, unix.EINVAL) {
		w.fs.lists.CompareAndSwap(listsUnknown, listsRefused)
	}
	for i := range list {
		if _, err := w.writeList(list[i : i+1]); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

// failed judges the failure of one task: nil where it is none of ours.
func (w *writer) failed(s stray, err error, words string) error {
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil // it ended
	case errors.Is(err, unix.EINVAL):
		m := &members{fs: w.fs, own: w.group}
		now, ok, merr := m.of(s.tid)
		if merr != nil {
			return merr
		}
		// It went to another control group meanwhile, and the next look counts it
		// there; or it has come back since.
		if !ok || now.ctrl != w.group.ctrl || strings.Contains(words, "different control group") {
			return nil
		}
	}
	e := fail("assign tasks to", w.fs.path(w.group), fmt.Errorf("task %d: %w", s.tid, err))
	e.Kernel = oneLine(words) // a write to tasks clears it first
	return e
}

var failedTaskWords = regexp.MustCompile(`Error while processing task (\d+)`)

// failedTask finds which of a list last_cmd_status names; -1 where it names none.
func failedTask(list []stray, words string) int {
	named := failedTaskWords.FindAllStringSubmatch(words, -1)
	if named == nil {
		return -1
	}
	last := named[len(named)-1][1]
	return slices.IndexFunc(list, func(s stray) bool { return strconv.Itoa(s.tid) == last })
}
