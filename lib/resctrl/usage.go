package resctrl

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage says how many RMIDs the CPU has, and how many of them groups hold.
type Usage struct {
	NumRMIDs int // info/L3_MON/num_rmids
	// Used counts the root's own RMID and one for every control group and
	// monitoring group. Freed RMIDs that are in limbo still are not in it, though
	// the kernel cannot give them out yet.
	Used int
}

// Usage counts RMIDs. Errors: *Error of reason not_mounted, unsupported (no
// info/L3_MON: a CPU without monitoring), permission, io.
func (f *FS) Usage() (Usage, error) {
	var u Usage
	ctrls, err := f.controlGroups()
	if err != nil {
		return u, err
	}
	path := filepath.Join(f.root, dirInfo, "L3_MON", "num_rmids")
	data, err := f.os.ReadFile(path)
	if gone(err) {
		return u, unsupported("read", path)
	}
	if err != nil {
		return u, fail("read", path, err)
	}
	u.NumRMIDs, err = strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return u, fail("read", path, fmt.Errorf("%q is no number", data))
	}
	for _, ctrl := range ctrls {
		names, err := f.monGroups(ctrl)
		if err != nil {
			return u, err
		}
		u.Used += 1 + len(names)
	}
	return u, nil
}
