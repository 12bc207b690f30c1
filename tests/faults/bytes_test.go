//go:build faults

package faults

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// morsels are what records are made of, and what they are not.
var morsels = []string{
	"{", "}", `"`, ":", ",", "[", "]", "\n", "\n\n", " ", `{"v":1`, `,"epoch":"e"`, `,"seq":1`, `,"seq":2`, `,"seq":18446744073709551616`, `,"seq":-1`,
	`,"time":"2026-01-01T00:00:00Z"`, `,"event":"SYNCHRONIZE"`, `,"event":"START_CONTAINER"`, `,"phase":"begin"`, `,"phase":"end","pods":0,"containers":0`,
	`,"pod":{"id":"x","uid":"y"`, `,"container":{"id":"k","pod_sandbox_id":"x","pid":1`, `,"hello":"h"`, "\x00", "\xff", "null", `\u0000`, `\ud800`, "1e400",
	strings.Repeat("[", 5000), strings.Repeat("a", 100_000), "}\n", "}}\n",
}

// TestRandomBytes: bytes such as no sender of ours writes, in writes of any size.
// The applier lives, has a bound on its memory, changes no path but its own, and
// follows the next one that knows how to speak.
func TestRandomBytes(t *testing.T) {
	for i, seed := range seeds {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			c := newCell(t, func(o *world.Options) { o.Sim.NumRMIDs = 200 })
			p := c.newPeer()
			d, err := c.startTraced(tracer.Plan{Touch: true})
			c.must(err)
			r := dice(seed, "bytes")
			rounds := map[bool]int{false: 4, true: 400}[long]
			for range rounds {
				if err := p.answer([]fields{c.pod("a")}, []fields{c.container("a2", "RUNNING")}); err != nil {
					t.Fatalf("%v\n%s", err, d.tail())
				}
				for range 300 {
					var b strings.Builder
					for range 1 + r.IntN(30) {
						b.WriteString(morsels[r.IntN(len(morsels))])
					}
					c.must(p.put(b.String()))
				}
				c.must(p.put("\n"))
			}
			hwm := d.memory()
			t.Logf("VmHWM %d MiB, streams broken: %d", hwm>>20, strings.Count(d.all(), "stream of records is broken"))
			if hwm > 128<<20 {
				t.Errorf("the applier took %d MiB", hwm>>20)
			}
			c.must(p.answer([]fields{c.pod("a"), c.pod("b"), c.pod("c"), c.pod("d"), c.pod("e")}, []fields{
				c.container("a2", "RUNNING"), c.container("b1", "RUNNING"), c.container("c1", "RUNNING"), c.container("e1", "RUNNING")}))
			err = world.Until("the node is as it really is", func() error { return c.trueEnd() })
			report := d.stop()
			if err != nil {
				t.Errorf("%v\n%s", err, d.tail())
			}
			c.onlyOwn(report.Touched)
			if n := strings.Count(d.all(), "stream of records is broken"); n < rounds {
				t.Errorf("the stream was broken %d times: hardly anything was tried", n)
			}
		})
	}
}
