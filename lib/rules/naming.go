package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"
)

const (
	// maxPlainUID is the longest UID used as it is, in bytes.
	maxPlainUID = 63
	// maxSafePart is how much of an unusual UID is kept for a person to
	// recognise; the digest behind it tells two of them apart.
	maxSafePart = 24
	// safeMark stands in every name made for an unusual UID. It is outside the
	// plain alphabet, so such a name is never another pod's plain one.
	safeMark = "~"
)

// Naming says where groups go: the resctrl root and the prefix of our names.
type Naming struct {
	Root   string
	Prefix string
}

// GroupName is the name of the group of the pod with this UID.
func (n Naming) GroupName(uid string) string {
	if plainUID(uid) {
		return n.Prefix + uid
	}
	sum := sha256.Sum256([]byte(uid))
	return n.Prefix + safePart(uid) + safeMark + hex.EncodeToString(sum[:16])
}

// GroupPath is where the pod's group is made: a monitoring group of the root's
// control group.
func (n Naming) GroupPath(uid string) string {
	return path.Join(n.Root, "mon_groups", n.GroupName(uid))
}

func plainUID(uid string) bool {
	if uid == "" || len(uid) > maxPlainUID {
		return false
	}
	return strings.IndexFunc(uid, func(r rune) bool { return !plainRune(r) }) < 0
}

func plainRune(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

func safePart(uid string) string {
	var b strings.Builder
	for _, r := range uid {
		if b.Len() == maxSafePart {
			break
		}
		if !plainRune(r) {
			r = '_'
		}
		b.WriteRune(r)
	}
	return b.String()
}
