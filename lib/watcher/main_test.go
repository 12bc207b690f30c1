package watcher

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

func TestMain(m *testing.M) {
	nrirt.RunWorkload()
	nrirt.SilenceNRI()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
