package nrirt

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// Exec starts a workload inside a running container, as kubectl exec does: no
// event is raised, and the process is in the container's cgroup but a child of
// the runtime. It gives the pid once the workload is set up; the process ends
// with the container at the latest.
func (r *Runtime) Exec(ctx context.Context, id string, workload ...string) (int, error) {
	c, err := r.container(id)
	if err != nil {
		return 0, err
	}
	if c.state != running {
		return 0, fmt.Errorf("exec in container %s: it is not running", id)
	}
	p, err := startProcess(workload, true, r.opts.Output)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	c.execs = append(c.execs, p)
	r.mu.Unlock()
	if err := r.cg.AddProcess(c.dir, p.pid); err != nil {
		return 0, err
	}
	p.open()
	return p.pid, p.waitReady(ctx)
}

// Ready waits until the container's workload is set up (or has ended).
func (r *Runtime) Ready(ctx context.Context, id string) error {
	c, err := r.container(id)
	if err != nil || c.proc == nil {
		return err
	}
	return c.proc.waitReady(ctx)
}

// Wait waits until the container's process has ended by itself and gives its
// exit code. StopContainer is not told yet: call it.
func (r *Runtime) Wait(ctx context.Context, id string) (int, error) {
	c, err := r.container(id)
	if err != nil {
		return 0, err
	}
	if c.proc == nil {
		return 0, fmt.Errorf("wait for container %s: it has no process", id)
	}
	select {
	case <-c.proc.exited:
		return c.proc.state.ExitCode(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Kill kills the container's processes without telling anybody, also while the
// runtime is down. A container killed while it is down has exited before the
// next Up.
func (r *Runtime) Kill(id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	for _, p := range c.processes() {
		if err := p.kill(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nri == nil {
		c.state = exited
	}
	return nil
}

// PID is that of the container's first process, 0 where there is none.
func (r *Runtime) PID(id string) int {
	c, err := r.container(id)
	if err != nil || c.state == exited {
		return 0
	}
	return c.pid
}

// Cgroup is the path of the container's cgroup below the cgroup root.
func (r *Runtime) Cgroup(id string) (string, error) {
	c, err := r.container(id)
	if err != nil {
		return "", err
	}
	return c.dir, nil
}

func (r *Runtime) container(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok {
		return nil, fmt.Errorf("container %s: %w", id, ErrNotFound)
	}
	return c, nil
}

// containersOf lists a sandbox's containers in the order of their names.
func (r *Runtime) containersOf(sandbox string) []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*container
	for _, c := range r.containers {
		if c.pod.id == sandbox {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *container) int { return cmp.Compare(a.name+a.id, b.name+b.id) })
	return all
}

func (r *Runtime) endProcesses(c *container) error {
	r.mu.Lock()
	procs := c.processes()
	r.mu.Unlock()
	for _, p := range procs {
		if err := p.end(); err != nil {
			return err
		}
	}
	return nil
}

// synchronize tells a plugin what there is: pods READY and NOTREADY (those
// without a pid), containers CREATED (without one) and RUNNING, none that has
// exited, in random order: as containerd.
func (r *Runtime) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	var pods []*api.PodSandbox
	var containers []*api.Container
	r.mu.Lock()
	for _, p := range r.pods {
		pods = append(pods, p.message(p.pid))
	}
	for _, c := range r.containers {
		switch c.state {
		case created:
			containers = append(containers, c.message(api.ContainerState_CONTAINER_CREATED, 0))
		case running:
			containers = append(containers, c.message(api.ContainerState_CONTAINER_RUNNING, c.pid))
		}
	}
	r.mu.Unlock()
	_, err := tell(ctx, pods, containers)
	return err
}
