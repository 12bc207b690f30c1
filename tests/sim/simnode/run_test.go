package simnode_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/tests/sim/simnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is Run with its two pipes.
type process struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Scanner
	done chan error
	stop context.CancelFunc
}

func start(t *testing.T, args ...string) (*process, simnode.Ready) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "node")
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	p := &process{t: t, in: inW, out: bufio.NewScanner(outR), done: make(chan error, 1), stop: stop}
	go func() {
		p.done <- simnode.Run(ctx, append([]string{"-dir", dir}, args...), inR, outW)
		outW.Close()
		inR.Close()
	}()
	t.Cleanup(func() {
		stop()
		inW.Close()
		outR.Close()
	})
	var ready simnode.Ready
	p.scan(&ready)
	if !ready.Ready {
		t.Fatalf("not ready: %+v", ready)
	}
	return p, ready
}

func (p *process) scan(v any) {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("simnode ended: %v", <-p.done)
	}
	if err := json.Unmarshal(p.out.Bytes(), v); err != nil {
		p.t.Fatalf("%s: %v", p.out.Bytes(), err)
	}
}

func (p *process) do(line string) simnode.Reply {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
	var r simnode.Reply
	p.scan(&r)
	return r
}

func (p *process) must(line string) {
	p.t.Helper()
	if r := p.do(line); !r.OK {
		p.t.Fatalf("%s: %+v", line, r)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	p, node := start(t, "-num-rmids", "2", "-limbo", "0s")
	group := func(name string) string { return filepath.Join(node.Resctrl, "mon_groups", name) }
	mkdir := func(name string, want error) {
		t.Helper()
		err := os.Mkdir(group(name), 0o755)
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Fatalf("mkdir %s: %v, want %v", name, err, want)
		}
	}
	mkdir("a", nil)
	mkdir("b", syscall.ENOSPC)
	p.must(`{"cmd":"num_rmids","n":3}`)
	mkdir("b", nil)
	p.must(`{"cmd":"limbo","duration":"1h"}`)
	if err := os.Remove(group("a")); err != nil {
		t.Fatal(err)
	}
	if r := p.do(`{"cmd":"rmids"}`); r.Used != 2 || r.Limbo != 1 || r.Free != 0 {
		t.Fatalf("%+v", r)
	}
	mkdir("a", syscall.EBUSY)
	p.must(`{"cmd":"fault","op":"mkdir","errno":"EROFS","times":1}`)
	mkdir("a", syscall.EROFS)
	mkdir("a", syscall.EBUSY)
	p.must(`{"cmd":"unmount"}`)
	mkdir("a", syscall.ENOENT)
	p.must(`{"cmd":"mount"}`)
	p.must(`{"cmd":"add_cgroup","path":"/kubepods/pod1"}`)
	if _, err := os.Stat(filepath.Join(node.Cgroup, "kubepods/pod1/cgroup.threads")); err != nil {
		t.Fatal(err)
	}
	p.must(`{"cmd":"reboot","id":"second"}`)
	mkdir("a", nil)
	if data, _ := os.ReadFile(filepath.Join(node.Proc, "sys/kernel/random/boot_id")); string(data) != "second\n" {
		t.Fatalf("boot_id is %q", data)
	}
	if _, err := os.Stat(filepath.Join(node.Cgroup, "kubepods")); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("cgroup after the reboot: %v", err)
	}
	for _, bad := range []string{`{"cmd":"what"}`, `{`, `{"cmd":"num_rmids"}`, `{"cmd":"fault","op":"mkdir","errno":"EWHAT"}`} {
		if r := p.do(bad); r.OK || r.Error == "" {
			t.Fatalf("%s: %+v", bad, r)
		}
	}
	p.in.Close()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(node.Resctrl); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("still mounted: %v", err)
	}
}

func TestEndsWhenTold(t *testing.T) {
	t.Parallel()
	p, node := start(t)
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(node.Resctrl); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("still mounted: %v", err)
	}
}
