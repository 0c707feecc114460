# shellcheck shell=bash
# A cluster's nodes. The first is this machine. Each further one is a network namespace and a mount namespace, with a
# containerd and a kubelet of its own inside, joined to a bridge of ours. Sourced after lib.sh, never run.
# shellcheck source=lib.sh disable=SC2034,SC2153,SC2154

NODES_MAX=50

# What its bridge, its links and its table are called: nobody else's, whatever other clusters there are, and found again
# without any note.
CLUSTER_ID=$(printf '%s' "$DATA" | sha256sum | cut -c1-6)
BRIDGE=sk$CLUSTER_ID
NODE_TABLE=skiff_nodes_$CLUSTER_ID
node_link() { echo "sk${CLUSTER_ID}n$1"; }
# node_address NUMBER: its address on the bridge; the first node's is the bridge's own.
node_address() { echo "${NODE_CIDR%.0/24}.$1"; }
# node_address6 NUMBER: and that of the other family, of a dual-stack cluster.
node_address6() { echo "${NODE_CIDR6%/64}$1"; }
# node_numbers: the further nodes there are, or were when something went wrong.
node_numbers() {
    local directory
    for directory in "$DATA"/nodes/*/; do
        directory=${directory%/}
        [[ ${directory##*/} =~ ^[0-9]+$ ]] && echo "${directory##*/}"
    done
    return 0
}

check_nodes() {
    if [[ ! $NODES =~ ^[1-9][0-9]?$ ]] || ((NODES > NODES_MAX)); then die "--nodes $NODES: must be a number from 1 to $NODES_MAX"; fi
    [[ $NODE_CIDR =~ ^[0-9]+\.[0-9]+\.[0-9]+\.0/24$ ]] || die "SKIFF_NODE_CIDR=$NODE_CIDR: must be like 192.168.97.0/24"
    [[ $DUAL_STACK = [01] ]] || die "SKIFF_DUAL_STACK=$DUAL_STACK: must be 0 or 1"
    [[ $NODE_CIDR6 =~ ^[0-9a-f:]+::/64$ ]] || die "SKIFF_NODE_CIDR6=$NODE_CIDR6: must be like fd00:10:97::/64"
    case $POD_NETWORK in
    vxlan | host-gw | none) ;;
    *) die "SKIFF_POD_NETWORK=$POD_NETWORK: must be vxlan, host-gw or none" ;;
    esac
}

# choose_node NUMBER: what follows is about this node. N_DATA: where its files are. N_SUFFIX: what its processes' names end
# in. ENTER: what its commands are run by. API_HOST, MIRROR_HOST: how it reaches what runs on the machine.
choose_node() {
    N_NUMBER=$1
    ENTER=()
    # What the kubelet is told of the network of several nodes.
    NETWORK_FLAGS=(--service-proxy --cluster-dns-responder --network-policies "--cluster-cidr=$POD_RANGES")
    if ((NODES > 1)); then
        local addresses
        addresses=$(node_address "$1")
        if ((DUAL_STACK)); then addresses+=,$(node_address6 "$1"); fi
        NETWORK_FLAGS+=("--node-ip=$addresses")
        if [[ $POD_NETWORK != none ]]; then NETWORK_FLAGS+=("--pod-network-backend=$POD_NETWORK"); fi
    fi
    if (($1 == 1)); then
        N_DATA=$DATA N_SUFFIX='' N_NAME=$NODE N_CGROUP=$CGROUP API_HOST=127.0.0.1 MIRROR_HOST=127.0.0.1
    else
        N_DATA=$DATA/nodes/$1 N_SUFFIX=-$1 N_NAME=$NODE-$1 N_CGROUP=$CGROUP-$1
        API_HOST=$(node_address 1) MIRROR_HOST=$API_HOST
    fi
    N_SOCKET=$N_DATA/run/containerd.sock
    ((${#N_SOCKET} < 100)) || die "$N_SOCKET is too long for a Unix socket: set SKIFF_DATA to a shorter path"
}

# switches_kept: where it is noted how switches of the machine stood that a cluster's network turns. Clusters of one machine
# share them, and a network namespace has its own.
switches_kept() { echo "/run/skiff-switches-$(stat -Lc %i /proc/self/ns/net)"; }

# forget_lost KEPT: clusters that were killed and whose data are gone will give nothing back. If they were all there was, what they
# noted is of a network namespace that has gone, too, and whose number another has by now; the first process's stays.
forget_lost() {
    local cluster data
    for cluster in "$1"/clusters/*; do
        data=$(cat "$cluster" 2>/dev/null) || continue
        [[ -d $data ]] || rm -f "$cluster"
    done
    [[ ! /proc/self/ns/net -ef /proc/1/ns/net ]] || return 0
    if rmdir "$1/clusters" 2>/dev/null; then rm -rf "$1"; fi
}

# keep_switches: who comes first notes how they stand. Then nothing is lost when they are turned: a machine that forwards takes
# its routers' advertisements no more, unless it is told to.
keep_switches() {
    local kept file words link
    kept=$(switches_kept)
    forget_lost "$kept"
    mkdir -p "$kept/clusters"
    if [[ ! -e $kept/before ]]; then
        for file in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/all/accept_redirects \
            /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/*/{forwarding,accept_ra}; do
            if [[ -r $file ]]; then echo "$file $(<"$file")"; fi
        done >"$kept/before.new"
        mv "$kept/before.new" "$kept/before"
    fi
    echo "$DATA" >"$kept/clusters/$CLUSTER_ID"
    while read -r words; do
        [[ $words =~ \ dev\ ([^ ]+) ]] || continue
        link=/proc/sys/net/ipv6/conf/${BASH_REMATCH[1]}/accept_ra
        if [[ -w $link && $(<"$link") = 1 ]]; then echo 2 >"$link"; fi
    done < <(ip -6 -o route show default proto ra 2>/dev/null)
}

# give_back_switches: who goes last puts them back as they stood.
give_back_switches() {
    local kept file value
    kept=$(switches_kept)
    [[ -e $kept/clusters/$CLUSTER_ID ]] || return 0
    rm -f "$kept/clusters/$CLUSTER_ID"
    rmdir "$kept/clusters" 2>/dev/null || return 0
    # Twice: the switches of all turn those of each.
    for _ in 1 2; do
        while read -r file value; do
            [[ ! -w $file || $(<"$file") = "$value" ]] || echo "$value" >"$file" || say "$file is not $value again"
        done <"$kept/before"
    done
    rm -rf "$kept"
}

# start_bridge: the wire between the nodes, and their way out.
start_bridge() {
    if ! ip -o link show "$BRIDGE" >/dev/null 2>&1; then
        ! ip -4 -o route show "$NODE_CIDR" | grep -q . || die "$NODE_CIDR is in use on this machine: set SKIFF_NODE_CIDR to another range"
        ip link add "$BRIDGE" type bridge
    fi
    ip address replace "$(node_address 1)/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    nft -f - <<EOF
table ip $NODE_TABLE
delete table ip $NODE_TABLE
table ip $NODE_TABLE {
    chain postrouting {
        type nat hook postrouting priority srcnat
        ip saddr $NODE_CIDR ip daddr != { $NODE_CIDR, $POD_CIDR } masquerade
    }
}
EOF
    ((DUAL_STACK)) || return 0
    ip address replace "$(node_address6 1)/64" dev "$BRIDGE" nodad
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    nft -f - <<EOF
table ip6 $NODE_TABLE
delete table ip6 $NODE_TABLE
table ip6 $NODE_TABLE {
    chain postrouting {
        type nat hook postrouting priority srcnat
        ip6 saddr $NODE_CIDR6 ip6 daddr != { $NODE_CIDR6, $POD_CIDR6 } masquerade
    }
}
EOF
}

# What a node's namespaces live by: a process in them, which does nothing. All that is mounted there ends with the last
# process inside. State that programs keep outside of their data directories gets a place of the node's own.
# shellcheck disable=SC2016
HOLD='set -e
mount --make-rshared /
mkdir -p "$0/cni/state" "$0/cni/run" /var/lib/cni /run/cni
mount --bind "$0/cni/state" /var/lib/cni
mount --bind "$0/cni/run" /run/cni
ip link set lo up
: >"$0/run/held"
exec tail -f "$0/hold"'

# start_node_namespace: the namespaces of the chosen node, and its link.
start_node_namespace() {
    local holder link
    if ! running "holder$N_SUFFIX" >/dev/null; then
        # What is left of the node is in namespaces nobody can enter any more.
        remove_node "$N_NUMBER"
        mkdir -p "$N_DATA"/{run,kubelet,cni/net.d}
        : >"$N_DATA/hold"
        start "holder$N_SUFFIX" unshare --mount --net --propagation slave bash -c "$HOLD" "$N_DATA"
        wait_for 30 "holder$N_SUFFIX" "the namespaces of node $N_NAME cannot be made" test -e "$N_DATA/run/held"
    fi
    holder=$(running "holder$N_SUFFIX") || die "the namespaces of node $N_NAME are gone"
    ENTER=(nsenter --target "$holder" --mount --net)
    link=$(node_link "$N_NUMBER")
    if ! ip -o link show "$link" >/dev/null 2>&1; then
        ip link add "$link" type veth peer name eth0 netns "$holder"
    fi
    ip link set "$link" master "$BRIDGE" up
    "${ENTER[@]}" ip address replace "$(node_address "$N_NUMBER")/24" dev eth0
    "${ENTER[@]}" ip link set eth0 up
    "${ENTER[@]}" ip route replace default via "$(node_address 1)"
    ((DUAL_STACK)) || return 0
    "${ENTER[@]}" ip address replace "$(node_address6 "$N_NUMBER")/64" dev eth0 nodad
    "${ENTER[@]}" ip route replace default via "$(node_address6 1)"
}

# holders: pids of our processes that hold a node's namespaces.
holders() {
    local pid
    for pid in $(our_processes tail) $(our_processes bash) $(our_processes unshare); do
        tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -e "$OURS/hold" -e "$OURS" && echo "$pid"
    done
    return 0
}

# remove_node NUMBER: everything of a further node but its data. Its kubelet first: it would start pods again.
remove_node() {
    local directory=$DATA/nodes/$1 podtool=$DATA/bin/podtool pid name
    # Only what is this node's.
    local OURS=$directory
    for pid in $(our_processes kubelet); do stop_process "$pid" 20; done
    if [[ -n $(our_processes containerd) && -x $podtool ]]; then
        timeout 120 "$podtool" remove-all --runtime "$directory/run/containerd.sock" || say "not every pod of node $1 could be removed through its runtime: removing the rest without it"
    fi
    for name in containerd containerd-shim-runc-v2; do
        for pid in $(our_processes "$name"); do stop_process "$pid" 20; done
    done
    remove_cgroup "$CGROUP-$1"
    for pid in $(holders); do stop_process "$pid" 2; done
    ip link delete "$(node_link "$1")" 2>/dev/null || true
    rm -f "$DATA/run"/{kubelet,containerd,holder}"-$1.pid"
    rm -rf "$directory/containerd/state" "$directory/containerd/runc" "$directory/run"
}

# remove_surplus_nodes: those above NODES go, from the API too.
remove_surplus_nodes() {
    local number
    for number in $(node_numbers); do
        ((number > NODES)) || continue
        say "removing node $NODE-$number"
        remove_node "$number"
        rm -rf --one-file-system "$DATA/nodes/$number"
        kubectl_admin delete node "$NODE-$number" --ignore-not-found >/dev/null || true
    done
    if ((NODES == 1)); then remove_bridge; fi
}

# remove_bridge: the wire, and what the network of several nodes left on this machine itself.
remove_bridge() {
    local device
    ip -o link show "$BRIDGE" >/dev/null 2>&1 || return 0
    nft delete table ip "$NODE_TABLE" 2>/dev/null || true
    nft delete table ip6 "$NODE_TABLE" 2>/dev/null || true
    for device in flannel.1 flannel-v6.1; do
        if ip -o link show "$device" 2>/dev/null | grep -q 'alias skiff pod network'; then ip link delete "$device" || true; fi
    done
    ip -4 route flush proto 115 2>/dev/null || true
    ip -6 route flush proto 115 2>/dev/null || true
    nft delete table inet skiff_overlay 2>/dev/null || true
    ip link delete "$BRIDGE" || true
}

# cgroup_mounts: every hierarchy's mount point, version 1 and 2.
cgroup_mounts() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# remove_cgroup PATH: in every hierarchy.
remove_cgroup() {
    local mount
    [[ $1 = /?* ]] || return 0
    for mount in $(cgroup_mounts); do
        [[ -d $mount$1 ]] || continue
        until_true 10 cgroup_removed "$mount$1" || say "cgroup $mount$1 is still in use"
    done
}
# cgroup_removed DIRECTORY: kills what is left inside and removes the groups, deepest first.
cgroup_removed() {
    local directory pid
    [[ -d $1 ]] || return 0
    while IFS= read -r directory; do
        while IFS= read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$directory/cgroup.procs"
        rmdir "$directory" 2>/dev/null || true
    done < <(find "$1" -depth -type d)
    [[ ! -d $1 ]]
}
