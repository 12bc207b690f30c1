package kernel_test

import (
	"strconv"
	"syscall"
)

// The memory face makes no such checks: its caller is always root.
var permissionCases = []oneCase{
	{"a stranger may do nothing", monitoring | asRoot, caseStranger},
	{"delegation to a user", monitoring | allocation | asRoot, caseDelegation},
	{"root without CAP_DAC_OVERRIDE", monitoring | asRoot, caseNoOverride},
	{"root without CAP_DAC_OVERRIDE in a control group", monitoring | allocation | asRoot, caseNoOverrideControl},
}

// somebody is a user without any rights.
const somebody = 1234

func caseStranger(w *world) {
	w.mkdir("mon_groups/m")
	p := w.startAs(somebody)
	w.want(p.mkdir("mon_groups/x"), syscall.EACCES, "mkdir")
	w.want(p.write(p.pid(), "mon_groups/m/tasks", itoa(p.pid())), syscall.EACCES, "write")
	w.wantIn("|", p.pid())
	w.move("mon_groups/m", p.pid()) // root moves everybody's
	w.wantIn("|m", p.pid())
}

func caseDelegation(w *world) {
	w.mkdir("g")
	for _, path := range []string{"g", "g/tasks", "g/mon_groups"} {
		w.want(w.chown(path, somebody), ok, "chown %s", path)
	}
	p, other := w.startAs(somebody), w.start()
	w.want(p.mkdir("mon_groups/x"), syscall.EACCES, "mkdir elsewhere")
	w.want(p.mkdir("g/mon_groups/x"), ok, "mkdir")
	i, err := w.stat("g/mon_groups/x/tasks")
	if w.want(err, ok, "stat"); i.uid != somebody {
		w.failf("the new tasks belongs to %d", i.uid)
	}
	w.want(p.write(p.pid(), "g/tasks", itoa(p.pid())), ok, "move itself")
	w.want(p.write(p.pid(), "g/mon_groups/x/tasks", itoa(p.pid())), ok, "move itself")
	w.wantIn("g|x", p.pid())
	w.want(p.write(p.pid(), "g/tasks", itoa(other.pid())), syscall.EPERM, "move another's")
	want := "No permission to move task " + strconv.Itoa(other.pid()) + "\n"
	if !w.v61 {
		want += "Error while processing task " + strconv.Itoa(other.pid()) + "\n"
	}
	w.status(want)
	w.wantIn("|", other.pid())
}

func caseNoOverride(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	p.dropOverride()
	w.want(p.mkdir("mon_groups/x"), syscall.EACCES, "mkdir")
	w.want(p.write(p.pid(), "mon_groups/m/tasks", itoa(p.pid())), ok, "write")
	w.wantIn("|m", p.pid())
	w.want(w.chmod("mon_groups", 0o755), ok, "chmod")
	err := p.mkdir("mon_groups/x")
	_ = w.chmod("mon_groups", 0o555)
	w.want(err, ok, "mkdir after chmod")
}

func caseNoOverrideControl(w *world) {
	w.mkdir("g")
	p := w.start()
	p.dropOverride()
	w.want(p.mkdir("h"), syscall.EACCES, "mkdir in the root")
	w.want(p.mkdir("g/mon_groups/x"), ok, "mkdir in the control group")
}
