package memcgroup_test

import (
	"errors"
	"io/fs"
	"reflect"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memcgroup"
)

func TestFace(t *testing.T) {
	t.Parallel()
	script := sim.NewScript()
	tree := sim.NewCgroups(script)
	f := memcgroup.New(tree)
	for _, p := range []string{"/kubepods/pod1/c1", "/kubepods.slice/pod2.slice/cri-containerd-c2.scope"} {
		if err := tree.AddCgroup(p); err != nil {
			t.Fatal(err)
		}
	}
	pid := script.Spawn()
	if err := tree.AddProcess("/kubepods/pod1/c1", pid); err != nil {
		t.Fatal(err)
	}
	for want, ref := range map[string]cgroup.Ref{
		"/kubepods/pod1/c1": {PID: pid, CgroupsPath: "/wrong"},
		"/kubepods.slice/pod2.slice/cri-containerd-c2.scope": {CgroupsPath: "pod2.slice:cri-containerd:c2"},
	} {
		if got, err := f.Resolve(ref); got != want || err != nil {
			t.Fatalf("%+v is %q, %v", ref, got, err)
		}
	}
	if got, err := f.Resolve(cgroup.Ref{ID: "c1", CgroupParent: "/kubepods/pod1"}); got != "/kubepods/pod1/c1" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := f.Resolve(cgroup.Ref{ID: "x", CgroupsPath: "/kubepods/none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	f.OnTasks(func(string) { script.Clone(pid) })
	if got, err := f.Tasks("/kubepods/pod1"); err != nil || !reflect.DeepEqual(got, []int{pid, pid + 1}) {
		t.Fatalf("%v, %v", got, err)
	}
	for parent, want := range map[string]bool{"/kubepods/pod1": true, "pod2.slice": true, "/kubepods/pod9": false, "pod9.slice": false} {
		if got, err := f.ParentExists(parent); got != want || err != nil {
			t.Fatalf("%s: %t, %v", parent, got, err)
		}
	}
	f.Fail(fs.ErrPermission)
	if _, err := f.Tasks("/kubepods"); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
}
