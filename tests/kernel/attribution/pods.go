package attribution

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// Pod is a pod on this node; its cgroup is there as long as it is.
type Pod struct {
	UID    string
	Group  string // where its group is at first
	cgroup string

	n          *Node
	record     *lifecycle.Pod
	containers []*Container
}

// Container is a container of a pod: a cgroup, and processes in it.
type Container struct {
	ID     string
	Cgroup string   // its directory
	Init   *Process // its first process

	pod    *Pod
	record *lifecycle.Container
}

// RunPod runs a pod sandbox and tells of it. The ticket is that of the record.
func (n *Node) RunPod(name string) (*Pod, Ticket) {
	n.t.Helper()
	n.serial++
	uid := fmt.Sprintf("%s-%d", name, n.serial)
	p := &Pod{n: n, UID: uid, Group: filepath.Join(Root, "mon_groups", "pod_"+uid), cgroup: filepath.Join(n.kube, "pod"+uid)}
	n.must(os.Mkdir(p.cgroup, 0o755))
	p.record = &lifecycle.Pod{ID: "sandbox-" + uid, UID: uid, Name: name, Namespace: "default", CgroupParent: n.below(p.cgroup)}
	return p, n.Watcher.Send(lifecycle.RunPodSandbox, p.record, nil)
}

// below is a cgroup's directory as its path.
func (n *Node) below(dir string) string { return strings.TrimPrefix(dir, Cgroups) }

// CgroupPath is the container's cgroup, below the root of all.
func (c *Container) CgroupPath() string { return c.pod.n.below(c.Cgroup) }

// Create makes a container with its first process, which waits for orders, and
// tells that it was created. Nothing has been told of its start.
func (p *Pod) Create() *Container {
	p.n.t.Helper()
	id := fmt.Sprintf("c%d-%s", len(p.containers)+1, p.UID)
	c := &Container{pod: p, ID: id, Cgroup: filepath.Join(p.cgroup, id)}
	p.n.must(os.Mkdir(c.Cgroup, 0o755))
	c.record = &lifecycle.Container{ID: id, PodSandboxID: p.record.ID, Name: "app", State: lifecycle.ContainerCreated, CgroupsPath: c.CgroupPath()}
	p.containers = append(p.containers, c)
	p.n.Watcher.Send(lifecycle.PostCreateContainer, p.record, c.told())
	c.Init = p.n.Start(c.Cgroup)
	c.record.PID = c.Init.PID
	return c
}

// told is a copy that later events do not change.
func (c *Container) told() *lifecycle.Container {
	r := *c.record
	return &r
}

// Start tells that the container is about to start.
func (c *Container) Start() Ticket {
	c.pod.n.t.Helper()
	k := c.pod.n.Watcher.Send(lifecycle.StartContainer, c.pod.record, c.told())
	c.record.State = lifecycle.ContainerRunning
	c.pod.n.Watcher.update(c.told())
	return k
}

// update changes what a later snapshot says of a container.
func (w *Watcher) update(c *lifecycle.Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.containers {
		if w.containers[i].ID == c.ID {
			w.containers[i] = c
		}
	}
}

// Serve runs a pod with one started container whose tasks are in its group.
func (n *Node) Serve(name string) (*Pod, *Container) {
	n.t.Helper()
	p, _ := n.RunPod(name)
	c := p.Create()
	c.Start().Wait()
	n.WantIn(p.Group, c)
	return p, c
}

// Remove ends the pod's containers and the pod, and tells of it.
func (p *Pod) Remove() Ticket {
	p.n.t.Helper()
	for _, c := range p.containers {
		c.Init.End()
		KillCgroup(c.Cgroup)
		c.record.State, c.record.PID = lifecycle.ContainerStopped, 0
		p.n.Watcher.Send(lifecycle.StopContainer, p.record, c.told())
		p.n.Watcher.Send(lifecycle.RemoveContainer, p.record, c.told())
	}
	p.n.Watcher.Send(lifecycle.StopPodSandbox, p.record, nil)
	k := p.n.Watcher.Send(lifecycle.RemovePodSandbox, p.record, nil)
	KillCgroup(p.cgroup)
	return k
}

// WantIn wants every task of the containers in the group.
func (n *Node) WantIn(group string, containers ...*Container) {
	n.t.Helper()
	for _, c := range containers {
		if in, all := Share(c.Cgroup, group); in != all || all == 0 {
			n.t.Fatalf("container %s: %d of %d tasks are in %s", c.ID, in, all, group)
		}
	}
}

// WantState wants what the state says of a container: "Reconciled", or "Partial
// reason".
func (c *Container) WantState(want string) {
	c.pod.n.t.Helper()
	c.pod.n.Until("container "+c.ID+" is "+want, func() error {
		got := strings.TrimSpace(c.pod.n.Value("SELECT state || ' ' || reason FROM containers WHERE container_id = ?", c.ID))
		if got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}
