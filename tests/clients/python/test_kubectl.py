"""kubectl's subcommands against the API alone, each with every version that KUBECTLS names. What needs a node is tested with one."""

import json
import os
import re
import subprocess
import tempfile
import unittest

from harness import PATIENCE_SECONDS, ServerTest, kubectls, wait_for

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
"""
MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: %s}
"""


class Kubectl(ServerTest):
    """Runs once for each program; `self.program` is the one in hand."""

    def each(self, case):
        for program in kubectls():
            with self.subTest(program):
                self.program = program
                # Each program finds an empty namespace.
                outer, self.namespace = self.namespace, f"{self.namespace}-{abs(hash(program)) % 10**6}"
                self.make_namespace()
                try:
                    case()
                finally:
                    self._delete_namespace()
                    self.namespace = outer

    def run_it(self, *arguments, code=0, given=None):
        """Runs kubectl in the namespace, expects this exit code, and returns (standard output, standard error)."""
        ended = subprocess.run(
            [self.program, "--namespace", self.namespace, *arguments],
            input=given, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
        self.assertEqual(ended.returncode, code, f"kubectl {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended.stdout, ended.stderr

    def says(self, expected, *arguments, **options):
        """Runs kubectl and expects its standard output to match the whole of this expression."""
        out, _ = self.run_it(*arguments, **options)
        self.assertRegex(out.strip(), re.compile(rf"\A(?:{expected})\Z", re.DOTALL))

    def comes_to_say(self, expected, *arguments):
        """Runs kubectl until its standard output has a match of this expression: what it shows is others' work."""
        wait_for(f"{expected} of {arguments}", lambda: re.search(expected, self.run_it(*arguments)[0]))

    def shows(self, expected, *arguments):
        """Starts kubectl, which goes on for ever, and ends it once its standard output has a match of this expression."""
        with tempfile.TemporaryFile("w+") as shown:
            command = [self.program, "--namespace", self.namespace, *arguments]
            process = subprocess.Popen(command, stdout=shown, stderr=subprocess.DEVNULL)
            try:
                wait_for(f"{expected} of {arguments}", lambda: re.search(expected, os.pread(shown.fileno(), 1 << 20, 0).decode(), re.DOTALL))
            finally:
                process.kill()
                process.wait()

    def fails(self, expected, *arguments, **options):
        """Runs kubectl and expects it to fail with this in its standard error."""
        _, err = self.run_it(*arguments, code=options.pop("code", 1), **options)
        self.assertIn(expected, err)


class Create(Kubectl):
    def test_what_create_makes(self):
        self.each(self.create)

    def create(self):
        rows = [
            (("configmap", "c", "--from-literal=a=1"), "configmap/c created"),
            (("secret", "generic", "s", "--from-literal=a=1"), "secret/s created"),
            (("secret", "docker-registry", "d", "--docker-server=r.example.com", "--docker-username=u", "--docker-password=p"), "secret/d created"),
            (("serviceaccount", "robot"), "serviceaccount/robot created"),
            (("role", "reader", "--verb=get,list", "--resource=pods,deployments.apps"), "role.rbac.authorization.k8s.io/reader created"),
            (("rolebinding", "reads", "--role=reader", "--serviceaccount=x:robot"), "rolebinding.rbac.authorization.k8s.io/reads created"),
            # Of something that nothing here makes: what a quota counts is refused until its controller has counted it.
            (("quota", "q", "--hard=persistentvolumeclaims=5"), "resourcequota/q created"),
            (("poddisruptionbudget", "p", "--selector=app=web", "--min-available=1"), "poddisruptionbudget.policy/p created"),
            (("ingress", "i", "--rule=example.com/x=web:80"), "ingress.networking.k8s.io/i created"),
            (("job", "j", "--image=busybox", "--", "true"), "job.batch/j created"),
            (("cronjob", "n", "--image=busybox", "--schedule=0 0 1 1 *", "--", "true"), "cronjob.batch/n created"),
            (("job", "m", "--from=cronjob/n"), "job.batch/m created"),
            (("deployment", "web", "--image=nginx", "--replicas=2", "--port=80"), "deployment.apps/web created"),
            (("service", "clusterip", "web", "--tcp=80:80"), "service/web created"),
            (("service", "nodeport", "out", "--tcp=80:80"), "service/out created"),
            (("service", "externalname", "far", "--external-name=a.example.com"), "service/far created"),
        ]
        for arguments, said in rows:
            self.says(re.escape(said), "create", *arguments)
        self.fails("already exists", "create", "configmap", "c")
        self.says(r"[\w-]+\.[\w-]+\.[\w-]+", "create", "token", "robot", "--duration=10m")
        self.says("service/exposed exposed", "expose", "deployment", "web", "--port=80", "--name=exposed")
        self.says("pod/one created", "run", "one", "--image=busybox", "--restart=Never", "--", "true")
        self.says("pod/two created \\(server dry run\\)", "run", "two", "--image=busybox", "--dry-run=server")
        self.fails('pods "two" not found', "get", "pod", "two")
        self.fails('namespaces "nowhere" not found', "create", "configmap", "c", "--namespace=nowhere")


class Show(Kubectl):
    def test_what_get_and_describe_show(self):
        self.each(self.show)

    def show(self):
        self.run_it("create", "deployment", "web", "--image=nginx", "--replicas=2")
        self.run_it("rollout", "status", "deployment/web", "--watch=false")
        pods = wait_for("two pods", lambda: self.both())
        self.says(r"NAME +READY +STATUS +RESTARTS +AGE(\nweb-\S+ +0/1 +Pending +0 +\S+){2}", "get", "pods")
        self.comes_to_say(r"NAME +READY +UP-TO-DATE +AVAILABLE +AGE +CONTAINERS +IMAGES +SELECTOR\nweb +0/2 +2 +0 +\S+ +nginx +nginx +app=web\n",
                          "get", "deployments", "-o", "wide")
        self.says("".join(f"pod/{pod}\n" for pod in pods).strip(), "get", "pods", "-o", "name", "--chunk-size=1")
        self.says(" ".join(pods), "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")
        self.says(r"N\n" + "\n".join(pods), "get", "pods", "-o", "custom-columns=N:.metadata.name", "--sort-by=.metadata.name")
        self.says("", "get", "pods", "-l", "app=other", "-o", "name")
        self.fails("field label not supported: spec.foo", "get", "pods", "--field-selector=spec.foo=x")
        self.fails("the server doesn't have a resource type \"foo\"", "get", "foo")
        out, _ = self.run_it("get", "all")
        self.assertEqual(re.findall(r"^(\w[\w.]+)/", out, re.MULTILINE), ["pod", "pod", "deployment.apps", "replicaset.apps"])
        for shown in (r"Replicas: +2 desired \| 2 updated \| 2 total \| 0 available \| 2 unavailable",
                      r"ScalingReplicaSet +\S+ +deployment-controller +Scaled up replica set web-\S+ from 0 to 2"):
            self.comes_to_say(shown, "describe", "deployment", "web")
        self.assertIn("Priority:         0", self.run_it("describe", "pod", pods[0])[0])
        self.comes_to_say(r"Deployment/web +Scaled up replica set \S+ from 0 to 2", "events", "--for", "deployment/web")
        self.shows(r"\AEVENT +NAME.*(\nADDED +web-\S+.*){2}\n", "get", "pods", "--watch", "--output-watch-events")
        self.says(r"pod/\S+ condition met", "wait", "--for=jsonpath={.status.phase}=Pending", f"pod/{pods[0]}", f"--timeout={PATIENCE_SECONDS}s")
        self.fails("timed out waiting for the condition", "wait", "--for=condition=Available", "deployment/web", "--timeout=3s")

    def both(self):
        names = self.run_it("get", "pods", "-o", "name", "-l", "app=web")[0].replace("pod/", "").split()
        return len(names) == 2 and sorted(names)

    def test_what_there_is(self):
        self.each(self.discover)

    def discover(self):
        kinds = self.run_it("api-resources", "--namespaced=true", "--api-group=apps", "-o", "name")[0].split()
        self.assertEqual(kinds, [f"{kind}.apps" for kind in ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets")])
        self.assertIn("apps/v1\n", self.run_it("api-versions")[0])
        self.assertIn("limits", self.run_it("explain", "pod.spec.containers.resources")[0])
        self.assertIn("is running at", self.run_it("cluster-info")[0])
        self.assertIn("Server Version: v1.36", self.run_it("version")[0])
        self.says(".*kubernetes-admin.*", "auth", "whoami")
        self.says("yes", "auth", "can-i", "create", "pods")
        self.says("no", "auth", "can-i", "create", "pods", "--as=somebody", code=1)
        # It asks metrics.k8s.io, and then whether there are pods at all.
        self.assertIn("No resources found", self.run_it("top", "pods")[1])


class Change(Kubectl):
    def test_labels_scale_and_settings(self):
        self.each(self.settings)

    def settings(self):
        self.run_it("create", "deployment", "web", "--image=nginx")
        self.says("deployment.apps/web labeled", "label", "deployment", "web", "tier=front")
        self.fails("'tier' already has a value (front)", "label", "deployment", "web", "tier=back")
        self.says("deployment.apps/web unlabeled", "label", "deployment", "web", "tier-")
        self.says("deployment.apps/web annotated", "annotate", "deployment", "web", "kubernetes.io/change-cause=first")
        self.says("deployment.apps/web scaled", "scale", "deployment", "web", "--replicas=3")
        self.fails("Expected replicas to be 9, was 3", "scale", "deployment", "web", "--replicas=1", "--current-replicas=9")
        self.says("horizontalpodautoscaler.autoscaling/web autoscaled", "autoscale", "deployment", "web", "--min=1", "--max=3")
        self.says("deployment.apps/web image updated", "set", "image", "deployment/web", "nginx=nginx:2")
        self.says("deployment.apps/web env updated", "set", "env", "deployment/web", "A=b")
        self.says("deployment.apps/web resource requirements updated", "set", "resources", "deployment/web", "--limits=cpu=1")
        self.says("deployment.apps/web serviceaccount updated", "set", "serviceaccount", "deployment/web", "default")
        container = json.loads(self.run_it("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0]}")[0])
        self.assertEqual((container["image"], container["env"], container["resources"]),
                         ("nginx:2", [{"name": "A", "value": "b"}], {"limits": {"cpu": "1"}}))

    def test_patches(self):
        self.each(self.patch)

    def patch(self):
        self.run_it("create", "deployment", "web", "--image=nginx")
        rows = [
            ("strategic", '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}'),
            ("merge", '{"spec":{"replicas":4}}'),
            ("json", '[{"op":"replace","path":"/spec/replicas","value":5}]'),
        ]
        for kind, patch in rows:
            self.says("deployment.apps/web patched", "patch", "deployment", "web", f"--type={kind}", "--patch", patch)
        self.says("5 2", "get", "deployment", "web", "-o", "go-template={{.spec.replicas}} {{len .spec.template.spec.containers}}")
        self.fails("The request is invalid", "patch", "deployment", "web", "--type=json", "-p", '[{"op":"remove","path":"/spec/none"}]')
        self.says("scale.autoscaling/web patched", "patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":1}}')
        # kubectl compares what it read with what it was answered, so a controller's write of status between the two is a change too.
        self.comes_to_say(r"\Adeployment.apps/web patched \(no change\)$", "patch", "deployment", "web", "-p", '{"spec":{"replicas":1}}')

    def test_rollouts(self):
        self.each(self.rollout)

    def rollout(self):
        self.run_it("create", "deployment", "web", "--image=nginx")
        wait_for("revision 1", lambda: "1" in self.revisions())
        self.run_it("set", "image", "deployment/web", "nginx=nginx:2")
        wait_for("revision 2", lambda: "2" in self.revisions())
        self.assertIn("nginx:2", self.run_it("rollout", "history", "deployment/web", "--revision=2")[0])
        self.says("deployment.apps/web rolled back", "rollout", "undo", "deployment/web")
        wait_for("revision 3", lambda: self.revisions() == ["2", "3"])
        self.says("deployment.apps/web paused", "rollout", "pause", "deployment/web")
        self.fails("can't restart paused deployment", "rollout", "restart", "deployment/web")
        self.says("deployment.apps/web resumed", "rollout", "resume", "deployment/web")
        self.says("deployment.apps/web restarted", "rollout", "restart", "deployment/web")

    def revisions(self):
        return re.findall(r"^(\d+) ", self.run_it("rollout", "history", "deployment/web")[0], re.MULTILINE)


class Apply(Kubectl):
    def test_configurations_are_applied(self):
        self.each(self.apply)

    def apply(self):
        both = f"{WEB}\n---\n{MAP % 'green'}"
        self.run_it("diff", "-f", "-", given=both, code=1)
        self.says("deployment.apps/web created\nconfigmap/settings created", "apply", "-f", "-", given=both)
        self.says("deployment.apps/web unchanged\nconfigmap/settings unchanged", "apply", "-f", "-", given=both)
        self.run_it("diff", "-f", "-", given=both)
        self.assertIn("+  colour: red", self.run_it("diff", "-f", "-", given=MAP % "red", code=1)[0])
        self.says("configmap/settings configured", "apply", "-f", "-", given=MAP % "red")
        self.assertIn("colour: red", self.run_it("apply", "view-last-applied", "configmap", "settings")[0])
        self.says("configmap/settings serverside-applied", "apply", "--server-side", "-f", "-", given=MAP % "blue")
        self.fails('conflict with "kubectl": .data.colour', "apply", "--server-side", "--field-manager=other", "-f", "-", given=MAP % "grey")
        self.says("configmap/settings serverside-applied", "apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-", given=MAP % "grey")
        self.says("configmap/settings replaced", "replace", "-f", "-", given=MAP % "white")
        self.fails('unknown field "daata"', "apply", "-f", "-", given=(MAP % "x").replace("\ndata:", "\ndaata:"))
        _, warned = self.run_it("apply", "--validate=warn", "-f", "-", given=(MAP % "x").replace("\ndata:", "\ndaata:"))
        self.assertIn('unknown field "daata"', warned)

    def test_what_a_set_lacks_is_pruned(self):
        self.each(self.prune)

    def prune(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ("a", "b"):
                with open(os.path.join(directory, f"{name}.yaml"), "w", encoding="utf-8") as file:
                    file.write(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: s}}}}\n")
            self.run_it("apply", "-f", directory, "--prune", "-l", "set=s", "--prune-allowlist=core/v1/ConfigMap")
            os.remove(os.path.join(directory, "b.yaml"))
            self.says("configmap/a unchanged\nconfigmap/b pruned", "apply", "-f", directory, "--prune", "-l", "set=s", "--prune-allowlist=core/v1/ConfigMap")

    def test_a_kind_that_does_not_exist(self):
        self.each(self.unknown_kind)

    def unknown_kind(self):
        for verb in ("apply", "create"):
            self.fails('no matches for kind "Nothing" in version "v1"', verb, "-f", "-", given="apiVersion: v1\nkind: Nothing\nmetadata: {name: x}\n")


class Delete(Kubectl):
    def test_what_delete_takes_along(self):
        self.each(self.delete)

    def delete(self):
        self.run_it("create", "deployment", "web", "--image=nginx")
        # Its pod, too: one that is made while the set is deleted is collected later than the set.
        wait_for("its set and pod", lambda: "pod/web" in self.run_it("get", "replicasets,pods", "-o", "name")[0])
        self.says(r'deployment.apps "web" deleted.*', "delete", "deployment", "web", "--cascade=orphan")
        self.says(r"replicaset.apps/web-\S+", "get", "replicasets", "-o", "name")
        self.says(r'replicaset.apps "web-\S+" deleted.*', "delete", "replicasets", "--all", "--cascade=foreground", f"--timeout={PATIENCE_SECONDS}s")
        self.says("", "get", "pods", "-o", "name")
        self.run_it("run", "one", "--image=busybox")
        self.says(r'pod "one" (force deleted|deleted).*', "delete", "pod", "one", "--grace-period=0", "--force")
        self.fails('pods "one" not found', "delete", "pod", "one")
        self.says("", "delete", "pod", "one", "--ignore-not-found")
        self.says("", "wait", "--for=delete", "pod/one", "--timeout=5s")
        self.run_it("create", "configmap", "c")
        self.says(r'(configmap "\S+" deleted[^\n]*\n?){2}', "delete", "configmaps", "--all")


if __name__ == "__main__":
    unittest.main()
