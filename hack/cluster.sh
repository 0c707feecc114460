# shellcheck shell=bash
# The parts of a cluster: their configuration, how they are started, how one knows that they are ready. Sourced after
# lib.sh, never run.
# shellcheck source=lib.sh disable=SC2154

# A component is restarted when its binary or its configuration has changed; containers do not mind.
CHANGED=()

# put FILE NAME: writes standard input to FILE and, if that changes it, notes that NAME must be restarted.
put() {
    mkdir -p "$(dirname "$1")"
    cat >"$1.new"
    if cmp -s "$1.new" "$1"; then
        rm "$1.new"
    else
        mv "$1.new" "$1"
        CHANGED+=("$2")
    fi
}

# put_binary FROM NAME COMPONENT: copies a binary into DATA/bin, so that a build never changes what runs.
put_binary() {
    [[ -x $1 ]] || die "$1 is missing: run hack/up without SKIFF_NO_BUILD"
    cmp -s "$1" "$DATA/bin/$2" && return 0
    install -D -m 755 "$1" "$DATA/bin/$2"
    CHANGED+=("$3")
}

install_binaries() {
    local name
    for name in kubelet controlplane imagetool podtool; do put_binary "$BINARIES/$name" "$name" "$name"; done
    mkdir -p "$DATA"/cni/{bin,net.d}
    # The kubelet finds the plugins beside itself and installs them, with their links, where the runtime looks.
    put_binary "$STATIC/cni-plugins" cni-plugins kubelet
    echo "$PROFILE" >"$DATA/bin/profile"
}

# profile_of_cluster: which profile the cluster's binaries are of; nothing without a cluster.
profile_of_cluster() { cat "$DATA/bin/profile" 2>/dev/null || true; }

# restart_if_changed NAME: stops NAME when it was started from something older. What has changed for all nodes' has for
# NAME-NUMBER.
restart_if_changed() {
    local name
    for name in "${CHANGED[@]}"; do
        if [[ $name = "$1" || $name = "${1%-[0-9]*}" ]] && running "$1" >/dev/null; then
            say "$1 has changed: restarting it"
            stop_one "$1" 20
        fi
    done
}

# alive_and NAME COMMAND...: succeeds when the command does; a component that has died ends the wait at once.
alive_and() {
    local name=$1
    shift
    if ! running "$name" >/dev/null; then
        explain "$name"
        die "$name has ended"
    fi
    "$@" >/dev/null 2>&1
}

# wait_for SECONDS NAME WHAT COMMAND...: until the command succeeds.
wait_for() {
    local deadline=$((SECONDS + $1)) name=$2 what=$3
    shift 3
    until alive_and "$name" "$@"; do
        if ((SECONDS >= deadline)); then
            explain "$name"
            die "$what"
        fi
        sleep 0.1
    done
}

kubectl_admin() { kubectl --kubeconfig "$ADMIN_KUBECONFIG" --request-timeout 10s "$@"; }
# The chosen node's.
ctr_ours() { ctr --address "${N_SOCKET:-$CONTAINERD_SOCKET}" --namespace k8s.io "$@"; }

# ensure_kubectl: the machine's own, else the official binary, else Debian's.
ensure_kubectl() {
    command -v kubectl >/dev/null && return 0
    local version=v1.36.2 architecture
    architecture=$(dpkg --print-architecture)
    say "installing kubectl"
    if curl -fsSL --retry 1 --connect-timeout 5 --max-time 120 -o "$DATA/run/kubectl" "https://dl.k8s.io/release/$version/bin/linux/$architecture/kubectl" 2>/dev/null &&
        [[ $(curl -fsSL --retry 1 --max-time 20 "https://dl.k8s.io/release/$version/bin/linux/$architecture/kubectl.sha256") = "$(sha256sum "$DATA/run/kubectl" | cut -d' ' -f1)" ]]; then
        install -m 755 "$DATA/run/kubectl" /usr/local/bin/kubectl
        rm -f "$DATA/run/kubectl"
    else
        rm -f "$DATA/run/kubectl"
        install_packages kubernetes-client
    fi
}

write_containerd_config() {
    # Version 2 is what containerd 1.6 reads; 2.x converts it while loading.
    put "$N_DATA/containerd/config.toml" "containerd$N_SUFFIX" <<EOF
version = 2
root = "$N_DATA/containerd/root"
state = "$N_DATA/containerd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = "$N_SOCKET"

[debug]
level = "warn"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "registry.k8s.io/pause:3.10"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
stats_collect_period = 60

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "$N_DATA/containerd/runc"
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "$N_DATA/containerd/certs.d"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "$N_DATA/cni/bin"
conf_dir = "$N_DATA/cni/net.d"
EOF
    # Every registry is asked through the mirror first: what it does not have goes to the registry itself.
    mkdir -p "$N_DATA/containerd/certs.d/_default"
    cat >"$N_DATA/containerd/certs.d/_default/hosts.toml" <<EOF
[host."http://$MIRROR_HOST:$MIRROR_PORT"]
capabilities = ["pull", "resolve"]
EOF
}

start_containerd() {
    write_containerd_config
    restart_if_changed "containerd$N_SUFFIX"
    # Its shims are found by the search path.
    if [[ -n ${SKIFF_CONTAINERD:-} ]]; then
        [[ -x $SKIFF_CONTAINERD/containerd ]] || die "SKIFF_CONTAINERD=$SKIFF_CONTAINERD: there is no containerd in this directory"
        PATH=$SKIFF_CONTAINERD:$PATH
    fi
    start "containerd$N_SUFFIX" "${ENTER[@]}" containerd --config "$N_DATA/containerd/config.toml"
    wait_for 60 "containerd$N_SUFFIX" "containerd of node $N_NAME does not answer on $N_SOCKET" ctr_ours version
}

# start_mirror NAME ADDRESS: the images, for the runtimes that reach it there.
start_mirror() {
    restart_if_changed "$1"
    start "$1" "$DATA/bin/imagetool" serve --layout "$IMAGES/layout" --listen "$2:$MIRROR_PORT"
    wait_for 60 "$1" "the image mirror does not answer on $2:$MIRROR_PORT" curl -fs --max-time 2 "http://$2:$MIRROR_PORT/v2/"
}

import_images() {
    local key
    key=$(cat "$IMAGES/key")
    [[ $(cat "$N_DATA/containerd/imported" 2>/dev/null) = "$key" ]] && return 0
    say "importing images on node $N_NAME"
    ctr_ours images import "$IMAGES/images.tar" >"$DATA/log/import$N_SUFFIX.log" 2>&1 || {
        cat "$DATA/log/import$N_SUFFIX.log" >&2
        die "importing images failed"
    }
    echo "$key" >"$N_DATA/containerd/imported"
}

api_ready() { [[ -s $ADMIN_KUBECONFIG ]] && kubectl_admin get --raw /readyz; }

start_controlplane() {
    local flags=()
    # Other nodes, and their pods, reach it by the bridge.
    if ((NODES > 1)); then flags+=(--advertise-address "$(node_address 1)"); fi
    put "$DATA/run/controlplane.flags" controlplane <<<"${flags[*]}"
    restart_if_changed controlplane
    start controlplane "$DATA/bin/controlplane" --data-dir "$DATA/controlplane" --bind-address 0.0.0.0 --secure-port "$API_PORT" \
        --service-cluster-ip-range "$SERVICE_RANGES" --cluster-cidr "$POD_RANGES" "${flags[@]}"
    wait_for 60 controlplane "the API server does not become ready on port $API_PORT" api_ready
}

# dns_address: the tenth address of the Services' range, as upstream's installers have it.
dns_address() {
    local network=${SERVICE_CIDR%/*} last
    last=${network##*.}
    echo "${network%.*}.$((last + 10))"
}

# let_nodes_see: what a kubelet follows for the cluster's network is more than a node may see by itself.
let_nodes_see() {
    local files=(-f "$ROOT/hack/node/network.yaml")
    if ((NODES > 1)); then files+=(-f "$ROOT/hack/node/pod-network.yaml"); fi
    kubectl_admin apply "${files[@]}" >"$DATA/log/network.log" 2>&1 || {
        cat "$DATA/log/network.log" >&2
        die "nodes cannot be allowed to follow Services and policies"
    }
}

write_kubelet_config() {
    put "$N_DATA/kubelet/config.yaml" "kubelet$N_SUFFIX" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$N_SOCKET
cgroupDriver: cgroupfs
cgroupRoot: $N_CGROUP
failCgroupV1: false
failSwapOn: false
podLogsDir: $N_DATA/kubelet/pod-logs
staticPodPath: $N_DATA/kubelet/manifests
clusterDomain: cluster.local
clusterDNS: [$(dns_address)]
port: $KUBELET_PORT
readOnlyPort: 0
healthzPort: $HEALTHZ_PORT
maxPods: $MAX_PODS
# As kind does: this machine's disk is others' too, and no pod of ours is to go because they fill it.
evictionHard:
  memory.available: 100Mi
# The disk is the machine's, and what else fills it is not this cluster's to clear.
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
rotateCertificates: true
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: $DATA/controlplane/pki/ca.crt
authorization:
  mode: Webhook
EOF
}

make_cgroup_root() {
    local mount controller controllers
    for mount in $(cgroup_mounts); do
        mkdir -p "$mount$N_CGROUP"
        # Version 2: a controller must be handed down before a group has its files.
        if [[ -f $mount/cgroup.subtree_control ]]; then
            read -ra controllers <"$mount/cgroup.controllers"
            for controller in "${controllers[@]}"; do
                echo "+$controller" >"$mount/cgroup.subtree_control" 2>/dev/null || true
            done
        fi
        # A cpuset of version 1 takes no process until it has CPUs and memory nodes.
        if [[ -f $mount$N_CGROUP/cpuset.cpus && -f $mount/cpuset.sched_load_balance ]]; then
            cat "$mount/cpuset.cpus" >"$mount$N_CGROUP/cpuset.cpus"
            cat "$mount/cpuset.mems" >"$mount$N_CGROUP/cpuset.mems"
        fi
    done
}

node_ready() {
    [[ $(kubectl_admin get node "$N_NAME" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') = True ]]
}

start_kubelet() {
    write_kubelet_config
    make_cgroup_root
    local kubeconfig=$N_DATA/kubelet/kubeconfig bootstrap=$N_DATA/kubelet/bootstrap.kubeconfig
    # Credentials of another CA (after a purge of the control plane's data alone) are of no use. A token gets new ones.
    if [[ ! -s $kubeconfig || $DATA/controlplane/pki/ca.crt -nt $kubeconfig ]]; then
        rm -f "$kubeconfig" "$N_DATA"/kubelet/pki/kubelet-client-*
        (umask 077 && "$DATA/bin/controlplane" token --data-dir "$DATA/controlplane" --ttl 1h \
            --server "https://$API_HOST:$API_PORT" >"$bootstrap") || die "controlplane token failed"
        CHANGED+=("kubelet$N_SUFFIX")
    fi
    put "$N_DATA/run/kubelet.flags" "kubelet$N_SUFFIX" <<<"${NETWORK_FLAGS[*]}"
    restart_if_changed "kubelet$N_SUFFIX"
    start "kubelet$N_SUFFIX" "${ENTER[@]}" "$DATA/bin/kubelet" --config "$N_DATA/kubelet/config.yaml" --kubeconfig "$kubeconfig" --bootstrap-kubeconfig "$bootstrap" --hostname-override "$N_NAME" \
        --root-dir "$N_DATA/kubelet/root" --cert-dir "$N_DATA/kubelet/pki" --cni-conf-dir "$N_DATA/cni/net.d" --cni-bin-dir "$N_DATA/cni/bin" "${NETWORK_FLAGS[@]}"
    wait_for 90 "kubelet$N_SUFFIX" "node $N_NAME does not become Ready: $(kubectl_admin get node "$N_NAME" -o wide 2>&1 || true)" node_ready
}

milliseconds() { date +%s%3N; }

run_demo() {
    local begin end address page count=0
    begin=$(milliseconds)
    if kubectl_admin get deployment nginx >/dev/null 2>&1; then
        say "deployment nginx is there already"
    else
        say "kubectl create deployment nginx --image=nginx --replicas=3"
        kubectl_admin create deployment nginx --image=nginx --replicas=3
    fi
    kubectl --kubeconfig "$ADMIN_KUBECONFIG" wait --for=condition=Available --timeout=120s deployment/nginx >/dev/null || {
        kubectl_admin get pods,events >&2
        die "deployment nginx does not become available"
    }
    end=$(milliseconds)
    say "available $((end - begin)) ms after create"
    kubectl_admin get service nginx >/dev/null 2>&1 || kubectl_admin expose deployment nginx --port=80
    for address in $(kubectl_admin get pods -l app=nginx -o 'jsonpath={.items[*].status.podIP}'); do
        page=$(curl -fsS --max-time 10 "http://$address/") || die "no page from $address"
        say "http://$address/: $(grep -o '<h1>.*</h1>' <<<"$page")"
        count=$((count + 1))
    done
    ((count == 3)) || die "$count pods have an address, not 3"
    page=$(kubectl_admin exec deployment/nginx -- wget -T 10 -qO- http://nginx) || die "no page from http://nginx in a pod"
    say "http://nginx in a pod: $(grep -o '<h1>.*</h1>' <<<"$page")"
}
