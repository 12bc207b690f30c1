package memfs_test

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

const root = "/sys/fs/resctrl"

func newFS(t *testing.T) (*memfs.FS, *sim.Script) {
	t.Helper()
	script := sim.NewScript()
	return memfs.New(sim.New(sim.DefaultConfig(), sim.NewManualClock(), script), root, "/proc"), script
}

func want(t *testing.T, err, want error, what string) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	f, script := newFS(t)
	group := root + "/mon_groups/a"
	want(t, f.Mkdir(group), nil, "mkdir")
	want(t, f.Mkdir(group), fs.ErrExist, "mkdir again")
	want(t, f.Mkdir("/elsewhere/a"), fs.ErrNotExist, "mkdir elsewhere")
	want(t, f.Mkdir(root+"x/a"), fs.ErrNotExist, "mkdir beside the root")
	pid := script.Spawn()
	want(t, f.WriteFile(group+"/tasks", []byte("100")), nil, "write")
	data, err := f.ReadFile("/proc/100/cpu_resctrl_groups")
	if err != nil || string(data) != "res:/\nmon:a\n" || pid != 100 {
		t.Fatalf("%q, %v", data, err)
	}
	_, err = f.ReadFile("/proc/999/cpu_resctrl_groups")
	want(t, err, fs.ErrNotExist, "no such task")
	list, err := f.ReadDir(root + "/mon_groups")
	if err != nil || len(list) != 1 || list[0].Name != "a" || !list[0].Dir {
		t.Fatalf("%v, %v", list, err)
	}
	for path, dir := range map[string]bool{group: true, group + "/tasks": false, group + "/x": false, group + "/tasks/x": false, "/other": false} {
		if got, err := f.IsDir(path); got != dir || err != nil {
			t.Fatalf("IsDir(%s) is %t, %v", path, got, err)
		}
	}
	want(t, f.Rename(group, root+"/mon_groups/b"), nil, "rename")
	want(t, f.Rmdir(root+"/mon_groups/b"), nil, "rmdir")
	want(t, f.Rmdir(root), syscall.EBUSY, "rmdir of the root")
	typ, err := f.FilesystemType(root)
	if typ != 0x7655821 || err != nil {
		t.Fatalf("%#x, %v", typ, err)
	}
	want(t, f.Mount(root), syscall.EBUSY, "mount")
	want(t, f.Model.Unmount(), nil, "umount")
	if typ, _ := f.FilesystemType(root); typ == 0x7655821 {
		t.Fatal("still resctrl")
	}
	want(t, f.Mount(root), nil, "mount")
}

func TestHooksAndLog(t *testing.T) {
	t.Parallel()
	f, _ := newFS(t)
	f.Fail(memfs.OpMkdir, 2, syscall.EIO)
	order := ""
	f.Before(memfs.OpMkdir, 0, func(c memfs.Call) error { order += "<"; return nil })
	f.After(memfs.OpMkdir, 0, func(c memfs.Call) {
		order += ">"
		if c.N == 3 {
			_ = f.Rmdir(c.Path) // hooks may make calls
		}
	})
	for i, wanted := range []error{nil, syscall.EIO, nil} {
		want(t, f.Mkdir(root+"/mon_groups/"+string(rune('a'+i))), wanted, "mkdir")
	}
	if order != "<>><>" { // no Before hook after one that failed
		t.Fatalf("hooks ran as %q", order)
	}
	calls := f.Calls(memfs.OpMkdir, memfs.OpRmdir)
	if len(calls) != 4 || calls[1].Err != syscall.EIO || calls[3].Op != memfs.OpRmdir || calls[2].N != 3 {
		t.Fatalf("%+v", calls)
	}
	if f.Count(memfs.OpMkdir) != 3 {
		t.Fatal(f.Count(memfs.OpMkdir))
	}
	f.Reset()
	f.Before(memfs.OpRmdir, 1, func(memfs.Call) error { panic("crash") })
	func() {
		defer func() { _ = recover() }()
		_ = f.Rmdir(root + "/mon_groups/a")
	}()
	if dir, _ := f.IsDir(root + "/mon_groups/a"); !dir || f.Count(memfs.OpRmdir) != 1 {
		t.Fatal("the crash came before the call, and is in the log")
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	f, _ := newFS(t)
	unlock, err := f.Lock(context.Background(), root)
	want(t, err, nil, "lock")
	want(t, f.Model.Unmount(), syscall.EBUSY, "umount while locked")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = f.Lock(ctx, root)
	want(t, err, context.Canceled, "lock while it is held")
	got := make(chan error)
	go func() {
		again, err := f.Lock(context.Background(), root)
		if err == nil {
			again()
		}
		got <- err
	}()
	unlock()
	unlock() // does nothing
	want(t, <-got, nil, "lock after it was released")
	want(t, f.Model.Unmount(), nil, "umount")
}
