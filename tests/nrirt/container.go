package nrirt

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// ContainerOptions says more of a container. Its zero value is usable and has
// no process.
type ContainerOptions struct {
	ID          string   // "" makes one
	Workload    []string // a real process (see RunWorkload); nil has none
	PID         int      // where there is no Workload: the pid that is told
	CgroupsPath string   // told in place of the real one; "" tells that
	Args, Env   []string // told only
	Labels      map[string]string
	Annotations map[string]string
}

// The states that the runtime itself keeps.
type state int

const (
	created state = iota
	running
	exited
)

// container is a container.
type container struct {
	id, name string
	pod      *pod
	opts     ContainerOptions
	dir      string // its cgroup
	state    state
	boot     int // the last life of the runtime that it had not exited before
	pid      int
	proc     *process
	execs    []*process
}

// processes are those that may need an end.
func (c *container) processes() []*process {
	all := slices.Clone(c.execs)
	if c.proc != nil {
		all = append(all, c.proc)
	}
	return all
}

// message is the container as plugins are told of it.
func (c *container) message(state api.ContainerState, pid int) *api.Container {
	return &api.Container{
		Id: c.id, PodSandboxId: c.pod.id, Name: c.name, State: state, Pid: uint32(pid),
		Labels: c.opts.Labels, Annotations: c.opts.Annotations, Args: c.opts.Args, Env: c.opts.Env,
		Linux: &api.LinuxContainer{CgroupsPath: c.opts.CgroupsPath},
	}
}

// CreateContainer makes a container in the sandbox and tells CreateContainer
// and PostCreateContainer; it gives the container's id.
func (r *Runtime) CreateContainer(sandbox, name string, opts ContainerOptions) (string, error) {
	n, unblock, err := r.enter()
	if err != nil {
		return "", err
	}
	defer unblock()
	p, err := r.pod(sandbox)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	if opts.ID == "" {
		opts.ID = r.newID(sandbox, name)
	}
	named, dir := cgroupPaths(r.opts.SystemdCgroup, p.opts.CgroupParent, opts.ID)
	if opts.CgroupsPath == "" {
		opts.CgroupsPath = named
	}
	c := &container{id: opts.ID, name: name, pod: p, opts: opts, dir: dir, boot: r.boot}
	r.containers[c.id] = c
	r.mu.Unlock()

	ctx := context.Background()
	_, err = n.CreateContainer(ctx, &adaptation.CreateContainerRequest{
		Pod: p.message(p.pid), Container: c.message(api.ContainerState_CONTAINER_UNKNOWN, 0)})
	if err != nil {
		return "", err
	}
	return c.id, n.PostCreateContainer(ctx, &adaptation.PostCreateContainerRequest{
		Pod: p.message(p.pid), Container: c.message(api.ContainerState_CONTAINER_CREATED, 0)})
}

// StartContainer starts the container and tells StartContainer and
// PostStartContainer; the program runs once the first has been answered.
func (r *Runtime) StartContainer(id string) error {
	if err := r.StartQuietly(id); err != nil {
		return err
	}
	return r.PostStart(id)
}

// StartQuietly is StartContainer without PostStartContainer, which may come
// late, even after StopContainer: call PostStart when it shall come.
func (r *Runtime) StartQuietly(id string) error {
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if c.state != created {
		return fmt.Errorf("start container %s: it was started before", id)
	}
	if err := r.launch(c); err != nil {
		return err
	}
	err = n.StartContainer(context.Background(), &adaptation.StartContainerRequest{
		Pod: c.pod.message(c.pod.pid), Container: c.message(api.ContainerState_CONTAINER_CREATED, c.pid)})
	if err != nil {
		return err
	}
	if c.proc != nil {
		c.proc.open()
	}
	r.mu.Lock()
	c.state = running
	r.mu.Unlock()
	return nil
}

// launch makes the cgroup and puts the process at its gate into it.
func (r *Runtime) launch(c *container) error {
	if err := r.cg.AddCgroup(c.dir); err != nil {
		return err
	}
	pid := c.opts.PID
	if c.opts.Workload != nil {
		proc, err := startProcess(c.opts.Workload, true, r.opts.Output)
		if err != nil {
			return err
		}
		pid = proc.pid
		r.mu.Lock()
		c.proc = proc
		r.mu.Unlock()
	}
	r.mu.Lock()
	c.pid = pid
	r.mu.Unlock()
	if pid == 0 {
		return nil
	}
	return r.cg.AddProcess(c.dir, pid)
}

// PostStart tells PostStartContainer: RUNNING, even if it is dead already.
func (r *Runtime) PostStart(id string) error {
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	c, err := r.container(id)
	if err != nil {
		return err
	}
	return n.PostStartContainer(context.Background(), &adaptation.PostStartContainerRequest{
		Pod: c.pod.message(c.pod.pid), Container: c.message(api.ContainerState_CONTAINER_RUNNING, c.pid)})
}

// Update tells UpdateContainer and PostUpdateContainer; nothing changes.
func (r *Runtime) Update(id string) error {
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	c, err := r.container(id)
	if err != nil {
		return err
	}
	ctx, msg := context.Background(), c.message(api.ContainerState_CONTAINER_RUNNING, c.pid)
	if _, err := n.UpdateContainer(ctx, &adaptation.UpdateContainerRequest{
		Pod: c.pod.message(c.pod.pid), Container: msg, LinuxResources: &api.LinuxResources{}}); err != nil {
		return err
	}
	return n.PostUpdateContainer(ctx, &adaptation.PostUpdateContainerRequest{Pod: c.pod.message(c.pod.pid), Container: msg})
}

// StopContainer ends the container's processes, tells StopContainer (once) and
// removes the cgroup. It is also what follows a process that ended by itself.
func (r *Runtime) StopContainer(id string) error {
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	c, err := r.container(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	before, told := c.state, c.state != exited
	c.state = exited
	r.mu.Unlock()
	if err := r.endProcesses(c); err != nil {
		return err
	}
	if told {
		msg := c.message(api.ContainerState_CONTAINER_STOPPED, c.pid)
		if before == created {
			msg = c.message(api.ContainerState_CONTAINER_CREATED, 0)
		}
		if _, err := n.StopContainer(context.Background(), &adaptation.StopContainerRequest{
			Pod: c.pod.message(c.pod.pid), Container: msg}); err != nil {
			return err
		}
	}
	return r.cg.RemoveCgroup(c.dir)
}

// RemoveContainer removes the container, stopped first, and tells
// RemoveContainer, except for one that had exited before a restart.
func (r *Runtime) RemoveContainer(id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if c.state != exited {
		if err := r.StopContainer(id); err != nil {
			return err
		}
	}
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	r.mu.Lock()
	delete(r.containers, id)
	told := c.boot == r.boot
	r.mu.Unlock()
	if !told {
		return nil
	}
	return n.RemoveContainer(context.Background(), &adaptation.RemoveContainerRequest{
		Pod: c.pod.message(c.pod.pid), Container: c.message(api.ContainerState_CONTAINER_UNKNOWN, 0)})
}
