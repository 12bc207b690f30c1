//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// fields are those of a JSON object of the pipe.
type fields = map[string]any

// wire writes the records of one epoch.
type wire struct {
	epoch string
	seq   int
	b     strings.Builder
}

// put adds a record of the epoch.
func (w *wire) put(event string, more fields) {
	w.seq++
	rec := fields{"v": 1, "epoch": w.epoch, "seq": w.seq, "time": "2026-01-01T00:00:00Z", "event": event}
	maps.Copy(rec, more)
	line, err := json.Marshal(rec)
	if err != nil {
		panic(err) // maps of strings and numbers always marshal
	}
	w.b.Write(append(line, '\n'))
}

// snapshot begins the epoch; hello may be empty.
func (w *wire) snapshot(hello string, pods, containers []fields) {
	w.b.WriteString("\n")
	w.put("SYNCHRONIZE", fields{"phase": "begin", "hello": hello, "runtime": "test", "runtime_version": "1"})
	for _, p := range pods {
		w.put("SYNCHRONIZE", fields{"pod": p})
	}
	for _, c := range containers {
		w.put("SYNCHRONIZE", fields{"container": c})
	}
	w.put("SYNCHRONIZE", fields{"phase": "end", "pods": len(pods), "containers": len(containers)})
}

func (w *wire) String() string { return w.b.String() }

// podFields is a pod as the pipe tells it.
func podFields(id, uid string) fields {
	return fields{"id": id, "uid": uid, "name": "pod-" + uid, "namespace": "ns",
		"cgroup_parent": "/kubepods/burstable/pod" + uid, "runtime_handler": "", "pid": 0}
}

// containerFields is a container as the pipe tells it.
func containerFields(id, sandbox, state string, pid int, cgroup string) fields {
	return fields{"id": id, "pod_sandbox_id": sandbox, "name": id, "state": state, "pid": pid, "cgroups_path": cgroup}
}

func epochName(n int) string { return fmt.Sprintf("epoch-%d", n) }
