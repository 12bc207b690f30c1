package resctrl

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// texts is an OS of nothing but files, by their path's last name.
type texts struct {
	OS
	files map[string]string
}

func (o texts) FilesystemType(string) (int64, error) { return FilesystemMagic, nil }

func (o texts) IsDir(string) (bool, error) { return true, nil }

func (o texts) ReadDir(string) ([]DirEntry, error) { return nil, nil }

func (o texts) ReadFile(p string) ([]byte, error) {
	text, ok := o.files[path.Base(p)]
	if !ok {
		return nil, syscall.ENOENT
	}
	return []byte(text), nil
}

// FuzzReadings: whatever stands in the files that we read of resctrl and of
// /proc, it is a value that means the same when it is written again, or an
// error of one line.
func FuzzReadings(f *testing.F) {
	for _, s := range []string{
		"", "\n", "32\n", "-1\n", "99999999999999999999\n", "1\n2\n33\n", "1 2\x003", "+5\n", "0x10\n", "res:/\nmon:\n", "res:g1\nmon:m1\n",
		"res:\nmon:\n", "mon:m\nres:g", "res:/\nres:g\nmon:a\nmon:\n", "res://\nmon:/\n", "ok\n", "Unavailable\n", "Error\n",
		"No task 236\nError while processing task 236\n", "Error while processing task 99999999999999999999", "Out of RMIDs\n",
		"29 23 0:26 / /sys/fs/resctrl rw - resctrl resctrl rw\n", "29 23 0:26 / /a\\040b rw - resctrl resctrl rw\n", "a b c - d",
	} {
		f.Add(s, "Out of CLOSIDs\n")
	}
	f.Fuzz(func(t *testing.T, text, more string) {
		files := map[string]string{"num_rmids": text, fileGroups: text, fileTasks: text, "status": text, "mountinfo": text, "last_cmd_status": text}
		fs := New(Options{Root: "/r", Prefix: "pod_", OS: texts{files: files}})
		if u, err := fs.Usage(); err != nil {
			oneLineOnly(t, err)
		} else if again, err := strconv.Atoi(strings.TrimSpace(text)); err != nil || u.NumRMIDs != again || u.Used != 1 {
			t.Fatalf("%q gives %+v", text, u)
		}
		if g, ok, err := fs.procMembership(7); err != nil {
			oneLineOnly(t, err)
		} else if again, err := parseGroups(kernelGroups(g)); !ok || err != nil || g != again {
			t.Fatalf("%q gives %+v, and that %+v, %v", text, g, again, err)
		}
		if tids, err := fs.groupTasks(group{mon: "pod_a"}); err != nil {
			oneLineOnly(t, err)
		} else if again := strings.Fields(text); len(tids) != len(again) || slices.ContainsFunc(tids, func(n int) bool { return n < 0 }) {
			t.Fatalf("%q gives %d", text, tids)
		}
		if s, ok := fs.status(7); ok && s.tgid <= 0 {
			t.Fatalf("%q gives %+v", text, s)
		}
		if at := fs.mountPoints(); at != "" && !strings.Contains(text, "resctrl") {
			t.Fatalf("%q: mounted at %q", text, at)
		}
		words := fs.lastCmdStatus()
		if added := newWords(words, words+more); added != strings.Join(strings.Fields(more), " ") {
			t.Fatalf("%q after %q: %q", more, words, added)
		}
		list := []stray{{tid: 156}, {tid: 1}, {tid: 236}}
		if at := failedTask(list, words); at >= 0 && !strings.Contains(words, fmt.Sprint("task ", list[at].tid)) {
			t.Fatalf("%q names task %d", words, list[at].tid)
		}
	})
}

// kernelGroups writes a membership as proc_resctrl_show does.
func kernelGroups(g group) []byte {
	if g.ctrl == "" {
		return fmt.Appendf(nil, "res:/\nmon:%s\n", g.mon)
	}
	return fmt.Appendf(nil, "res:%s\nmon:%s\n", g.ctrl, g.mon)
}

func oneLineOnly(t *testing.T, err error) {
	t.Helper()
	if strings.ContainsAny(err.Error(), "\n\x00\x1b") {
		t.Fatalf("an error of more than one line, or with what a terminal obeys: %q", err)
	}
}
