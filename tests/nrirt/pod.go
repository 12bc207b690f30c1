package nrirt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// PodOptions says more of a pod. Its zero value is usable.
type PodOptions struct {
	ID             string // sandbox id; "" makes one
	CgroupParent   string // "" is the kubelet's name for a burstable pod of that uid
	RuntimeHandler string
	Labels         map[string]string
	Annotations    map[string]string
	PID            int  // of the pause process, where none is started
	Pause          bool // start a real pause process
}

// pod is a sandbox.
type pod struct {
	id, name, namespace, uid string
	opts                     PodOptions
	dir                      string // its cgroup's path, that is the parent of its containers'
	ready                    bool
	boot                     int
	pause                    *process
	pid                      int
}

// message is the pod as plugins are told of it.
func (p *pod) message(pid int) *api.PodSandbox {
	return &api.PodSandbox{
		Id: p.id, Name: p.name, Namespace: p.namespace, Uid: p.uid,
		Labels: p.opts.Labels, Annotations: p.opts.Annotations,
		RuntimeHandler: p.opts.RuntimeHandler, Pid: uint32(pid),
		Linux: &api.LinuxPodSandbox{CgroupParent: p.opts.CgroupParent, CgroupsPath: filepath.Join(p.dir, p.id)},
	}
}

// RunPod makes a sandbox and tells RunPodSandbox; it gives the sandbox's id.
func (r *Runtime) RunPod(name, namespace, uid string, opts PodOptions) (string, error) {
	n, unblock, err := r.enter()
	if err != nil {
		return "", err
	}
	defer unblock()
	p := r.newPod(name, namespace, uid, opts)
	sandbox := filepath.Join(p.dir, p.id)
	if err := r.cg.AddCgroup(sandbox); err != nil {
		return "", err
	}
	if opts.Pause {
		if p.pause, err = startProcess([]string{"sleep"}, false, r.opts.Output); err != nil {
			return "", err
		}
		p.pid = p.pause.pid
	}
	r.mu.Lock()
	r.pods[p.id] = p
	r.mu.Unlock()
	if p.pid != 0 {
		if err := r.cg.AddProcess(sandbox, p.pid); err != nil {
			return "", err
		}
	}
	return p.id, n.RunPodSandbox(context.Background(), &adaptation.RunPodSandboxRequest{Pod: p.message(p.pid)})
}

// newPod fills in what opts leaves open.
func (r *Runtime) newPod(name, namespace, uid string, opts PodOptions) *pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if opts.ID == "" {
		opts.ID = r.newID(uid, namespace, name)
	}
	if opts.CgroupParent == "" {
		opts.CgroupParent = "/kubepods/burstable/pod" + uid
		if r.opts.SystemdCgroup {
			opts.CgroupParent = "kubepods-burstable-pod" + uid + ".slice"
		}
	}
	dir := filepath.Join("/", opts.CgroupParent)
	if r.opts.SystemdCgroup {
		dir = sliceDir(filepath.Base(opts.CgroupParent))
	}
	return &pod{id: opts.ID, name: name, namespace: namespace, uid: uid, opts: opts, dir: dir, ready: true, boot: r.boot, pid: opts.PID}
}

// newID makes the id that a sandbox or container gets, 64 hexadecimal digits;
// the same life gets the same ids. r.mu is held.
func (r *Runtime) newID(words ...string) string {
	r.serial++
	sum := sha256.Sum256(fmt.Append(nil, r.serial, words))
	return hex.EncodeToString(sum[:])
}

// StopPod stops the sandbox, its containers first, as the CRI does.
// StopPodSandbox is told, except for a pod from before a restart.
func (r *Runtime) StopPod(id string) error {
	p, err := r.pod(id)
	if err != nil {
		return err
	}
	for _, c := range r.containersOf(id) {
		if c.state != exited {
			if err := r.StopContainer(c.id); err != nil {
				return err
			}
		}
	}
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	if !p.ready {
		return nil
	}
	if p.pause != nil {
		if err := p.pause.end(); err != nil {
			return err
		}
	}
	if err := r.cg.RemoveCgroup(filepath.Join(p.dir, p.id)); err != nil {
		return err
	}
	r.mu.Lock()
	p.ready, p.pid = false, 0
	told := p.boot == r.boot
	r.mu.Unlock()
	if !told {
		return nil
	}
	return n.StopPodSandbox(context.Background(), &adaptation.StopPodSandboxRequest{Pod: p.message(0)})
}

// RemovePod removes the sandbox, stopped first, and its containers; the pod's
// cgroup stays, as runc leaves it. RemovePodSandbox is told, except for a pod
// from before a restart.
func (r *Runtime) RemovePod(id string) error {
	if err := r.StopPod(id); err != nil {
		return err
	}
	for _, c := range r.containersOf(id) {
		if err := r.RemoveContainer(c.id); err != nil {
			return err
		}
	}
	n, unblock, err := r.enter()
	if err != nil {
		return err
	}
	defer unblock()
	p, err := r.pod(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.pods, id)
	told := p.boot == r.boot
	r.mu.Unlock()
	if !told {
		return nil
	}
	return n.RemovePodSandbox(context.Background(), &adaptation.RemovePodSandboxRequest{Pod: p.message(0)})
}

// RemovePodCgroup removes the pod's own cgroup, as the kubelet does when the
// pod has ended; parent is what PodCgroup gave.
func (r *Runtime) RemovePodCgroup(parent string) error { return r.cg.RemoveCgroup(parent) }

// PodCgroup is the path of the pod's cgroup below the cgroup root.
func (r *Runtime) PodCgroup(id string) (string, error) {
	p, err := r.pod(id)
	if err != nil {
		return "", err
	}
	return p.dir, nil
}

func (r *Runtime) pod(id string) (*pod, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.pods[id]
	if !ok {
		return nil, fmt.Errorf("sandbox %s: %w", id, ErrNotFound)
	}
	return p, nil
}

// enter gives the NRI side and keeps plugins from synchronizing until unblock
// was called, so that a plugin sees a request's effect once: as containerd.
func (r *Runtime) enter() (n *adaptation.Adaptation, unblock func(), err error) {
	r.mu.Lock()
	n = r.nri
	r.mu.Unlock()
	if n == nil {
		return nil, nil, ErrDown
	}
	return n, n.BlockPluginSync().Unblock, nil
}
