package kernel_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

var taskErrorCases = []oneCase{
	{"a dead task", monitoring, caseDead},
	{"garbage", monitoring | only612, caseGarbage},
	{"garbage on 6.1", monitoring | only61, caseGarbage61},
	{"an empty line", monitoring, func(w *world) {
		w.mkdir("mon_groups/m")
		w.write("mon_groups/m/tasks", "\n", w.newline())
	}},
	{"an empty write", monitoring, func(w *world) {
		w.mkdir("mon_groups/m")
		w.write("mon_groups/m/tasks", "", w.newline())
	}},
	{"other separators", monitoring | only612, caseSeparators},
	{"no lists on 6.1", monitoring | only61, caseNoLists},
	{"a write of a page and more", monitoring, casePage},
	{"opens that are refused", monitoring, caseRefusedOpens},
	{"a stale descriptor", monitoring, caseStale},
	{"a stale descriptor of a control group", allocation, caseStaleControl},
	{"paths of a removed group", monitoring, caseRemovedPaths},
}

func caseDead(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	child := p.fork(p.pid())
	p.end(child)
	w.write("mon_groups/m/tasks", strconv.Itoa(child), syscall.ESRCH)
	want := fmt.Sprintf("No task %d\n", child)
	if !w.v61 {
		want += fmt.Sprintf("Error while processing task %d\n", child)
	}
	w.status(want)
	w.move("mon_groups/m", p.pid())
	w.status("ok\n")
}

func caseGarbage(w *world) {
	w.mkdir("mon_groups/m")
	for data, status := range map[string]string{
		"garbage":     "Task list parsing error pid garbage\n",
		"12x":         "Task list parsing error pid 12x\n",
		"1.5\n":       "Task list parsing error pid 1.5\n",
		"99999999999": "Task list parsing error pid 99999999999\n",
		"+-1":         "Task list parsing error pid +-1\n",
		"0x":          "Task list parsing error pid 0x\n",
		"08":          "Task list parsing error pid 08\n",
		"1_0":         "Task list parsing error pid 1_0\n",
		" ":           "Task list parsing error pid \n",
		"-1":          "Invalid pid -1\n",
		"-0x2":        "Invalid pid -2\n",
	} {
		w.write("mon_groups/m/tasks", data, syscall.EINVAL)
		w.status(status)
	}
	w.write("mon_groups/m/tasks", "\x00junk") // the kernel's text ends there
	w.status("ok\n")
}

func caseGarbage61(w *world) {
	w.mkdir("mon_groups/m")
	w.write("tasks", "999999999", syscall.ESRCH)
	for _, data := range []string{"garbage", "12x", "-1", " ", "99999999999"} {
		w.write("mon_groups/m/tasks", data, syscall.EINVAL)
		w.status("No task 999999999\n") // of before
	}
}

func caseSeparators(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	a := p.thread()
	for _, separator := range []string{" ", "\n", ";", "\t"} {
		data := fmt.Sprintf("%d%s%d", a, separator, p.pid())
		w.write("mon_groups/m/tasks", data, syscall.EINVAL)
		w.status("Task list parsing error pid " + data + "\n")
		w.wantIn("|", a, p.pid())
	}
}

func caseNoLists(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	a := p.thread()
	w.clearStatus()
	w.write("mon_groups/m/tasks", fmt.Sprintf("%d,%d", a, p.pid()), syscall.EINVAL)
	w.status("ok\n")
	w.wantIn("|", a, p.pid())
}

func casePage(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	pid := strconv.Itoa(p.pid())
	w.write("mon_groups/m/tasks", "abc", syscall.EINVAL)
	before := w.read("info/last_cmd_status")
	w.write("mon_groups/m/tasks", pid+strings.Repeat(" ", 4097-len(pid)), syscall.E2BIG)
	w.write("mon_groups/m/tasks", pid+strings.Repeat(" ", 20000), syscall.E2BIG)
	w.wantFile("info/last_cmd_status", before)
	w.wantIn("|", p.pid())
	w.write("mon_groups/m/tasks", pid+strings.Repeat(" ", 4096-len(pid)))
	w.wantIn("|m", p.pid())
}

func caseRefusedOpens(w *world) {
	w.mkdir("mon_groups/m")
	for path, want := range map[string]syscall.Errno{
		"mon_groups/m": syscall.EISDIR,
		"mon_groups/m/mon_data/mon_L3_00/llc_occupancy": syscall.EACCES,
		"info/last_cmd_status":                          syscall.EACCES,
		"size":                                          syscall.EACCES,
		"mon_groups/n/tasks":                            syscall.ENOENT,
		"mon_groups/m/tasks/x":                          syscall.ENOTDIR,
	} {
		f, err := w.face.open(path, syscall.O_WRONLY)
		if err == nil {
			f.close()
		}
		w.want(err, want, "open %s for writing", path)
	}
	f := w.open("mon_groups/m/tasks", syscall.O_RDONLY)
	defer f.close()
	w.want(f.write("1"), syscall.EBADF, "write to a descriptor for reading")
}

func caseStale(w *world) {
	w.mkdir("mon_groups/m")
	tasks := w.open("mon_groups/m/tasks", syscall.O_RDWR)
	defer tasks.close()
	total := w.open("mon_groups/m/mon_data/mon_L3_00/mbm_total_bytes", syscall.O_RDONLY)
	defer total.close()
	_, err := total.read(100)
	w.want(err, ok, "read")
	w.rmdir("mon_groups/m")
	w.mkdir("mon_groups/m")
	for name, f := range map[string]file{"tasks": tasks, "mbm_total_bytes": total} {
		_, err := f.pread(100, 0)
		w.want(err, syscall.ENODEV, "read of stale %s", name)
	}
	w.want(tasks.write("1"), syscall.ENODEV, "write to stale tasks")
}

func caseStaleControl(w *world) {
	w.mkdir("g")
	schemata := w.open("g/schemata", syscall.O_RDWR)
	defer schemata.close()
	w.rmdir("g")
	_, err := schemata.read(100)
	w.want(err, syscall.ENODEV, "read")
	w.want(schemata.write("L3:0=f\n"), syscall.ENODEV, "write")
}

func caseRemovedPaths(w *world) {
	w.mkdir("mon_groups/m")
	w.rmdir("mon_groups/m")
	w.rmdir("mon_groups/m", syscall.ENOENT)
	w.write("mon_groups/m/tasks", "1", syscall.ENOENT)
	_, err := w.stat("mon_groups/m")
	w.want(err, syscall.ENOENT, "stat")
	w.rename("mon_groups/m", "mon_groups/n", syscall.ENOENT)
}
