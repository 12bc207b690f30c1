package stream

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

func (w *world) startApplier() {
	w.applier = &applier{r: NewReceiver(ReceiverOptions{RequireHello: true}), view: emptyView()}
	w.openPipe()
}

func (w *world) killApplier() {
	a := w.applier
	a.in.readers--
	a.in.closed()
	if a.out != nil {
		a.out.writers--
		a.out.closed()
	}
	w.applier = nil
}

// openPipe opens what the path leads to now, and wishes for an epoch.
func (w *world) openPipe() {
	a := w.applier
	if a.in != nil {
		a.in.readers--
		a.in.closed()
	}
	a.in, a.half = w.path, nil
	a.in.readers++
	w.wish()
}

func (w *world) wish() {
	w.wishes++
	w.applier.r.Begin(fmt.Sprintf("h%d", w.wishes))
	w.applier.wished, w.applier.repeats = w.clock, 0
	w.sayHello()
}

// sayHello writes the unanswered wish, if there is one and a watcher reads.
func (w *world) sayHello() {
	if a := w.applier; a != nil && a.r.Wish() != "" {
		a.repeats++
		w.reply(lifecycle.Hello{Hello: a.r.Wish()})
	}
}

// reply writes one line to the acknowledgement FIFO, whole or not at all.
func (w *world) reply(v any) {
	a := w.applier
	if a.out != nil && a.out.readers == 0 {
		a.out.writers--
		a.out.closed()
		a.out = nil
	}
	if a.out == nil {
		if w.ackPath.readers == 0 {
			return
		}
		a.out = w.ackPath
		a.out.writers++
	}
	line, err := json.Marshal(v)
	if err != nil {
		w.t.Fatal(err)
	}
	line = append(line, '\n')
	if len(a.out.buf)+len(line) <= a.out.size {
		a.out.write(line, len(line))
	}
}

// read lets the applier read at most n bytes and take the whole lines.
func (w *world) read(n int) {
	a := w.applier
	if a == nil {
		return
	}
	a.half = append(a.half, a.in.read(n)...)
	for {
		line, rest, ok := bytes.Cut(a.half, []byte("\n"))
		if !ok {
			return
		}
		a.half = rest
		w.take(a.r.Line(line), line)
	}
}

// take does what the applier does with an input, and checks that it may.
func (w *world) take(in Input, line []byte) {
	a := w.applier
	w.seen[in.Kind.String()]++
	switch in.Kind {
	case KindWantHello:
		if in.Reason == "" {
			w.t.Fatalf("want hello without a reason, at %q", line)
		}
		if !w.torn {
			w.t.Fatalf("want hello, but nothing was lost: %s", in.Reason)
		}
		w.wish()
	case KindSnapshot:
		w.seen["discarded"] += int(in.Skipped)
		a.at = Ticket{in.Snapshot.Begin.Epoch, in.Snapshot.EndSeq}
		a.view = emptyView()
		for _, p := range in.Snapshot.Pods {
			a.view.pods[p.ID] = p
		}
		for _, c := range in.Snapshot.Containers {
			a.view.containers[c.ID] = c
		}
		w.applied()
	case KindRecord:
		if want := (Ticket{a.at.Epoch, a.at.Seq + 1}); (Ticket{in.Record.Epoch, in.Record.Seq}) != want {
			w.t.Fatalf("record %s/%d was applied, want %v", in.Record.Epoch, in.Record.Seq, want)
		}
		a.at.Seq++
		a.view.change(in.Record)
		w.applied()
		w.reply(lifecycle.Ack(a.at))
	}
}

// applied checks what the applier knows against what the runtime had told when
// the record was made, and that the record is of an epoch that this applier
// asked for.
func (w *world) applied() {
	a := w.applier
	if w.born[a.at.Epoch] < a.wished {
		w.t.Fatalf("%v was applied: its epoch is of step %d, the last wish of step %d", a.at, w.born[a.at.Epoch], a.wished)
	}
	want, known := w.history[a.at]
	if !known {
		w.t.Fatalf("%v was applied, which was never sent", a.at)
	}
	if diff := cmp.Diff(want.String(), a.view.String()); diff != "" {
		w.t.Fatalf("after %v (-runtime +applier):\n%s", a.at, diff)
	}
}

// change is what a change does to a picture of the node, in the plainest way.
func (v view) change(rec *lifecycle.Record) {
	switch rec.Event {
	case lifecycle.RunPodSandbox:
		v.pods[rec.Pod.ID] = *rec.Pod
	case lifecycle.StopPodSandbox:
		p := v.pods[rec.Pod.ID]
		p.PID = 0
		v.pods[rec.Pod.ID] = p
	case lifecycle.RemovePodSandbox:
		delete(v.pods, rec.Pod.ID)
		for id, c := range v.containers {
			if c.PodSandboxID == rec.Pod.ID {
				delete(v.containers, id)
			}
		}
	case lifecycle.RemoveContainer:
		delete(v.containers, rec.Container.ID)
	case lifecycle.StopContainer:
		c := v.containers[rec.Container.ID]
		c.State, c.PID = lifecycle.ContainerStopped, 0
		v.containers[rec.Container.ID] = c
	default:
		if v.containers[rec.Container.ID].State == lifecycle.ContainerStopped {
			return
		}
		v.containers[rec.Container.ID] = *rec.Container
		if _, known := v.pods[rec.Pod.ID]; !known {
			v.pods[rec.Pod.ID] = *rec.Pod
		}
	}
}
