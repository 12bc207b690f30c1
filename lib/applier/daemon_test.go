package applier

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/fifo"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the watcher's end of the two FIFOs.
type peer struct {
	t    *testing.T
	ctx  context.Context
	out  *fifo.Writer
	back *fifo.Reader
	stop func() // and wait: what was acknowledged is committed and exported then
}

// startDaemon runs the applier on FIFOs of its own; the peer has the
// acknowledgements open before it starts.
func startDaemon(t *testing.T, n *node, before string) *peer {
	t.Helper()
	p := config.Pipe{Path: filepath.Join(n.dir, "lifecycle.pipe"), AckPath: filepath.Join(n.dir, "ack.pipe")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	for _, path := range []string{p.Path, p.AckPath} {
		if err := fifo.Ensure(n.dir, path); err != nil {
			t.Fatal(err)
		}
	}
	back, err := fifo.OpenReader(p.AckPath)
	if err != nil {
		t.Fatal(err)
	}
	// What an earlier reader left in the pipe stays while somebody has it open.
	keep, err := fifo.OpenReader(p.Path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := fifo.OpenWriter(p.Path)
	if err != nil {
		t.Fatal(err)
	}
	if before != "" {
		if err := out.WriteLine(ctx, []byte(before)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	run, stop := context.WithCancel(ctx)
	go func() { done <- Run(run, n.opts, p, program.NewSystemd(n.opts.Logger)) }()
	end := sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("applier: %v", err)
		}
	})
	t.Cleanup(func() {
		end()
		cancel()
		keep.Close()
		back.Close()
		out.Close()
	})
	return &peer{t: t, ctx: ctx, out: out, back: back, stop: end}
}

func (p *peer) send(text string) {
	p.t.Helper()
	for line := range strings.Lines(text) {
		if err := p.out.WriteLine(p.ctx, []byte(line)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// hello waits for a wish other than the last one.
func (p *peer) hello(last string) string {
	p.t.Helper()
	for {
		line, err := p.back.ReadLine(p.ctx)
		if err != nil {
			p.t.Fatal(err)
		}
		if h, _, err := lifecycle.DecodeReply(line); err == nil && h.Hello != "" && h.Hello != last {
			return h.Hello
		}
	}
}

func (p *peer) acked(epoch string, seq uint64) {
	p.t.Helper()
	for {
		line, err := p.back.ReadLine(p.ctx)
		if err != nil {
			p.t.Fatalf("acknowledgement %d of %s: %v", seq, epoch, err)
		}
		var a lifecycle.Ack
		if json.Unmarshal(line, &a) == nil && a == (lifecycle.Ack{Epoch: epoch, Seq: seq}) {
			return
		}
	}
}

// answering gives the epoch's begin the hello that it answers.
func answering(in *input, hello string) string {
	return "\n" + strings.Replace(in.String(), `"phase":"begin"`, `"phase":"begin","hello":"`+hello+`"`, 1)
}

func TestDaemon(t *testing.T) {
	n := newNode(t, func(*sim.Config) {})
	p := startDaemon(t, n, epoch().String()+`{"half":`)
	first := p.hello("")
	p.send(answering(epoch().add(
		lifecycle.Record{Event: lifecycle.RunPodSandbox, Pod: &lifecycle.Pod{ID: "s2", UID: "b"}},
	), first))
	p.acked("e1", 4)
	p.send("garbage\n")
	second := p.hello(first)
	p.send(answering(epoch(), "another")) // an answer to somebody else
	p.send(answering(epoch(), second))
	p.acked("e1", 3)
	p.stop()
	want := []string{
		"AddOrUpdate a Exists <nil>", "AddOrUpdate b Exists <nil>",
		"Removed b <nil> <nil>", "AddOrUpdate a Exists <nil>",
	}
	if got := n.events(); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestGarbageDoesNotMakeItAskWithoutEnd(t *testing.T) {
	n := newNode(t, func(*sim.Config) {})
	p := startDaemon(t, n, "")
	hello := p.hello("")
	// Each answer is broken at once: with a wish for each this never ends
	// before its time, with one a tick two of them take a tick.
	begin := time.Now()
	for range 3 {
		p.send(answering(epoch(), hello))
		p.acked("e1", 3)
		p.send("garbage\n")
		hello = p.hello(hello)
	}
	if took := time.Since(begin); took < 2*tick {
		t.Errorf("asked three times in %s", took)
	}
	p.stop()
}
