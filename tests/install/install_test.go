// Package install tests what is put on a node: make install, the Debian package,
// the manual pages, and (with the tag logs) the shipping of the event log.
package install

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

const repo = "../.."

func programs() []string {
	return []string{"nri-watcher", "resctrl-applier", "resctrl-retry", "resctrlctl"}
}

// fakePrograms is a directory with something in place of what make build makes.
func fakePrograms(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range programs() {
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustRun(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	out, err := run(t, env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// files gives the modes of all files below dir, by their paths from "/".
func files(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found[strings.TrimPrefix(path, dir)] = info.Mode()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	bin := fakePrograms(t)
	for _, prefix := range []string{"/usr/local", "/usr", "/opt/nri-resctrl"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			args := []string{"DESTDIR=" + root, "PREFIX=" + prefix}
			env := []string{"BIN=" + bin, "MAKEFLAGS="}
			mustRun(t, env, "make", append(args, "install")...)
			found := files(t, root)
			want := map[string]fs.FileMode{
				"/etc/nri-resctrl/config.toml":                     0o644,
				"/etc/logrotate.d/nri-resctrl":                     0o644,
				prefix + "/lib/systemd/system/nri-resctrl.target":  0o644,
				prefix + "/lib/systemd/system/resctrl-retry.timer": 0o644,
				prefix + "/lib/sysusers.d/nri-resctrl.conf":        0o644,
				prefix + "/share/man/man5/nri-resctrl.toml.5":      0o644,
			}
			for _, name := range programs() {
				want[prefix+"/bin/"+name] = 0o755
				want[prefix+"/share/man/man8/"+name+".8"] = 0o644
			}
			for name, mode := range want {
				if found[name] != mode {
					t.Errorf("%s has mode %o, want %o", name, found[name], mode)
				}
			}
			startsWhatIsInstalled(t, root, prefix, found)
			configured(t, filepath.Join(root, "etc/nri-resctrl/config.toml"))

			mustRun(t, env, "make", append(args, "uninstall")...)
			for name := range files(t, root) {
				if !strings.HasPrefix(name, "/etc/") {
					t.Errorf("uninstall leaves %s", name)
				}
			}
		})
	}
}

// startsWhatIsInstalled checks that each unit starts a program that is there.
func startsWhatIsInstalled(t *testing.T, root, prefix string, found map[string]fs.FileMode) {
	t.Helper()
	services := 0
	for name := range found {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		services++
		text, err := os.ReadFile(root + name)
		if err != nil {
			t.Fatal(err)
		}
		program := strings.TrimSuffix(filepath.Base(name), ".service")
		if line := "\nExecStart=" + prefix + "/bin/" + program + "\n"; !strings.Contains(string(text), line) {
			t.Errorf("%s does not have %q", name, line)
		}
		if prefix != "/usr/local" && strings.Contains(string(text), "/usr/local") {
			t.Errorf("%s still has /usr/local", name)
		}
	}
	if services != 3 {
		t.Errorf("%d services, want 3", services)
	}
}

// configured checks that the installed configuration is the default one, but
// for what the units make different.
func configured(t *testing.T, path string) {
	t.Helper()
	got, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Resctrl.AutoMount, want.State.Group = false, "nri-resctrl"
	if got.Resctrl != want.Resctrl || got.State != want.State || got.Events != want.Events || got.Pipe != want.Pipe {
		t.Errorf("installed configuration is %+v, want %+v", got, want)
	}
}

func TestInstallKeepsTheConfiguration(t *testing.T) {
	t.Parallel()
	root, env := t.TempDir(), []string{"BIN=" + fakePrograms(t), "MAKEFLAGS="}
	mine := filepath.Join(root, "etc/nri-resctrl/config.toml")
	if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := mustRun(t, env, "make", "DESTDIR="+root, "install")
	if text, err := os.ReadFile(mine); err != nil || string(text) != "# mine\n" {
		t.Errorf("the configuration is %q, %v", text, err)
	}
	if !strings.Contains(out, "kept: "+mine) {
		t.Errorf("install says %q, and not that it kept the configuration", out)
	}
	if out, err := run(t, []string{"BIN=" + t.TempDir()}, "make", "DESTDIR="+t.TempDir(), "install"); err == nil || !strings.Contains(out, "make build") {
		t.Errorf("install without programs: %v, %q", err, out)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	// In the order in which dpkg must see them.
	tests := []struct{ described, want string }{
		{"45d73f1", "0~r83.g45d73f1"},
		{"45d73f1-dirty", "0~r83.g45d73f1+dirty"},
		{"v0.9.0", "0.9.0"},
		{"v1.2.3-rc.1", "1.2.3~rc.1"},
		{"v1.2.3-rc.1-7-gabc1234-dirty", "1.2.3~rc.1+7.gabc1234+dirty"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-4-gabc1234", "1.2.3+4.gabc1234"},
		{"v1.2.3-15-gabc1234", "1.2.3+15.gabc1234"},
		{"v1.2.4", "1.2.4"},
	}
	before := ""
	for _, test := range tests {
		got := mustRun(t, nil, "conf/deb/version", test.described, "83")
		if got != test.want {
			t.Errorf("version of %s is %s, want %s", test.described, got, test.want)
		}
		if _, err := exec.LookPath("dpkg"); err == nil && before != "" {
			mustRun(t, nil, "dpkg", "--compare-versions", before, "lt", got)
		}
		before = got
	}
}

func TestPackage(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"dpkg-deb", "dpkg-shlibdeps", "strip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v (packages dpkg-dev, binutils)", err)
		}
	}
	bin := fakePrograms(t)
	build := func() string {
		out := t.TempDir()
		mustRun(t, []string{"BIN=" + bin, "SOURCE_DATE_EPOCH=1700000000"}, "conf/deb/build", "v1.2.3", out)
		made, err := filepath.Glob(filepath.Join(out, "nri-resctrl_1.2.3_*.deb"))
		if err != nil || len(made) != 1 {
			t.Fatalf("made %v, %v", made, err)
		}
		return made[0]
	}
	deb := build()
	root := t.TempDir()
	mustRun(t, nil, "dpkg-deb", "-x", deb, root)
	found := files(t, root)
	startsWhatIsInstalled(t, root, "/usr", found)
	for name, mode := range found {
		if strings.HasPrefix(name, "/usr/local") || mode&0o022 != 0 {
			t.Errorf("%s with mode %o is in the package", name, mode)
		}
	}
	control := t.TempDir()
	mustRun(t, nil, "dpkg-deb", "-e", deb, control)
	conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
	if err != nil {
		t.Fatal(err)
	}
	var etc []string
	for name := range found {
		if strings.HasPrefix(name, "/etc/") {
			etc = append(etc, name)
		}
	}
	slices.Sort(etc)
	if got := strings.Fields(string(conffiles)); !slices.Equal(got, etc) {
		t.Errorf("conffiles are %v, want %v", got, etc)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		mustRun(t, nil, "sh", "-n", filepath.Join(control, script))
	}
	if got := mustRun(t, nil, "dpkg-deb", "-f", deb, "Depends"); !strings.Contains(got, "libc6") {
		t.Errorf("the package depends on %q, not on libc6", got)
	}
	mustRun(t, nil, "cmp", deb, build()) // equal sources give an equal package
}

// What purge will need, prerm reads out of the configuration.
func TestPrermReadsTheConfiguration(t *testing.T) {
	t.Parallel()
	prerm, err := os.ReadFile(filepath.Join(repo, "conf/deb/prerm"))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := strings.Index(string(prerm), "setting() {"), strings.Index(string(prerm), "\n}\n")
	if begin < 0 || end < begin {
		t.Fatal("prerm has no function setting")
	}
	for text, want := range map[string]string{
		"":                          "/sys/fs/resctrl pod_",
		"[cgroup]\nroot = \"/c\"\n": "/sys/fs/resctrl pod_",
		"[cgroup]\nroot = \"/c\"\n[resctrl] # ours\n# group_prefix = \"x\"\ngroup_prefix = \"mon-\" # \"y\"\nroot=\"/r\"\n[proc]\nroot = \"/p\"\n": "/r mon-",
		"[resctrl]\ngroup_prefix = 'rdt_' # \"y\"\nroot = '/r'\n":                                                                                  "/r rdt_",
		"[resctrl]\ngroup_prefix = \"\"\"x\"\"\"\nroot = nonsense\n":                                                                               "? ?",
		"resctrl = { group_prefix = \"x_\" }\n":                                                                                                    "? ?",
		"  [ resctrl ]\n  group_prefix   =   \"a.b\"\n":                                                                                            "/sys/fs/resctrl a.b",
	} {
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		function := strings.ReplaceAll(string(prerm)[begin:end+3], config.DefaultPath, path)
		got := mustRun(t, nil, "sh", "-ec", function+"\necho $(setting resctrl root /sys/fs/resctrl; setting resctrl group_prefix pod_)")
		if got != want {
			t.Errorf("of %q prerm reads %q, want %q", text, got, want)
		}
	}
}

func TestManualPages(t *testing.T) {
	t.Parallel()
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(repo, "conf/man", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	keys := page("nri-resctrl.toml.5")
	text, err := os.ReadFile(filepath.Join(repo, "conf/config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:\[([a-z]+)\]|([a-z_]+) = )`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" && !strings.Contains(keys, ".Ss Table "+m[1]+"\n") || m[2] != "" && !strings.Contains(keys, "Va "+m[2]+" No =") {
			t.Errorf("nri-resctrl.toml.5 has nothing of %s", m[0])
		}
	}
	flags := regexp.MustCompile(`(?:fs|flags)\.[A-Za-z0-9]+Var\(&[^,]+, "([a-z-]+)"`)
	for _, name := range programs() {
		sources := []string{"lib/program/program.go", "cmd/" + name + "/main.go"}
		if name == "resctrlctl" {
			sources = append(sources, "lib/ctl/ctl.go")
		}
		n := 0
		for _, source := range sources {
			text, err := os.ReadFile(filepath.Join(repo, source))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range flags.FindAllStringSubmatch(string(text), -1) {
				n++
				option := "Fl -" + m[1]
				if len(m[1]) == 1 {
					option = "Fl " + m[1]
				}
				if !regexp.MustCompile(`(?m)^\.It ` + regexp.QuoteMeta(option) + `( |$)`).MatchString(page(name + ".8")) {
					t.Errorf("%s.8 has nothing of %s", name, option)
				}
			}
		}
		if n < 4 {
			t.Errorf("found %d options of %s only", n, name)
		}
	}
}

// The tools that show manual pages have nothing to say of ours.
func TestManualPagesAreSound(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(repo, "conf/man/*.[58]"))
	if err != nil || len(pages) != 5 {
		t.Fatalf("pages are %v, %v", pages, err)
	}
	tools := 0
	for name, args := range map[string][]string{"mandoc": {"-T", "lint", "-W", "warning"}, "groff": {"-mdoc", "-ww", "-Tutf8", "-z"}} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		tools++
		for _, page := range pages {
			path, err := filepath.Abs(page)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := run(t, nil, name, append(slices.Clone(args), path)...); err != nil || out != "" {
				t.Errorf("%s on %s: %v\n%s", name, filepath.Base(page), err, out)
			}
		}
	}
	if tools == 0 {
		t.Skip("neither mandoc nor groff is installed")
	}
}
