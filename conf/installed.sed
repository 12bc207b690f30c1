# What is set otherwise where the units run the programs: they are shut in, so
# resctrl is mounted for them, and there is a group of the system for readers.
s/^# Mount resctrl when resctrl-applier starts and it is not mounted\.$/&\
# Off here: the unit sys-fs-resctrl.mount does it, for resctrl-applier.service may not./
s/^auto_mount = true$/auto_mount = false/
s/^group = ""$/group = "nri-resctrl"/
