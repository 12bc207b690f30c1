package kernel_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

var taskCases = []oneCase{
	{"a write moves one thread", monitoring, caseOneThread},
	{"a child inherits from its parent", monitoring, caseChild},
	{"a child inherits from the thread that forks", monitoring, caseChildOfThread},
	{"an orphan has inherited", monitoring, caseOrphan},
	{"an orphan that was adopted has inherited", monitoring, caseAdopted},
	{"a new thread inherits", monitoring, caseThreadInherits},
	{"0 is the writing thread", monitoring, caseZero},
	{"forms of a number", monitoring, caseForms},
	{"a zombie can be moved", monitoring, caseZombie},
	{"tasks are listed in their control group too", monitoring | allocation, caseControlLists},
	{"a task goes between control groups", monitoring | allocation, caseBetween},
	{"a task of another control group is refused", monitoring | allocation, caseOtherControl},
	{"a list is applied from left to right", monitoring | only612, caseList},
	{"many writes on one descriptor", monitoring, caseManyWrites},
	{"flags of open", monitoring, caseFlags},
	{"what one open reads is a snapshot", monitoring, caseSnapshot},
	{"ids are those of the PID namespace", monitoring | asRoot, caseNamespace},
}

func caseOneThread(w *world) {
	w.mkdir("mon_groups/m")
	w.mkdir("mon_groups/n")
	p := w.start()
	a, b := p.thread(), p.thread()
	w.move("mon_groups/m", p.pid())
	w.wantIn("|m", p.pid())
	w.wantIn("|", a, b)
	w.move("mon_groups/n", a)
	w.wantIn("|n", a)
	w.wantIn("|m", p.pid())
	w.listed("mon_groups/m", false, a, b)
	w.move("", p.pid(), a)
	w.wantIn("|", p.pid(), a, b)
	w.listed("mon_groups/m", false, p.pid())
}

func caseChild(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	before := p.fork(p.pid())
	w.move("mon_groups/m", p.pid())
	after := p.fork(p.pid())
	w.wantIn("|m", p.pid(), after)
	w.wantIn("|", before)
	w.move("", p.pid())
	w.wantIn("|m", after)
	p.end(after)
	w.listed("mon_groups/m", false, after)
}

func caseChildOfThread(w *world) {
	w.mkdir("mon_groups/m")
	w.mkdir("mon_groups/n")
	p := w.start()
	a, b := p.thread(), p.thread()
	w.move("mon_groups/m", p.pid())
	w.move("mon_groups/n", a)
	w.wantIn("|n", p.fork(a))
	w.wantIn("|", p.fork(b))
}

func caseOrphan(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	w.move("mon_groups/m", p.pid())
	w.wantIn("|m", p.orphan(p.pid()))
}

func caseAdopted(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	p.adopt()
	w.move("mon_groups/m", p.pid())
	w.wantIn("|m", p.orphan(p.pid()))
}

func caseThreadInherits(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	w.move("mon_groups/m", p.all()...)
	w.move("mon_groups/m", p.all()...)
	w.wantIn("|m", p.thread(), p.thread())
}

func caseZero(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	a := p.thread()
	w.want(p.write(a, "mon_groups/m/tasks", "0"), ok, "write 0")
	w.wantIn("|m", a)
	w.wantIn("|", p.pid())
}

func caseForms(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	pid := p.pid()
	for _, form := range []string{"%d", "%d\n", "  %d", "%d  \n", "\t%d\t", "+%d", "0x%x", "0%o"} {
		w.write("tasks", strconv.Itoa(pid))
		w.write("mon_groups/m/tasks", fmt.Sprintf(form, pid))
		w.wantIn("|m", pid)
	}
}

func caseZombie(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	child := p.fork(p.pid())
	p.zombie(child)
	w.move("mon_groups/m", child)
	w.listed("mon_groups/m", true, child)
	p.end(child)
	w.listed("mon_groups/m", false, child)
	w.write("mon_groups/m/tasks", strconv.Itoa(child), syscall.ESRCH)
}

func caseControlLists(w *world) {
	w.mkdir("g")
	w.mkdir("g/mon_groups/m")
	p := w.start()
	w.move("g", p.pid())
	w.move("g/mon_groups/m", p.pid())
	w.wantIn("g|m", p.pid())
	w.listed("g", true, p.pid())
	w.listed("", false, p.pid())
}

func caseBetween(w *world) {
	w.mkdir("g1")
	w.mkdir("g1/mon_groups/m")
	w.mkdir("g2")
	p := w.start()
	w.move("g1", p.pid())
	w.wantIn("g1|", p.pid())
	w.move("g1/mon_groups/m", p.pid())
	w.wantIn("g1|m", p.pid(), p.fork(p.pid()))
	w.move("g1", p.pid())
	w.wantIn("g1|", p.pid())
	w.move("g1/mon_groups/m", p.pid())
	w.move("g2", p.pid())
	w.wantIn("g2|", p.pid())
}

func caseOtherControl(w *world) {
	w.mkdir("g")
	w.mkdir("g/mon_groups/m")
	w.mkdir("mon_groups/r")
	p := w.start()
	pid := strconv.Itoa(p.pid())
	refused := "Can't move task to different control group\n"
	if !w.v61 {
		refused += "Error while processing task " + pid + "\n"
	}
	w.write("g/mon_groups/m/tasks", pid, syscall.EINVAL)
	w.status(refused)
	w.wantIn("|", p.pid())
	w.move("g", p.pid())
	w.write("mon_groups/r/tasks", pid, syscall.EINVAL)
	w.status(refused)
	w.wantIn("g|", p.pid())
}

func caseList(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	a, b, c := p.thread(), p.thread(), p.thread()
	w.write("mon_groups/m/tasks", fmt.Sprintf("%d , %d,\t%d,\n", a, b, p.pid()))
	w.wantIn("|m", a, b, p.pid())
	w.wantIn("|", c)
	w.write("tasks", fmt.Sprintf("%d,%d,%d,%d", a, b, c, p.pid()))
	dead := p.fork(p.pid())
	p.end(dead)
	w.write("mon_groups/m/tasks", fmt.Sprintf("%d,%d,%d", a, dead, b), syscall.ESRCH)
	w.status(fmt.Sprintf("No task %d\nError while processing task %d\n", dead, dead))
	w.wantIn("|m", a)
	w.wantIn("|", b)
	w.write("mon_groups/m/tasks", fmt.Sprintf("%d,abc,%d", b, c), syscall.EINVAL)
	w.status("Task list parsing error pid abc\n")
	w.wantIn("|m", b)
	w.wantIn("|", c)
	w.write("mon_groups/m/tasks", fmt.Sprintf("%d,,%d", a, c), syscall.EINVAL)
	w.status("Task list parsing error pid \n")
	w.wantIn("|", c)
}

func caseManyWrites(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	a := p.thread()
	f := w.open("mon_groups/m/tasks", syscall.O_WRONLY)
	defer f.close()
	w.want(f.write("abc"), syscall.EINVAL, "garbage")
	w.want(f.write(strconv.Itoa(a)), ok, "thread")
	w.want(f.write(strconv.Itoa(p.pid())), ok, "leader")
	w.wantIn("|m", a, p.pid())
}

func caseFlags(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	for _, flags := range []int{syscall.O_APPEND, syscall.O_TRUNC, syscall.O_CREAT, syscall.O_NONBLOCK} {
		w.move("", p.pid())
		f := w.open("mon_groups/m/tasks", syscall.O_WRONLY|flags)
		w.want(f.write(strconv.Itoa(p.pid())), ok, "write with flags %#x", flags)
		f.close()
		w.wantIn("|m", p.pid())
	}
	f := w.open("mon_groups/m/tasks", syscall.O_RDWR)
	defer f.close()
	w.want(f.write(strconv.Itoa(p.pid())), ok, "write with O_RDWR")
	got, err := f.pread(4096, 0)
	w.want(err, ok, "read")
	if got != strconv.Itoa(p.pid())+"\n" {
		w.failf("read %q", got)
	}
}

func caseSnapshot(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	a, b := p.thread(), p.thread()
	w.move("mon_groups/m", a, b)
	f := w.open("mon_groups/m/tasks", syscall.O_RDONLY)
	defer f.close()
	begin, err := f.read(1)
	w.want(err, ok, "read")
	w.move("", a, b)
	rest, err := f.read(4096)
	w.want(err, ok, "read")
	if got := len(strings.Fields(begin + rest)); got != 2 {
		w.failf("%d tasks, want the 2 of the first read", got)
	}
	again, err := f.pread(4096, 0)
	w.want(err, ok, "pread")
	if again != "" {
		w.failf("pread at 0 gives %q, want nothing", again)
	}
}

// caseNamespace: who writes or reads from a PID namespace of its own, as from a
// container, uses its own ids, and sees no others.
func caseNamespace(w *world) {
	w.mkdir("mon_groups/m")
	apart, other := w.startApart(), w.start()
	const first = 1 // its own id there
	w.want(apart.write(first, "mon_groups/m/tasks", itoa(other.pid())), syscall.ESRCH, "write an id of outside")
	w.wantIn("|", other.pid())
	w.want(apart.write(first, "mon_groups/m/tasks", itoa(first)), ok, "write its own")
	w.move("mon_groups/m", other.pid())
	w.wantIn("|m", apart.pid(), other.pid())
	if got := apart.read("mon_groups/m/tasks"); got != "1\n" {
		w.failf("inside, tasks lists %q", got)
	}
}
