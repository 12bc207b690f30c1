package world_test

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/nri-resctrl/nri-resctrl"

// TestWitnessesAreIndependent: who judges the programs shares no code with
// them, whatever it imports on the way.
func TestWitnessesAreIndependent(t *testing.T) {
	for _, args := range [][]string{
		{module + "/tests/world", module + "/tests/nrirt", module + "/tests/sim", module + "/tests/sim/fusemount", module + "/tests/demo", module + "/tests/model"},
		{"-test", module + "/tests/pipeline"},
		{"-test", "-tags", "faults", module + "/tests/faults", module + "/tests/faults/tracer"},
	} {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, args...)...)
		var told strings.Builder
		cmd.Stderr = &told
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list -deps %v: %v\n%s", args, err, told.String())
		}
		ours := 0
		for pkg := range strings.Lines(string(out)) {
			pkg, _, _ = strings.Cut(strings.TrimSpace(pkg), " ")
			if strings.HasPrefix(pkg, module) {
				ours++
			}
			for _, dir := range []string{"/lib/", "/state", "/cmd/"} {
				if strings.HasPrefix(pkg, module+dir) {
					t.Errorf("%v import %s", args, pkg)
				}
			}
		}
		if ours == 0 {
			t.Errorf("go list -deps %v lists nothing of this module", args)
		}
	}
}
