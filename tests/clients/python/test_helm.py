"""What Helm asks of a server, replayed: releases kept as Secrets, three-way patches, server-side apply, waiting, pruning.

Helm itself is not packaged here. Its requests are those of client-go: discovery (aggregated), OpenAPI, a Secret
`sh.helm.release.v1.NAME.vN` of type `helm.sh/release.v1` per revision with the labels it selects by, and objects created,
patched and deleted with the field manager `helm`.
"""

import base64
import gzip
import json
import unittest

from harness import ServerTest, until_no_conflict, wait_for

STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
OWNED = {"app.kubernetes.io/managed-by": "Helm"}


def chart(namespace, replicas, colour):
    """What a chart of three objects renders to."""
    labels = {"app": "web", **OWNED}
    annotations = {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": namespace}
    metadata = {"name": "web", "namespace": namespace, "labels": labels, "annotations": annotations}
    container = {"name": "web", "image": "nginx", "env": [{"name": "COLOUR", "value": colour}], "ports": [{"containerPort": 80}]}
    return {
        "/api/v1/namespaces/{}/configmaps": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": colour}},
        "/api/v1/namespaces/{}/services": {
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 80}]}},
        "/apis/apps/v1/namespaces/{}/deployments": {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}},
    }


class Releases(ServerTest):
    def release(self, revision, status):
        """Helm's own record of a revision: gzip within base64 within the Secret's base64."""
        record = gzip.compress(json.dumps({"name": "web", "version": revision, "info": {"status": status}, "manifest": "x" * 4000}).encode())
        labels = {"name": "web", "owner": "helm", "status": status, "version": str(revision), "modifiedAt": "1790000000"}
        return {
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": f"sh.helm.release.v1.web.v{revision}", "namespace": self.namespace, "labels": labels},
            "data": {"release": base64.b64encode(base64.b64encode(record)).decode()},
        }

    def secrets(self, query=""):
        return f"/api/v1/namespaces/{self.namespace}/secrets{query}"

    def deployed(self):
        _, _, found = self.raw("GET", self.secrets("?labelSelector=name%3Dweb%2Cowner%3Dhelm%2Cstatus%3Ddeployed"))
        return [item["metadata"]["labels"]["version"] for item in found["items"]]

    def install(self, objects):
        for path, body in objects.items():
            code, _, _ = self.raw("POST", f"{path.format(self.namespace)}?fieldManager=helm&fieldValidation=Strict", body)
            self.assertEqual(code, 201)

    def test_install_upgrade_roll_back_and_uninstall(self):
        self.raw("GET", "/version")
        self.assertIn("paths", self.raw("GET", "/openapi/v3")[2])
        self.assertEqual(self.deployed(), [])
        self.raw("POST", self.secrets("?fieldManager=helm"), self.release(1, "pending-install"))
        first = chart(self.namespace, 1, "green")
        self.install(first)
        self.mark(1, "deployed")
        self.assertEqual(self.deployed(), ["1"])

        self.raw("POST", self.secrets("?fieldManager=helm"), self.release(2, "pending-upgrade"))
        # A three-way patch: what the last release said and this one does not goes; what others wrote stays.
        self.raw("PATCH", self.deployment(), {"metadata": {"labels": {"by": "hand"}}}, {"Content-Type": STRATEGIC})
        patch = {"spec": {"replicas": 3, "template": {"spec": {
            "$setElementOrder/containers": [{"name": "web"}],
            "containers": [{"name": "web", "$setElementOrder/env": [{"name": "SIZE"}],
                            "env": [{"name": "COLOUR", "$patch": "delete"}, {"name": "SIZE", "value": "big"}]}]}}}}
        _, _, upgraded = self.raw("PATCH", self.deployment("?fieldManager=helm"), patch, {"Content-Type": STRATEGIC})
        self.assertEqual(upgraded["metadata"]["labels"]["by"], "hand")
        self.assertEqual(upgraded["spec"]["template"]["spec"]["containers"][0]["env"], [{"name": "SIZE", "value": "big"}])
        self.mark(1, "superseded")
        self.mark(2, "deployed")
        self.assertEqual(self.deployed(), ["2"])

        for path in first:
            code, _, _ = self.raw("DELETE", f"{path.format(self.namespace)}/web", {"propagationPolicy": "Background"})
            self.assertEqual(code, 200)
        wait_for("the deployment's sets", lambda: not self.raw(
            "GET", f"/apis/apps/v1/namespaces/{self.namespace}/replicasets")[2]["items"])
        for revision in (1, 2):
            self.raw("DELETE", self.secrets(f"/sh.helm.release.v1.web.v{revision}"))
        self.assertEqual(self.raw("GET", self.secrets("?labelSelector=owner%3Dhelm"))[2]["items"], [])

    def deployment(self, query=""):
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/web{query}"

    def mark(self, revision, status):
        """Helm updates its record with PUT, without a revision."""
        path = self.secrets(f"/sh.helm.release.v1.web.v{revision}?fieldManager=helm")
        _, _, written = self.raw("PUT", path, self.release(revision, status))
        self.assertEqual(written["metadata"]["labels"]["status"], status)

    def test_a_records_type_does_not_change(self):
        self.raw("POST", self.secrets(), self.release(1, "deployed"))
        other = {**self.release(1, "deployed"), "type": "Opaque"}
        refused = self.refused(422, "Invalid", self.raw, "PUT", self.secrets("/sh.helm.release.v1.web.v1"), other)
        self.assertEqual(refused["details"]["causes"][0]["field"], "type")

    def test_helm_4_applies_and_takes_over_what_helm_3_made(self):
        self.install(chart(self.namespace, 1, "green"))
        for path, body in chart(self.namespace, 2, "red").items():
            one = f"{path.format(self.namespace)}/web?fieldManager=helm&force=true"
            self.raw("PATCH", f"{one}&dryRun=All", body, {"Content-Type": APPLY})
            self.raw("PATCH", one, body, {"Content-Type": APPLY})
        _, _, read = self.raw("GET", self.deployment())
        self.assertEqual(read["spec"]["replicas"], 2)
        self.assertEqual(read["spec"]["template"]["spec"]["containers"][0]["env"], [{"name": "COLOUR", "value": "red"}])
        self.assertLessEqual({("helm", "Apply"), ("helm", "Update")}, self.owners(read))
        self.assertNotIn(("helm", "Update"), self.owners(until_no_conflict(self.upgrade_owners)))

    @staticmethod
    def owners(deployment):
        return {(entry["manager"], entry["operation"]) for entry in deployment["metadata"]["managedFields"]}

    def upgrade_owners(self):
        """What Helm and kubectl do once: owners by Update become none by a JSON patch of that very revision."""
        _, _, read = self.raw("GET", self.deployment())
        kept = [entry for entry in read["metadata"]["managedFields"] if (entry["manager"], entry["operation"]) != ("helm", "Update")]
        operations = [
            {"op": "replace", "path": "/metadata/managedFields", "value": kept},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": read["metadata"]["resourceVersion"]},
        ]
        return self.raw("PATCH", self.deployment(), operations, {"Content-Type": "application/json-patch+json"})[2]

    def test_hooks_are_waited_for_by_a_watch(self):
        code, _, job = self.raw("POST", f"/apis/batch/v1/namespaces/{self.namespace}/jobs", {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hook", "annotations": {"helm.sh/hook": "pre-install"}},
            # No other controller writes its status.
            "spec": {"managedBy": "example.com/tests", "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
        self.assertEqual(code, 201)
        self.raw("PATCH", f"/apis/batch/v1/namespaces/{self.namespace}/jobs/hook/status", {
            "status": {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}},
            {"Content-Type": "application/merge-patch+json"})
        path = (f"{self.api.configuration.host}/apis/batch/v1/namespaces/{self.namespace}/jobs?watch=1&timeoutSeconds=20"
                f"&fieldSelector=metadata.name%3Dhook&resourceVersion={job['metadata']['resourceVersion']}")
        answer = self.api.rest_client.pool_manager.request("GET", path, preload_content=False)
        self.addCleanup(answer.close)
        event = json.loads(next(iter(answer.stream(1 << 16))).split(b"\n")[0])
        self.assertIn("Complete", [condition["type"] for condition in event["object"]["status"]["conditions"]])


if __name__ == "__main__":
    unittest.main()
