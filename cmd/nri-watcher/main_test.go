package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/lib/fifo"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/watcher"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// binary is the program itself, built once.
var binary string

func TestMain(m *testing.M) {
	nrirt.SilenceNRI()
	dir, err := os.MkdirTemp("", "nri-watcher")
	if err == nil {
		binary = filepath.Join(dir, "nri-watcher")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

const patience = 30 * time.Second

// place is a directory with a configuration that uses nothing outside it.
type place struct {
	dir, socket, pipe, acks, config string
}

func newPlace(t *testing.T) place {
	t.Helper()
	dir, err := os.MkdirTemp("", "nriw") // a socket's path is at most 107 bytes
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := place{dir: dir, socket: dir + "/nri.sock", pipe: dir + "/run/lifecycle.pipe", acks: dir + "/run/ack.pipe", config: dir + "/config.toml"}
	must(t, os.WriteFile(p.config, []byte(p.text()), 0o600))
	return p
}

func (p place) text() string {
	return fmt.Sprintf("[watcher]\nnri_socket = %q\nreconnect_backoff_max = \"1s\"\nheartbeat = \"1s\"\n[pipe]\npath = %q\nack_path = %q\n", p.socket, p.pipe, p.acks)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running is the program as a process.
type running struct {
	*exec.Cmd
	out    *bufio.Reader
	errOut bytes.Buffer
	wait   func() error
}

// start starts the program; it is killed at the end of the test at the latest.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(binary, args...)}
	out, err := r.StdoutPipe()
	must(t, err)
	r.out = bufio.NewReader(out)
	r.Stderr = &r.errOut
	must(t, r.Start())
	r.wait = sync.OnceValue(r.Wait)
	t.Cleanup(func() { r.Process.Kill(); r.wait() })
	return r
}

// record reads standard output up to a record of the event.
func (r *running) record(t *testing.T, event lifecycle.Event) *lifecycle.Record {
	t.Helper()
	for {
		line, err := r.out.ReadBytes('\n')
		must(t, err)
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		rec, err := lifecycle.Decode(line)
		must(t, err)
		if rec.Event == event {
			return rec
		}
	}
}

func newRuntime(t *testing.T, opts nrirt.Options) *nrirt.Runtime {
	t.Helper()
	r, err := nrirt.New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func TestStdout(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := newRuntime(t, nrirt.Options{SocketPath: p.socket})
	w := start(t, "--config", p.config, "--stdout")
	w.record(t, lifecycle.Synchronize)
	_, err := r.RunPod("web", "ns", "u1", nrirt.PodOptions{})
	must(t, err)
	if rec := w.record(t, lifecycle.RunPodSandbox); rec.Pod.UID != "u1" {
		t.Errorf("%+v", rec.Pod)
	}
	must(t, w.Process.Signal(syscall.SIGTERM))
	if err := w.wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, w.errOut.String())
	}
	if _, err := os.Stat(filepath.Dir(p.pipe)); err == nil {
		t.Error("--stdout has made the pipe's directory")
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bad := filepath.Join(p.dir, "bad.toml")
	must(t, os.WriteFile(bad, []byte("[watcher]\nqueue_size = 0\n"), 0o600))
	first := start(t, "--config", p.config)
	lock := filepath.Join(filepath.Dir(p.pipe), watcher.InstanceLock+".lock")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, nrirt.WaitFor(ctx, "the first watcher runs", func() bool { text, _ := os.ReadFile(lock); return len(text) > 0 }))

	tests := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--config", p.config, "--check-config"}, 0, ""},
		{[]string{"--config", bad, "--check-config"}, 78, bad + ":2: watcher.queue_size"},
		{[]string{"--config", bad}, 78, bad + ":2: watcher.queue_size"},
		{[]string{"--config", p.config}, 69, fmt.Sprintf("%s is held by process %d", lock, first.Process.Pid)},
		{[]string{"--config", p.config, "word"}, 64, `unexpected argument "word"`},
	}
	for _, tt := range tests {
		w := start(t, tt.args...)
		err := w.wait()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if code != tt.code || !strings.Contains(w.errOut.String(), tt.says) {
			t.Errorf("%v: exit code %d, want %d\n%s", tt.args, code, tt.code, w.errOut.String())
		}
	}
	must(t, first.Process.Signal(syscall.SIGINT))
	if err := first.wait(); err != nil {
		t.Errorf("after SIGINT: %v\n%s", err, first.errOut.String())
	}
}

// TestLaunchedByTheRuntime has the runtime launch the program as a plugin.
func TestLaunchedByTheRuntime(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	plugins, conf := p.dir+"/plugins", p.dir+"/conf.d"
	must(t, os.Mkdir(plugins, 0o700))
	must(t, os.Mkdir(conf, 0o700))
	must(t, os.Symlink(binary, plugins+"/10-resctrl"))
	must(t, os.WriteFile(conf+"/10-resctrl.conf", []byte(p.text()+"[events]\nnode = \"launched\"\n"), 0o600))
	r := newRuntime(t, nrirt.Options{SocketPath: p.socket, PluginDir: plugins, PluginConfigDir: conf})
	_, err := r.RunPod("web", "ns", "u1", nrirt.PodOptions{})
	must(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, fifo.Ensure(filepath.Dir(p.pipe), p.pipe))
	in, err := fifo.OpenReader(p.pipe)
	must(t, err)
	defer in.Close()
	var out *fifo.Writer
	must(t, nrirt.WaitFor(ctx, "acknowledgements are read", func() bool { out, err = fifo.OpenWriter(p.acks); return err == nil }))
	defer out.Close()
	must(t, out.WriteLine(ctx, []byte(`{"hello":"h1"}`+"\n")))
	var node string
	for {
		line, err := in.ReadLine(ctx)
		must(t, err)
		var rec lifecycle.Record
		if len(line) == 0 || json.Unmarshal(line, &rec) != nil || rec.Event == lifecycle.Heartbeat {
			continue
		}
		if rec.Phase == lifecycle.PhaseBegin {
			node = rec.Node
		}
		if rec.Pod != nil && node == "launched" {
			if rec.Pod.UID != "u1" {
				t.Errorf("%+v", rec.Pod)
			}
			break
		}
	}
	if r.Connections() != 0 {
		t.Error("it has connected to the socket beside the connection that it was given")
	}
}
