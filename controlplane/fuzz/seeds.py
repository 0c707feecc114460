#!/usr/bin/env python3
"""Writes what the fuzzing of one target begins with: seeds.py TARGET DIRECTORY.

Objects are the smallest ones of every kind that the clients' tests make (tests/clients/python/manifests.py).
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "clients" / "python"))
sys.dont_write_bytecode = True

import manifests  # noqa: E402

KINDS = {
    "configmaps": "ConfigMap", "endpoints": "Endpoints", "events": "Event", "limitranges": "LimitRange", "namespaces": "Namespace",
    "nodes": "Node", "persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume", "pods": "Pod",
    "podtemplates": "PodTemplate", "replicationcontrollers": "ReplicationController", "resourcequotas": "ResourceQuota",
    "secrets": "Secret", "services": "Service", "deployments": "Deployment", "replicasets": "ReplicaSet", "daemonsets": "DaemonSet",
    "statefulsets": "StatefulSet", "jobs": "Job", "cronjobs": "CronJob", "ingresses": "Ingress", "networkpolicies": "NetworkPolicy",
    "roles": "Role", "rolebindings": "RoleBinding", "leases": "Lease", "horizontalpodautoscalers": "HorizontalPodAutoscaler",
    "poddisruptionbudgets": "PodDisruptionBudget", "endpointslices": "EndpointSlice", "flowschemas": "FlowSchema",
    "resourceclaims": "ResourceClaim", "customresourcedefinitions": "CustomResourceDefinition",
}

RULES = """
self.s == 'first' && self.n > 0
self.list.all(x, x.size() < 5) || self.list.exists_one(x, x == 'a')
self.list.map(x, x.upperAscii()).filter(x, x != 'B').size() == 1
self.named.exists(e, e.name == self.s && has(e.n))
self.map.all(k, self.map[k] < 10) && 'a' in self.map
oldSelf.n <= self.n ? true : self.b
self.at < timestamp('2027-01-01T00:00:00Z') && self.took > duration('5m')
self.at.getFullYear() == 2026 && self.took.getMinutes() == 65
self.s.matches('^[a-z]+$') && self.s.find('[rt]+') == 'r' && self.s.findAll('[a-z]', 2).size() == 2
self.s.split('r').join('-').replace('s', 'x', 1).lowerAscii().trim().substring(1, 3) == 'i-'
type(self.either) == int && self.either == 3
string(self.f) == '0.5' && double('1.5') > self.f && int(self.f * 4.0) == 2 && uint(3) == 3u
quantity('100Mi').isGreaterThan(quantity('10k')) && isQuantity('1') && quantity('1').add(2).asInteger() == 3
ip(self.ip).family() == 4 && cidr('10.0.0.0/8').containsIP(self.ip) && isIP('::1') && ip('::1').isLoopback()
url('https://example.com:80/a?b=c').getHostname() == 'example.com' && url('/a').getQuery().size() == 0
semver('1.2.3').isLessThan(semver('2.0.0')) && isSemver('v1', true)
format.dns1123Label().validate(self.s).hasValue() || !format.named('uuid').hasValue()
[1, 2, 3].sum() == 6 && self.list.isSorted() && [3, 1].max() == 3 && [1, 2].indexOf(2) == 1
self.?any.orValue({}).size() == 1 || optional.of(1).hasValue() && self.?b.optMap(x, !x).orValue(true)
cel.bind(x, self.s + 'y', x + x) == 'firstyfirsty'
self.list.transformList(i, v, i + v.size()).size() == 2 && self.map.transformMap(k, v, v + 1).size() == 2
base64.encode(self.bytes) == 'YWJj' && base64.decode('YWJj') == b'abc'
sets.contains(self.set, ['a']) && sets.intersects(self.set, ['b']) && lists.range(3).size() == 3
math.greatest(1, self.n) == 3 && math.abs(-1) == 1 && math.isNaN(0.0 / 0.0)
'%s has %d of %.2f, %x %e %b %o'.format([self.s, self.n, self.f, 255, 1.5, true, 8]) != ''
dyn(self.any).x[0] == 1 || size(self.s) > 0x10 || -9223372036854775808 < 9223372036854775807
"""

SCHEMAS = [
    {"type": "object", "properties": {"spec": {"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "pattern": "^a+$", "maxLength": 5, "default": "aa"},
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2, "nullable": True},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"x-kubernetes-int-or-string": True}}}},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "uniqueItems": False, "items": {"type": "string", "enum": ["x", "y"]}},
        "m": {"type": "object", "additionalProperties": {"type": "number", "format": "double"}},
        "o": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}},
        "x-kubernetes-validations": [{"rule": "self.a != oldSelf.a", "messageExpression": "'still ' + self.a", "fieldPath": ".a",
                                      "reason": "FieldValueForbidden", "optionalOldSelf": False}]},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}},
    {"type": "object", "oneOf": [{"required": ["a"]}, {"not": {"properties": {"b": {"minLength": 2}}}}],
     "properties": {"a": {"type": "string", "format": "date-time"}, "b": {"type": "string"}}, "minProperties": 1},
]
OBJECTS = [
    {"spec": {"a": "aaa", "n": 4, "l": [{"k": "1", "v": "x"}, {"k": "2", "v": 3}], "s": ["x"], "m": {"q": 1.5},
              "o": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, "unknown": 1}, "status": {"y": [1]}},
    {"a": "2026-01-01T00:00:00Z", "b": "c"},
]
QUERIES = [
    "/api/v1/namespaces/default/pods/p/log?container=c&follow=true&tailLines=5",
    "/api/v1/pods?labelSelector=a%3Db%2Cc+in+%28d%2Ce%29%2C%21f%2Cg%21%3Dh%2Ci+notin+%28j%29%2Ck%3E1&fieldSelector=spec.nodeName%3Dn%2Cmetadata.name%21%3Dx",
    "/apis/apps/v1/namespaces/n/deployments/d/scale?dryRun=All&fieldManager=m",
    "/api/v1/watch/namespaces/default/pods/p?resourceVersion=5&allowWatchBookmarks=1",
    "/api/v1/namespaces/n/services/https:s:443/proxy/a/b%2Fc?d=e",
]


def objects():
    for (plural, version), rest in manifests.MINIMAL.items():
        if plural in KINDS:
            yield {"apiVersion": version, "kind": KINDS[plural], "metadata": {"name": "a", "namespace": "b"}, **rest}


def seeds(target):
    """The seeds of a target, as bytes."""
    line = lambda value: json.dumps(value).encode()
    if target == "body":
        for made in objects():
            # The first byte chooses the encoding: JSON, and YAML, of which JSON is a part.
            yield b"\0" + line(made)
            yield b"\1" + line(made)
    elif target == "patch":
        for made in objects():
            yield line(made) + b"\n" + line({**made, "metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": None}})
            yield line(made) + b'\n[{"op":"add","path":"/metadata/labels","value":{}},{"op":"move","from":"/kind","path":"/metadata/labels/a"}]'
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        yield line(pod) + b"\n" + line({"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}], "containers": [
            {"name": "c", "$patch": "delete"}, {"name": "d", "image": "j", "ports": [{"containerPort": 1, "protocol": "TCP"}]}],
            "$retainKeys": ["containers"]}, "metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}})
    elif target == "rule":
        yield from (rule.encode() for rule in RULES.strip().splitlines())
    elif target == "definition":
        for schema in SCHEMAS:
            for made in OBJECTS:
                yield b"\n".join(map(line, (schema, {**made, "metadata": {"name": "a"}}, {**made, "metadata": {"name": "a"}})))
    elif target == "query":
        yield from (query.encode() for query in QUERIES)


if __name__ == "__main__":
    for number, seed in enumerate(seeds(sys.argv[1])):
        (pathlib.Path(sys.argv[2]) / f"seed-{number}").write_bytes(seed)
