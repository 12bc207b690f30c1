# Sourced by the scripts that play the package, on the node.
units="nri-watcher.service resctrl-applier.service resctrl-retry.service"

failed() { systemctl --failed --no-legend --plain | cut -d' ' -f1 | paste -sd ' '; }
active() { same "$2" "$(systemctl is-active "$1")"; } # UNIT STATE
everything_runs() {
  runs nri-watcher && runs resctrl-applier && active nri-resctrl.target active && active resctrl-retry.timer active
}
as_nobody() { setpriv --reuid=65534 --regid="$1" --clear-groups "${@:2}"; } # GROUP COMMAND...
new_pass() { # a pass of the job that begins from now on has ended
  local old; old=$(systemctl show -p ExecMainStartTimestampMonotonic --value resctrl-retry.service)
  soon eval '[ "$(systemctl show -p ExecMainStartTimestampMonotonic --value resctrl-retry.service)" != '"$old"' ] &&
    [ "$(systemctl is-active resctrl-retry.service)" = inactive ]'
}
