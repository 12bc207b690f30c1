package program

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
)

// Whatever a program says without being asked for debug passes the limit that
// the job's unit sets.
func TestUnitsLetThroughWhatProgramsSay(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../systemd/resctrl-retry.service")
	if err != nil {
		t.Fatal(err)
	}
	limit := regexp.MustCompile(`(?m)^LogLevelMax=(\w+)$`).FindSubmatch(unit)
	names := []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}
	if limit == nil || !slices.Contains(names, string(limit[1])) {
		t.Fatalf("LogLevelMax is %q", limit)
	}
	most := journal.Priority(slices.Index(names, string(limit[1])))
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if got := priority(level); got > most {
			t.Errorf("%s has priority %d, which LogLevelMax=%s keeps from the journal", level, got, limit[1])
		}
	}
	if got := priority(slog.LevelDebug); got != journal.PriDebug {
		t.Errorf("debug has priority %d", got)
	}
}
