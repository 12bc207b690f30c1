package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// FuzzPaths: whatever a runtime says of a container, and whatever stands in its
// process's /proc/<pid>/cgroup, no path leaves the root or is the root, and a
// process's cgroup counts only where the runtime's words confirm it.
func FuzzPaths(f *testing.F) {
	const id = "0123456789abcdef"
	for _, p := range []string{"", "/a/b", "a.slice:b:" + id, "..", "/a/../..", "a-b.slice", "::", ":::", "\x00", "-.slice", "/", "a//b/.", "a.slice:b:c.slice"} {
		f.Add(p, id, "/kubepods/pod1", "0::/kubepods/pod1/"+id+"\n")
		f.Add("", id, p, "1:name=systemd:/x/"+id+"/y\n2:pids,cpu:"+p+"\n0::"+p)
		f.Add("/b", "", "", "0::"+p+"/b/c\n")
	}
	f.Add("", "container\r1", "/pod", "")
	f.Add("", strings.Repeat("c", 300), "/pod", "")
	f.Add("/b", "", "", "0::/z/c\n")
	f.Add("/b", "z", "", "0::/z/c\n")
	f.Add("/kube/c", id, "", "0::/machine/kube/c/init\n")
	f.Add("/kube/c", id, "", "0::/system.slice/x.service\n")
	// A worker runs one input at a time.
	fs := New(f.TempDir(), f.TempDir())
	file := filepath.Join(fs.procRoot, "7", "cgroup")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		f.Fatal(err)
	}
	trees := []hierarchy{{dir: ".", v2: true}, {dir: "pids", controllers: []string{"pids", "cpu"}}, {dir: "systemd", controllers: []string{"systemd"}}}
	f.Fuzz(func(t *testing.T, cgroupsPath, id, parent, proc string) {
		ref := Ref{PID: 7, ID: id, CgroupsPath: cgroupsPath, CgroupParent: parent}
		wanted, err := candidates(ref)
		refused(t, err)
		parents, err := parentPaths(parent)
		refused(t, err)
		for _, p := range append(slices.Clone(wanted), parents...) {
			inside(t, p)
		}
		if err := os.WriteFile(file, []byte(proc), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, tree := range trees {
			for _, p := range fs.ofProcess(tree, ref, wanted) {
				inside(t, p)
				confirmed := len(wanted) == 0 || usableID(id) && strings.Contains(p, id) ||
					slices.ContainsFunc(wanted, func(w string) bool { return strings.HasSuffix(p, w) })
				if !confirmed {
					t.Errorf("%+v in %q: %q", ref, proc, p)
				}
			}
		}
		if len(wanted) > 0 && cgroupsPath == "" && !usableID(id) {
			t.Errorf("the id %q is looked for: %q", id, wanted)
		}
	})
}

// inside says whether a path stays below the root, as it is.
func inside(t *testing.T, p string) {
	t.Helper()
	if again, err := clean(p); err != nil || again != p || p == "/" || filepath.Join("/sys/fs/cgroup", p) != "/sys/fs/cgroup"+p {
		t.Errorf("%q is not clean: %q, %v", p, again, err)
	}
}

// refused allows one error, told in one line.
func refused(t *testing.T, err error) {
	t.Helper()
	if err != nil && (!errors.Is(err, ErrBadPath) || strings.ContainsAny(err.Error(), "\n\x00\x1b")) {
		t.Errorf("%s", strconv.Quote(err.Error()))
	}
}
