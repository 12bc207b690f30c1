package fusemount_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
)

// BenchmarkTasks shows what reads and writes of tasks cost with the processes
// of this machine.
func BenchmarkTasks(b *testing.B) {
	source := sim.NewProcSource("/proc", false)
	m, err := fusemount.New(filepath.Join(b.TempDir(), "node"), fusemount.Options{
		Model: sim.New(sim.DefaultConfig(), sim.RealClock{}, source), Cgroups: sim.NewCgroups(source), Source: source, HostProc: "/proc",
	})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Unmount()
	group := filepath.Join(m.Resctrl(), "mon_groups", "pod_1")
	if err := os.Mkdir(group, 0o755); err != nil {
		b.Fatal(err)
	}
	entries, _ := os.ReadDir("/proc/self/task")
	var tids []string
	for _, e := range entries {
		tids = append(tids, e.Name())
	}
	tasks := filepath.Join(group, "tasks")
	b.Run("write leader", func(b *testing.B) {
		for b.Loop() {
			_ = os.WriteFile(tasks, fmt.Appendln(nil, os.Getpid()), 0)
		}
	})
	b.Run("write thread", func(b *testing.B) {
		for b.Loop() {
			_ = os.WriteFile(tasks, []byte(tids[len(tids)-1]), 0)
		}
	})
	b.Run("write all", func(b *testing.B) {
		for b.Loop() {
			_ = os.WriteFile(tasks, []byte(strings.Join(tids, ",")), 0)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			_, _ = os.ReadFile(tasks)
		}
	})
}
