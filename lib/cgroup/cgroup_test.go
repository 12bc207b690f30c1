package cgroup

import (
	"errors"
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"/a/b", "/a/b"}, {"a/b", "/a/b"}, {"//a//./b/", "/a/b"}, {"/a b/ü:*", "/a b/ü:*"},
		{"/" + strings.Repeat("x", 255), "/" + strings.Repeat("x", 255)},
		{"", ""}, {"/", ""}, {"/.", ""}, {"..", ""}, {"/a/../b", ""}, {"/a/..", ""}, {"/a/../../etc", ""},
		{"/a\x00b", ""}, {"/a\nb", ""}, {"/a\x7f", ""}, {"/" + strings.Repeat("x", 256), ""},
		{strings.Repeat("/x", 2049), ""},
	} {
		got, err := clean(c.in)
		if got != c.want {
			t.Errorf("clean(%.40q) = %.40q, want %.40q", c.in, got, c.want)
		}
		if (c.want == "") != errors.Is(err, ErrBadPath) {
			t.Errorf("clean(%.40q): %v", c.in, err)
		}
	}
}

func TestExpandSlice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"a.slice", "/a.slice"},
		{"a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"},
		{"kubepods-besteffort-pod1_2.slice", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice"},
		{"-.slice", "/"},
		{"", ""}, {".slice", ""}, {"a", ""}, {"a.scope", ""}, {"-a.slice", ""}, {"a-.slice", ""}, {"a--b.slice", ""},
		{"/a.slice", ""}, {"a/b.slice", ""},
	} {
		got, err := expandSlice(c.in)
		if got != c.want || (c.want == "") != errors.Is(err, ErrBadPath) {
			t.Errorf("expandSlice(%q) = %q, %v, want %q", c.in, got, err, c.want)
		}
	}
}

func TestFromCgroupsPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"/kubepods/podX/0123456789ab", "/kubepods/podX/0123456789ab"},
		{"kubepods/podX/0123456789ab", "/kubepods/podX/0123456789ab"},
		{"kubepods-podX.slice:cri-containerd:012345", "/kubepods.slice/kubepods-podX.slice/cri-containerd-012345.scope"},
		{"/kubepods.slice/kubepods-podX.slice:crio:01", "/kubepods.slice/kubepods-podX.slice:crio:01"}, // a path: it begins with /
		{":docker:abc", "/system.slice/docker-abc.scope"},
		{"a.slice::abc", "/a.slice/abc.scope"},
		{"a.slice:x:a-b.slice", "/a.slice/a-b.slice"},
		{"-.slice:x:abc", "/x-abc.scope"},
		{"a:b", "/a:b"},
		{"a.slice:x:", ""}, {"a.slice:../x:abc", ""}, {"a.slice:x:../../abc", ""}, {"nope:x:abc", ""},
		{"a.slice:x:a\nb", ""}, {"..", ""}, {"/kubepods/../../etc", ""}, {"/", ""},
	} {
		got, err := fromCgroupsPath(c.in)
		if got != c.want || (c.want == "") != errors.Is(err, ErrBadPath) {
			t.Errorf("fromCgroupsPath(%q) = %q, %v, want %q", c.in, got, err, c.want)
		}
	}
}

func TestProcCgroup(t *testing.T) {
	t.Parallel()
	const v1 = "12:cpu,cpuacct:/kube/a\n5:pids:/kube/b\n1:name=systemd:/kube/c:d\n0::/kube/e\n"
	for _, c := range []struct {
		text string
		tree hierarchy
		want string
	}{
		{v1, hierarchy{v2: true}, "/kube/e"},
		{v1, hierarchy{controllers: []string{"cpuacct"}}, "/kube/a"},
		{v1, hierarchy{controllers: []string{"pids"}}, "/kube/b"},
		{v1, hierarchy{controllers: []string{"systemd"}}, "/kube/c:d"},
		{v1, hierarchy{controllers: []string{"memory"}}, ""},
		{"0::/a\n", hierarchy{controllers: []string{"pids"}}, ""},
		{"", hierarchy{v2: true}, ""},
		{"garbage\n::\n0\n", hierarchy{v2: true}, ""},
	} {
		if got := procCgroup(c.text, c.tree); got != c.want {
			t.Errorf("procCgroup(%q, %+v) = %q, want %q", c.text, c.tree, got, c.want)
		}
	}
}
