package sim

// Task is one thread as a TaskSource sees it. TID and Start together name it:
// a TID that is there with another Start is another task.
type Task struct {
	TID, TGID int
	PPID      int    // of the process
	Creator   int    // TID that cloned it, where the source knows; 0: it does not
	Start     uint64 // any number that a later task with this TID does not have
	UID       uint32 // its owner; only Task fills it
	Zombie    bool
}

// TaskSource says which tasks there are. The scripted one and the one that
// reads /proc implement it.
type TaskSource interface {
	// Processes lists the thread group leaders.
	Processes() ([]Task, error)
	// Threads lists all tasks of one process, its leader among them; none
	// where the process is gone.
	Threads(tgid int) ([]Task, error)
	// Task finds one task by its TID, be it a leader or not.
	Task(tid int) (Task, bool)
}

// Notifier is a TaskSource that tells of every change when it happens. With it
// membership is inherited at the very fork, as in the kernel.
type Notifier interface {
	Notify(changed func())
}
