package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// view is the state as this hold has it: the stored rows, and over them what
// was decided and is not committed yet. While state cannot be used it is all
// there is: what cannot be read is unknown.
type view struct {
	engine  *Engine
	pods    map[string]*rules.PodState // nil value: gone
	named   map[string]string          // uid -> the group path that a stored row names
	orphans map[string]*rules.Container
}

func newView(e *Engine) *view {
	v := &view{engine: e}
	v.reset()
	return v
}

func (v *view) reset() {
	v.pods = map[string]*rules.PodState{}
	v.named = map[string]string{}
	v.orphans = map[string]*rules.Container{}
}

// read reads from the state; what cannot be read is not ok, and unknown.
func read[T any](v *view, what string, from func(*state.Store) (T, error)) (got T, ok bool) {
	if v.engine.Store == nil {
		return got, false
	}
	got, err := from(v.engine.Store)
	if err != nil {
		v.engine.degrade(fmt.Errorf("read %s: %w", what, err))
		var none T
		return none, false
	}
	return got, true
}

// pod is the pod's state; nil is unknown.
func (v *view) pod(ctx context.Context, uid string) *rules.PodState {
	if p, ok := v.pods[uid]; ok {
		return p
	}
	p, ok := read(v, "pod "+uid, func(s *state.Store) (*rules.PodState, error) { return s.Pod(ctx, uid) })
	if !ok {
		return nil
	}
	if p != nil {
		v.named[uid] = p.Pod.GroupPath
	}
	v.pods[uid] = p
	return p
}

func (v *view) put(uid string, p *rules.PodState) {
	v.pods[uid] = p
	if p == nil {
		delete(v.named, uid)
	}
}

// uids are all pods, those that are being removed too.
func (v *view) uids(ctx context.Context) []string {
	stored, _ := read(v, "pods", func(s *state.Store) ([]string, error) { return s.PodUIDs(ctx) })
	all := map[string]bool{}
	for _, uid := range stored {
		all[uid] = true
	}
	for uid, p := range v.pods {
		all[uid] = p != nil
	}
	maps.DeleteFunc(all, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(all))
}

// podOfSandbox is the uid of the pod that has this sandbox; "" is unknown.
func (v *view) podOfSandbox(ctx context.Context, id string) string {
	for uid, p := range v.pods {
		if p != nil && hasSandbox(p, id) {
			return uid
		}
	}
	uid, _ := read(v, "sandbox "+id, func(s *state.Store) (string, error) { return s.PodOfSandbox(ctx, id) })
	if _, changed := v.pods[uid]; changed {
		return "" // its pod has it no more
	}
	return uid
}

func hasSandbox(p *rules.PodState, id string) bool {
	return slices.ContainsFunc(p.Sandboxes, func(s rules.Sandbox) bool { return s.ID == id })
}

// orphan is a container without a pod; nil is unknown.
func (v *view) orphan(ctx context.Context, id string) *rules.Container {
	if c, ok := v.orphans[id]; ok {
		return c
	}
	c, _ := read(v, "container "+id, func(s *state.Store) (*rules.Container, error) { return s.Container(ctx, id) })
	if c == nil || c.PodUID != "" {
		return nil
	}
	return c
}

// orphansOf are the containers that wait for this sandbox; "" is all.
func (v *view) orphansOf(ctx context.Context, sandboxID string) []rules.Container {
	stored, _ := read(v, "containers without a pod", func(s *state.Store) ([]rules.Container, error) {
		return s.Orphans(ctx, sandboxID)
	})
	all := slices.DeleteFunc(stored, func(c rules.Container) bool { _, changed := v.orphans[c.ID]; return changed })
	for _, c := range v.orphans {
		if c != nil && (sandboxID == "" || c.SandboxID == sandboxID) {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b rules.Container) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func (v *view) dropOrphan(id string)          { v.orphans[id] = nil }
func (v *view) putOrphan(c *rules.Container)  { v.orphans[c.ID] = c }
func (v *view) isNamed(uid, path string) bool { return v.named[uid] == path }
func (v *view) setNamed(uid, path string)     { v.named[uid] = path }
