// Package sim is a simulator of the kernel's resctrl filesystem (Linux 6.12, or
// 6.1): one model with two faces. memfs serves lib/resctrl in memory, without a
// mount; fusemount serves unchanged programs, with real processes, through a
// FUSE mount that also has a cgroup tree and the little of proc(5) that the
// programs read; simnode is that mount as a process. memcgroup stands in for
// lib/cgroup in memory.
//
// What the model does is what tests/kernel finds on a real kernel: the same
// cases run on both faces and there, and what differs stands there in one list.
//
// # Where membership comes from
//
// In the kernel a task's group is in its task_struct, and a fork copies it. A
// filesystem sees writes to tasks, but no fork. So the model asks a TaskSource
// whenever it needs to know who is where, and lets tasks that it did not know
// inherit at that moment: a thread from its leader, a process from its parent.
// It asks before it applies a write, so that whatever existed before a move
// does not follow it, and forgets tasks that ended (a TID with another start
// time is another task).
//
// With Script, which tells each fork as it happens and by which task, that is
// exactly the kernel's rule. With real processes (ProcSource) one program was
// run on the simulator and on 6.12; it saw:
//
//	                                              kernel       simulator
//	child forked before its leader moved          as before    as before
//	child forked after its leader moved           new group    new group
//	child of a thread, itself not moved           thread's     leader's
//	child of a thread that moved elsewhere        thread's     leader's
//	grandchild whose parent ended at once         inherited    default group
//
// /proc names a process's parent and not the thread that forked it, and an
// orphan's parent is whoever adopted it. A container's first process that
// should keep its orphans must be a subreaper (PR_SET_CHILD_SUBREAPER); then
// they inherit from it. Programs that assign all tasks of a cgroup meet both as
// strays, which their next sweep repairs, as on a real node.
//
// This is why programs on the simulator read membership from its own tasks
// files (or from fusemount's proc/): the host's /proc/<tid>/cpu_resctrl_groups
// exists on common kernels, and says "default group" of every task there.
//
// ProcSource holds the tracked processes and their descendants to be all tasks
// of the node: those that were put into a cgroup or written to a tasks file.
package sim
