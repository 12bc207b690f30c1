# Sourced by run and bench: what is put on the node, as it is installed.
# Sets node_options; needs repo.
stage() {
  local p
  for p in nri-watcher resctrl-applier resctrl-retry resctrlctl; do
    [ -x "$repo/bin/$p" ] || { echo "not ok - $repo/bin/$p is missing: make build" >&2; return 1; }
  done
  node_options=(-d "$repo/bin:/usr/local/bin" -d "$repo/systemd:/etc/systemd/system"
    -f "$repo/conf/config.toml:/etc/nri-resctrl/config.toml" -d "$repo/tests/node:/t" -e PATIENCE)
}
