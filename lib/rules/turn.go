package rules

import (
	"reflect"
	"slices"
	"time"
)

// Rules decide with these hands and names. The zero Now is not usable.
type Rules struct {
	Hands  Hands
	Naming Naming
	Now    func() time.Time
}

// Change is what became of one pod.
type Change struct {
	// State is the pod afterwards; nil when nothing of it is left.
	State *PodState
	// Changed says that State differs from what went in.
	Changed bool
	Events  []Event
	// Adopted are the NoPod containers that are none any more: they belong to the
	// pod now, or are gone.
	Adopted []string
	// Ended says that the pod was taken for ended: nothing of it is on the node.
	Ended bool
	// GroupReason is why the pod's group could not be made in this change; ""
	// when it could, or was not tried.
	GroupReason Reason
}

// turn is one change under way: a copy of the pod, worked on until finish.
type turn struct {
	r      *Rules
	before *PodState // nil: the pod was not known
	*PodState
	now     time.Time
	events  []Event
	adopted []string
	told    telling // what consumers know
	force   bool    // a lost group: its result is told whatever the counters say
	refill  bool    // the group is new or elsewhere: every container is assigned again
	ended   bool    // nothing of the pod is left
	reason  Reason
}

// telling is what of a pod makes an event when it changes. A reason does not.
type telling struct {
	state             GroupState
	path              string
	total, reconciled int
}

// begin starts a turn. A pod that is being removed is no pod: its UID coming
// back takes the row over, with nothing in it.
func (r *Rules) begin(p *PodState) *turn {
	t := &turn{r: r, before: p, now: r.Now().UTC()}
	if p == nil {
		return t
	}
	c := clonePod(p)
	t.PodState = c
	t.told = t.telling()
	return t
}

func clonePod(p *PodState) *PodState {
	c := *p
	c.Sandboxes = slices.Clone(p.Sandboxes)
	c.Containers = slices.Clone(p.Containers)
	return &c
}

// known says whether there is a pod that consumers were told of.
func (t *turn) known() bool { return t.PodState != nil && !t.Pod.Removing }

// register makes sure that the pod is known.
func (t *turn) register(uid, namespace, name string) {
	if t.known() {
		return
	}
	t.PodState = &PodState{Pod: Pod{
		UID: uid, Namespace: namespace, Name: name,
		GroupState: GroupFailed, Reason: ReasonCreating,
		GroupPath:   t.r.Naming.GroupPath(uid),
		FailedSince: t.now, CreatedAt: t.now, UpdatedAt: t.now,
	}}
	t.told = telling{}
}

func (t *turn) telling() telling {
	w := telling{state: t.Pod.GroupState, total: len(t.Containers)}
	if w.state == GroupExists {
		w.path = t.Pod.GroupPath
	}
	for i := range t.Containers {
		if t.Containers[i].Counted {
			w.reconciled++
		}
	}
	return w
}

// tell adds an AddOrUpdate with the present counters.
func (t *turn) tell() {
	w := t.telling()
	e := Event{
		Time: t.now, Type: AddOrUpdate, PodUID: t.Pod.UID, Namespace: t.Pod.Namespace, Name: t.Pod.Name,
		GroupState: w.state, GroupPath: w.path, Total: w.total, Reconciled: w.reconciled,
	}
	if w.state == GroupFailed {
		e.Reason = t.Pod.Reason
	}
	t.events = append(t.events, e)
	t.told, t.force = w, false
}

func (t *turn) tellIfChanged() {
	if t.force || t.telling() != t.told {
		t.tell()
	}
}

// finish ends the turn: stamps what changed and hands it out.
func (t *turn) finish() Change {
	ch := Change{Events: t.events, Adopted: t.adopted, GroupReason: t.reason}
	if t.ended || t.PodState == nil {
		ch.Changed = t.before != nil
		return ch
	}
	w := t.telling()
	t.Pod.Total, t.Pod.Reconciled = w.total, w.reconciled
	ch.State = t.PodState
	ch.Changed = t.before == nil || !reflect.DeepEqual(t.before, t.PodState)
	if ch.Changed {
		t.stamp()
	}
	return ch
}

// stamp sets UpdatedAt on every row that differs from before.
func (t *turn) stamp() {
	t.Pod.UpdatedAt = t.now
	was := map[string]Container{}
	if t.before != nil {
		for _, c := range t.before.Containers {
			was[c.ID] = c
		}
	}
	for i := range t.Containers {
		if c := &t.Containers[i]; was[c.ID] != *c {
			c.UpdatedAt = t.now
		}
	}
}

func (t *turn) sandbox(id string) *Sandbox {
	for i := range t.Sandboxes {
		if t.Sandboxes[i].ID == id {
			return &t.Sandboxes[i]
		}
	}
	return nil
}

func (t *turn) container(id string) *Container {
	for i := range t.Containers {
		if t.Containers[i].ID == id {
			return &t.Containers[i]
		}
	}
	return nil
}

// alive says whether the pod still has a sandbox that was not stopped.
func (t *turn) alive() bool {
	return slices.ContainsFunc(t.Sandboxes, func(s Sandbox) bool { return s.State == SandboxReady })
}

// end removes the pod: its group, then its row. Where the group stays, so does
// the row, marked, and the retry job tries again.
func (t *turn) end() {
	o := t.r.Hands.RemoveGroup(t.Pod)
	// Consumers do not know a pod whose row alone was committed before a kill.
	if t.Pod.Reason != ReasonCreating {
		t.events = append(t.events, Event{
			Time: t.now, Type: Removed, PodUID: t.Pod.UID, Namespace: t.Pod.Namespace, Name: t.Pod.Name,
		})
	}
	t.Sandboxes, t.Containers = nil, nil
	if o.Reason == "" {
		t.ended = true
		return
	}
	t.Pod.Removing = true
	t.Pod.Reason = o.Reason
	t.Pod.MissingSince = 0
}
