# shellcheck shell=bash
# What the scenarios share: how one speaks with the machine, says what is seen, and the steps more than one of them takes.
# Sourced, never run. hack/vm test has booted a fresh machine.
# shellcheck disable=SC2034

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BEGIN=$SECONDS
STEP=

vm() { "$ROOT/hack/vm" run "$@"; }
step() {
    STEP=$*
    printf '%4ds  %s\n' $((SECONDS - BEGIN)) "$STEP"
}
saw() { printf '       %s\n' "$*"; }
fail() {
    printf 'FAILED: %s: %s\n' "$STEP" "$*" >&2
    exit 1
}
trap '[[ $? = 0 ]] || printf "FAILED: %s\n" "$STEP" >&2' EXIT
passed() {
    STEP='every step'
    printf '%4ds  passed\n' $((SECONDS - BEGIN))
}
# same WHAT EXPECTED GOT
same() { [[ $3 = "$2" ]] || fail "$1: expected '$2', got '$3'"; }
# has WHAT PART TEXT
has() { [[ $3 = *"$2"* ]] || fail "$1: '$2' is not in: $3"; }
# On a host that does much else everything takes a multiple of the time. What is waited for ends the wait: only a failure is later for it.
PATIENCE=${SKIFF_VM_PATIENCE:-4}
# soon SECONDS COMMAND...: the guest's command succeeds in time; its processor is emulated, so the times are long, and
# every look at it takes from what is looked at. The host may be busy: the time is PATIENCE times this.
soon() {
    local seconds=$(($1 * PATIENCE))
    shift
    vm "until { $*; } >/dev/null 2>&1; do ((SECONDS < $seconds)) || exit 1; sleep 1; done" ||
        fail "not within $seconds s: $*"
}
KUBECTL='/mnt/bin/kubectl --kubeconfig /var/lib/controlplane/admin.kubeconfig --request-timeout 180s'
kubectl() { vm "$KUBECTL ${*@Q}"; }
# delete POD...: ends these pods and waits until they are gone.
delete() { kubectl delete pod "$@" --grace-period=1 --timeout="$((300 * PATIENCE))s" >/dev/null; }
# The node asks for its own object: cheaper than a kubectl, and it proves the node's credentials.
PEM=/var/lib/kubelet/pki/kubelet-client-current.pem
AS_NODE="curl -fsSN --cacert /var/lib/controlplane/pki/ca.crt --cert $PEM --key $PEM"
OWN_NODE="$AS_NODE --max-time 60 https://127.0.0.1:6443/api/v1/nodes/vm-node"
WATCH_NODE="$AS_NODE --max-time 120 https://127.0.0.1:6443/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dvm-node"
# Of a control plane that writes a condition's fields in any order.
IS_READY="tr -d ' \n' | grep -qE '\"type\":\"Ready\"[^}]*\"status\":\"True\"|\"status\":\"True\"[^}]*\"type\":\"Ready\"'"
READY="$OWN_NODE | $IS_READY"
# kubelet_said TEXT: the lines with it, of the kubelet that runs now or was tried last.
kubelet_said() { vm "journalctl -u kubelet -b --no-pager -o cat _SYSTEMD_INVOCATION_ID=\$(systemctl show -P InvocationID kubelet) | grep -F ${1@Q}"; }
containers() { vm 'ctr -n k8s.io tasks ls -q | sort' | paste -sd' '; }
kubelet_pid() { vm 'systemctl show -P MainPID kubelet'; }

# What a node leaves behind, if it leaves anything: compared before installing and after removing.
traces() {
    # shellcheck disable=SC2016
    vm 'awk "{ print \$5 }" /proc/self/mountinfo | grep -E "kubelet|containerd|netns|/cni" | sort
        ip -o link | cut -d: -f2 | sort; nft list tables; ls /run/netns 2>/dev/null
        find /sys/fs/cgroup -maxdepth 2 -name "*kubepods*"; ls /opt/cni/bin /var/lib/cni /var/lib/kubelet 2>/dev/null; md5sum /etc/containerd/config.toml
        ls /etc/systemd/system/kubelet* /usr/bin/kubelet 2>/dev/null; true'
}

start_controlplane() {
    # Any control plane would do; this one is ours, on the same machine.
    vm 'cat >/etc/systemd/system/controlplane.service <<UNIT
[Unit]
RequiresMountsFor=/mnt
[Service]
ExecStart=/mnt/bin/controlplane --data-dir /var/lib/controlplane --service-cluster-ip-range 10.96.0.0/16 --cluster-cidr 10.244.0.0/16
Restart=always
[Install]
WantedBy=multi-user.target
UNIT
        systemctl daemon-reload && systemctl enable -q --now controlplane'
    soon 120 "$KUBECTL get --raw /readyz"
}

import_images() { vm 'tar -C /mnt/layout -c . | ctr -n k8s.io images import - >/dev/null'; }

# join_by_token: what kubeadm join leaves for the kubelet, then its start.
join_by_token() {
    vm 'echo "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-labels=from=kubeadm\"" >/var/lib/kubelet/kubeadm-flags.env
        cp /var/lib/controlplane/pki/ca.crt /etc/kubernetes/pki/ca.crt && chmod 644 /etc/kubernetes/pki/ca.crt
        (umask 077 && /mnt/bin/controlplane token --data-dir /var/lib/controlplane --ttl 1h --server https://127.0.0.1:6443 >/etc/kubernetes/bootstrap-kubelet.conf)
        systemctl restart kubelet'
    soon 180 "$READY"
    saw "$(kubectl get nodes -o wide --no-headers)"
    same 'a label from kubeadm-flags.env' kubeadm "$(kubectl get node vm-node -o 'jsonpath={.metadata.labels.from}')"
}
# install_node: as in README.md, on a machine that has had no kubelet, and joined.
install_node() {
    vm 'cd /root && tar -xzf /mnt/skiff.tar.gz && cd skiff-node && ./install >/dev/null'
    join_by_token
}
# configure: the package's configuration and the settings on standard input; the kubelet begins again with them.
configure() {
    vm 'test -f /root/config.yaml || cp /var/lib/kubelet/config.yaml /root/
        cat /root/config.yaml - >/var/lib/kubelet/config.yaml && systemctl restart kubelet'
    soon 240 "$READY"
}
# requests: how many client certificates the node has asked for.
requests() {
    kubectl get csr -o 'jsonpath={range .items[?(@.spec.signerName=="kubernetes.io/kube-apiserver-client-kubelet")]}{.metadata.name}{"\n"}{end}' | grep -c .
}

apply_pods() {
    vm "$KUBECTL apply -f -" <<'PODS'
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: nginx
    image: nginx
    imagePullPolicy: IfNotPresent
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: sure}
spec:
  containers:
  - name: sleep
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sleep, "100000"]
    resources: {limits: {cpu: 200m, memory: 32Mi}}
PODS
    soon 180 "$KUBECTL wait --for=condition=Ready --timeout=30s pod/web pod/sure"
}
page_of_web() {
    vm "curl -fsS --max-time 90 http://$(kubectl get pod web -o 'jsonpath={.status.podIP}')/" | grep -q 'Welcome to nginx' || fail "no page from pod web"
}
# pod_group NAME: the directory of the pod's cgroup.
pod_group() {
    local uid
    uid=$(kubectl get pod "$1" -o 'jsonpath={.metadata.uid}')
    vm "find /sys/fs/cgroup -type d -name '*pod${uid//-/_}.slice' -o -type d -name 'pod$uid'"
}
values() { vm "cd $1 && cat cpu.max memory.max pids.max cpu.weight" | paste -sd' '; }
# limits_hold: pods web and sure have what they ask for, in slices of systemd's; leaves the groups in WEB and SURE.
limits_hold() {
    WEB=$(pod_group web) SURE=$(pod_group sure)
    [[ -n $WEB && -n $SURE ]] || fail 'a pod has no cgroup'
    saw "$WEB: $(values "$WEB")"
    same 'limits of pod web' '50000 100000 67108864 4096 4' "$(values "$WEB")"
    same 'limits of pod sure' '20000 100000 33554432 4096 8' "$(values "$SURE")"
    same 'the driver systemd' kubepods.slice/kubepods-burstable.slice "$(cut -d/ -f5,6 <<<"$WEB")"
}

# kill_kubelet: kill -9; the unit starts it again and no container notices.
kill_kubelet() {
    local running old
    running=$(containers) old=$(kubelet_pid)
    vm "kill -9 $old"
    soon 120 "test \$(systemctl show -P MainPID kubelet) != 0 && test \$(systemctl show -P MainPID kubelet) != $old && systemctl is-active kubelet"
    soon 120 "$READY"
    same containers "$running" "$(containers)"
    same restarts '0 0' "$(kubectl get pods web sure -o 'jsonpath={.items[*].status.containerStatuses[0].restartCount}')"
}

# reboot: and how long each part took. Ready in the API server may be of the last boot: the node's status names the boot it
# is of. A unit in the machine watches for it and tells the console; nobody logs in before that, because a login takes an
# emulated processor for seconds.
reboot() {
    local before spent deadline=$((SECONDS + 300 * PATIENCE))
    before=$(notes)
    vm 'cat >/root/note-ready; chmod 755 /root/note-ready' <<NOTE
#!/bin/bash
# By the shell alone: a program started here would take from the boot.
read -r boot </proc/sys/kernel/random/boot_id
ready='"status":"True"[^}]*"type":"Ready"'
until [[ -s /root/ready-after ]]; do
    ${WATCH_NODE//&/\\&} 2>/dev/null | while read -r node; do
        if [[ \$node = *"\$boot"* && \$node =~ \$ready ]]; then
            read -r uptime _ </proc/uptime
            echo "\$uptime" >/root/ready-after
            echo node-is-ready >/dev/console
            break
        fi
    done
    sleep 0.5
done
NOTE
    vm "printf '[Unit]\nAfter=kubelet.service\n[Service]\nExecStart=/root/note-ready\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/note-ready.service
        systemctl enable -q note-ready && rm -f /root/ready-after && sync"
    spent=$("$ROOT/hack/vm" spent)
    vm 'systemctl reboot' || true
    until (($(notes) > before)); do
        ((SECONDS < deadline)) || fail 'the machine does not come back with its node Ready'
        sleep 1
    done
    spent=$(($("$ROOT/hack/vm" spent) - spent))
    boot_times
    saw "shutdown and boot took $spent s of the host's processors"
    vm 'systemctl disable -q --now note-ready; rm /etc/systemd/system/note-ready.service; systemctl daemon-reload'
}
# reboot_unwatched: of a machine without a control plane, which nobody can ask whether the node is Ready.
reboot_unwatched() {
    local before deadline=$((SECONDS + 600 * PATIENCE))
    before=$(logins)
    vm 'systemctl reboot' || true
    until (($(logins) > before)) && vm true 2>/dev/null; do
        ((SECONDS < deadline)) || fail 'the machine does not come back'
        sleep 1
    done
}
logins() { "$ROOT/hack/vm" console | grep -c 'login:' || true; }
notes() { "$ROOT/hack/vm" console | grep -c node-is-ready || true; }
# boot_times: seconds since the kernel began. Told, never judged: how fast an emulated processor is says the machine it is on.
boot_times() {
    local times
    # shellcheck disable=SC2016
    times=$(vm 'at() { awk -v us="$(systemctl show -P "$@")" "BEGIN { printf \"%.1f\", us / 1e6 }"; }
        echo "kernel to systemd $(at UserspaceTimestampMonotonic), containerd active $(at ActiveEnterTimestampMonotonic containerd), kubelet started $(at ExecMainStartTimestampMonotonic kubelet) and active $(at ActiveEnterTimestampMonotonic kubelet), node Ready $(cat /root/ready-after) s"')
    saw "$times; load of the host $(cut -d' ' -f1-3 /proc/loadavg)"
}

# uninstall_leaves BEFORE: everything is as it was.
uninstall_leaves() {
    local after
    vm '/usr/local/lib/skiff/uninstall'
    after=$(traces)
    [[ $1 = "$after" ]] || fail "left behind (< before, > after):
$(diff <(echo "$1") <(echo "$after"))"
    same 'processes' '' "$(vm 'pgrep -af "^/usr/bin/(kubelet|containerd-shim)" || true')"
}
