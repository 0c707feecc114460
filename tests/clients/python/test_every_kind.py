"""Every verb on every kind that discovery tells of, request by request: no kind has less than the others."""

import json
import unittest

from kubernetes.client.exceptions import ApiException

from harness import ServerTest, wait_for
from manifests import minimal

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
# Those whose objects an update must name a revision for.
STRICT_UPDATES = {
    "leases", "poddisruptionbudgets", "customresourcedefinitions", "csidrivers", "csinodes", "csistoragecapacities",
    "volumeattachments", "runtimeclasses", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
    "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
}


class EveryKind(ServerTest):
    def kinds(self):
        """(group version, resource) of all that objects can be made of."""
        for root in ("/api", "/apis"):
            _, _, found = self.raw("GET", root, headers={"Accept": AGGREGATED})
            for group in found["items"]:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    for resource in version["resources"]:
                        if {"create", "list"} <= set(resource["verbs"]) and not name.endswith(".example.com"):
                            yield f"{name}/{version['version']}".removeprefix("/"), resource

    def path(self, version, resource):
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        scope = f"/namespaces/{self.namespace}" if resource["scope"] == "Namespaced" else ""
        return f"{root}{scope}/{resource['resource']}"

    def patch(self, path, content_type, body):
        return self.raw("PATCH", path, body, headers={"Content-Type": content_type})[2]

    def test_verbs(self):
        for version, resource in self.kinds():
            kind = resource["responseKind"]["kind"]
            body = minimal(resource["resource"], version, kind, f"sweep-{self.namespace}", self.namespace)
            if body is None:
                continue
            with self.subTest(f"{resource['resource']} of {version}"):
                self.live(version, resource, body)

    def live(self, version, resource, body):
        """One object's life."""
        collection, name = self.path(version, resource), body["metadata"]["name"]
        one = f"{collection}/{name}"
        self.refused(404, "NotFound", self.patch, one, MERGE, {"metadata": {"labels": {"a": "b"}}})
        code, _, dry = self.raw("POST", f"{collection}?dryRun=All&fieldValidation=Strict", body)
        self.assertEqual((code, dry["kind"], dry["apiVersion"]), (201, body["kind"], version))
        self.refused(404, "NotFound", self.raw, "GET", one)
        _, _, made = self.raw("POST", f"{collection}?fieldValidation=Strict&fieldManager=sweep", body)
        try:
            self.read(collection, one, made, body)
            self.change(resource, one, made, body)
        finally:
            _, _, ended = self.raw("DELETE", f"{one}?gracePeriodSeconds=0")
        self.assertTrue(ended["kind"] == body["kind"] or (ended["kind"], ended["status"]) == ("Status", "Success"), ended)
        wait_for(f"end of {one}", lambda: self.missing(one))

    def missing(self, path):
        try:
            self.raw("GET", path)
        except ApiException as refused:
            return refused.status == 404
        return False

    def read(self, collection, one, made, body):
        _, _, got = self.raw("GET", one)
        self.assertEqual(got["metadata"]["uid"], made["metadata"]["uid"])
        name = made["metadata"]["name"]
        self.refused(409, "AlreadyExists", self.raw, "POST", collection, body)
        _, _, listed = self.raw("GET", f"{collection}?fieldSelector=metadata.name%3D{name}")
        self.assertEqual((listed["kind"], len(listed["items"])), (f"{made['kind']}List", 1))
        self.assertNotIn("kind", listed["items"][0])
        _, _, table = self.raw("GET", collection, headers={"Accept": TABLE})
        mine = [row for row in table["rows"] if row["object"]["metadata"]["name"] == name]
        self.assertEqual(len(mine), 1)
        self.assertEqual(len(mine[0]["cells"]), len(table["columnDefinitions"]))
        _, _, partial = self.raw("GET", one, headers={"Accept": PARTIAL})
        self.assertEqual((partial["kind"], set(partial)), ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"}))
        self.refused(400, "BadRequest", self.raw, "GET", f"{collection}?fieldSelector=nothing.like.this%3Dx")
        event = self.first_event(f"{collection}?watch=1&fieldSelector=metadata.name%3D{name}&timeoutSeconds=20")
        self.assertEqual((event["type"], event["object"]["metadata"]["uid"]), ("ADDED", made["metadata"]["uid"]))

    def first_event(self, path):
        answer = self.api.rest_client.pool_manager.request(
            "GET", self.api.configuration.host + path, headers={"Accept": "application/json"}, preload_content=False)
        try:
            return json.loads(next(iter(answer.stream(1 << 16))).split(b"\n")[0])
        finally:
            answer.close()

    def change(self, resource, one, made, body):
        got = self.unchanged_by_put(one)
        if resource["resource"] in STRICT_UPDATES:
            loose = {**got, "metadata": {key: value for key, value in got["metadata"].items() if key != "resourceVersion"}}
            refused = self.refused(422, "Invalid", self.raw, "PUT", one, loose)
            self.assertEqual(refused["details"]["causes"][0]["field"], "metadata.resourceVersion")
        stale = {**got, "metadata": {**got["metadata"], "labels": {"put": "stale"}}}
        labels = self.patch(one, MERGE, {"metadata": {"labels": {"merge": "1"}}})["metadata"]["labels"]
        self.assertEqual(labels["merge"], "1")
        self.refused(409, "Conflict", self.raw, "PUT", one, stale)
        labels = self.patch(one, STRATEGIC, {"metadata": {"labels": {"merge": None, "strategic": "2"}}})["metadata"]["labels"]
        self.assertEqual((labels.get("merge"), labels["strategic"]), (None, "2"))
        labels = self.patch(one, JSON, [{"op": "add", "path": "/metadata/labels/json", "value": "3"}])["metadata"]["labels"]
        self.assertEqual(labels["json"], "3")
        configuration = {**body, "metadata": {"name": made["metadata"]["name"], "labels": {"apply": "4"}}}
        applied = self.patch(f"{one}?fieldManager=applier&force=true", APPLY, configuration)
        self.assertEqual(applied["metadata"]["labels"]["apply"], "4")
        again = self.unchanged(one, lambda got: self.patch(f"{one}?fieldManager=applier", APPLY, configuration))
        managers = {(entry["manager"], entry["operation"]) for entry in again["metadata"]["managedFields"]}
        self.assertIn(("applier", "Apply"), managers)
        for subresource in resource.get("subresources", []):
            if subresource["subresource"] in ("status", "scale"):
                self.subresource(one, subresource)

    def subresource(self, one, subresource):
        path = f"{one}/{subresource['subresource']}"
        self.assertEqual(self.unchanged_by_put(path)["kind"], subresource["responseKind"]["kind"])

    def unchanged_by_put(self, path):
        return self.unchanged(path, lambda got: self.raw("PUT", path, got)[2])

    def unchanged(self, path, write):
        """Expects a write that changes nothing to write nothing; controllers may write in between, so it is tried again."""

        def same():
            _, _, got = self.raw("GET", path)
            try:
                written = write(got)
            except ApiException as refused:
                if refused.status == 409:
                    return None
                raise
            return written if written["metadata"]["resourceVersion"] == got["metadata"]["resourceVersion"] else None

        return wait_for(f"a write of {path} that changes nothing", same)


if __name__ == "__main__":
    unittest.main()
