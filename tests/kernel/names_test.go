package kernel_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
)

var nameCases = []oneCase{
	{"names that exist", monitoring, func(w *world) {
		for _, name := range []string{"info", "mon_groups", "mon_data", "tasks", "cpus", "schemata", "."} {
			w.mkdir(name, syscall.EEXIST)
		}
		w.mkdir("mon_groups/m")
		w.mkdir("mon_groups/m", syscall.EEXIST)
	}},
	{"a newline in a name", monitoring, func(w *world) {
		w.clearStatus()
		w.mkdir("mon_groups/a\nb", syscall.EINVAL)
		w.mkdir("a\nb", syscall.EINVAL)
		w.mkdir("info/a\nb", syscall.EINVAL)
		w.status("ok\n")
	}},
	{"a newline in a new name", monitoring | only612, caseRenameNewline},
	{"strange names of monitoring groups", monitoring, caseStrangeNames},
	{"a name of 255 bytes", monitoring, func(w *world) { caseLongName(w, 255) }},
	{"a name of 256 bytes", monitoring, func(w *world) { caseLongName(w, 256) }},
	// resctrl takes up to PATH_MAX; FUSE_NAME_MAX was 1024 up to Linux 6.14.
	{"a name of 1000 bytes", monitoring, func(w *world) { caseLongName(w, 1000) }},
	{"a path that is too long", monitoring, func(w *world) {
		w.mkdir("mon_groups/"+strings.Repeat("x", 4096), syscall.ENAMETOOLONG)
	}},
	{"places that hold no groups", monitoring, casePlaces},
	{"places in a control group", monitoring | allocation, func(w *world) {
		w.mkdir("g")
		for _, path := range []string{"g/foo", "g/mon_data/foo", "g/mon_groups/mon_groups"} {
			want := syscall.EPERM
			w.mkdir(path, want)
		}
	}},
	{"one name made by many at once", monitoring, caseConcurrent},
}

// caseRenameNewline: mkdir refuses it, rename forgets to (6.12).
func caseRenameNewline(w *world) {
	w.mkdir("mon_groups/a")
	w.rename("mon_groups/a", "mon_groups/a\nb")
	w.names("mon_groups", "a\nb")
}

func caseStrangeNames(w *world) {
	p := w.start()
	for _, name := range []string{"info", "mon_data", "tasks", "a b", "-x", ".hid", "*", "a:b", `a\b`, "é", "ü\t"} {
		w.retry("mon_groups/" + name)
		w.move("mon_groups/"+name, p.pid())
		w.listed("mon_groups/"+name, true, p.pid())
		w.rmdir("mon_groups/" + name)
	}
	w.mkdir("mon_groups/mon_groups", syscall.EPERM)
}

func caseLongName(w *world, n int) {
	path := "mon_groups/" + strings.Repeat("x", n)
	w.mkdir(path)
	w.wantFile(path+"/tasks", "")
	w.rmdir(path)
}

func casePlaces(w *world) {
	w.mkdir("mon_groups/m")
	for _, path := range []string{"info/foo", "mon_data/foo", "mon_groups/m/foo", "mon_groups/m/mon_data/foo", "info/L3_MON/foo"} {
		w.mkdir(path, syscall.EPERM)
	}
	w.mkdir("none/foo", syscall.ENOENT)
	w.mkdir("tasks/foo", syscall.ENOTDIR)
	w.want(w.create("new"), syscall.EACCES, "create a file in the root")
	w.want(w.create("mon_groups/m/new"), syscall.EACCES, "create a file in a group")
	w.want(w.symlink("x", "link"), syscall.EPERM, "symlink")
}

func caseConcurrent(w *world) {
	const many = 16
	errs := make([]error, many)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() { errs[i] = w.face.mkdir("mon_groups/m", 0o755) })
	}
	wait.Wait()
	made := 0
	for _, err := range errs {
		switch err {
		case nil:
			made++
		case syscall.EEXIST:
		default:
			w.failf("mkdir: %v", err)
		}
	}
	if made != 1 {
		w.failf("%d made it: %v", made, fmt.Sprint(errs))
	}
}
