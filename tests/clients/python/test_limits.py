"""Quotas and limit ranges as kubectl makes and shows them."""

from test_kubectl import Kubectl

RANGE = """
apiVersion: v1
kind: LimitRange
metadata: {name: r}
spec:
  limits:
  - {type: Container, max: {cpu: "1"}, default: {cpu: 500m}, defaultRequest: {cpu: 200m}}
"""
BIG = """
apiVersion: v1
kind: Pod
metadata: {name: big}
spec: {containers: [{name: c, image: i, resources: {limits: {cpu: "2"}}}]}
"""


class Limits(Kubectl):
    def test_a_quota(self):
        self.each(self.quota)

    def quota(self):
        self.says("resourcequota/q created", "create", "quota", "q", "--hard=configmaps=3,requests.cpu=1")
        # Every namespace has one: the CA's.
        self.comes_to_say(r"configmaps +1 +3\s+requests\.cpu +0 +1", "describe", "quota", "q")
        for name in ("a", "b"):
            self.says(f"configmap/{name} created", "create", "configmap", name)
        self.comes_to_say(r"configmaps: 3/3, requests\.cpu: 0/1", "get", "quota", "q")
        self.fails(
            "exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3",
            "create", "configmap", "c")
        self.run_it("delete", "configmap", "a")
        self.comes_to_say(r"configmaps +2 +3", "describe", "quota", "q")
        self.says("configmap/c created", "create", "configmap", "c")

    def test_a_limit_range(self):
        self.each(self.limit_range)

    def limit_range(self):
        self.says("limitrange/r created", "create", "--filename=-", given=RANGE)
        self.comes_to_say(r"Container +cpu +- +1 +200m +500m", "describe", "limitrange", "r")
        self.says("pod/p created", "run", "p", "--image=nginx")
        template = "jsonpath={.spec.containers[0].resources.requests.cpu} {.spec.containers[0].resources.limits.cpu}"
        self.says("200m 500m", "get", "pod", "p", f"--output={template}")
        self.fails(
            "maximum cpu usage per Container is 1, but limit is 2", "create", "--filename=-", given=BIG)
