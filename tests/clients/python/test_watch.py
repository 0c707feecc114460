"""Watches through the Python client: what is told, from where, and how they end."""

import threading
import unittest

from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from harness import PATIENCE_SECONDS, ServerTest
from test_verbs import config_map


class Watches(ServerTest):
    def told(self, until, **options):
        """The events (type, name) of a watch on this test's maps, up to and with `until`."""
        seen = []
        stream = watch.Watch()
        for event in stream.stream(
            self.core.list_namespaced_config_map, self.namespace, timeout_seconds=PATIENCE_SECONDS, **options
        ):
            item = event["object"]
            if item.metadata.name == "kube-root-ca.crt":
                continue
            seen.append((event["type"], item.metadata.name))
            if seen[-1] == until:
                stream.stop()
        self.assertEqual(seen[-1:], [until], seen)
        return seen

    def now(self):
        return self.core.list_namespaced_config_map(self.namespace).metadata.resource_version

    def test_changes_are_told_in_order_from_a_revision_on(self):
        before = self.now()
        self.core.create_namespaced_config_map(self.namespace, config_map("a"))
        self.core.patch_namespaced_config_map("a", self.namespace, {"data": {"x": "1"}})
        self.core.create_namespaced_config_map(self.namespace, config_map("b"))
        self.core.delete_namespaced_config_map("a", self.namespace)
        told = self.told(("DELETED", "a"), resource_version=before)
        self.assertEqual(told, [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")])

    def test_without_a_revision_what_is_there_comes_first(self):
        self.core.create_namespaced_config_map(self.namespace, config_map("a"))
        self.assertEqual(self.told(("ADDED", "a")), [("ADDED", "a")])

    def test_selectors_make_objects_come_and_go(self):
        before = self.now()
        self.core.create_namespaced_config_map(self.namespace, config_map("a", {"in": "no"}))
        for value in ("yes", "no"):
            self.core.patch_namespaced_config_map("a", self.namespace, {"metadata": {"labels": {"in": value}}})
        told = self.told(("DELETED", "a"), resource_version=before, label_selector="in=yes")
        self.assertEqual(told, [("ADDED", "a"), ("DELETED", "a")])

    def test_a_watch_that_began_first_hears_of_what_follows(self):
        before, began = self.now(), threading.Event()

        def write():
            began.wait(PATIENCE_SECONDS)
            self.core.create_namespaced_config_map(self.namespace, config_map("late"))

        writer = threading.Thread(target=write)
        writer.start()
        self.addCleanup(writer.join)
        began.set()
        self.assertEqual(self.told(("ADDED", "late"), resource_version=before), [("ADDED", "late")])

    def test_a_revision_that_is_none_is_refused(self):
        with self.assertRaises(ApiException) as caught:
            next(iter(watch.Watch().stream(self.core.list_namespaced_config_map, self.namespace, resource_version="new")))
        self.assertEqual(caught.exception.status, 400)

    def test_its_time_ends_it(self):
        events = list(watch.Watch().stream(
            self.core.list_namespaced_config_map, self.namespace, resource_version=self.now(), timeout_seconds=1))
        self.assertEqual(events, [])

    def test_the_state_comes_as_a_stream_with_a_bookmark_at_its_end(self):
        self.core.create_namespaced_config_map(self.namespace, config_map("a"))
        stream = watch.Watch()
        bookmark = None
        for event in stream.stream(
            self.core.list_namespaced_config_map, self.namespace, send_initial_events=True, allow_watch_bookmarks=True,
            resource_version_match="NotOlderThan", timeout_seconds=PATIENCE_SECONDS,
        ):
            if event["type"] == "BOOKMARK":
                bookmark = event["raw_object"]
                stream.stop()
        self.assertEqual(bookmark["metadata"]["annotations"], {"k8s.io/initial-events-end": "true"})
        self.assertGreaterEqual(int(bookmark["metadata"]["resourceVersion"]), 1)


class CustomObjects(ServerTest):
    """Custom resources through the client's untyped calls and its dynamic client."""

    def setUp(self):
        super().setUp()
        self.group = f"{self.namespace}.example.com"
        self.extensions = client.ApiextensionsV1Api(self.api)
        self.custom = client.CustomObjectsApi(self.api)
        schema = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "colour": {"type": "string", "default": "green", "enum": ["green", "red"]},
                    },
                },
                "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
            },
        }
        self.name = f"toys.{self.group}"
        self.extensions.create_custom_resource_definition({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {"plural": "toys", "singular": "toy", "kind": "Toy"},
                "versions": [{
                    "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }],
            },
        })
        self.addCleanup(self.extensions.delete_custom_resource_definition, self.name)
        stream = watch.Watch()
        for event in stream.stream(
            self.extensions.list_custom_resource_definition, field_selector=f"metadata.name={self.name}",
            timeout_seconds=PATIENCE_SECONDS,
        ):
            conditions = event["raw_object"].get("status", {}).get("conditions", [])
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                stream.stop()

    def toy(self, name, **spec):
        return {"apiVersion": f"{self.group}/v1", "kind": "Toy", "metadata": {"name": name}, "spec": spec}

    def test_they_are_defaulted_judged_and_listed(self):
        place = (self.group, "v1", self.namespace, "toys")
        made = self.custom.create_namespaced_custom_object(*place, self.toy("a", size=3, unknown=True))
        self.assertEqual(made["spec"], {"size": 3, "colour": "green"})
        wrong = self.refused(422, "Invalid", self.custom.create_namespaced_custom_object, *place, self.toy("b", size=0, colour="blue"))
        self.assertEqual({cause["field"] for cause in wrong["details"]["causes"]}, {"spec.size", "spec.colour"})
        patched = self.custom.patch_namespaced_custom_object_status(*place, "a", {"status": {"seen": 1}, "spec": {"size": 9}})
        self.assertEqual((patched["status"], patched["spec"]["size"]), ({"seen": 1}, 3))
        self.assertEqual([toy["metadata"]["name"] for toy in self.custom.list_namespaced_custom_object(*place)["items"]], ["a"])
        self.custom.delete_namespaced_custom_object(*place, "a")
        self.refused(404, "NotFound", self.custom.get_namespaced_custom_object, *place, "a")

    def test_the_dynamic_client_finds_and_applies_them(self):
        self.dynamic.resources.invalidate_cache()
        toys = self.dynamic.resources.get(api_version=f"{self.group}/v1", kind="Toy")
        applied = toys.server_side_apply(body=self.toy("a", size=1), namespace=self.namespace, field_manager="tester")
        self.assertEqual(applied.spec.colour, "green")
        self.assertEqual([(e.manager, e.operation) for e in applied.metadata.managedFields], [("tester", "Apply")])
        again = toys.server_side_apply(body=self.toy("a", size=1), namespace=self.namespace, field_manager="tester")
        self.assertEqual(again.metadata.resourceVersion, applied.metadata.resourceVersion)
        for event in toys.watch(namespace=self.namespace, timeout=PATIENCE_SECONDS):
            self.assertEqual((event["type"], event["object"].metadata.name), ("ADDED", "a"))
            break


if __name__ == "__main__":
    unittest.main()
