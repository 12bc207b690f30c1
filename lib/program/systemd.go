package program

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Systemd tells the service manager how a daemon fares (sd_notify(3)). Without
// a service manager every call does nothing.
type Systemd struct {
	log *slog.Logger
}

// NewSystemd gives the service manager's notifier; failures to notify are
// logged at debug level, they change nothing for the daemon.
func NewSystemd(log *slog.Logger) *Systemd { return &Systemd{log: log} }

// Ready says that the daemon runs; status is one line for people.
func (s *Systemd) Ready(status string) { s.send(daemon.SdNotifyReady + "\nSTATUS=" + status) }

// Status changes the one line for people.
func (s *Systemd) Status(status string) { s.send("STATUS=" + status) }

// Stopping says that the daemon is ending.
func (s *Systemd) Stopping() { s.send(daemon.SdNotifyStopping) }

// Watchdog pings the service manager at half of its WatchdogSec for as long as
// alive says so, until ctx ends. It just waits where no watchdog is asked for.
func (s *Systemd) Watchdog(ctx context.Context, alive func() bool) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		if err != nil {
			s.log.Warn("the service manager's watchdog setting is not understood", "error", err)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		if alive() {
			s.send(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Systemd) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Debug("the service manager could not be notified", "error", err)
	}
}
