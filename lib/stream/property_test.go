package stream

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// TestHandshake drives both ends over modelled FIFOs through everything that
// may happen to them. At each step no record may be applied that is out of
// order or of an epoch that was discarded, and what the applier knows must be
// what the runtime had told; when things are quiet, the applier must soon know
// what the runtime has.
func TestHandshake(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.seen = seen
		actions := w.actions()
		names := slices.Sorted(maps.Keys(actions))
		for name := range w.runtimeActions() { // most of what happens is life
			names = append(names, name, name)
		}
		names = append(names, "flow", "flow", "flow", "flow", "write some", "read some")
		slices.Sort(names)
		for range rapid.IntRange(50, 400).Draw(t, "steps") {
			w.clock++
			actions[rapid.SampledFrom(names).Draw(t, "action")]()
		}
		w.settle()
	})
	if t.Failed() {
		return
	}
	t.Log(seen)
	for _, what := range []string{"snapshot", "record", "want_hello", "heartbeat", "runtime_lost", "unknown_event", "discarded", "overflow", "acknowledged"} {
		if seen[what] == 0 {
			t.Errorf("%s never happened: the test does not try what it claims", what)
		}
	}
}

func (w *world) pick(n int) int { return rapid.IntRange(0, n-1).Draw(w.t, "pick") }

func (w *world) actions() map[string]func() {
	acts := w.runtimeActions()
	maps.Copy(acts, map[string]func(){
		"write some":    func() { w.pump(1 + w.pick(400)) },
		"write much":    func() { w.pump(1 << 20) },
		"read some":     func() { w.read(1 + w.pick(400)) },
		"read much":     func() { w.read(1 << 20) },
		"flow":          func() { w.flow(1 + w.pick(6)) },
		"read acks":     func() { w.readAcks() },
		"repeat hello":  func() { w.sayHello() },
		"stale hello":   w.staleHello,
		"heartbeat":     w.heartbeat,
		"runtime":       w.toggleRuntime,
		"watcher":       w.toggleWatcher,
		"applier":       w.toggleApplier,
		"replace pipe":  w.replacePipe,
		"reader looks":  w.readerLooks,
		"writer looks":  w.writerLooks,
		"runtime again": w.runtimeAgain,
		"thief":         w.thief,
		"stranger":      w.stranger,
	})
	return acts
}

func (w *world) staleHello() {
	if w.wishes > 0 && w.applier != nil && w.pick(4) == 0 {
		w.reply(lifecycle.Hello{Hello: fmt.Sprintf("h%d", 1+w.pick(w.wishes))})
	}
}

func (w *world) heartbeat() {
	if w.watcher != nil {
		w.watcher.s.Heartbeat(BarrierStats{Hits: 1})
	}
}

func (w *world) toggleRuntime() {
	switch {
	case w.watcher == nil:
	case w.watcher.s.Connected():
		if w.pick(4) == 0 {
			w.watcher.s.RuntimeLost()
		}
	default:
		w.connect()
	}
}

func (w *world) runtimeAgain() {
	if w.watcher != nil && w.pick(4) == 0 {
		w.watcher.s.RuntimeLost()
		w.connect()
	}
}

func (w *world) toggleWatcher() {
	if w.watcher != nil && w.pick(6) == 0 {
		w.killWatcher()
	} else if w.watcher == nil {
		w.startWatcher()
		if w.pick(2) == 0 {
			w.connect()
		}
	}
}

func (w *world) toggleApplier() {
	if w.applier != nil && w.pick(6) == 0 {
		w.killApplier()
	} else if w.applier == nil {
		w.startApplier()
	}
}

func (w *world) replacePipe() {
	if w.pick(4) == 0 {
		w.path = &pipe{size: testPipe}
	}
}

// thief takes a whole line out of the pipe.
func (w *world) thief() {
	if w.pick(2) != 0 {
		return
	}
	lines := bytes.SplitAfter(w.path.buf, []byte("\n"))
	if len(lines) < 3 {
		return
	}
	i := 1 + w.pick(len(lines)-2) // not the first, which may be the end of a line, nor the rest
	if w.pick(3) == 0 {
		lines = slices.Insert(lines, i, lines[i]) // or has it twice
	} else {
		lines = slices.Delete(lines, i, i+1)
	}
	w.path.buf, w.torn = bytes.Join(lines, nil), true
}

// stranger writes something of its own into the pipe. Within a line of the
// watcher it has a newline: without one it could turn a name into one that is
// not known, and a record into another that is valid, which nobody could see.
func (w *world) stranger() {
	if w.pick(4) != 0 || w.path.readers+w.path.writers == 0 {
		return
	}
	junk := []string{"\n", "junk\n", "{\"v\":1}\n", "\x00\xff\n", `{"v":1,"event":"NEW"}` + "\n"}
	if w.watcher == nil || len(w.watcher.rest) == 0 {
		junk = append(junk, "{")
	}
	text := rapid.SampledFrom(junk).Draw(w.t, "junk")
	if len(w.path.buf)+len(text) <= w.path.size {
		w.path.write([]byte(text), len(text))
		w.torn = true
	}
}

// readerLooks is the applier's heartbeat: a changed path is opened again.
func (w *world) readerLooks() {
	if w.applier != nil && w.applier.in != w.path {
		w.openPipe()
	}
}

func (w *world) writerLooks() {
	if w.watcher != nil && w.watcher.out != nil && w.watcher.out != w.path {
		w.broken()
	}
}

// flow lets everybody who lives do what is to do, so many times.
func (w *world) flow(rounds int) {
	for range rounds {
		w.pump(1 << 20)
		w.read(1 << 20)
		w.sayHello()
		w.readAcks()
	}
}

// settle lets everybody live, and things go quiet.
func (w *world) settle() {
	if w.watcher == nil {
		w.startWatcher()
	}
	if !w.watcher.s.Connected() {
		w.connect()
	}
	if w.applier == nil {
		w.startApplier()
	}
	w.clock++
	if w.torn { // the loss of the last line shows with the next one
		w.flow(1)
		w.both(podEvent(lifecycle.RunPodSandbox, pod("last")))
	}
	const rounds = 60 // far more than a few snapshots through a small pipe take
	for range rounds {
		w.readerLooks()
		w.writerLooks()
		w.flow(1)
		if w.applier.repeats > 5 {
			w.wish() // a thief may have the begin that answered the last one
		}
	}
	a := w.applier
	if wish := a.r.Wish(); wish != "" || !a.r.Complete() {
		w.t.Fatalf("no progress: wish %q is unanswered, complete: %v", wish, a.r.Complete())
	}
	if diff := cmp.Diff(w.told.String(), a.view.String()); diff != "" {
		w.t.Fatalf("when quiet (-runtime +applier):\n%s", diff)
	}
	if line, ok := w.watcher.s.Next(); ok {
		w.t.Fatalf("when quiet the watcher still writes %q", line)
	}
}

// runtimeActions are what pods and containers do.
func (w *world) runtimeActions() map[string]func() {
	return map[string]func(){
		"pod runs":          w.podRuns,
		"pod stops":         w.podStops,
		"pod goes":          w.podGoes,
		"container created": w.created,
		"container starts":  w.started,
		"container stops":   w.stopped,
		"container goes":    w.removed,
		"late post start":   w.lateStart,
	}
}

// both changes the runtime's truth and what the watcher is told of it.
func (w *world) both(rec lifecycle.Record) {
	w.truth.change(&rec)
	if w.watcher != nil && w.watcher.s.Connected() {
		w.told.change(&rec)
		w.event(rec)
	}
}

// one returns one of the ids, "" where there is none.
func one[V any](w *world, m map[string]V, keep func(V) bool) string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m)) {
		if keep(m[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[w.pick(len(ids))]
}

func (w *world) podRuns() {
	if len(w.truth.pods) < 4 {
		w.nextID++
		w.both(podEvent(lifecycle.RunPodSandbox, pod(fmt.Sprintf("p%d", w.nextID))))
	}
}

func (w *world) podStops() {
	if id := one(w, w.truth.pods, func(lifecycle.Pod) bool { return true }); id != "" {
		w.both(podEvent(lifecycle.StopPodSandbox, w.truth.pods[id]))
	}
}

func (w *world) podGoes() {
	if id := one(w, w.truth.pods, func(lifecycle.Pod) bool { return true }); id != "" {
		w.both(podEvent(lifecycle.RemovePodSandbox, w.truth.pods[id]))
	}
}

func (w *world) created() {
	if id := one(w, w.truth.pods, func(lifecycle.Pod) bool { return true }); id != "" && len(w.truth.containers) < 6 {
		w.nextID++
		c := ctr(fmt.Sprintf("c%d", w.nextID), id, lifecycle.ContainerCreated)
		w.both(ctrEvent(lifecycle.PostCreateContainer, w.truth.pods[id], c))
	}
}

func (w *world) started() {
	id := one(w, w.truth.containers, func(c lifecycle.Container) bool { return c.State == lifecycle.ContainerCreated })
	if id == "" {
		return
	}
	c := w.truth.containers[id]
	c.PID = 100
	w.both(ctrEvent(lifecycle.StartContainer, w.truth.pods[c.PodSandboxID], c))
	c.State = lifecycle.ContainerRunning
	post := ctrEvent(lifecycle.PostStartContainer, w.truth.pods[c.PodSandboxID], c)
	if w.pick(2) == 0 {
		w.late = append(w.late, post)
		return
	}
	w.both(post)
}

// lateStart is a PostStartContainer that comes when much may have happened: it
// brings nothing back.
func (w *world) lateStart() {
	if len(w.late) == 0 {
		return
	}
	rec := w.late[0]
	w.late = w.late[1:]
	for _, v := range []view{w.truth, w.told} {
		if c, ok := v.containers[rec.Container.ID]; ok && c.State != lifecycle.ContainerStopped {
			v.containers[c.ID] = *rec.Container
		}
	}
	w.event(rec)
}

func (w *world) stopped() {
	id := one(w, w.truth.containers, func(c lifecycle.Container) bool { return c.State != lifecycle.ContainerStopped })
	if id != "" {
		c := w.truth.containers[id]
		w.both(ctrEvent(lifecycle.StopContainer, w.truth.pods[c.PodSandboxID], c))
	}
}

func (w *world) removed() {
	if id := one(w, w.truth.containers, func(lifecycle.Container) bool { return true }); id != "" {
		c := w.truth.containers[id]
		p := w.truth.pods[c.PodSandboxID]
		delete(w.truth.containers, id)
		w.both(ctrEvent(lifecycle.RemoveContainer, p, c))
	}
}
