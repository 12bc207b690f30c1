package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	w := newTree(t, map[string]string{
		"cgroup.controllers":    "",
		"c/cgroup.threads":      "300\n7\n",
		"c/b/cgroup.threads":    "8\n7\n", // 7 moved during the walk
		"c/b/x/cgroup.threads":  "1000000\n9\n",
		"c/a/cgroup.threads":    "",
		"c/cgroup.procs":        "not read\n",
		"d/cgroup.threads":      "1\n",
		"bad/cgroup.threads":    "1\nx\n",
		"hidden/cgroup.threads": "0\n5\n",
	})
	for _, c := range []struct {
		path string
		want []int
	}{
		{"/c", []int{7, 8, 9, 300, 1000000}},
		{"c//b/", []int{7, 8, 9, 1000000}},
		{"/c/a", nil},
		{"/hidden", []int{0, 5}},
	} {
		got, err := w.fs.Tasks(c.path)
		if !slices.Equal(got, c.want) || err != nil {
			t.Errorf("%s: %v, %v, want %v", c.path, got, err, c.want)
		}
	}
	for _, path := range []string{"/none", "/c/none", "/cgroup.controllers"} {
		if got, err := w.fs.Tasks(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	for _, path := range []string{"", "/", "/c/..", "/../cgroup/c", "/c\x00", "/c\n", strings.Repeat("/x", 3000)} {
		if got, err := w.fs.Tasks(path); !errors.Is(err, ErrBadPath) {
			t.Errorf("%.20q: %v, %v", path, got, err)
		}
	}
	if got, err := w.fs.Tasks("/bad"); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("garbage: %v, %v", got, err)
	}
}

// TestTasksLinks: links lead nowhere, inside the root or out of it.
func TestTasksLinks(t *testing.T) {
	t.Parallel()
	w := newTree(t, map[string]string{
		"cgroup.controllers": "", "c/cgroup.threads": "1\n", "d/cgroup.threads": "2\n",
	})
	outside := t.TempDir()
	w.write(filepath.Join(outside, "cgroup.threads"), "666\n")
	for link, to := range map[string]string{
		"c/out": outside, "c/in": "../d", "out": outside, "in": "d",
	} {
		if err := os.Symlink(to, filepath.Join(w.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := w.fs.Tasks("/c"); !slices.Equal(got, []int{1}) || err != nil {
		t.Errorf("links below: %v, %v", got, err)
	}
	for _, path := range []string{"/out", "/in", "/c/out"} {
		if got, err := w.fs.Tasks(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", path, got, err)
		}
		if ok, err := w.fs.ParentExists(path); ok || err != nil {
			t.Errorf("ParentExists %s: %v, %v", path, ok, err)
		}
	}
	if err := os.Remove(filepath.Join(w.root, "c/cgroup.threads")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "cgroup.threads"), filepath.Join(w.root, "c/cgroup.threads")); err != nil {
		t.Fatal(err)
	}
	if got, err := w.fs.Tasks("/c"); err == nil {
		t.Errorf("a file that is a link out of the root: %v", got)
	}
	if got, err := w.fs.Tasks("/out/x"); err == nil {
		t.Errorf("through a link: %v", got)
	}
}
