package kernel_test

import "syscall"

var mountCases = []oneCase{
	{"mounted again", anything, func(w *world) { w.want(w.mount(), syscall.EBUSY, "mount") }},
	{"umount while a file is open", anything, caseBusyUmount},
	{"umount while a directory is open", anything, func(w *world) {
		d := w.open("", syscall.O_RDONLY|syscall.O_DIRECTORY)
		w.want(w.unmount(), syscall.EBUSY, "umount")
		d.close()
	}},
	{"umount drops all groups", monitoring, caseRemount},
	{"the root while it is not mounted", monitoring, caseUnmounted},
	{"chmod of the root over a remount", anything, caseChmod},
}

func caseBusyUmount(w *world) {
	f := w.open("tasks", syscall.O_RDONLY)
	w.want(w.unmount(), syscall.EBUSY, "umount")
	f.close()
	w.remount(func() {})
}

// remount unmounts, runs do and mounts again, whatever happens.
func (w *world) remount(do func()) {
	w.want(w.unmount(), ok, "umount")
	defer func() { w.want(w.mount(), ok, "mount") }()
	do()
}

func caseRemount(w *world) {
	w.mkdir("mon_groups/m")
	p := w.start()
	w.move("mon_groups/m", p.pid())
	w.remount(func() {})
	w.names("mon_groups")
	w.wantIn("|", p.pid())
	w.status("ok\n")
	w.retry("mon_groups/m")
	w.wantFile("mon_groups/m/tasks", "")
	w.move("mon_groups/m", p.pid())
	w.wantIn("|m", p.pid())
}

func caseUnmounted(w *world) {
	p := w.start()
	w.remount(func() {
		w.names("")
		w.mkdir("x", syscall.ENOENT)
		w.mkdir("mon_groups/x", syscall.ENOENT)
		w.write("tasks", "1", syscall.ENOENT)
		got, err := w.face.group(p.pid())
		w.want(err, ok, "group")
		if got != "res:\nmon:\n" {
			w.failf("the task is in %q", got)
		}
		w.want(w.unmount(), syscall.EINVAL, "umount again")
	})
}

// caseChmod: a fresh mount has a fresh root; on 6.1 there is one root for ever.
func caseChmod(w *world) {
	w.want(w.chmod("", 0o755), ok, "chmod")
	w.looks("", "d755")
	w.remount(func() {})
	if w.v61 {
		w.looks("", "d755")
		w.want(w.chmod("", 0o555), ok, "chmod")
	}
	w.looks("", "d555")
}
