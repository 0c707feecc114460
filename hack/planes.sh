# shellcheck shell=bash
# Several control planes on this machine over as many members of etcd (Debian's), each at an address of its own, and one way to all of
# them: haproxy, which asks each whether it is ready. Sourced after nodes.sh, never run.
# shellcheck source=lib.sh disable=SC2034,SC2154

PLANES_MAX=5
PLANES_LINK=sk${CLUSTER_ID}c

# plane_address NUMBER, plane_name NUMBER: where a control plane listens, and what its process is called.
plane_address() { echo "${PLANE_CIDR%.0/24}.$1"; }
plane_name() { if (($1 == 1)); then echo controlplane; else echo "controlplane-$1"; fi; }
etcd_client() { echo "http://127.0.0.1:$((ETCD_PORT + 2 * ($1 - 1)))"; }
etcd_peer() { echo "http://127.0.0.1:$((ETCD_PORT + 2 * ($1 - 1) + 1))"; }
etcd_servers() {
    local number all=()
    for ((number = 1; number <= CONTROL_PLANES; number++)); do all+=("$(etcd_client "$number")"); done
    (IFS=, && echo "${all[*]}")
}

check_planes() {
    if [[ ! $CONTROL_PLANES =~ ^[1-9]$ ]] || ((CONTROL_PLANES > PLANES_MAX)); then
        die "--control-planes $CONTROL_PLANES: must be a number from 1 to $PLANES_MAX"
    fi
    ((CONTROL_PLANES == 1)) && return 0
    ((NODES == 1)) || die "--control-planes $CONTROL_PLANES: goes with one node"
    [[ $PLANE_CIDR =~ ^[0-9]+\.[0-9]+\.[0-9]+\.0/24$ ]] || die "SKIFF_PLANE_CIDR=$PLANE_CIDR: must be like 192.168.98.0/24"
}

# start_planes_link: the control planes' addresses, on a bridge without ports (not every kernel has dummy links).
start_planes_link() {
    local number
    if ! ip -o link show "$PLANES_LINK" >/dev/null 2>&1; then
        ! ip -4 -o route show "$PLANE_CIDR" | grep -q . || die "$PLANE_CIDR is in use on this machine: set SKIFF_PLANE_CIDR to another range"
        ip link add "$PLANES_LINK" type bridge
    fi
    for ((number = 1; number <= CONTROL_PLANES; number++)); do
        ip address replace "$(plane_address "$number")/32" dev "$PLANES_LINK"
    done
    ip link set "$PLANES_LINK" up
}
remove_planes_link() { ip link delete "$PLANES_LINK" 2>/dev/null || true; }

start_etcd() {
    local number members=()
    for ((number = 1; number <= CONTROL_PLANES; number++)); do members+=("m$number=$(etcd_peer "$number")"); done
    for ((number = 1; number <= CONTROL_PLANES; number++)); do
        mkdir -p "$DATA/etcd" && chmod 700 "$DATA/etcd"
        start "etcd-$number" etcd --name "m$number" --data-dir "$DATA/etcd/$number" \
            --listen-client-urls "$(etcd_client "$number")" --advertise-client-urls "$(etcd_client "$number")" \
            --listen-peer-urls "$(etcd_peer "$number")" --initial-advertise-peer-urls "$(etcd_peer "$number")" \
            --initial-cluster "$(IFS=, && echo "${members[*]}")" --initial-cluster-state new --initial-cluster-token "$CLUSTER_ID"
    done
    for ((number = 1; number <= CONTROL_PLANES; number++)); do
        wait_for 60 "etcd-$number" "etcd member $number is not healthy" curl -fsS --max-time 2 "$(etcd_client "$number")/health"
    done
}

# share_keys DIRECTORY: what all control planes must have alike, from the first.
share_keys() {
    local name
    mkdir -p "$1/pki" && chmod 700 "$1" "$1/pki"
    for name in ca.crt ca.key sa.key sa.pub; do
        [[ -s $1/pki/$name ]] || (umask 077 && cp "$DATA/controlplane/pki/$name" "$1/pki/$name")
    done
}

plane_ready() { curl -fsSk --max-time 2 "https://$(plane_address "$1"):$API_PORT/readyz"; }

start_plane() {
    local number=$1 name directory
    name=$(plane_name "$number") directory=$DATA/$(plane_name "$number")
    if ((number > 1)); then share_keys "$directory"; fi
    restart_if_changed "$name"
    start "$name" "$DATA/bin/controlplane" --data-dir "$directory" --bind-address "$(plane_address "$number")" --secure-port "$API_PORT" \
        --service-cluster-ip-range "$SERVICE_RANGES" --cluster-cidr "$POD_RANGES" --etcd-servers "$(etcd_servers)"
    wait_for 60 "$name" "control plane $number does not become ready" plane_ready "$number"
}

start_proxy() {
    local number
    {
        cat <<EOF
global
    maxconn 8192
defaults
    mode tcp
    timeout connect 2s
    retries 3
    option redispatch 1
    timeout client 1h
    timeout server 1h
frontend apiserver
    bind 127.0.0.1:$API_PORT
    default_backend planes
backend planes
    option httpchk GET /readyz
    http-check expect status 200
EOF
        for ((number = 1; number <= CONTROL_PLANES; number++)); do
            echo "    server plane-$number $(plane_address "$number"):$API_PORT check check-ssl verify none inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions"
        done
    } | put "$DATA/run/haproxy.cfg" haproxy
    restart_if_changed haproxy
    start haproxy haproxy -db -f "$DATA/run/haproxy.cfg"
}

start_control_planes() {
    local number
    need_unpacked etcd-server etcd
    need_unpacked haproxy haproxy
    start_planes_link
    start_etcd
    for ((number = 1; number <= CONTROL_PLANES; number++)); do start_plane "$number"; done
    start_proxy
    # As the first has it, by the way to all of them.
    (umask 077 && sed "s#https://$(plane_address 1):$API_PORT#https://127.0.0.1:$API_PORT#" "$DATA/controlplane/admin.kubeconfig" >"$ADMIN_KUBECONFIG.new")
    mv "$ADMIN_KUBECONFIG.new" "$ADMIN_KUBECONFIG"
    wait_for 60 haproxy "no API server is reached on port $API_PORT" api_ready
}

# stop_planes: what a cluster of several has beside a cluster of one.
stop_planes() {
    stop haproxy 5
    stop etcd 20
    remove_planes_link
}
