package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is a directory that looks like cgroups and a /proc.
type tree struct {
	t          *testing.T
	root, proc string
	fs         *FS
}

func newTree(t *testing.T, files map[string]string) *tree {
	t.Helper()
	dir := t.TempDir()
	w := &tree{t: t, root: filepath.Join(dir, "cgroup"), proc: filepath.Join(dir, "proc")}
	w.fs = New(w.root, w.proc)
	for name, text := range files {
		w.write(filepath.Join(w.root, name), text)
	}
	return w
}

func (w *tree) write(path, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// process makes /proc/<pid>/cgroup.
func (w *tree) process(pid int, cgroup string) {
	w.write(filepath.Join(w.proc, fmt.Sprint(pid), "cgroup"), cgroup)
}

const (
	id      = "0123456789abcdef0123456789abcdef"
	podv2   = "/kubepods.slice/kubepods-podX.slice"
	scope   = podv2 + "/cri-containerd-" + id + ".scope"
	systemd = "kubepods-podX.slice:cri-containerd:" + id
)

func v2Files() map[string]string {
	return map[string]string{
		"cgroup.controllers":                         "cpu pids\n",
		scope[1:] + "/cgroup.threads":                "10\n11\n",
		scope[1:] + "/a/cgroup.threads":              "12\n",
		"system.slice/sshd.service/cgroup.threads":   "99\n",
		"kubepods/podY/" + id + "/cgroup.threads":    "20\n",
		"kubepods/podZ/custom/cgroup.threads":        "30\n",
		"outer/kubepods/podO/custom/cgroup.threads":  "40\n",
		"outer/kubepods/podO/custom2/cgroup.threads": "41\n",
	}
}

// resolveCase is what the runtime says, and the cgroup; "" is fs.ErrNotExist,
// "bad" is ErrBadPath.
type resolveCase struct {
	name string
	ref  Ref
	want string
}

func resolveCases() []resolveCase {
	return []resolveCase{
		{"systemd driver, no pid", Ref{ID: id, CgroupsPath: systemd}, scope},
		{"systemd driver", Ref{PID: 10, ID: id, CgroupsPath: systemd}, scope},
		{"process in a cgroup below", Ref{PID: 12, ID: id, CgroupsPath: systemd}, scope},
		{"the same by the id alone", Ref{PID: 12, ID: id}, scope},
		{"cgroupfs driver, no pid", Ref{ID: id, CgroupsPath: "/kubepods/podY/" + id}, "/kubepods/podY/" + id},
		{"cgroupfs driver", Ref{PID: 20, ID: id, CgroupsPath: "/kubepods/podY/" + id}, "/kubepods/podY/" + id},
		{"a wrong pid", Ref{PID: 99, ID: id, CgroupsPath: systemd}, scope},
		{"a wrong pid, no cgroup yet", Ref{PID: 99, ID: id, CgroupsPath: "/kubepods/podN/" + id}, ""},
		{"a pid in the root", Ref{PID: 1, ID: id, CgroupsPath: systemd}, scope},
		{"a pid in the root and nothing else", Ref{PID: 1, ID: id}, ""},
		{"a pid outside of our cgroup namespace", Ref{PID: 2, ID: id, CgroupsPath: systemd}, scope},
		{"a pid that ended", Ref{PID: 777, ID: id, CgroupsPath: systemd}, scope},
		{"a pid whose cgroup is gone", Ref{PID: 3, ID: id, CgroupsPath: systemd}, scope},
		{"gone, and nothing else", Ref{PID: 3, ID: id}, ""},
		{"path without the id", Ref{PID: 30, ID: id, CgroupsPath: "/kubepods/podZ/custom"}, "/kubepods/podZ/custom"},
		{"path below the runtime's cgroup", Ref{PID: 40, ID: id, CgroupsPath: "kubepods/podO/custom"}, "/outer/kubepods/podO/custom"},
		{"only a pid is known", Ref{PID: 30}, "/kubepods/podZ/custom"},
		{"by the parent, systemd", Ref{ID: id, CgroupParent: "kubepods-podX.slice"}, scope},
		{"by the parent, full path", Ref{ID: id, CgroupParent: podv2}, scope},
		{"by the parent, cgroupfs", Ref{ID: id, CgroupParent: "/kubepods/podY"}, "/kubepods/podY/" + id},
		{"nothing is known", Ref{ID: id}, ""},
		{"hostile path", Ref{ID: id, CgroupsPath: "/../../etc"}, "bad"},
		{"hostile path, good pid", Ref{PID: 10, ID: id, CgroupsPath: "/../../etc"}, scope},
		{"hostile id", Ref{ID: "../../../..", CgroupParent: "/kubepods/podY"}, ""},
		{"the root by its path", Ref{ID: id, CgroupsPath: "/"}, "bad"},
		{"the root slice", Ref{ID: id, CgroupsPath: "-.slice:x:-.slice"}, ""},
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	w := newTree(t, v2Files())
	w.process(10, "0::"+scope+"\n")
	w.process(12, "0::"+scope+"/a\n")
	w.process(20, "0::/kubepods/podY/"+id+"\n")
	w.process(30, "0::/kubepods/podZ/custom\n")
	w.process(40, "0::/outer/kubepods/podO/custom\n")
	w.process(99, "0::/system.slice/sshd.service\n")
	w.process(1, "0::/\n")
	w.process(2, "0::/../../escape\n")
	w.process(3, "0::/gone/"+id+"\n")
	for _, c := range resolveCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := w.fs.Resolve(c.ref)
			switch c.want {
			case "bad":
				if !errors.Is(err, ErrBadPath) {
					t.Errorf("%q, %v, want ErrBadPath", got, err)
				}
			case "":
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%q, %v, want ErrNotExist", got, err)
				}
			default:
				if got != c.want || err != nil {
					t.Errorf("%q, %v, want %q", got, err, c.want)
				}
			}
		})
	}
}

func v1Files(hybrid bool) map[string]string {
	files := map[string]string{
		"cpu,cpuacct/tasks":                          "1\n",
		"cpu,cpuacct/kubepods/podY/" + id + "/tasks": "5\n6\n",
		"memory/tasks":                               "1\n",
		"memory/kubepods/podY/" + id + "/tasks":      "5\n6\n",
		"systemd/tasks":                              "1\n",
		"systemd" + scope + "/tasks":                 "7\n",
		"notacgroup/file":                            "",
	}
	if hybrid {
		files["unified/cgroup.controllers"] = ""
		files["unified/kubepods/podY/"+id+"/cgroup.threads"] = "5\n6\n"
	}
	return files
}

func TestResolveV1(t *testing.T) {
	t.Parallel()
	w := newTree(t, v1Files(false))
	// As on a real node: names of single controllers are links.
	if err := os.Symlink("cpu,cpuacct", filepath.Join(w.root, "cpu")); err != nil {
		t.Fatal(err)
	}
	w.process(5, "4:memory:/kubepods/podY/"+id+"\n3:cpu,cpuacct:/kubepods/podY/"+id+"\n1:name=systemd:/\n")
	for _, c := range []struct {
		ref  Ref
		want string
	}{
		{Ref{ID: id, CgroupsPath: "/kubepods/podY/" + id}, "/memory/kubepods/podY/" + id},
		{Ref{PID: 5, ID: id}, "/memory/kubepods/podY/" + id},
		{Ref{ID: id, CgroupsPath: systemd}, "/systemd" + scope},
	} {
		got, err := w.fs.Resolve(c.ref)
		if got != c.want || err != nil {
			t.Errorf("%+v: %q, %v, want %q", c.ref, got, err, c.want)
		}
	}
	tids, err := w.fs.Tasks("/memory/kubepods/podY/" + id)
	if !slices.Equal(tids, []int{5, 6}) || err != nil {
		t.Errorf("tasks %v, %v", tids, err)
	}
	for parent, want := range map[string]bool{
		"/kubepods/podY": true, "kubepods-podX.slice": true, "/kubepods/podN": false, "nope.slice": false,
	} {
		if got, err := w.fs.ParentExists(parent); got != want || err != nil {
			t.Errorf("ParentExists(%q) = %v, %v", parent, got, err)
		}
	}

	hybrid := newTree(t, v1Files(true))
	got, err := hybrid.fs.Resolve(Ref{ID: id, CgroupsPath: "/kubepods/podY/" + id})
	if want := "/unified/kubepods/podY/" + id; got != want || err != nil {
		t.Errorf("hybrid: %q, %v, want %q", got, err, want)
	}
	if got, err := hybrid.fs.Resolve(Ref{ID: id, CgroupsPath: systemd}); got != "/systemd"+scope || err != nil {
		t.Errorf("hybrid, v1 only: %q, %v", got, err)
	}
}

func TestParentExists(t *testing.T) {
	t.Parallel()
	w := newTree(t, v2Files())
	for parent, want := range map[string]bool{
		podv2: true, "kubepods-podX.slice": true, "kubepods/podY": true, "/kubepods/podY/": true,
		"/kubepods/podN": false, "kubepods-podN.slice": false, "/system.slice/sshd.service": true,
		"/cgroup.controllers": false, // a file
	} {
		if got, err := w.fs.ParentExists(parent); got != want || err != nil {
			t.Errorf("ParentExists(%q) = %v, %v", parent, got, err)
		}
	}
	for _, parent := range []string{"", "/", "-.slice", "..", "/a/../b", "/a\nb", strings.Repeat("x", 5000)} {
		if got, err := w.fs.ParentExists(parent); got || !errors.Is(err, ErrBadPath) {
			t.Errorf("ParentExists(%.20q) = %v, %v", parent, got, err)
		}
	}
	// A root without cgroups says nothing of a parent: an error, and not "gone".
	for _, root := range []string{t.TempDir(), "/nonexistent/cgroup"} {
		got, err := New(root, w.proc).ParentExists("/kubepods/podY")
		if got || err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("root %s: %v, %v", root, got, err)
		}
		if _, err := New(root, w.proc).Resolve(Ref{ID: id, CgroupsPath: systemd}); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("root %s: %v", root, err)
		}
	}
}
