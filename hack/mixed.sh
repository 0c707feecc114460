# shellcheck shell=bash
# Two control planes of different versions over one member of etcd, as in a rolling upgrade: what each writes, the other reads, changes and
# tells its watches; controllers and the scheduler change hands both ways; what only the newer knows does not disturb the older. Then the
# older ends, and all is still there.
# Run by hack/faults in namespaces of its own, which end with it, whatever it leaves there.
#
# usage: hack/mixed.sh OLD NEW DIRECTORY

set -euo pipefail
OLD=$1 NEW=$2 DATA=$3
STARTED=$SECONDS
# kubectl's cache is this cluster's alone.
export HOME=$DATA
# The first process of a namespace hears nothing of these otherwise.
trap 'exit 130' INT TERM
declare -A PID=() AT=([old]=10.77.3.1 [new]=10.77.3.2) BINARY=([old]=$OLD [new]=$NEW)
CHECKS=0 WRONG=0

say() { printf '%4ds  %s\n' $((SECONDS - STARTED)) "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
wrong() {
    WRONG=$((WRONG + 1))
    say "WRONG: $*"
}
# check WHAT COMMAND...: that the command succeeds, within half a minute.
check() {
    local what=$1 deadline=$((SECONDS + 30))
    shift
    CHECKS=$((CHECKS + 1))
    until "$@" >"$DATA/said" 2>&1; do
        if ((SECONDS >= deadline)); then
            wrong "$what: $(tail -n 3 "$DATA/said" | tr '\n' ' ')"
            all_live
            return 0
        fi
        sleep 0.2
    done
}
# all_live: where one has ended that was to run, nothing more is worth asking.
all_live() {
    local name
    for name in "${!PID[@]}"; do
        kill -0 "${PID[$name]}" 2>/dev/null || die "$name has ended: $(tail -n 5 "$DATA/$name.log")"
    done
}
on() {
    local plane=$1
    shift
    kubectl --kubeconfig "$DATA/$plane/admin.kubeconfig" --request-timeout 20s "$@"
}
other() { if [[ $1 = old ]]; then echo new; else echo old; fi; }

start_etcd() {
    etcd --name m --data-dir "$DATA/etcd" --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster m=http://127.0.0.1:2380 \
        </dev/null >"$DATA/etcd.log" 2>&1 &
    PID[etcd]=$!
}
# ask_etcd PATH BODY: through its JSON gateway.
ask_etcd() { curl -fsS --max-time 5 --data "$2" "http://127.0.0.1:2379/v3/$1"; }

start() {
    local plane=$1 name
    mkdir -p "$DATA/$plane/pki" && chmod 700 "$DATA/$plane" "$DATA/$plane/pki"
    # All have the same keys: those of the one that was first.
    for name in ca.crt ca.key sa.key sa.pub; do
        [[ -s $DATA/$plane/pki/$name || ! -s $DATA/$(other "$plane")/pki/$name ]] || (umask 077 && cp "$DATA/$(other "$plane")/pki/$name" "$DATA/$plane/pki/$name")
    done
    : >"$DATA/$plane.log"
    "${BINARY[$plane]}" --data-dir "$DATA/$plane" --bind-address "${AT[$plane]}" --secure-port 6443 --etcd-servers http://127.0.0.1:2379 \
        --encryption-provider-config "$DATA/encryption.yaml" </dev/null >>"$DATA/$plane.log" 2>&1 &
    PID[$plane]=$!
    local deadline=$((SECONDS + 60))
    until grep -q '^controlplane is ready' "$DATA/$plane.log"; do
        kill -0 "${PID[$plane]}" 2>/dev/null || die "the $plane one ended: $(tail -n 5 "$DATA/$plane.log")"
        ((SECONDS < deadline)) || die "the $plane one does not start: $(tail -n 5 "$DATA/$plane.log")"
        sleep 0.1
    done
}
# stop PLANE [SIGNAL]
stop() {
    local status=0 signal=${2:-TERM}
    kill -"$signal" "${PID[$1]}"
    wait "${PID[$1]}" || status=$?
    unset "PID[$1]"
    [[ $status = 0 || $signal = KILL ]] || wrong "the $1 one ended with $status"
}

holder() { on "$1" get lease -n kube-system "$2" -o 'jsonpath={.spec.holderIdentity}'; }

write_configuration() {
    (
        umask 077
        cat >"$DATA/encryption.yaml" <<END
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: key1, secret: $(head -c 32 /dev/urandom | base64)}]}
  - identity: {}
END
    )
}

# objects PLANE: one of many kinds, named after who writes them.
objects() {
    cat <<END
apiVersion: v1
kind: ConfigMap
metadata: {name: by-$1, namespace: mixed}
data: {by: $1}
---
apiVersion: v1
kind: Secret
metadata: {name: by-$1, namespace: mixed}
stringData: {by: written-by-$1}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: by-$1, namespace: mixed}
---
apiVersion: v1
kind: Service
metadata: {name: by-$1, namespace: mixed}
spec: {type: NodePort, selector: {app: by-$1}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: by-$1, namespace: mixed}
spec:
  replicas: 2
  selector: {matchLabels: {app: by-$1}}
  template:
    metadata: {labels: {app: by-$1}}
    spec: {containers: [{name: c, image: none.invalid/c, resources: {requests: {cpu: 10m}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: by-$1, namespace: mixed}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: none.invalid/c}]}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: by-$1, namespace: mixed}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: by-$1, namespace: mixed}
spec: {minAvailable: 1, selector: {matchLabels: {app: by-$1}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: by-$1, namespace: mixed}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.$1.example.com}
spec:
  group: $1.example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
END
}
KINDS=(configmap secret serviceaccount service deployment job role poddisruptionbudget networkpolicy)

# each_writes: objects of each, which the other reads and changes, and the first reads the change.
each_writes() {
    local writer reader kind
    for writer in old new; do
        reader=$(other "$writer")
        check "the $writer one makes objects" on "$writer" apply --server-side --field-manager "$writer" -f <(objects "$writer")
        check "the $writer one serves what it defined" on "$writer" get "things.$writer.example.com" -n mixed
        check "the $reader one serves what the $writer one defined" on "$reader" get "things.$writer.example.com" -n mixed
        printf 'apiVersion: %s.example.com/v1\nkind: Thing\nmetadata: {name: by-%s, namespace: mixed}\nspec: {by: %s}\n' "$writer" "$reader" "$reader" >"$DATA/thing.yaml"
        check "the $reader one makes a custom object" on "$reader" apply -f "$DATA/thing.yaml"
        for kind in "${KINDS[@]}" "things.$writer.example.com"; do
            local name=by-$writer
            [[ $kind != things.* ]] || name=by-$reader
            check "the $reader one changes a $kind of the $writer one" on "$reader" label "$kind" -n mixed "$name" "changed-by=$reader" --overwrite
            check "the $writer one reads that" labelled "$writer" "$kind" "$name" "$reader"
            check "the $writer one changes it again" on "$writer" annotate "$kind" -n mixed "$name" again=yes --overwrite
        done
        check "the $reader one reads the secret" reads_secret "$reader" "$writer"
        check "the secret of the $writer one is encrypted" is_encrypted "by-$writer"
    done
}
labelled() { [[ $(on "$1" get "$2" -n mixed "$3" -o 'jsonpath={.metadata.labels.changed-by}') = "$4" ]]; }
reads_secret() { [[ $(on "$1" get secret -n mixed "by-$2" -o 'jsonpath={.data.by}' | base64 -d) = "written-by-$2" ]]; }
is_encrypted() {
    ask_etcd kv/range "{\"key\": \"$(printf '/registry/secrets/mixed/%s' "$1" | base64 -w0)\"}" | sed -n 's/.*"value":"\([^"]*\)".*/\1/p' |
        base64 -d | head -c 24 | grep -q '^k8s:enc:secretbox:v1:'
}

# each_watches: what each tells its watches, while both write.
each_watches() {
    local plane number
    for plane in old new; do
        on "$plane" get configmaps -n mixed -w --request-timeout 0 -o 'jsonpath={.metadata.name}{"\n"}' >"$DATA/watch-$plane" 2>"$DATA/watch-$plane.errors" &
        WATCHES+=($!)
    done
    for plane in old new; do check "the watch of the $plane one begins" grep -q by-old "$DATA/watch-$plane"; done
    for number in $(seq 10); do
        for plane in old new; do check "the $plane one writes" on "$plane" create configmap -n mixed "told-$plane-$number"; done
    done
    for plane in old new; do
        check "the watch of the $plane one tells all of both" tells_all "$plane"
    done
}
WATCHES=()
tells_all() {
    [[ $(grep '^told-' "$DATA/watch-$1" | sort -u | wc -l) = 20 && $(grep -c '^told-' "$DATA/watch-$1") = 20 ]] || {
        echo "$(grep -c '^told-' "$DATA/watch-$1") of 20"
        return 1
    }
}

# same_everywhere: that every list of both is the same, but for what is the time's and what only one knows.
same_everywhere() {
    local path plane
    for plane in old new; do
        on "$plane" api-resources --verbs=list --no-headers -o name | sort >"$DATA/kinds-$plane"
    done
    say "kinds that only the newer has: $(comm -13 "$DATA/kinds-old" "$DATA/kinds-new" | tr '\n' ' ')"
    say "kinds that only the older has: $(comm -23 "$DATA/kinds-old" "$DATA/kinds-new" | tr '\n' ' ')"
    while read -r path; do
        check "$path are the same at both" same "$path"
    done < <(comm -12 "$DATA/kinds-old" "$DATA/kinds-new" | grep -v -e '^events' -e '\.metrics\.k8s\.io$' -e '^componentstatuses')
}
same() {
    local plane
    # What goes on changing meanwhile is the same a moment later.
    for plane in old new; do on "$plane" get "$1" -A -o json --show-managed-fields >"$DATA/list-$plane.json" || return; done
    diff "$DATA/list-old.json" "$DATA/list-new.json"
}

# changes_hands: controllers and scheduler run at the plane that is left, whichever ends, in order or killed.
changes_hands() {
    local ends stays lease round before
    for round in term kill; do
        for ends in old new; do
            stays=$(other "$ends") before=$(holder "$stays" kube-controller-manager)
            stop "$ends" "${round^^}"
            for lease in kube-scheduler kube-controller-manager; do check "$lease is held beside the $ends one" has_live_holder "$stays" "$lease"; done
            check "the $stays one controls alone" scales "$stays" "alone-$round-$ends"
            say "the $ends one ended: controllers were at $before, and are at $(holder "$stays" kube-controller-manager)"
            start "$ends"
            check "the one that comes back answers" on "$ends" get --raw /readyz
        done
    done
}
has_live_holder() {
    local renewed
    renewed=$(on "$1" get lease -n kube-system "$2" -o 'jsonpath={.spec.renewTime}') || return
    [[ -n $(holder "$1" "$2") ]] && (($(date +%s) - $(date -d "$renewed" +%s) <= 5))
}
# scales PLANE NAME: a Deployment gets its pods, which nobody but the controllers makes.
scales() {
    on "$1" get deployment -n mixed "$2" >/dev/null 2>&1 ||
        on "$1" create deployment -n mixed "$2" --image none.invalid/c --replicas 3 >/dev/null || return
    [[ $(on "$1" get pods -n mixed -l "app=$2" --no-headers 2>/dev/null | wc -l) = 3 ]]
}

# unknown_kinds: objects of a kind that nobody knows, as one that only a newer knows is to an older.
unknown_kinds() {
    local key plane
    key=$(printf '/registry/futures.example.com/futures/mixed/a' | base64 -w0)
    check "an object of nobody's kind is there" ask_etcd kv/put "{\"key\": \"$key\", \"value\": \"$(printf '{"kind":"Future","apiVersion":"futures.example.com/v9","metadata":{"name":"a"}}' | base64 -w0)\"}"
    for plane in old new; do
        check "the $plane one goes on beside it" on "$plane" create configmap -n mixed "beside-$plane"
        check "the $plane one is ready" on "$plane" get --raw /readyz
    done
}

tokens_of_each() {
    local plane
    for plane in old new; do check "a token of the $plane one is good at the other" token_is_good "$plane"; done
}
token_is_good() {
    local token
    token=$(on "$1" create token -n mixed "by-$1") || return
    curl -fsSk --max-time 5 -H "Authorization: Bearer $token" "https://${AT[$(other "$1")]}:6443/version"
}

addresses_differ() {
    local all
    all=$(on new get services -A -o 'jsonpath={range .items[*]}{.spec.clusterIP}{"\n"}{end}' | grep -v None)
    [[ $(wc -l <<<"$all") = $(sort -u <<<"$all" | wc -l) ]]
}
endpoints_are() { [[ $(on new get endpoints kubernetes -o 'jsonpath={.subsets[*].addresses[*].ip}' 2>/dev/null) = "$1" ]]; }

ip link set lo up
for plane in old new; do ip address add "${AT[$plane]}/32" dev lo; done
write_configuration
start_etcd
until curl -fsS http://127.0.0.1:2379/health >/dev/null 2>&1; do
    ((SECONDS - STARTED < 60)) || die "etcd does not start: $(tail -n 3 "$DATA/etcd.log")"
    sleep 0.1
done
start old
say "the older one is ready"
on old create namespace mixed >/dev/null
check "the older one has a service account" on old get serviceaccount -n mixed default
start new
say "the newer one is ready beside it"
check "both are listed" endpoints_are "${AT[old]} ${AT[new]}"
each_writes
say "each has read and changed what the other wrote"
check "no address is given twice" addresses_differ
each_watches
say "watches of each have told what both wrote"
tokens_of_each
unknown_kinds
same_everywhere
say "lists are the same"
changes_hands
say "controllers and scheduler have changed hands"
for watch in "${WATCHES[@]}"; do kill "$watch" 2>/dev/null || true; done
stop old
check "the newer one alone is listed" endpoints_are "${AT[new]}"
for kind in "${KINDS[@]}"; do
    for writer in old new; do check "the $kind of the $writer one is there" on new get "$kind" -n mixed "by-$writer"; done
done
check "the newer one controls alone" scales new after-all
check "the newer one deletes all" on new delete namespace mixed --timeout 60s --request-timeout 60s
stop new
for plane in old new; do
    if grep -n 'panicked' "$DATA/$plane.log"; then wrong "the $plane one panicked"; fi
done
say "$CHECKS checks, $WRONG wrong"
((WRONG == 0))
