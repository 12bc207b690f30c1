// Package lifecycle is the wire between nri-watcher and resctrl-applier: the
// lifecycle records that go one way and the hellos and acknowledgements that
// come back, each one JSON object a line.
package lifecycle

import "time"

// Version is the version of the record format.
const Version = 1

// MaxLine is the longest line of the pipe, its newline included, in bytes.
const MaxLine = 1 << 20

// Event names what happened: the NRI event's own name, or one of ours.
type Event string

// Events of our own.
const (
	// Synchronize marks the records of a snapshot (NRI Synchronize).
	Synchronize Event = "SYNCHRONIZE"
	// Heartbeat carries the watcher's health; it stands outside the sequence.
	Heartbeat Event = "HEARTBEAT"
	// RuntimeLost says that the connection to the runtime ended; it stands
	// outside the sequence and changes no pod.
	RuntimeLost Event = "RUNTIME_LOST"
)

// Events of NRI.
const (
	RunPodSandbox       Event = "RUN_POD_SANDBOX"
	StopPodSandbox      Event = "STOP_POD_SANDBOX"
	RemovePodSandbox    Event = "REMOVE_POD_SANDBOX"
	PostCreateContainer Event = "POST_CREATE_CONTAINER"
	StartContainer      Event = "START_CONTAINER"
	PostStartContainer  Event = "POST_START_CONTAINER"
	PostUpdateContainer Event = "POST_UPDATE_CONTAINER"
	StopContainer       Event = "STOP_CONTAINER"
	RemoveContainer     Event = "REMOVE_CONTAINER"
)

// Phases of a SYNCHRONIZE: the first record of an epoch has PhaseBegin, the
// last record of its snapshot PhaseEnd, the pods and containers between none.
const (
	PhaseBegin = "begin"
	PhaseEnd   = "end"
)

// Record is one line of the pipe.
type Record struct {
	V     int       `json:"v"`
	Epoch string    `json:"epoch"`
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	Event Event     `json:"event"`

	// Of a SYNCHRONIZE.
	Phase          string `json:"phase,omitempty"`
	Hello          string `json:"hello,omitempty"` // begin: the newest hello that the watcher has read
	Runtime        string `json:"runtime,omitempty"`
	RuntimeVersion string `json:"runtime_version,omitempty"`
	Node           string `json:"node,omitempty"`
	Pods           *int   `json:"pods,omitempty"`       // end: how many pod records the snapshot had
	Containers     *int   `json:"containers,omitempty"` // end: how many container records it had

	Pod       *Pod       `json:"pod,omitempty"`
	Container *Container `json:"container,omitempty"`

	// Of a HEARTBEAT (a RUNTIME_LOST has RuntimeState too).
	RuntimeState  string  `json:"runtime_state,omitempty"` // "connected", "disconnected"
	QueueDropped  *uint64 `json:"queue_dropped,omitempty"`
	BarrierHits   *uint64 `json:"barrier_hits,omitempty"`
	BarrierMisses *uint64 `json:"barrier_misses,omitempty"`
	BarrierSkips  *uint64 `json:"barrier_skips,omitempty"`
}

// Pod is what the pipe tells of a pod sandbox.
type Pod struct {
	ID             string `json:"id"`  // sandbox id
	UID            string `json:"uid"` // the sandbox id where the runtime gave none
	Name           string `json:"name"`
	Namespace      string `json:"namespace"`
	CgroupParent   string `json:"cgroup_parent"`
	RuntimeHandler string `json:"runtime_handler"`
	PID            int    `json:"pid"` // of the pause process; 0 where unknown
}

// Container is what the pipe tells of a container. It has no environment,
// arguments, mounts, labels or annotations: they hold secrets.
type Container struct {
	ID           string         `json:"id"`
	PodSandboxID string         `json:"pod_sandbox_id"`
	Name         string         `json:"name"`
	State        ContainerState `json:"state"`
	PID          int            `json:"pid"` // of its first process; 0 where there is none or it is unknown
	CgroupsPath  string         `json:"cgroups_path"`
}

// ContainerState is the runtime's word on a container (NRI ContainerState,
// without its prefix).
type ContainerState string

// Container states.
const (
	ContainerUnknown ContainerState = "UNKNOWN"
	ContainerCreated ContainerState = "CREATED"
	ContainerRunning ContainerState = "RUNNING"
	ContainerPaused  ContainerState = "PAUSED"
	ContainerStopped ContainerState = "STOPPED"
)

// Hello asks the watcher for a new epoch; the id is of one wish.
type Hello struct {
	Hello string `json:"hello"`
}

// Ack says that everything up to Seq of Epoch was attempted on resctrl.
type Ack struct {
	Epoch string `json:"epoch"`
	Seq   uint64 `json:"seq"`
}
