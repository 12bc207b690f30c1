package pipeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// hellos reads the acknowledgements in the watcher's place.
type hellos struct {
	n     *node
	file  *os.File
	lines *bufio.Reader
}

func (n *node) hear() *hellos {
	n.t.Helper()
	if err := syscall.Mkfifo(n.AckPipe(), 0o600); err != nil {
		n.t.Fatal(err)
	}
	f, err := os.OpenFile(n.AckPipe(), os.O_RDWR|syscall.O_NONBLOCK, 0)
	n.must(err)
	n.t.Cleanup(func() { f.Close() })
	return &hellos{n: n, file: f, lines: bufio.NewReader(f)}
}

// next is the next hello that is not the one given.
func (h *hellos) next(but string) string {
	h.n.t.Helper()
	h.n.must(h.file.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		line, err := h.lines.ReadString('\n')
		h.n.must(err)
		var hello struct{ Hello string }
		h.n.must(json.Unmarshal([]byte(line), &hello))
		if hello.Hello != "" && hello.Hello != but {
			return hello.Hello
		}
	}
}

// TestAnswerLost: the test is the watcher. A begin that arrives broken answers
// nothing, and a watcher that believes to have answered is asked anew. A
// snapshot that is cut off changes nothing.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pipe, replies := n.hold(), n.hear()
	_, err := n.Runtime.RunPod("pod", "ns", "real", nrirt.PodOptions{ID: "box"}) // its cgroup
	n.must(err)
	n.startApplier()
	snapshot := func(epoch, hello, pod string) string {
		const head = `{"v":1,"epoch":"%[1]s","seq":%[2]d,"time":"2026-01-01T00:00:00Z","event":"SYNCHRONIZE",`
		return fmt.Sprintf("\n"+head+`"phase":"begin","hello":"%[3]s","runtime":"test"}`+"\n", epoch, 1, hello) +
			fmt.Sprintf(head+`"pod":{"id":"box","uid":"%[3]s","name":"p","namespace":"ns","cgroup_parent":"/kubepods/burstable/podreal"}}`+"\n", epoch, 2, pod) +
			fmt.Sprintf(head+`"phase":"end","pods":1,"containers":0}`+"\n", epoch, 3)
	}
	first := replies.next("")
	n.put(pipe, "\nxxxx"+strings.TrimPrefix(snapshot("e1", first, "ghost"), "\n"))
	second := replies.next(first)
	n.put(pipe, snapshot("e2", first, "ghost")) // too late for that one
	whole := snapshot("e3", second, "ghost")
	n.put(pipe, whole[:strings.LastIndex(strings.TrimRight(whole, "\n"), "\n")+20]+"\n") // cut off
	n.put(pipe, snapshot("e4", replies.next(second), "real"))
	n.history("real", "Exists 0/0")
	n.nothingOf("ghost")
	n.must(n.Settled())
}
