//go:build deps

package deps

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/containerd/nri/pkg/adaptation"
	_ "github.com/containerd/nri/pkg/stub"
	_ "github.com/coreos/go-systemd/v22/daemon"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/hanwen/go-fuse/v2/fs"
	_ "github.com/hanwen/go-fuse/v2/fuse"
	_ "github.com/mattn/go-sqlite3"
	_ "github.com/moby/sys/mountinfo"
	_ "github.com/nxadm/tail"
	_ "github.com/oklog/run"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid"
)
