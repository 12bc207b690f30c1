package watcher

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

// podOf takes from NRI's PodSandbox what the pipe tells of it, and nothing
// else: labels and annotations may hold secrets. An empty uid is the Sender's to
// fill in.
func podOf(p *api.PodSandbox) *lifecycle.Pod {
	if p == nil {
		return nil
	}
	return &lifecycle.Pod{
		ID: p.GetId(), UID: p.GetUid(), Name: p.GetName(), Namespace: p.GetNamespace(),
		CgroupParent: p.GetLinux().GetCgroupParent(), RuntimeHandler: p.GetRuntimeHandler(), PID: int(p.GetPid()),
	}
}

// containerOf takes from NRI's Container what the pipe tells of it: never
// environment, arguments, mounts, labels or annotations.
func containerOf(c *api.Container) *lifecycle.Container {
	if c == nil {
		return nil
	}
	return &lifecycle.Container{
		ID: c.GetId(), PodSandboxID: c.GetPodSandboxId(), Name: c.GetName(),
		State: lifecycle.ContainerState(strings.TrimPrefix(c.GetState().String(), "CONTAINER_")),
		PID:   int(c.GetPid()), CgroupsPath: c.GetLinux().GetCgroupsPath(),
	}
}

// filter chooses the pods that are forwarded at all.
type filter struct {
	namespaces []string          // empty is all
	labels     map[string]string // all must be there with that value
}

func (f filter) all() bool { return len(f.namespaces) == 0 && len(f.labels) == 0 }

// wants says whether events of the pod are forwarded. Without a filter those
// without a pod are, too.
func (f filter) wants(p *api.PodSandbox) bool {
	if f.all() {
		return true
	}
	if p == nil || len(f.namespaces) > 0 && !slices.Contains(f.namespaces, p.GetNamespace()) {
		return false
	}
	for k, v := range f.labels {
		if got, ok := p.GetLabels()[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// inventory is what a Synchronize tells, filtered.
func (f filter) inventory(pods []*api.PodSandbox, containers []*api.Container) stream.Inventory {
	var inv stream.Inventory
	wanted := map[string]bool{}
	for _, p := range pods {
		if p != nil && f.wants(p) {
			wanted[p.GetId()] = true
			inv.Pods = append(inv.Pods, *podOf(p))
		}
	}
	for _, c := range containers {
		if c != nil && (f.all() || wanted[c.GetPodSandboxId()]) {
			inv.Containers = append(inv.Containers, *containerOf(c))
		}
	}
	return inv
}
