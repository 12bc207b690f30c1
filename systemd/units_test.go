package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bin is where the programs are installed.
const bin = "/usr/local/bin/"

// unit is a unit's settings by "Section.Key".
type unit map[string][]string

func read(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	u, section := unit{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("%s: %q is no setting", name, line)
		}
		u[section+"."+key] = append(u[section+"."+key], value)
	}
	return u
}

func (u unit) want(t *testing.T, name, key, want string) {
	t.Helper()
	if got := strings.Join(u[key], "|"); got != want {
		t.Errorf("%s: %s is %q, want %q", name, key, got, want)
	}
}

func units(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.service", "*.timer"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names...)
	}
	if want := []string{"nri-watcher.service", "resctrl-applier.service", "resctrl-retry.service", "resctrl-retry.timer"}; !slices.Equal(all, want) {
		t.Fatalf("units are %v, want %v", all, want)
	}
	return all
}

func TestEveryServiceStartsAProgramOfOurs(t *testing.T) {
	t.Parallel()
	for _, name := range units(t) {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		program := strings.TrimSuffix(name, ".service")
		read(t, name).want(t, name, "Service.ExecStart", bin+program)
		if _, err := os.Stat("../cmd/" + program); err != nil {
			t.Error(err)
		}
	}
}

// The directory of pipe and locks must outlive every one of the three, and be
// nobody else's.
func TestTheRuntimeDirectoryIsShared(t *testing.T) {
	t.Parallel()
	for _, name := range units(t) {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		u := read(t, name)
		u.want(t, name, "Service.RuntimeDirectory", "nri-resctrl")
		u.want(t, name, "Service.RuntimeDirectoryMode", "0750")
		u.want(t, name, "Service.RuntimeDirectoryPreserve", "yes")
		if name != "nri-watcher.service" {
			u.want(t, name, "Service.StateDirectory", "nri-resctrl")
			u.want(t, name, "Service.LogsDirectory", "nri-resctrl")
		}
		u.want(t, name, "Unit.StartLimitIntervalSec", "0")
	}
}

func TestDaemonsNeverGiveUp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nri-watcher.service", "resctrl-applier.service"} {
		u := read(t, name)
		u.want(t, name, "Service.Type", "notify")
		u.want(t, name, "Service.Restart", "always")
		u.want(t, name, "Service.WatchdogSec", "2min")
		u.want(t, name, "Service.RestartSec", "2s")
		u.want(t, name, "Install.WantedBy", "multi-user.target")
	}
}

func TestTheRetryJob(t *testing.T) {
	t.Parallel()
	service := read(t, "resctrl-retry.service")
	service.want(t, "resctrl-retry.service", "Service.Type", "oneshot")
	service.want(t, "resctrl-retry.service", "Service.SuccessExitStatus", "75")
	service.want(t, "resctrl-retry.service", "Service.Restart", "")
	timer := read(t, "resctrl-retry.timer")
	// From the end of a pass to the next: passes cannot pile up.
	timer.want(t, "resctrl-retry.timer", "Timer.OnUnitInactiveSec", "10s")
	timer.want(t, "resctrl-retry.timer", "Timer.OnUnitActiveSec", "")
	timer.want(t, "resctrl-retry.timer", "Timer.OnCalendar", "")
	timer.want(t, "resctrl-retry.timer", "Install.WantedBy", "timers.target")
}

// systemd itself finds nothing to say of the units.
func TestSystemdVerifies(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (package systemd)")
	}
	dir := t.TempDir()
	verify := func(change func(string) string) (string, error) {
		var files []string
		for _, name := range units(t) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, name)
			// The programs need not be installed for this.
			changed := regexp.MustCompile(`(?m)^ExecStart=.*`).ReplaceAllString(change(string(text)), "ExecStart=/bin/true")
			if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		out, err := exec.Command(tool, append([]string{"verify", "--man=no"}, files...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := verify(func(s string) string { return s }); err != nil || out != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// It does see what is wrong.
	out, err := verify(func(s string) string { return strings.Replace(s, "Restart=always", "Restart=allways", 1) })
	if err == nil && out == "" {
		t.Error("systemd-analyze verify has nothing to say of Restart=allways")
	}
}
