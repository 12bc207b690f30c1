package rules

// Hands carry out what the rules decide and report what came of it. Their
// methods do not fail: a failure is an outcome with a Reason.
type Hands interface {
	// FindGroup says where the pod's group is, if it is anywhere: at
	// pod.GroupPath, or under another control group.
	FindGroup(pod Pod) (path string, found bool)
	// MakeGroup makes the pod's group; one that is there already is used.
	MakeGroup(pod Pod) GroupOutcome
	// MoveGroup moves the pod's group to the control group named; "" is the
	// root's.
	MoveGroup(pod Pod, controlGroup string) GroupOutcome
	// RemoveGroup removes the pod's group; an absent one is removed.
	RemoveGroup(pod Pod) GroupOutcome
	// Assign moves every task of the container's cgroup into the pod's group.
	Assign(pod Pod, c Container) AssignOutcome
}

// GroupOutcome is what came of a change to a pod's group.
type GroupOutcome struct {
	Path    string // where the group is now, or is to be made
	Gone    bool   // of a failed move: the group was removed for it, and not made again
	Created bool   // it was not there before
	Reason  Reason // "" is success
	Err     string // what failed, for a person
}

// AssignOutcome is what came of an assignment.
type AssignOutcome struct {
	Tasks   int            // seen in the container's cgroup and below
	InGroup int            // of these, in the pod's group at the end
	Foreign map[string]int // of these, by the other control group that holds them; "" is the root's
	// CgroupPath is where the container's cgroup was found, if that is not where
	// it was said to be; else "".
	CgroupPath string
	GroupGone  bool   // the group itself was not there
	Reason     Reason // why nothing could be done; "" is none
	Err        string // what failed, for a person
}
