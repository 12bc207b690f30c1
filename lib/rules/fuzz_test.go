package rules

import (
	"path"
	"strings"
	"testing"
	"unicode"
)

// nameMax is NAME_MAX of most filesystems. resctrl itself takes up to 4095
// bytes (6.12), which no tool should rely on.
const nameMax = 255

// FuzzGroupName: no UID gives a name that leaves its directory, or that is
// another UID's, also of one made from that very name.
func FuzzGroupName(f *testing.F) {
	for _, uid := range []string{
		"", "a", ".", "..", "../../info", "a/b", "a\nb", "\x00", "\xff\xfe", "mon_groups", "pod_a", "~", "a~b", "A", "ü", "\u202e",
		"0e5b8b1c-6a3c-4f0e-9d3e-1f2a3b4c5d6e", strings.Repeat("x", maxPlainUID), strings.Repeat("x", maxPlainUID+1), strings.Repeat("../", 2000),
	} {
		f.Add(uid, "a_b")
	}
	f.Add("a/b", "a_b")
	f.Add("a\xff", "a\xfe")
	n := Naming{Root: "/sys/fs/resctrl", Prefix: "pod_"}
	f.Fuzz(func(t *testing.T, uid, other string) {
		name := n.GroupName(uid)
		tail, ok := strings.CutPrefix(name, n.Prefix)
		if !ok || tail == "" || len(name) > nameMax {
			t.Fatalf("%q gives %q", uid, name)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }) {
			t.Fatalf("%q gives %q, which not every tool takes as one word", uid, name)
		}
		if p := n.GroupPath(uid); path.Dir(p) != "/sys/fs/resctrl/mon_groups" || path.Base(p) != name {
			t.Fatalf("%q gives the path %q", uid, p)
		}
		if plain := strings.Trim(uid, alphabet) == "" && len(uid) >= 1 && len(uid) <= 63; plain != (tail == uid) || plain == (strings.Trim(tail, alphabet) != "") {
			t.Fatalf("%q gives %q", uid, name)
		}
		for _, o := range append(neighbours(uid), other, tail, name) {
			if o != uid && n.GroupName(o) == name {
				t.Fatalf("%q and %q both give %q", uid, o, name)
			}
		}
	})
}

// alphabet is that of a UID that is used as it is.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// neighbours are UIDs that differ from one in a little.
func neighbours(uid string) []string {
	all := []string{
		uid + "~", uid + " ", uid + "\x00", uid + "_", strings.ToLower(uid), strings.ToUpper(uid), strings.TrimSpace(uid), path.Clean(uid),
		strings.ToValidUTF8(uid, "\ufffd"), strings.ReplaceAll(uid, "/", "_"),
	}
	if uid != "" {
		last := len(uid) - 1
		all = append(all, uid[:last], uid[:last]+string([]byte{uid[last] ^ 1}), string([]byte{uid[0] ^ 0x80})+uid[1:])
	}
	return all
}
