# Sourced by run: packages of two versions in place of what stage puts on the node.
packages() { # SCRIPT OPTIONS...: guest with them
  local node_options debs
  debs=$(mktemp -d) || return 1
  if "$repo/conf/deb/build" v0.1.0 "$debs/old" >"$debs/said" 2>&1 && "$repo/conf/deb/build" v0.2.0 "$debs/new" >"$debs/said" 2>&1; then
    node_options=(-f "$(ls "$debs"/old/*.deb):/pkg/old.deb" -f "$(ls "$debs"/new/*.deb):/pkg/new.deb" -d "$repo/tests/node:/t" -e PATIENCE)
    guest "$@"
  else
    cat "$debs/said"; echo "# $1 ended with status 1: no package"
  fi
  rm -rf "$debs"
}
