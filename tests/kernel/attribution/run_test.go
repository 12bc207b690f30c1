package attribution_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one case: a node, and the test.
type world struct {
	*testing.T
	*attribution.Node
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func runCases(t *testing.T, cases []oneCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.run(&world{t, attribution.New(t)})
		})
	}
}

// oneCase is named after what must hold.
type oneCase struct {
	name string
	run  func(*world)
}

// kernel61 says whether this is Linux 6.1, which cannot rename a group.
func kernel61() bool {
	var uts unix.Utsname
	return unix.Uname(&uts) == nil && strings.HasPrefix(unix.ByteSliceToString(uts.Release[:]), "6.1.")
}
