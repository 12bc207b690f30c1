package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podCgroup names the cgroup of a best-effort pod as the kubelet does, for the
// cgroup driver that the runtime reports.
func (c *client) podCgroup(uid string) (string, error) {
	r, err := c.rt.RuntimeConfig(c.ctx, &cri.RuntimeConfigRequest{})
	if err != nil {
		return "", err
	}
	if r.GetLinux().GetCgroupDriver() == cri.CgroupDriver_SYSTEMD {
		return "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice", nil
	}
	return "/kubepods/besteffort/pod" + uid, nil
}

// podConfig is the configuration of a pod, from the runtime's verbose status.
func (c *client) podConfig(id string) (*cri.PodSandboxConfig, error) {
	r, err := c.rt.PodSandboxStatus(c.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	// The runtime prints it with encoding/json, not protojson.
	var info struct {
		Config *cri.PodSandboxConfig `json:"config"`
	}
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil {
		return nil, fmt.Errorf("verbose status of pod %s: %w", id, err)
	}
	if info.Config == nil {
		return nil, fmt.Errorf("verbose status of pod %s: no configuration", id)
	}
	return info.Config, nil
}

func (c *client) runPod(args []string) error {
	fs := flag.NewFlagSet("runp", flag.ExitOnError)
	labels, annotations := pairs{}, pairs{}
	name := fs.String("name", "pod", "")
	namespace := fs.String("ns", "default", "")
	uid := fs.String("uid", "", "default: NAME-uid")
	attempt := fs.Uint("attempt", 0, "")
	cgroup := fs.String("cgroup-parent", "", "default: as the kubelet names it for a best-effort pod")
	handler := fs.String("handler", "", "runtime handler")
	hostNetwork := fs.Bool("hostnet", true, "")
	privileged := fs.Bool("privileged", false, "allow privileged containers")
	fs.Var(labels, "label", "")
	fs.Var(annotations, "annotation", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *uid == "" {
		*uid = *name + "-uid"
	}
	if *cgroup == "" {
		var err error
		if *cgroup, err = c.podCgroup(*uid); err != nil {
			return err
		}
	}
	labels["io.kubernetes.pod.name"], labels["io.kubernetes.pod.namespace"], labels["io.kubernetes.pod.uid"] = *name, *namespace, *uid
	network := cri.NamespaceMode_NODE
	if !*hostNetwork {
		network = cri.NamespaceMode_POD
	}
	began := time.Now()
	r, err := c.rt.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{RuntimeHandler: *handler, Config: &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: *name, Namespace: *namespace, Uid: *uid, Attempt: uint32(*attempt)},
		LogDirectory: env("CRI_LOGDIR", "/var/log/pods") + "/" + *uid,
		Labels:       labels, Annotations: annotations,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: *cgroup, SecurityContext: &cri.LinuxSandboxSecurityContext{
			Privileged:       *privileged,
			NamespaceOptions: &cri.NamespaceOption{Network: network, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD},
		}},
	}})
	if err != nil {
		return err
	}
	fmt.Println(r.PodSandboxId)
	fmt.Fprintln(os.Stderr, "runp", time.Since(began))
	return nil
}

func (c *client) stopPod(args []string) error {
	id, err := one(args)
	if err == nil {
		_, err = c.rt.StopPodSandbox(c.ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	}
	return err
}

func (c *client) removePod(args []string) error {
	id, err := one(args)
	if err == nil {
		_, err = c.rt.RemovePodSandbox(c.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	}
	return err
}

// removeAll stops and removes every pod; what fails for one is told at the end.
func (c *client) removeAll([]string) error {
	r, err := c.rt.ListPodSandbox(c.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range r.Items {
		errs = append(errs, c.stopPod([]string{p.Id}), c.removePod([]string{p.Id}))
	}
	return errors.Join(errs...)
}

func (c *client) inspectPod(args []string) error {
	id, err := one(args)
	if err != nil {
		return err
	}
	r, err := c.rt.PodSandboxStatus(c.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return err
	}
	dump(r.Status)
	fmt.Println(r.Info["info"])
	return nil
}

func (c *client) updatePod(args []string) error {
	fs := flag.NewFlagSet("updatep", flag.ExitOnError)
	shares := fs.Int64("shares", 0, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	_, err := c.rt.UpdatePodSandboxResources(c.ctx, &cri.UpdatePodSandboxResourcesRequest{
		PodSandboxId: fs.Arg(0), Resources: &cri.LinuxContainerResources{CpuShares: *shares}})
	return err
}
