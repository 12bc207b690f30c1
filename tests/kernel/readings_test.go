package kernel_test

import (
	"fmt"
	"strconv"
	"syscall"
	"time"
)

var readingCases = []oneCase{
	{"counters move while a task runs", monitoring, caseCounters},
	{"a control group's counters are the sum", monitoring | allocation, caseSum},
	{"a new group has counted nothing", monitoring, func(w *world) {
		w.mkdir("mon_groups/m")
		for _, event := range []string{"mbm_total_bytes", "mbm_local_bytes"} {
			if n := w.sum("mon_groups/m", event); n != 0 {
				w.failf("%s is %d", event, n)
			}
		}
		w.number("mon_groups/m/mon_data/mon_L3_00/llc_occupancy")
	}},
	{"words instead of numbers", monitoring | errorWords, caseWords},
	{"the root counts too", monitoring, func(w *world) {
		before := w.sum("", "mbm_total_bytes")
		w.start().busy()
		w.wantGrown(before, func() uint64 { return w.sum("", "mbm_total_bytes") })
	}},
}

// caseWords: what cannot be read is told in a word, by a read that works.
func caseWords(w *world) {
	got := map[string]int{}
	for _, path := range w.fill() {
		for _, event := range []string{"mbm_total_bytes", "mbm_local_bytes", "llc_occupancy"} {
			got[w.read(path+"/mon_data/mon_L3_00/"+event)]++
		}
	}
	if got["Error\n"] != 3 || got["Unavailable\n"] != 3 {
		w.failf("readings: %v", got)
	}
}

// shortWhile is long enough for a counter to move.
const shortWhile = 1200 * time.Millisecond

func itoa(n int) string { return strconv.Itoa(n) }

// sum adds up an event over the domains.
func (w *world) sum(group, event string) (sum uint64) {
	for i := range w.domains {
		sum += w.number(in(group, fmt.Sprintf("mon_data/mon_L3_%02d/%s", i, event)))
	}
	return sum
}

// wantGrown wants a counter to exceed before within a while, never to fall.
func (w *world) wantGrown(before uint64, now func() uint64) {
	last := before
	for range 10 {
		w.pass(shortWhile)
		n := now()
		if n < last {
			w.failf("the counter fell from %d to %d", last, n)
		}
		if last = n; n > before {
			return
		}
	}
	w.failf("the counter stays at %d", last)
}

// wantOccupied looks often: the emulated cache holds what a CPU runs just then, and
// where the CPUs take turns that is mostly who asks.
func (w *world) wantOccupied(group string) {
	for range 2000 {
		if w.sum(group, "llc_occupancy") > 0 {
			return
		}
		w.pass(5 * time.Millisecond)
	}
	w.failf("%s occupies nothing", group)
}

func caseCounters(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	p.busy()
	w.move("mon_groups/m", p.pid())
	w.wantGrown(0, func() uint64 { return w.sum("mon_groups/m", "mbm_total_bytes") })
	local, total := w.sum("mon_groups/m", "mbm_local_bytes"), w.sum("mon_groups/m", "mbm_total_bytes")
	if local == 0 || local > total {
		w.failf("local is %d, total %d", local, total)
	}
	w.wantOccupied("mon_groups/m")
	w.write("mon_groups/m/mon_data/mon_L3_00/mbm_total_bytes", "0", syscall.EACCES)
}

func caseSum(w *world) {
	w.mkdir("g")
	w.mkdir("g/mon_groups/m")
	p := w.start()
	p.busy()
	w.move("g", p.pid())
	w.move("g/mon_groups/m", p.pid())
	w.wantGrown(0, func() uint64 { return w.sum("g/mon_groups/m", "mbm_total_bytes") })
	member := w.sum("g/mon_groups/m", "mbm_total_bytes")
	if all := w.sum("g", "mbm_total_bytes"); all < member {
		w.failf("the control group has %d, its member %d", all, member)
	}
}
