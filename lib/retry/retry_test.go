package retry

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
)

func TestOnlyTellsAnEmptyNameFromNone(t *testing.T) {
	t.Parallel()
	var o Options
	if err := o.Pod.Set(""); err == nil {
		t.Error("an empty name was taken: the run would be of everything")
	}
	if err := o.Pod.Set("a"); err != nil || o.Pod.String() != "a" || o.Check() != nil {
		t.Errorf("%q, %v, %v", o.Pod.String(), err, o.Check())
	}
	if err := o.Container.Set("c"); err != nil || o.Check() == nil {
		t.Errorf("both at once: %v, %v", err, o.Check())
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	capacity := engine.GroupResult{Outcome: engine.GroupCapacity, Reason: "capacity"}
	tests := map[string]struct {
		err  error
		res  Result
		want int
	}{
		"done":                {nil, Result{Pass: &engine.Pass{}}, 0},
		"waiting":             {nil, Result{Waiting: "for a snapshot"}, 0},
		"a pass at capacity":  {nil, Result{Pass: &engine.Pass{Groups: []engine.GroupResult{capacity}}}, 75},
		"one pod at capacity": {nil, Result{Pod: &capacity}, 75},
		"a lost group waits":  {nil, Result{Pass: &engine.Pass{}, Sweep: &engine.Swept{OutOfCapacity: true}}, 75},
		"one pod failed":      {nil, Result{Pod: &engine.GroupResult{Outcome: engine.GroupFailed, Reason: "io"}}, 1},
		"not found":           {fmt.Errorf("pod x: %w", engine.ErrNotFound), Result{}, 66},
		"an error":            {errors.New("no room"), Result{Pass: &engine.Pass{Groups: []engine.GroupResult{capacity}}}, 1},
	}
	for name, tt := range tests {
		err, got := code(tt.err, &tt.res), 0
		if err != nil {
			got = 1
		}
		if c := (*coded)(nil); errors.As(err, &c) {
			got = c.ExitCode()
		}
		if got != tt.want {
			t.Errorf("%s: exit %d (%v), want %d", name, got, err, tt.want)
		}
	}
}
