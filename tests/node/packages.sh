# Sourced by run: packages of two versions in place of what stage puts on the node.

# old_programs DIR: those from before the newest migration of the state's schema.
old_programs() {
  local newest commit
  newest=$(cd "$repo/state/migrations" && ls | tail -n 1)
  commit=$(git -C "$repo" log --diff-filter=A --format=%H -n 1 -- "state/migrations/$newest")
  [ -n "$commit" ] || { echo "no history of $newest"; return 1; }
  mkdir -p "$1/src" && git -C "$repo" archive "$commit^" | tar -x -C "$1/src" &&
    (cd "$1/src" && CGO_ENABLED=1 nice go build -trimpath -buildvcs=false -o "$1/" ./cmd/...)
}

packages() { # SCRIPT OPTIONS...: guest with them; for minutes only, so not compressed
  local -x DPKG_DEB_COMPRESSOR_TYPE=none
  local node_options debs
  debs=$(mktemp -d) || return 1
  if { { [ "$1" != package ] || { old_programs "$debs/bin" && BIN=$debs/bin "$repo/conf/deb/build" v0.1.0 "$debs"; }; } &&
    "$repo/conf/deb/build" v0.2.0 "$debs"; } >"$debs/said" 2>&1; then
    node_options=(-f "$(ls "$debs"/nri-resctrl_0.2.0_*.deb):/pkg/new.deb" -d "$repo/tests/node:/t" -e PATIENCE)
    [ "$1" != package ] || node_options+=(-f "$(ls "$debs"/nri-resctrl_0.1.0_*.deb):/pkg/old.deb")
    guest "$@"
  else
    cat "$debs/said"; echo "# $1 ended with status 1: no package"
  fi
  rm -rf "$debs"
}
