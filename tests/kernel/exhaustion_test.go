package kernel_test

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

var exhaustionCases = []oneCase{
	{"CLOSIDs run out", allocation, caseClosids},
	{"RMIDs run out", monitoring, caseRMIDs},
	{"a control group takes an RMID", monitoring | allocation, caseControlRMID},
	{"a removed RMID is in limbo", monitoring | only612, caseLimbo},
	{"a removed RMID is free at once", monitoring | only61, caseNoLimbo},
	{"last_cmd_status is not cleared by mkdir", monitoring, caseStatusStays},
	{"a recycled RMID counts from zero", monitoring, caseRecycled},
	{"cache lines keep a removed RMID in limbo", monitoring | cacheLines, caseOccupied},
	{"a refused group leaves nothing", monitoring, func(w *world) {
		made := w.fill()
		w.mkdir("mon_groups/x", syscall.ENOSPC)
		_, err := w.stat("mon_groups/x")
		w.want(err, syscall.ENOENT, "stat of the refused group")
		w.mkdir(made[0], syscall.EEXIST) // the name is looked at first
	}},
}

func caseClosids(w *world) {
	made := 0
	for ; made < w.closids-1; made++ {
		if w.monitoring && made >= w.rmids-1 {
			return // this CPU has more CLOSIDs than RMIDs
		}
		w.retry(fmt.Sprintf("g%d", made))
	}
	w.clearStatus()
	w.mkdir("more", syscall.ENOSPC)
	w.mkdir("more", syscall.ENOSPC)
	w.status("Out of CLOSIDs\nOut of CLOSIDs\n")
	if w.monitoring && w.rmids > w.closids {
		w.mkdir("mon_groups/m")
	}
	w.rmdir("g0")
	w.retry("more") // the CLOSID is free at once; its RMID may not be
}

// newline is what an empty line in tasks gives.
func (w *world) newline() syscall.Errno {
	if w.v61 {
		return syscall.EINVAL
	}
	return ok
}

// retry makes a group while RMIDs are in limbo.
func (w *world) retry(path string) {
	for range 300 {
		err := w.face.mkdir(path, 0o755)
		if err != syscall.EBUSY {
			w.want(err, ok, "mkdir %s", path)
			return
		}
		w.pass(100 * time.Millisecond)
	}
	w.failf("mkdir %s is busy for good", path)
}

func caseRMIDs(w *world) {
	made := w.fill()
	if len(made) != w.rmids-1 {
		w.failf("%d groups with %d RMIDs", len(made), w.rmids)
	}
	w.clearStatus()
	w.mkdir("mon_groups/more", syscall.ENOSPC)
	w.status("Out of RMIDs\n")
}

func caseControlRMID(w *world) {
	made := w.fill()
	w.mkdir("g", syscall.ENOSPC)
	w.rmdir(made[0])
	w.retry("g")
	w.mkdir("mon_groups/x", syscall.ENOSPC)
	w.mkdir("g/mon_groups/x", syscall.ENOSPC)
	w.rmdir("g")
	w.retry("mon_groups/x")
}

func caseLimbo(w *world) {
	made := w.fill()
	w.rmdir(made[1])
	w.mkdir(made[1], syscall.EBUSY)
	w.pass(2500 * time.Millisecond) // the kernel looks every second
	w.mkdir(made[1])
	w.mkdir("mon_groups/more", syscall.ENOSPC)
}

func caseNoLimbo(w *world) {
	made := w.fill()
	w.rmdir(made[1])
	w.mkdir(made[1])
}

// caseOccupied: until they are evicted, on 6.1 too. Meanwhile a group is refused
// with EBUSY: the RMID will be free again.
func caseOccupied(w *world) {
	p := w.start()
	p.busy()
	made := w.fill()
	w.move(made[0], p.pid())
	w.wantOccupied(made[0])
	w.move("", p.pid())
	w.clearStatus()
	w.rmdir(made[0])
	w.mkdir(made[0], syscall.EBUSY)
	w.pass(limboTime) // one that never ran would be free by now
	w.mkdir(made[0], syscall.EBUSY)
	w.status("Out of RMIDs\nOut of RMIDs\n")
	w.retry(made[0])
	w.mkdir("mon_groups/more", syscall.ENOSPC)
}

func caseStatusStays(w *world) {
	made := w.fill()
	w.clearStatus()
	w.mkdir("mon_groups/a", syscall.ENOSPC)
	before := w.read("info/last_cmd_status")
	w.mkdir("mon_groups/b", syscall.ENOSPC)
	w.rmdir(made[0])
	w.retry(made[0])
	after := w.read("info/last_cmd_status")
	if !strings.HasPrefix(after, before) || len(after) <= len(before) || !strings.HasSuffix(after, "Out of RMIDs\n") {
		w.failf("last_cmd_status was %q, and is %q", before, after)
	}
	p := w.start()
	w.move(made[0], p.pid())
	w.status("ok\n")
}

func caseRecycled(w *world) {
	p := w.start()
	p.busy()
	made := w.fill()
	w.move(made[0], p.pid())
	w.pass(1500 * time.Millisecond)
	total := made[0] + "/mon_data/mon_L3_00/mbm_total_bytes"
	sum := w.number(total)
	if w.domains > 1 {
		sum += w.number(made[0] + "/mon_data/mon_L3_01/mbm_total_bytes")
	}
	if sum == 0 {
		w.failf("nothing was counted")
	}
	w.rmdir(made[0])
	w.retry(made[0])
	if n := w.number(total); n != 0 {
		w.failf("the new group begins with %d bytes", n)
	}
}
