package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// Node is this node as the configuration describes it: the parts of an Engine.
type Node struct {
	Resctrl *resctrl.FS
	Locks   *lock.Locks
	cfg     *config.Config
	log     *slog.Logger
}

// NewNode gives the node's parts. Nothing is opened yet.
func NewNode(cfg *config.Config, log *slog.Logger) *Node {
	return &Node{
		Resctrl: resctrl.New(resctrl.Options{
			Root: cfg.Resctrl.Root, Prefix: cfg.Resctrl.GroupPrefix, Simulated: cfg.Resctrl.Simulated,
			ProcRoot: cfg.Proc.Root, Logger: log,
		}),
		Locks: lock.New(filepath.Dir(cfg.Pipe.Path)),
		cfg:   cfg,
		log:   log,
	}
}

// Applier opens the state and gives the applier's engine.
func (n *Node) Applier(ctx context.Context) (*Engine, error) {
	return n.engine(ctx, SourceApplier)
}

// Job opens the state and gives the retry job's engine.
func (n *Node) Job(ctx context.Context) (*Engine, error) {
	return n.engine(ctx, SourceRetry)
}

func (n *Node) engine(ctx context.Context, source string) (*Engine, error) {
	boot, err := n.bootID()
	if err != nil {
		return nil, err
	}
	name := n.cfg.Events.Node
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("name of this host: %w (set events.node)", err)
		}
	}
	return New(ctx, Options{
		Resctrl: n.Resctrl,
		Cgroups: cgroup.New(n.cfg.Cgroup.Root, n.cfg.Proc.Root),
		Locks:   n.Locks,
		OpenState: func() (*state.Store, Exporter, error) {
			s, err := state.Open(n.cfg.State.Path, state.Options{Group: n.cfg.State.Group, Node: name, Logger: n.log, SkipCheck: source == SourceRetry})
			if err != nil {
				return nil, nil, fmt.Errorf("open state: %w", err)
			}
			return s, outbox.New(n.cfg.Events.Path, s, outbox.Options{
				Fsync: n.cfg.Events.Fsync, LogID: s.LogID(), Group: n.cfg.State.Group, Logger: n.log,
			}), nil
		},
		Patient:  source == SourceApplier,
		Naming:   rules.Naming{Root: n.cfg.Resctrl.Root, Prefix: n.cfg.Resctrl.GroupPrefix},
		Source:   source,
		Logger:   n.log,
		Now:      time.Now,
		BootID:   boot,
		BootTime: bootTime,
	})
}

// bootID names this boot (proc(5), /proc/sys/kernel/random/boot_id).
func (n *Node) bootID() (string, error) {
	b, err := os.ReadFile(filepath.Join(n.cfg.Proc.Root, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read this boot's id: %w (is proc.root a procfs?)", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// bootTime is the boot-time clock: it goes on while the machine sleeps, and
// nobody sets it (clock_gettime(2), CLOCK_BOOTTIME).
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // Linux has had it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
