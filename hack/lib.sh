# shellcheck shell=bash
# What the commands in this directory share: places, settings, progress lines, installing, building, and processes that
# are known to be ours. Sourced, never run.
# shellcheck disable=SC2034

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Everything a cluster writes is under this directory.
DATA=${SKIFF_DATA:-$ROOT/.data}
case $DATA in /*) ;; *) DATA=$PWD/$DATA ;; esac

# Settings of a cluster: the environment's when it is started first, then those it was started with (kept in DATA).
SETTINGS=(NODE API_PORT KUBELET_PORT HEALTHZ_PORT MIRROR_PORT POD_CIDR SERVICE_CIDR CGROUP NODE_CIDR CONTROL_PLANES PLANE_CIDR ETCD_PORT
    DUAL_STACK POD_CIDR6 SERVICE_CIDR6 NODE_CIDR6)
# Those that a running cluster may be given anew.
CHANGEABLE_SETTINGS=(MAX_PODS NODES POD_NETWORK)
load_settings() {
    local name variable
    # shellcheck disable=SC1091
    if [[ -f $DATA/settings ]]; then
        . "$DATA/settings"
        # Made before there was this setting.
        DUAL_STACK=${DUAL_STACK:-0}
    fi
    NODE=${NODE:-${SKIFF_NODE:-$(hostname | tr '[:upper:]' '[:lower:]')}}
    API_PORT=${API_PORT:-${SKIFF_API_PORT:-6443}}
    KUBELET_PORT=${KUBELET_PORT:-${SKIFF_KUBELET_PORT:-10250}}
    HEALTHZ_PORT=${HEALTHZ_PORT:-${SKIFF_HEALTHZ_PORT:-10248}}
    MIRROR_PORT=${MIRROR_PORT:-${SKIFF_MIRROR_PORT:-5055}}
    POD_CIDR=${POD_CIDR:-${SKIFF_POD_CIDR:-10.244.0.0/16}}
    SERVICE_CIDR=${SERVICE_CIDR:-${SKIFF_SERVICE_CIDR:-10.96.0.0/16}}
    CGROUP=${CGROUP:-${SKIFF_CGROUP:-/skiff}}
    NODE_CIDR=${NODE_CIDR:-${SKIFF_NODE_CIDR:-192.168.97.0/24}}
    CONTROL_PLANES=${CONTROL_PLANES:-${SKIFF_CONTROL_PLANES:-1}}
    PLANE_CIDR=${PLANE_CIDR:-${SKIFF_PLANE_CIDR:-192.168.98.0/24}}
    ETCD_PORT=${ETCD_PORT:-${SKIFF_ETCD_PORT:-23790}}
    DUAL_STACK=${DUAL_STACK:-${SKIFF_DUAL_STACK:-0}}
    POD_CIDR6=${POD_CIDR6:-${SKIFF_POD_CIDR6:-fd00:10:244::/56}}
    SERVICE_CIDR6=${SERVICE_CIDR6:-${SKIFF_SERVICE_CIDR6:-fd00:10:96::/112}}
    NODE_CIDR6=${NODE_CIDR6:-${SKIFF_NODE_CIDR6:-fd00:10:97::/64}}
    MAX_PODS=${SKIFF_MAX_PODS:-${MAX_PODS:-110}}
    NODES=${SKIFF_NODES:-${NODES:-1}}
    POD_NETWORK=${SKIFF_POD_NETWORK:-${POD_NETWORK:-vxlan}}
    for name in "${SETTINGS[@]}"; do
        variable=SKIFF_$name
        if [[ -n ${!variable:-} && ${!variable} != "${!name}" ]]; then
            die "$variable=${!variable}, but the cluster in $DATA was made with ${!name}: hack/down --purge first"
        fi
    done
    # What both control plane and kubelets are told.
    POD_RANGES=$POD_CIDR SERVICE_RANGES=$SERVICE_CIDR
    if ((DUAL_STACK)); then POD_RANGES+=,$POD_CIDR6 SERVICE_RANGES+=,$SERVICE_CIDR6; fi
    # Of several the way to all, not to the first.
    if ((CONTROL_PLANES > 1)); then ADMIN_KUBECONFIG=$DATA/admin.kubeconfig; fi
}
save_settings() {
    local name
    for name in "${SETTINGS[@]}" "${CHANGEABLE_SETTINGS[@]}"; do printf '%s=%q\n' "$name" "${!name}"; done >"$DATA/settings"
}

# Images do not depend on a cluster: several may share them.
IMAGES=${SKIFF_IMAGES:-$DATA/images}
CONTAINERD_SOCKET=$DATA/run/containerd.sock
ADMIN_KUBECONFIG=$DATA/controlplane/admin.kubeconfig
STARTED=$SECONDS

say() { printf '%4ds  %s\n' $((SECONDS - STARTED)) "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
need_root() { [[ $(id -u) = 0 ]] || die "$(basename "$0") must run as root: it starts containers"; }

# shellcheck source=packages.sh
. "$ROOT/hack/packages.sh"
# shellcheck source=build.sh
. "$ROOT/hack/build.sh"
# shellcheck source=nodes.sh
. "$ROOT/hack/nodes.sh"
# shellcheck source=planes.sh
. "$ROOT/hack/planes.sh"

# until_true SECONDS COMMAND...: runs the command until it succeeds; fails after SECONDS.
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# is_ours PID: the process has an argument inside OURS, which is DATA unless only a node's are meant; all of ours have, and
# nobody else's.
OURS=$DATA
is_ours() {
    local argument
    [[ -r /proc/$1/cmdline ]] || return 1
    while IFS= read -r -d '' argument; do
        case $argument in "$OURS" | "$OURS"/* | --*="$OURS"/*) return 0 ;; esac
    done <"/proc/$1/cmdline" 2>/dev/null
    return 1
}

# our_processes NAME: pids of our processes whose executable has this name, also of those no pid file knows.
our_processes() {
    local directory pid program
    for directory in /proc/[0-9]*; do
        pid=${directory#/proc/}
        program=$(readlink "$directory/exe" 2>/dev/null) || continue
        program=${program% (deleted)}
        [[ ${program##*/} = "$1" ]] && is_ours "$pid" && echo "$pid"
    done
    return 0
}

# running NAME: the pid of our process NAME, by its pid file, if it is alive and ours.
running() {
    local pid
    pid=$(cat "$DATA/run/$1.pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] && is_ours "$pid" && echo "$pid"
}

# has_become PID: the process is one of ours, and no longer the setsid that starts it, nor the shell that becomes setsid: what it is
# before and after a look at its arguments is one program.
has_become() {
    local program
    program=$(readlink "/proc/$1/exe" 2>/dev/null) || return 1
    [[ ${program##*/} != setsid ]] && is_ours "$1" && [[ $(readlink "/proc/$1/exe" 2>/dev/null) = "$program" ]]
}

# start NAME COMMAND...: starts our process NAME in the background, unless it runs; its output goes to log/NAME.log.
start() {
    local name=$1 pid
    shift
    running "$name" >/dev/null && return 0
    setsid "$@" </dev/null >>"$DATA/log/$name.log" 2>&1 9>&- &
    pid=$!
    echo "$pid" >"$DATA/run/$name.pid"
    disown "$pid"
    # Until the command has replaced what starts it, it does not look like ours, or does so only as setsid, and has no arguments
    # while it is being replaced.
    until has_become "$pid" || process_gone "$pid"; do sleep 0.02; done
}

# stop_process PID SECONDS: TERM, then KILL after SECONDS; returns when the process is gone.
stop_process() {
    kill -TERM "$1" 2>/dev/null || return 0
    until_true "$2" process_gone "$1" && return 0
    kill -KILL "$1" 2>/dev/null || return 0
    until_true 10 process_gone "$1" || say "process $1 does not end"
}
# Whether a process has ended and holds nothing any more: one whose first thread has ended may have others yet, with its files
# and their locks, until what they do in the kernel is done.
process_gone() {
    local state
    state=$(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) || return 0
    [[ -z $state ]] || [[ $state = Z && $(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l) -le 1 ]]
}

# stop NAME SECONDS: stops all of our processes of this name.
stop() {
    local pid
    for pid in $(our_processes "$1"); do stop_process "$pid" "$2"; done
    rm -f "$DATA/run/$1.pid"
}

# stop_one NAME SECONDS: stops our process NAME, by its pid file.
stop_one() {
    local pid
    pid=$(running "$1") && stop_process "$pid" "$2"
    rm -f "$DATA/run/$1.pid"
}

# explain NAME: the end of a process's log, for a person who has just read that it failed.
explain() {
    printf -- '--- the end of %s\n' "$DATA/log/$1.log" >&2
    tail -n 15 "$DATA/log/$1.log" >&2 || true
}

# lock: one hack/up or hack/down at a time on one data directory.
lock() {
    mkdir -p "$DATA"/{log,run}
    exec 9>"$DATA/run/lock"
    flock -w 300 9 || die "another hack/up or hack/down has held $DATA/run/lock for 5 minutes"
}
