package kernel_test

import (
	"fmt"
	"strings"
	"syscall"
)

var controlCases = []oneCase{
	{"schemata", allocation, caseSchemata},
	{"schemata that are refused", allocation, caseBadSchemata},
	{"mode", allocation, caseMode},
	{"an exclusive group", allocation, caseExclusive},
	{"cpus", monitoring | manyCPUs, caseCPUs},
	{"cpus of a control group", allocation | manyCPUs, caseControlCPUs},
	{"flock on the root", anything, caseFlock},
}

// domainsOf repeats "<domain>=value" for every domain.
func (w *world) domainsOf(value string) string {
	var list []string
	for i := range w.domains {
		list = append(list, fmt.Sprintf("%d=%s", i, value))
	}
	return strings.Join(list, ";")
}

func (w *world) wantSchemata(group, mb, l3 string) {
	w.wantFile(in(group, "schemata"), fmt.Sprintf("    MB:%s\n    L3:%s\n", w.domainsOf(mb), w.domainsOf(l3)))
}

func caseSchemata(w *world) {
	w.wantSchemata("", "100", "fff")
	w.mkdir("g")
	w.wantSchemata("g", "100", "fff")
	w.write("g/schemata", "L3:"+w.domainsOf("0xF0")+"\n")
	w.wantSchemata("g", "100", "0f0")
	w.write("g/schemata", " MB : "+w.domainsOf("55")+"\n"+"L3:"+w.domainsOf("f")+"\n", syscall.EINVAL)
	w.status("Missing '=' or non-numeric domain\n")
	w.write("g/schemata", "MB:"+w.domainsOf("55")+"\nL3:"+w.domainsOf("f")+"\n")
	w.wantSchemata("g", " 60", "00f")
	w.wantFile("g/size", fmt.Sprintf("    MB:%s\n    L3:%s\n", w.domainsOf("60"), w.domainsOf("5592404")))
}

func caseBadSchemata(w *world) {
	w.mkdir("g")
	for data, status := range map[string]string{
		"L3:0=0\n":         "Mask out of range\n",
		"L3:0=1fff\n":      "Mask out of range\n",
		"L3:0=5\n":         "The mask 5 has non-consecutive 1-bits\n",
		"L3:0=xyz\n":       "Non-hex character in the mask xyz\n",
		"L3:7=f\n":         "ok\n",
		"FOO:0=f\n":        "Unknown or unsupported resource name 'FOO'\n",
		"L3:x=f\n":         "Missing '=' or non-numeric domain\n",
		"L3:0\n":           "Missing '=' or non-numeric domain\n",
		"L3\n":             "Missing ':'\n",
		"L3:\n":            "Missing 'L3' value\n",
		"\n":               "Missing ':'\n",
		"MB:0=5\n":         "MB value 5 out of range [10,100]\n",
		"MB:0=abc\n":       "Invalid MB value abc\n",
		"L3:0=f;0=f\n":     "Duplicate domain 0\n",
		"L3:0=f\nFOO:0=\n": "Unknown or unsupported resource name 'FOO'\n",
	} {
		w.write("g/schemata", data, syscall.EINVAL)
		if got := w.read("info/last_cmd_status"); got != status {
			w.failf("last_cmd_status after %q is %q, want %q", data, got, status)
		}
	}
	w.write("g/schemata", "L3:0=f", syscall.EINVAL) // no newline
	w.wantSchemata("g", "100", "fff")
}

func caseMode(w *world) {
	w.mkdir("g")
	w.write("g/mode", "shareable\n")
	w.write("g/mode", "exclusive\n", syscall.EINVAL)
	w.status("Schemata overlaps\n")
	w.write("g/mode", "other\n", syscall.EINVAL)
	w.status("Unknown or unsupported mode\n")
	w.write("g/mode", "exclusive", syscall.EINVAL) // no newline
	w.wantFile("g/mode", "shareable\n")
}

func caseExclusive(w *world) {
	w.write("schemata", "L3:"+w.domainsOf("ff0")+"\n")
	defer func() {
		_ = w.face.rmdir("h")
		_ = w.face.rmdir("g")
		w.write("schemata", "L3:"+w.domainsOf("fff")+"\n")
	}()
	w.mkdir("g")
	w.write("g/schemata", "L3:"+w.domainsOf("f")+"\n")
	w.write("g/mode", "exclusive\n")
	w.wantFile("g/mode", "exclusive\n")
	w.mkdir("h")
	w.wantSchemata("h", "100", "ff0")
	w.write("h/schemata", "L3:0=1f\n", syscall.EINVAL)
	w.status("Overlaps with exclusive group\n")
	w.write("g/schemata", "L3:0=1f\n", syscall.EINVAL)
	w.status("Overlaps with other group\n")
}

func caseCPUs(w *world) {
	w.mkdir("mon_groups/a")
	w.mkdir("mon_groups/b")
	w.write("mon_groups/a/cpus", "1\n")
	w.wantFile("mon_groups/a/cpus", "1\n")
	w.wantFile("mon_groups/a/cpus_list", "0\n")
	w.write("mon_groups/b/cpus_list", "0-1")
	w.wantFile("mon_groups/b/cpus", "3\n")
	w.wantFile("mon_groups/a/cpus", "0\n")
	w.clearStatus()
	w.write("mon_groups/a/cpus", "junk", syscall.EINVAL)
	w.write("mon_groups/a/cpus_list", "0-9", syscall.ERANGE)
	w.status("Bad CPU list/mask\nBad CPU list/mask\n") // not cleared
	w.write("mon_groups/b/cpus", "0")
}

func caseControlCPUs(w *world) {
	all := w.read("cpus")
	w.mkdir("g")
	w.clearStatus()
	w.write("cpus", "1\n", syscall.EINVAL)
	w.status("Can't drop CPUs from default group\n")
	w.write("g/cpus", "2")
	w.wantFile("g/cpus_list", "1\n")
	if w.read("cpus") == all {
		w.failf("the root keeps the CPU")
	}
	if w.monitoring {
		w.mkdir("g/mon_groups/m")
		w.write("g/mon_groups/m/cpus", "1", syscall.EINVAL)
		w.write("g/mon_groups/m/cpus", "2")
	}
	w.write("g/cpus", "0")
	w.wantFile("cpus", all)
	w.write("g/cpus", "2")
	w.rmdir("g")
	w.wantFile("cpus", all)
}

func caseFlock(w *world) {
	unlock, err := w.face.lock("")
	w.want(err, ok, "flock")
	_, err = w.face.lock("")
	w.want(err, syscall.EWOULDBLOCK, "flock while it is held")
	if w.monitoring {
		w.mkdir("mon_groups/m") // the lock is for those who ask
	}
	unlock()
	again, err := w.face.lock("")
	w.want(err, ok, "flock again")
	again()
}
