package kernel_test

import (
	"syscall"
)

var groupCases = []oneCase{
	{"a removed monitoring group leaves its tasks", monitoring, caseRemoveMonitoring},
	{"a removed monitoring group leaves its tasks in its control group", monitoring | allocation, caseRemoveInControl},
	{"a removed control group takes all with it", monitoring | allocation, caseRemoveControl},
	{"a group in use can be removed", monitoring, func(w *world) {
		w.mkdir("mon_groups/m")
		unlock, err := w.face.lock("mon_groups/m")
		w.want(err, ok, "flock")
		defer unlock()
		f := w.open("mon_groups/m/tasks", syscall.O_RDONLY)
		defer f.close()
		w.rmdir("mon_groups/m")
	}},
	{"what cannot be removed", monitoring, caseNotRemoved},
	{"rename in place keeps tasks and descriptors", monitoring | only612, caseRename},
	{"rename to another control group", monitoring | allocation | only612, caseRenameControl},
	{"renames that are refused", monitoring | allocation | only612, caseRenameRefused},
	{"6.1 renames nothing", monitoring | only61, caseRename61},
}

func caseRemoveMonitoring(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	w.move("mon_groups/m", p.pid())
	w.rmdir("mon_groups/m")
	w.wantIn("|", p.pid())
	w.mkdir("mon_groups/m")
	w.wantIn("|", p.pid())
	w.wantFile("mon_groups/m/tasks", "")
}

func caseRemoveInControl(w *world) {
	w.mkdir("g")
	w.mkdir("g/mon_groups/m")
	p := w.start()
	w.move("g", p.pid())
	w.move("g/mon_groups/m", p.pid())
	w.rmdir("g/mon_groups/m")
	w.wantIn("g|", p.pid())
}

func caseRemoveControl(w *world) {
	w.mkdir("g")
	w.mkdir("g/mon_groups/m")
	p := w.start()
	a := p.thread()
	w.move("g", p.pid(), a)
	w.move("g/mon_groups/m", a)
	w.rmdir("g")
	w.wantIn("|", p.pid(), a)
	w.mkdir("g")
	w.names("g/mon_groups")
}

func caseNotRemoved(w *world) {
	w.mkdir("mon_groups/m")
	for path, want := range map[string]syscall.Errno{
		"info": syscall.EPERM, "info/L3_MON": syscall.EPERM, "mon_data": syscall.EPERM, "mon_groups": syscall.EPERM,
		"mon_data/mon_L3_00": syscall.EPERM, "mon_groups/m/mon_data": syscall.EPERM,
		"tasks": syscall.ENOTDIR, "mon_groups/m/tasks": syscall.ENOTDIR, "": syscall.EBUSY,
		"mon_groups/none": syscall.ENOENT,
	} {
		w.rmdir(path, want)
	}
	w.want(w.unlink("tasks"), syscall.EPERM, "unlink tasks")
	w.want(w.unlink("mon_groups/m/tasks"), syscall.EPERM, "unlink tasks of a group")
}

func caseRename(w *world) {
	w.mkdir("mon_groups/a")
	p := w.start()
	p.busy()
	w.move("mon_groups/a", p.pid())
	f := w.open("mon_groups/a/tasks", syscall.O_RDWR)
	defer f.close()
	before, _ := w.stat("mon_groups/a")
	w.rename("mon_groups/a", "mon_groups/b")
	w.wantIn("|b", p.pid())
	after, err := w.stat("mon_groups/b")
	if w.want(err, ok, "stat"); before.ino != after.ino {
		w.failf("inode %d became %d", before.ino, after.ino)
	}
	_, err = w.stat("mon_groups/a")
	w.want(err, syscall.ENOENT, "stat of the old name")
	a := p.thread()
	w.want(f.write(itoa(a)), ok, "write to the old descriptor")
	w.wantIn("|b", a)
	w.rename("mon_groups/b", "mon_groups/b")
}

func caseRenameControl(w *world) {
	w.mkdir("g")
	w.mkdir("mon_groups/m")
	p := w.start()
	p.busy()
	w.move("mon_groups/m", p.pid())
	w.pass(shortWhile)
	before := w.sum("mon_groups/m", "mbm_total_bytes")
	w.rename("mon_groups/m", "g/mon_groups/m")
	w.wantIn("g|m", p.pid())
	w.listed("", false, p.pid())
	w.wantGrown(before, func() uint64 { return w.sum("g/mon_groups/m", "mbm_total_bytes") })
	w.rename("g/mon_groups/m", "mon_groups/other")
	w.wantIn("|other", p.pid())
	w.move("g", p.pid())
	w.wantIn("g|", p.pid())
}

func caseRenameRefused(w *world) {
	w.mkdir("g")
	w.mkdir("mon_groups/a")
	w.mkdir("mon_groups/b")
	for _, r := range []struct {
		from, to string
		want     syscall.Errno
		status   string
	}{
		{"mon_groups/a", "mon_groups/b", syscall.EEXIST, "ok\n"},
		{"g", "h", syscall.EPERM, "Source must be a MON group\n"},
		{"g", "mon_groups/g", syscall.EPERM, "Source must be a MON group\n"},
		{"mon_data", "mon_groups/g", syscall.EPERM, "Source must be a MON group\n"},
		{"mon_groups/a", "a", syscall.EPERM, "Destination must be a mon_groups subdirectory\n"},
		{"mon_groups/a", "mon_groups/mon_groups", syscall.EPERM, "Destination must be a mon_groups subdirectory\n"},
		{"mon_groups/a", "mon_groups/b/a", syscall.EPERM, "Destination must be a mon_groups subdirectory\n"},
		{"tasks", "mon_groups/t", syscall.EPERM, "Source and destination must be directories"},
		{"mon_groups/a", "tasks", syscall.ENOTDIR, ""},
		{"info", "mon_groups/info", syscall.ENOENT, ""},
		{"mon_groups/a", "info/a", syscall.ENOENT, ""},
		{"mon_groups/a", "nowhere/a", syscall.ENOENT, ""},
	} {
		w.rename(r.from, r.to, r.want)
		if r.status != "" {
			w.status(r.status)
		}
	}
	w.write("mon_groups/a/cpus", "1")
	w.rename("mon_groups/a", "g/mon_groups/a", syscall.EPERM)
	w.status("Cannot move a MON group that monitors CPUs\n")
	w.rename("mon_groups/a", "mon_groups/c")
}

func caseRename61(w *world) {
	w.mkdir("mon_groups/a")
	w.clearStatus()
	w.rename("mon_groups/a", "mon_groups/b", syscall.EPERM)
	w.status("ok\n")
	w.rename("tasks", "mon_groups/t", syscall.EPERM)
}
