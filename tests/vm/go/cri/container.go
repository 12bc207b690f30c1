package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// spec is what the flags of create and run say of a container.
type spec struct {
	pod, name, image, command, targetPID string
	attempt                              uint
	shares, quota, memory                int64 // CPU shares, µs in 100 ms, bytes
	privileged                           bool
	env, annotations                     pairs
	mounts                               list
	args                                 []string
}

func parseSpec(cmd string, args []string) (*spec, error) {
	fs := flag.NewFlagSet(cmd, flag.ExitOnError)
	s := &spec{env: pairs{}, annotations: pairs{}}
	fs.StringVar(&s.pod, "pod", "", "")
	fs.StringVar(&s.name, "name", "ctr", "")
	fs.StringVar(&s.image, "image", "localhost/workload:1", "")
	fs.StringVar(&s.command, "command", "", "entrypoint override")
	fs.StringVar(&s.targetPID, "target-pid", "", "share the pid namespace of this container (as kubectl debug --target does)")
	fs.UintVar(&s.attempt, "attempt", 0, "")
	fs.Int64Var(&s.shares, "shares", 0, "")
	fs.Int64Var(&s.quota, "quota", 0, "")
	fs.Int64Var(&s.memory, "mem", 0, "")
	fs.BoolVar(&s.privileged, "privileged", false, "all capabilities, /sys and /sys/fs/cgroup writable")
	fs.Var(s.env, "env", "")
	fs.Var(s.annotations, "annotation", "")
	fs.Var(&s.mounts, "mount", "HOST:CTR")
	err := fs.Parse(args)
	s.args = fs.Args()
	return s, err
}

func (s *spec) resources() *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{CpuShares: s.shares, CpuQuota: s.quota, MemoryLimitInBytes: s.memory, OomScoreAdj: 1000}
	if s.quota != 0 {
		r.CpuPeriod = 100000
	}
	return r
}

func (s *spec) config(pod *cri.PodSandboxConfig) *cri.ContainerConfig {
	ns := &cri.NamespaceOption{Network: pod.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork(),
		Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD}
	if s.targetPID != "" {
		ns.Pid, ns.TargetId = cri.NamespaceMode_TARGET, s.targetPID
	}
	c := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: s.name, Attempt: uint32(s.attempt)},
		Image:    &cri.ImageSpec{Image: s.image, UserSpecifiedImage: s.image},
		Args:     s.args, Annotations: s.annotations,
		Labels: map[string]string{"io.kubernetes.container.name": s.name, "io.kubernetes.pod.name": pod.Metadata.Name,
			"io.kubernetes.pod.namespace": pod.Metadata.Namespace, "io.kubernetes.pod.uid": pod.Metadata.Uid},
		LogPath: s.name + "_" + strconv.FormatUint(uint64(s.attempt), 10) + ".log",
		Linux: &cri.LinuxContainerConfig{
			Resources:       s.resources(),
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: ns, Privileged: s.privileged},
		},
	}
	if s.command != "" {
		c.Command = []string{s.command}
	}
	for k, v := range s.env {
		c.Envs = append(c.Envs, &cri.KeyValue{Key: k, Value: []byte(v)})
	}
	for _, m := range s.mounts {
		host, inside, _ := strings.Cut(m, ":")
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: host, ContainerPath: inside})
	}
	return c
}

func (c *client) create(s *spec) (id string, err error) {
	pod, err := c.podConfig(s.pod)
	if err != nil {
		return "", err
	}
	r, err := c.rt.CreateContainer(c.ctx, &cri.CreateContainerRequest{PodSandboxId: s.pod, SandboxConfig: pod, Config: s.config(pod)})
	return r.GetContainerId(), err
}

// start prints to standard error how long it took.
func (c *client) start(id string) error {
	began := time.Now()
	_, err := c.rt.StartContainer(c.ctx, &cri.StartContainerRequest{ContainerId: id})
	if err == nil {
		fmt.Fprintln(os.Stderr, "start", time.Since(began))
	}
	return err
}

func (c *client) createContainer(args []string) error {
	s, err := parseSpec("create", args)
	if err != nil {
		return err
	}
	id, err := c.create(s)
	if err == nil {
		fmt.Println(id)
	}
	return err
}

func (c *client) runContainer(args []string) error {
	s, err := parseSpec("run", args)
	if err != nil {
		return err
	}
	id, err := c.create(s)
	if err != nil {
		return err
	}
	if err := c.start(id); err != nil {
		return err
	}
	fmt.Println(id)
	return nil
}

func (c *client) startContainer(args []string) error {
	id, err := one(args)
	if err != nil {
		return err
	}
	return c.start(id)
}

func (c *client) stopContainer(args []string) error {
	fs := flag.NewFlagSet("stop", flag.ExitOnError)
	seconds := fs.Int64("t", 2, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	_, err := c.rt.StopContainer(c.ctx, &cri.StopContainerRequest{ContainerId: fs.Arg(0), Timeout: *seconds})
	return err
}

func (c *client) removeContainer(args []string) error {
	id, err := one(args)
	if err == nil {
		_, err = c.rt.RemoveContainer(c.ctx, &cri.RemoveContainerRequest{ContainerId: id})
	}
	return err
}

func (c *client) inspectContainer(args []string) error {
	id, err := one(args)
	if err != nil {
		return err
	}
	r, err := c.rt.ContainerStatus(c.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return err
	}
	dump(r.Status)
	fmt.Println(r.Info["info"])
	return nil
}

func (c *client) containerPID(args []string) error {
	id, err := one(args)
	if err != nil {
		return err
	}
	r, err := c.rt.ContainerStatus(c.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return err
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil {
		return err
	}
	fmt.Println(info.PID)
	return nil
}

func (c *client) exec(args []string) error {
	fs := flag.NewFlagSet("exec", flag.ExitOnError)
	seconds := fs.Int64("t", 30, "seconds")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() < 2 {
		return fmt.Errorf("exec: a container and a command are wanted")
	}
	r, err := c.rt.ExecSync(c.ctx, &cri.ExecSyncRequest{ContainerId: fs.Arg(0), Cmd: fs.Args()[1:], Timeout: *seconds})
	if err != nil {
		return err
	}
	os.Stdout.Write(r.Stdout)
	os.Stderr.Write(r.Stderr)
	if r.ExitCode != 0 {
		return exitCode(r.ExitCode)
	}
	return nil
}

func (c *client) updateContainer(args []string) error {
	fs := flag.NewFlagSet("update", flag.ExitOnError)
	shares, quota, memory := fs.Int64("shares", 0, ""), fs.Int64("quota", 0, ""), fs.Int64("mem", 0, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	_, err := c.rt.UpdateContainerResources(c.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: fs.Arg(0),
		Linux: &cri.LinuxContainerResources{CpuShares: *shares, CpuQuota: *quota, CpuPeriod: 100000, MemoryLimitInBytes: *memory}})
	return err
}
