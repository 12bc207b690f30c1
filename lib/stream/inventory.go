package stream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// Inventory is what is present on the node, as the runtime told it. A stopped
// container is present until it is removed.
type Inventory struct {
	Pods       []lifecycle.Pod
	Containers []lifecycle.Container
}

// maxKey bounds, in bytes, each id and path that a record may carry: twice the
// kernel's PATH_MAX. Even if every byte needs JSON's six-byte escape, a record
// with a whole pod and a whole container fits in lifecycle.MaxLine.
const maxKey = 8 << 10

// maxText bounds, in bytes, the texts that are only for people (names, the
// runtime's version); longer ones are cut.
const maxText = 1 << 10

// inventory is the watcher's memory of the node.
type inventory struct {
	pods       map[string]lifecycle.Pod // by sandbox id
	containers map[string]lifecycle.Container
}

func newInventory() inventory {
	return inventory{pods: map[string]lifecycle.Pod{}, containers: map[string]lifecycle.Container{}}
}

// load takes what the runtime synchronized, and tells how many pods and
// containers of it cannot be told at all.
func (n *inventory) load(inv Inventory) (untellable int) {
	*n = newInventory()
	for _, p := range inv.Pods {
		if err := fitPod(&p); err != nil {
			untellable++
			continue
		}
		n.pods[p.ID] = p
	}
	for _, c := range inv.Containers {
		if err := fitContainer(&c); err != nil {
			untellable++
			continue
		}
		n.containers[c.ID] = c
	}
	return untellable
}

// list returns the inventory in a stable order.
func (n *inventory) list() Inventory {
	return Inventory{
		Pods: slices.SortedFunc(maps.Values(n.pods), func(a, b lifecycle.Pod) int { return cmp.Compare(a.ID, b.ID) }),
		Containers: slices.SortedFunc(maps.Values(n.containers), func(a, b lifecycle.Container) int {
			return cmp.Compare(a.ID, b.ID)
		}),
	}
}

// apply takes over what an event says, and tells whether the event is to be
// told at all. An event of a container that is not there is not told when it
// could only bring it back: containerd gives PostStartContainer after
// StopContainer (and so perhaps after the removal) of a short-lived one.
func (n *inventory) apply(rec *lifecycle.Record) (tell bool) {
	switch rec.Event {
	case lifecycle.RunPodSandbox:
		n.pods[rec.Pod.ID] = *rec.Pod
		return true
	case lifecycle.StopPodSandbox:
		if p, known := n.pods[rec.Pod.ID]; known {
			p.PID = 0 // the pause process is gone; its pid may be somebody else's soon
			n.pods[p.ID] = p
		}
		return true
	case lifecycle.RemovePodSandbox:
		delete(n.pods, rec.Pod.ID)
		maps.DeleteFunc(n.containers, func(_ string, c lifecycle.Container) bool { return c.PodSandboxID == rec.Pod.ID })
		return true
	case lifecycle.RemoveContainer:
		delete(n.containers, rec.Container.ID)
		return true
	}
	return n.applyContainer(rec)
}

// applyContainer does so for the events of a container that stays.
func (n *inventory) applyContainer(rec *lifecycle.Record) (tell bool) {
	c := *rec.Container
	old, known := n.containers[c.ID]
	switch rec.Event {
	case lifecycle.StopContainer:
		if !known {
			return false
		}
		old.State, old.PID = lifecycle.ContainerStopped, 0 // the event may still say CREATED
		n.containers[c.ID] = old
		return true
	case lifecycle.PostStartContainer, lifecycle.PostUpdateContainer:
		if !known {
			return false
		}
		if old.State == lifecycle.ContainerStopped {
			c.State, c.PID = old.State, old.PID // late: it does not live again
		}
	}
	n.containers[c.ID] = c
	if rec.Pod != nil {
		if _, known := n.pods[rec.Pod.ID]; !known {
			n.pods[rec.Pod.ID] = *rec.Pod
		}
	}
	return true
}

// fitPod makes p tellable, or says why it cannot be told.
func fitPod(p *lifecycle.Pod) error {
	if p.UID == "" {
		p.UID = p.ID
	}
	p.PID = max(p.PID, 0)
	p.Name, p.Namespace, p.RuntimeHandler = cut(p.Name), cut(p.Namespace), cut(p.RuntimeHandler)
	if err := p.Validate(); err != nil {
		return err
	}
	return fitKeys("pod", p.ID, p.UID, p.CgroupParent)
}

// fitContainer makes c tellable, or says why it cannot be told.
func fitContainer(c *lifecycle.Container) error {
	c.PID = max(c.PID, 0)
	c.Name, c.State = cut(c.Name), lifecycle.ContainerState(cut(string(c.State)))
	if err := c.Validate(); err != nil {
		return err
	}
	return fitKeys("container", c.ID, c.PodSandboxID, c.CgroupsPath)
}

// fitKeys refuses ids and paths that would not arrive as they are.
func fitKeys(what string, keys ...string) error {
	for _, k := range keys {
		if len(k) > maxKey {
			return fmt.Errorf("%s has an id or path of %d bytes, at most %d can be told", what, len(k), maxKey)
		}
		if !utf8.ValidString(k) {
			return errors.New(what + " has an id or path that is not UTF-8")
		}
	}
	return nil
}

// cut shortens a text for people to maxText bytes, at a rune's border.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
