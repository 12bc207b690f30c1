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
	for _, pattern := range []string{"*.service", "*.timer", "*.target", "*.mount"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names...)
	}
	want := append(services(), "resctrl-retry.timer", "nri-resctrl.target", "sys-fs-resctrl.mount")
	if !slices.Equal(all, want) {
		t.Fatalf("units are %v, want %v", all, want)
	}
	return all
}

func services() []string {
	return []string{"nri-watcher.service", "resctrl-applier.service", "resctrl-retry.service"}
}

func TestEveryServiceStartsAProgramOfOurs(t *testing.T) {
	t.Parallel()
	for _, name := range services() {
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
	for _, name := range services() {
		u := read(t, name)
		u.want(t, name, "Service.RuntimeDirectory", "nri-resctrl")
		u.want(t, name, "Service.RuntimeDirectoryMode", "0750")
		u.want(t, name, "Service.RuntimeDirectoryPreserve", "yes")
		if name != "nri-watcher.service" {
			// systemd would take the files from state.group, at every start.
			u.want(t, name, "Service.StateDirectory", "")
			u.want(t, name, "Service.LogsDirectory", "")
			u.want(t, name, "Service.ExecStartPre", "+/bin/mkdir -p -m 0750 /var/lib/nri-resctrl /var/log/nri-resctrl")
			u.want(t, name, "Service.ReadWritePaths", "-/var/lib/nri-resctrl -/var/log/nri-resctrl /sys/fs")
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
		u.want(t, name, "Install.WantedBy", "nri-resctrl.target")
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
	timer.want(t, "resctrl-retry.timer", "Install.WantedBy", "nri-resctrl.target")
}

// One name starts, stops, enables and disables all of them.
func TestTheTargetHoldsThem(t *testing.T) {
	t.Parallel()
	target := read(t, "nri-resctrl.target")
	target.want(t, "nri-resctrl.target", "Install.WantedBy", "multi-user.target")
	target.want(t, "nri-resctrl.target", "Install.Also", "nri-watcher.service resctrl-applier.service resctrl-retry.timer")
	for _, name := range append(services(), "resctrl-retry.timer") {
		read(t, name).want(t, name, "Unit.PartOf", "nri-resctrl.target")
	}
}

// The runtime and resctrl may be late or missing: order at most, nothing that
// would stop ours with them or keep them from starting.
func TestNothingIsRequired(t *testing.T) {
	t.Parallel()
	for _, name := range units(t) {
		u := read(t, name)
		for _, key := range []string{"Requires", "Requisite", "BindsTo", "RequiresMountsFor"} {
			u.want(t, name, "Unit."+key, "")
		}
	}
	applier, mount := read(t, "resctrl-applier.service"), read(t, "sys-fs-resctrl.mount")
	applier.want(t, "resctrl-applier.service", "Unit.Wants", "sys-fs-resctrl.mount")
	applier.want(t, "resctrl-applier.service", "Unit.After", "sys-fs-resctrl.mount")
	mount.want(t, "sys-fs-resctrl.mount", "Unit.ConditionPathExists", "/sys/fs/resctrl")
	mount.want(t, "sys-fs-resctrl.mount", "Mount.Where", "/sys/fs/resctrl")
	mount.want(t, "sys-fs-resctrl.mount", "Unit.DefaultDependencies", "no")
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"nri-watcher.service":     "",
		"resctrl-applier.service": "CAP_DAC_OVERRIDE CAP_CHOWN",
		"resctrl-retry.service":   "CAP_DAC_OVERRIDE CAP_CHOWN",
	} {
		u := read(t, name)
		if len(u["Service.CapabilityBoundingSet"]) != 1 {
			t.Errorf("%s: not one CapabilityBoundingSet", name)
		}
		u.want(t, name, "Service.CapabilityBoundingSet", want)
		u.want(t, name, "Service.AmbientCapabilities", "")
		u.want(t, name, "Service.NoNewPrivileges", "yes")
		u.want(t, name, "Service.RestrictAddressFamilies", "AF_UNIX")
		u.want(t, name, "Service.ProtectSystem", "strict")
	}
}

// The job does with resctrl what the applier does, so it is shut in as that is.
func TestJobAndApplierAreShutInAlike(t *testing.T) {
	t.Parallel()
	job, applier := read(t, "resctrl-retry.service"), read(t, "resctrl-applier.service")
	for key, value := range applier {
		switch strings.TrimPrefix(key, "Service.") {
		case "Type", "ExecStart", "Restart", "RestartSec", "TimeoutStartSec", "WatchdogSec", "TimeoutStopSec", "OOMScoreAdjust":
			continue
		}
		if strings.HasPrefix(key, "Service.") {
			job.want(t, "resctrl-retry.service", key, strings.Join(value, "|"))
		}
	}
}

// analyze writes the units, each changed, into a directory and has systemd-analyze
// look at them. The programs need not be installed for this.
func analyze(t *testing.T, change func(string) string, names []string, args ...string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (package systemd)")
	}
	dir := t.TempDir()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		changed := regexp.MustCompile(`(?m)^ExecStart=.*`).ReplaceAllString(change(string(text)), "ExecStart=/bin/true")
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func same(s string) string { return s }

// systemd itself finds nothing to say of the units.
func TestSystemdVerifies(t *testing.T) {
	t.Parallel()
	if out, err := analyze(t, same, units(t), "verify", "--man=no"); err != nil || out != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// It does see what is wrong.
	wrong := func(s string) string { return strings.Replace(s, "Restart=always", "Restart=allways", 1) }
	if out, err := analyze(t, wrong, units(t), "verify", "--man=no"); err == nil && out == "" {
		t.Error("systemd-analyze verify has nothing to say of Restart=allways")
	}
}

// The exposure that systemd computes, in tenths: 0 is none, 100 is all.
func TestExposure(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]string{
		"nri-watcher.service": "5", "resctrl-applier.service": "14", "resctrl-retry.service": "14",
	} {
		args := []string{"security", "--offline=true", "--no-pager", "--threshold=" + most}
		if out, err := analyze(t, same, []string{name}, args...); err != nil {
			t.Errorf("%s is more exposed than %s tenths: %v\n%s", name, most, err, out)
		}
		loose := func(s string) string { return strings.Replace(s, "RestrictNamespaces=yes", "", 1) }
		if _, err := analyze(t, loose, []string{name}, args...); err == nil {
			t.Errorf("%s: the threshold of %s tenths does not see a setting that is missing", name, most)
		}
	}
}
