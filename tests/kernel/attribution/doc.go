// Package attribution is a node with the kernel's own resctrl, for tests that run
// inside a small guest (make test-kernel): the real applier on its pipe, records
// from a test in the role of nri-watcher, and real processes in real cgroups.
// What the programs did is judged from outside, by /proc, resctrl, the event log
// and the state's file.
package attribution
