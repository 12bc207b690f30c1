package kernel_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
)

var layoutCases = []oneCase{
	{"layout of the root", anything, caseRoot},
	{"layout of a control group", allocation, caseControlGroup},
	{"layout of a monitoring group", monitoring, caseMonitoringGroup},
	{"mode of mkdir", monitoring, caseMkdirMode},
	{"a group made again is another", monitoring, caseIno},
	{"info of monitoring", monitoring, caseInfoMonitoring},
	{"info of allocation", allocation, caseInfoAllocation},
	{"monitoring alone makes no control group", monitoringOnly, func(w *world) {
		w.mkdir("g", syscall.EPERM)
		w.mkdir("mon_groups/m")
		w.wantFile("schemata", "")
		w.wantFile("size", "")
		w.wantFile("tasks", "")
	}},
	{"allocation alone makes no monitoring group", allocationOnly, func(w *world) {
		w.mkdir("mon_groups/m", syscall.ENOENT)
		w.mkdir("g")
		w.mkdir("g/mon_groups/m", syscall.ENOENT)
		_, err := w.stat("g/mon_data")
		w.want(err, syscall.ENOENT, "stat mon_data")
	}},
}

// names wants a directory to have these names, and no other than those and the
// groups made before.
func (w *world) names(dir string, want ...string) {
	got, err := w.list(dir)
	w.want(err, ok, "list %s", dir)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.failf("%q has %q, want %q", dir, got, want)
	}
}

// looks wants path to be a directory ("d755") or a file ("f644").
func (w *world) looks(path, want string) {
	i, err := w.stat(path)
	w.want(err, ok, "stat %s", path)
	got := fmt.Sprintf("f%o", i.perm)
	if i.dir {
		got = fmt.Sprintf("d%o", i.perm)
	}
	if got != want || i.size != 0 {
		w.failf("%s is %s of %d bytes, want %s of 0", path, got, i.size, want)
	}
}

func (w *world) groupNames(control bool) []string {
	names := []string{"cpus", "cpus_list", "tasks"}
	if control {
		names = append(names, "mode", "schemata", "size")
	}
	if w.monitoring {
		names = append(names, "mon_data")
		if control {
			names = append(names, "mon_groups")
		}
	}
	return names
}

func caseRoot(w *world) {
	w.names("", append(w.groupNames(true), "info")...)
	w.looks("", "d555")
	w.looks("info", "d555")
	w.looks("tasks", "f644")
	w.looks("schemata", "f644")
	w.looks("size", "f444")
	w.looks("info/last_cmd_status", "f444")
	if w.monitoring {
		w.looks("mon_groups", "d555")
		w.looks("mon_data", "d555")
		w.names("mon_groups")
	}
	w.clearStatus()
	w.status("ok\n")
}

func caseControlGroup(w *world) {
	w.mkdir("g")
	w.names("g", w.groupNames(true)...)
	w.looks("g", "d755")
	w.looks("g/mode", "f644")
	w.wantFile("g/tasks", "")
	w.wantFile("g/mode", "shareable\n")
	w.wantFile("g/cpus", "0\n")
	w.wantFile("g/cpus_list", "\n")
}

func caseMonitoringGroup(w *world) {
	w.mkdir("mon_groups/m")
	w.names("mon_groups/m", w.groupNames(false)...)
	w.names("mon_groups", "m")
	w.looks("mon_groups/m", "d755")
	w.looks("mon_groups/m/tasks", "f644")
	w.wantFile("mon_groups/m/tasks", "")
	var domains []string
	for i := range w.domains {
		domains = append(domains, fmt.Sprintf("mon_L3_%02d", i))
	}
	w.names("mon_groups/m/mon_data", domains...)
	w.names("mon_data", domains...)
	w.names("mon_data/mon_L3_00", "llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")
	w.looks("mon_data/mon_L3_00/mbm_total_bytes", "f444")
}

func caseMkdirMode(w *world) {
	w.want(w.face.mkdir("mon_groups/m", 0o700), ok, "mkdir")
	w.looks("mon_groups/m", "d700")
	w.looks("mon_groups/m/tasks", "f644")
}

func caseIno(w *world) {
	w.mkdir("mon_groups/m")
	before, _ := w.stat("mon_groups/m/tasks")
	w.rmdir("mon_groups/m")
	w.mkdir("mon_groups/m")
	after, _ := w.stat("mon_groups/m/tasks")
	if before.ino == after.ino {
		w.failf("both are inode %d", before.ino)
	}
}

func caseInfoMonitoring(w *world) {
	w.names("info/L3_MON", "max_threshold_occupancy", "mon_features", "num_rmids")
	w.looks("info/L3_MON/max_threshold_occupancy", "f644")
	w.wantFile("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n")
	w.write("info/L3_MON/max_threshold_occupancy", "100000\n")
	w.wantFile("info/L3_MON/max_threshold_occupancy", "65536\n")
	for data, want := range map[string]syscall.Errno{"-1\n": syscall.EINVAL, "abc\n": syscall.EINVAL, "99999999999\n": syscall.ERANGE} {
		w.write("info/L3_MON/max_threshold_occupancy", data, want)
	}
	w.write("info/L3_MON/max_threshold_occupancy", "524288\n")
	w.write("info/L3_MON/num_rmids", "1\n", syscall.EACCES)
}

func caseInfoAllocation(w *world) {
	files := []string{"bit_usage", "cbm_mask", "min_cbm_bits", "num_closids", "shareable_bits"}
	if !w.v61 {
		files = append(files, "sparse_masks")
	}
	w.names("info/L3", files...)
	w.names("info/MB", "bandwidth_gran", "delay_linear", "min_bandwidth", "num_closids", "thread_throttle_mode")
	w.wantFile("info/L3/cbm_mask", "fff\n")
	var usage []string
	for i := range w.domains {
		usage = append(usage, fmt.Sprintf("%d=SSSSSSSSSSSS", i))
	}
	w.wantFile("info/L3/bit_usage", strings.Join(usage, ";")+"\n")
}
