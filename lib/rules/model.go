// Package rules decides what a lifecycle record, a snapshot or a retry does to
// a pod: which group is made, which container is assigned, how the counters
// move, which events are told. It does no I/O: what must be done goes through
// Hands, and the same code serves applier, retry job and tests.
package rules

import "time"

// GroupState says whether a pod has its group.
type GroupState string

// Group states.
const (
	GroupExists GroupState = "Exists"
	GroupFailed GroupState = "Failed"
)

// Reason says why a group is Failed or a container Partial; "" is none.
type Reason string

// Reasons. The first five are of groups, and of the containers of a Failed
// pod; the others are of containers alone.
const (
	ReasonCapacity    Reason = "capacity"    // ENOSPC, EBUSY: no RMID is free
	ReasonNotMounted  Reason = "not_mounted" // no resctrl at its root
	ReasonUnsupported Reason = "unsupported" // no mon_groups: a CPU without monitoring
	ReasonPermission  Reason = "permission"
	ReasonIO          Reason = "io"

	ReasonCreating          Reason = "creating"            // the group's mkdir is about to happen
	ReasonNoTasks           Reason = "no_tasks"            // started, but no task was found
	ReasonOtherControlGroup Reason = "other_control_group" // tasks in a control group that is not the pod's
	ReasonUnstable          Reason = "unstable"            // new tasks kept coming
	ReasonExited            Reason = "exited"              // of a NoPod container: it ended before its pod was seen
)

// Pod is a pod as the state knows it. Its key is UID.
type Pod struct {
	UID        string
	Namespace  string
	Name       string
	GroupState GroupState
	GroupPath  string // where the group is, or where it is to be made
	Reason     Reason // of a Failed group
	LastError  string // of a Failed group: what failed, with the kernel's own words
	Removing   bool   // ended; its group could not be removed yet
	// Counters as last told; always those of the containers.
	Total      int
	Reconciled int

	FailedSince  time.Time     // zero: not failed
	Attempts     int           // group creations tried since FailedSince
	MissingSince time.Duration // boot-time clock at which the pod was first found gone; 0: it was not
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// SandboxState is the last thing that events said of a sandbox.
type SandboxState string

// Sandbox states.
const (
	SandboxReady   SandboxState = "Ready"
	SandboxStopped SandboxState = "Stopped"
)

// Sandbox is one pod sandbox; a pod may have several for a while.
type Sandbox struct {
	ID           string
	PodUID       string
	State        SandboxState
	CgroupParent string // as the runtime named it; may be empty
	CreatedAt    time.Time
}

// ContainerState says how far a container is.
type ContainerState string

// Container states.
const (
	ContainerNoPod      ContainerState = "NoPod"      // its pod was not seen yet
	ContainerCreated    ContainerState = "Created"    // no process yet
	ContainerPartial    ContainerState = "Partial"    // not all of its tasks are in the group
	ContainerReconciled ContainerState = "Reconciled" // all of its tasks are in the group
	ContainerExited     ContainerState = "Exited"
)

// Container is a container as the state knows it.
type Container struct {
	ID         string
	SandboxID  string
	PodUID     string // "" while NoPod
	Name       string
	State      ContainerState
	Reason     Reason
	Counted    bool   // counts in the pod's Reconciled (an exited one stays as it was)
	CgroupPath string // below the cgroup root, "/…"; until it was found, as the runtime names it
	Tasks      int    // seen by the last assignment
	Attempts   int    // assignments tried without success
	LastError  string
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// PodState is everything that is known of one pod.
type PodState struct {
	Pod        Pod
	Sandboxes  []Sandbox   // ordered by CreatedAt, then ID
	Containers []Container // ordered by CreatedAt, then ID
}

// EventType is the type of an event for consumers.
type EventType string

// Event types.
const (
	AddOrUpdate EventType = "AddOrUpdate"
	Removed     EventType = "Removed"
)

// Event is one change told to consumers. Its log id, sequence number, node and
// source are added where it is stored.
type Event struct {
	Time       time.Time
	Type       EventType
	PodUID     string
	Namespace  string
	Name       string
	GroupState GroupState // "" in Removed
	GroupPath  string     // only of Exists
	Reason     Reason     // only of Failed
	Total      int
	Reconciled int
}
