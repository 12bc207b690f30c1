package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

// launch starts a watcher as a runtime does that launches its plugins, and
// gives the runtime's end of the connection. It sets the environment, so its
// tests are not parallel.
func launch(t *testing.T, b *bench) (net.Conn, <-chan error) {
	t.Helper()
	t.Setenv(api.PluginNameEnvVar, "resctrl")
	t.Setenv(api.PluginIdxEnvVar, "10")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours := os.NewFile(uintptr(pair[0]), "runtime")
	conn, err := net.FileConn(ours)
	must(t, err)
	ours.Close()
	t.Cleanup(func() { conn.Close() })

	b.opts.LaunchedFD, b.opts.LaunchedName = pair[1], "10-resctrl.conf"
	b.opts.NewLogger = func(config.Log) (*slog.Logger, error) { return b.opts.Logger, nil }
	done := make(chan error, 1)
	go func() { done <- New(b.opts).Run(t.Context()) }()
	return conn, done
}

// runtimeEnd serves the runtime's end of a connection: it waits for the
// registration and gives a client for the plugin's services.
func runtimeEnd(t *testing.T, conn net.Conn) api.PluginService {
	t.Helper()
	mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	t.Cleanup(func() { mux.Close() })
	l, err := mux.Listen(multiplex.RuntimeServiceConn)
	must(t, err)
	s, err := ttrpc.NewServer()
	must(t, err)
	t.Cleanup(func() { s.Close() })
	m := &mute{registered: make(chan struct{}, 1)}
	api.RegisterRuntimeService(s, m)
	go s.Serve(context.Background(), l)
	other, err := mux.Open(multiplex.PluginServiceConn)
	must(t, err)
	client := ttrpc.NewClient(other)
	t.Cleanup(func() { client.Close() })
	mux.Unblock()
	<-m.registered
	return api.NewPluginClient(client)
}

func exitCode(err error) int {
	if c, ok := err.(interface{ ExitCode() int }); ok {
		return c.ExitCode()
	}
	return -1
}

func TestLaunchedEndsWithTheRuntime(t *testing.T) {
	b := newBench(t)
	conn, done := launch(t, b)
	plugin := runtimeEnd(t, conn)
	text := fmt.Sprintf("[watcher]\nnamespaces = [\"only\"]\n[pipe]\npath = %q\nack_path = %q\n", b.opts.Config.Pipe.Path, b.opts.Config.Pipe.AckPath)
	_, err := plugin.Configure(t.Context(), &api.ConfigureRequest{Config: text, RuntimeName: "containerd", RuntimeVersion: "v2", NRIVersion: "v0.12.5"})
	must(t, err)
	_, err = plugin.Synchronize(t.Context(), &api.SynchronizeRequest{Pods: []*api.PodSandbox{
		{Id: "s1", Uid: "u1", Name: "in", Namespace: "only"}, {Id: "s2", Uid: "u2", Name: "out", Namespace: "other"}}})
	must(t, err)
	if s := b.out.snapshot(t); len(s.pods) != 1 || s.pods["in"].ID != "s1" {
		t.Errorf("the configuration given in Configure does not hold: %+v", s.pods)
	}
	conn.Close()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestLaunchedNeverSynchronized(t *testing.T) {
	b := newBench(t)
	conn, done := launch(t, b)
	runtimeEnd(t, conn)
	conn.Close()
	if err := <-done; exitCode(err) != 69 {
		t.Errorf("it ended with %v", err)
	}
}

func TestLaunchedWithBadConfiguration(t *testing.T) {
	b := newBench(t)
	conn, done := launch(t, b)
	plugin := runtimeEnd(t, conn)
	// The plugin's answer is no error; it may be gone before it has answered.
	if _, err := plugin.Configure(t.Context(), &api.ConfigureRequest{Config: "[watcher]\nqueue_size = \"many\"\n", NRIVersion: "v0.12.5"}); err != nil && strings.Contains(err.Error(), "queue_size") {
		t.Errorf("the runtime was given the error %v", err)
	}
	err := <-done
	if exitCode(err) != 78 || !strings.Contains(err.Error(), "10-resctrl.conf:2: watcher.queue_size") {
		t.Errorf("it ended with %v", err)
	}
}
