# Sourced by run and bench: the packages that the node gets, made as `make deb`
# makes them, but not compressed: they live for minutes.  Sets node_options;
# needs repo.

# package_new: the programs of bin/, in $debs.
package_new() {
  debs=$(mktemp -d) || return 1
  trap 'rm -rf "$debs"' EXIT
  DPKG_DEB_COMPRESSOR_TYPE=none "$repo/conf/deb/build" v0.2.0 "$debs" >"$debs/said" 2>&1 || { cat "$debs/said"; return 1; }
  mv "$debs"/nri-resctrl_0.2.0_*.deb "$debs/new.deb"
  node_options=(-f "$debs/new.deb:/pkg/new.deb" -d "$repo/tests/node:/t" -e PATIENCE -s "${CPUS:-2}")
}

# package_old: of programs from before the newest migration of the state's schema.
package_old() {
  local newest commit
  newest=$(cd "$repo/state/migrations" && ls | tail -n 1)
  commit=$(git -C "$repo" log --diff-filter=A --format=%H -n 1 -- "state/migrations/$newest")
  [ -n "$commit" ] || { echo "no history of $newest"; return 1; }
  { mkdir -p "$debs/src" && git -C "$repo" archive "$commit^" | tar -x -C "$debs/src" &&
    (cd "$debs/src" && CGO_ENABLED=1 nice go build -trimpath -buildvcs=false -o "$debs/bin/" ./cmd/...) &&
    BIN=$debs/bin DPKG_DEB_COMPRESSOR_TYPE=none "$repo/conf/deb/build" v0.1.0 "$debs"; } >"$debs/said" 2>&1 ||
    { cat "$debs/said"; return 1; }
  mv "$debs"/nri-resctrl_0.1.0_*.deb "$debs/old.deb"
}
