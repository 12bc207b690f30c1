package config

import (
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxPath is the kernel's PATH_MAX without its terminating byte.
	maxPath = 4095
	// maxSocket is the room for a path in sockaddr_un without its terminating
	// byte (unix(7)).
	maxSocket = 107
	// maxPrefix leaves the name of a group readable, and below the 255 bytes
	// that tools other than resctrl itself allow a name, after a UID of 63.
	maxPrefix = 32
	// maxNode is the longest name of a host in the DNS (RFC 1035), which is
	// what Kubernetes allows a node.
	maxNode = 253
)

var (
	// pluginName is NRI's alphabet (pkg/api CheckPluginName, v0.12).
	pluginName  = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,63}$`)
	pluginIndex = regexp.MustCompile(`^[0-9]{2}$`)
	groupPrefix = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	// unixGroup is what groupadd of Debian and Fedora makes.
	unixGroup = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)
	namespace = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?$`)
	// labelKey and labelValue are the syntax of Kubernetes' labels: a label
	// that no pod can have would silently choose nothing.
	labelKey   = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)
)

func isPath(s string) string {
	if filepath.IsAbs(s) && filepath.Clean(s) == s && s != "/" && len(s) <= maxPath && printable(s) {
		return ""
	}
	return `an absolute path, without "//", "." and ".." in it and "/" at its end`
}

func isSocket(s string) string {
	if allowed := isPath(s); allowed != "" {
		return allowed
	}
	if len(s) > maxSocket {
		return "a path of at most 107 bytes, as the kernel has no room for more in a socket's address"
	}
	return ""
}

func isPluginName(s string) string {
	if pluginName.MatchString(s) {
		return ""
	}
	return "1 to 63 of A-Z a-z 0-9 _ . + -"
}

func isPluginIndex(s string) string {
	if pluginIndex.MatchString(s) {
		return ""
	}
	return `two digits in quotes, "00" to "99"`
}

func isGroupPrefix(s string) string {
	if groupPrefix.MatchString(s) && len(s) <= maxPrefix {
		return ""
	}
	return `1 to 32 of A-Z a-z 0-9 _ . -, the first neither "." nor "-"`
}

func isGroup(s string) string {
	if s == "" || unixGroup.MatchString(s) {
		return ""
	}
	return `the name of a group of the system, or "" for root only`
}

func isNode(s string) string {
	if len(s) <= maxNode && printable(s) {
		return ""
	}
	return `a name of at most 253 bytes of UTF-8 without control characters, or "" for the host's name`
}

func isNamespace(s string) string {
	if namespace.MatchString(s) {
		return ""
	}
	return "the whole name of a namespace (no patterns)"
}

func isLabel(key, value string) string {
	if !labelKey.MatchString(key) {
		return "keys as Kubernetes allows them for labels (prefix/name of A-Z a-z 0-9 _ . -)"
	}
	if !labelValue.MatchString(value) {
		return "values as Kubernetes allows them for labels (up to 63 of A-Z a-z 0-9 _ . -)"
	}
	return ""
}

func isLevel(s string) string { return oneOf(s, "debug", "info", "warn", "error") }

func isFormat(s string) string { return oneOf(s, "text", "json") }

func oneOf(s string, allowed ...string) string {
	for _, a := range allowed {
		if s == a {
			return ""
		}
	}
	return `"` + strings.Join(allowed, `" or "`) + `"`
}

// printable tells whether a text is UTF-8 that does nothing to a terminal or
// a line-based file.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
	})
}
