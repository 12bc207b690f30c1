package kernel_test

// difference is a case in which a face cannot do what the kernel does. The
// list is reviewed: a case that no longer differs fails until it is taken out.
type difference struct {
	name string // of the case
	face string
	envs []string // of simEnvs; none means all
	why  string
}

var differences = []difference{
	{
		name: "a child inherits from the thread that forks", face: "fuse",
		why: "a FUSE server sees no fork, and /proc names the parent process, not the thread: the child inherits from the leader",
	},
	{
		name: "an orphan has inherited", face: "fuse",
		why: "its parent, by /proc, is who adopted it, and that is no process of the simulated node; one that must keep its orphans is a subreaper (the next case)",
	},
	{
		name: "ids are those of the PID namespace", face: "fuse",
		why: "a FUSE server sees what was written, not from which PID namespace: all ids are the host's",
	},
	{
		name: "an empty write", face: "fuse", envs: []string{"6.1"},
		why: "the kernel does not pass a write of no bytes to a FUSE server, so it succeeds; on resctrl of 6.1 it is EINVAL",
	},
}

func differs(name string, e env) (why string, yes bool) {
	for _, d := range differences {
		if d.name != name || d.face != e.face {
			continue
		}
		if len(d.envs) == 0 {
			return d.why, true
		}
		for _, only := range d.envs {
			if only == e.name {
				return d.why, true
			}
		}
	}
	return "", false
}
