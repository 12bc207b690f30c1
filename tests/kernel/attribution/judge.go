package attribution

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// magic is resctrl's f_type (RDTGROUP_SUPER_MAGIC).
const magic = 0x7655821

// Mounted says whether resctrl is mounted at Root.
func Mounted() bool {
	var st unix.Statfs_t
	return unix.Statfs(Root, &st) == nil && int64(st.Type) == magic
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// GroupOf gives a task's group as "CTRL|MON", each "" for the default one; ""
// where the task has ended.
func GroupOf(tid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cpu_resctrl_groups", tid))
	if err != nil {
		return ""
	}
	var ctrl, mon string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "res:"); ok {
			ctrl = strings.TrimPrefix(v, "/")
		}
		if v, ok := strings.CutPrefix(line, "mon:"); ok {
			mon = v
		}
	}
	return ctrl + "|" + mon
}

// GroupName is the path of a group as GroupOf writes it.
func GroupName(path string) string {
	ctrl, mon, _ := strings.Cut(strings.TrimPrefix(path, Root), "/mon_groups/")
	return strings.TrimPrefix(ctrl, "/") + "|" + mon
}

// TasksBelow lists the tasks of a cgroup and all below it. Those that come and
// go meanwhile may be missing.
func TasksBelow(dir string) []int {
	var tids []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			text, _ := os.ReadFile(filepath.Join(path, "cgroup.threads"))
			for _, word := range strings.Fields(string(text)) {
				tid, _ := strconv.Atoi(word)
				tids = append(tids, tid)
			}
		}
		return nil
	})
	slices.Sort(tids)
	return slices.Compact(tids)
}

// Share counts the living tasks of a cgroup, and those of them in the group.
func Share(cgroup, group string) (in, all int) {
	want := GroupName(group)
	for _, tid := range TasksBelow(cgroup) {
		switch GroupOf(tid) {
		case "":
		case want:
			in++
			all++
		default:
			all++
		}
	}
	return in, all
}

// TasksOf lists the tasks of a group by its tasks file.
func TasksOf(group string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(group, "tasks"))
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, word := range strings.Fields(string(text)) {
		tid, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// Foreigners lists the tasks of a group that are outside a cgroup (its path below
// the root of all cgroups).
func Foreigners(group, cgroup string) []int {
	tids, _ := TasksOf(group)
	return slices.DeleteFunc(tids, func(tid int) bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", tid))
		_, path, _ := strings.Cut(strings.TrimSpace(string(text)), "::")
		return err != nil || path == cgroup || strings.HasPrefix(path, cgroup+"/")
	})
}

// OurGroups lists the monitoring groups with our prefix in all control groups.
func OurGroups() []string {
	var all []string
	for _, pattern := range []string{"mon_groups/pod_*", "*/mon_groups/pod_*"} {
		found, _ := filepath.Glob(filepath.Join(Root, pattern))
		all = append(all, found...)
	}
	return all
}

// KillCgroup ends every process of a cgroup and removes it with all below it.
func KillCgroup(dir string) {
	if !isDir(dir) {
		return
	}
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	_ = world.UntilWithin(patience, "cgroup "+dir+" is empty", func() error {
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, d := range dirs {
			if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return nil
	})
}

// Lock takes resctrl's lock, as another tool does; the function gives it back.
func Lock() (unlock func(), err error) {
	dir, err := os.Open(Root)
	if err != nil {
		return nil, err
	}
	err = world.UntilWithin(patience, "the lock of "+Root+" is free", func() error {
		return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

// Make makes a group of another tool, and waits while RMIDs are in limbo.
func Make(path string) error {
	deadline := time.Now().Add(patience)
	for {
		err := unix.Mkdir(path, 0o755)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("mkdir %s: %w", path, err)
			}
			return nil
		}
		time.Sleep(50 * time.Millisecond) // the kernel looks once a second
	}
}

// Put writes tasks to a group, as another tool does. One that ended is none.
func Put(group string, tids ...int) error {
	for _, tid := range tids {
		err := os.WriteFile(filepath.Join(group, "tasks"), []byte(strconv.Itoa(tid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("task %d: %w", tid, err)
		}
	}
	return nil
}
