"""Every verb of the API through the Python client's typed calls: what they send, and what they read."""

import unittest

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from harness import ServerTest


def config_map(name, labels=None, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data)


def deployment(name, replicas=1):
    labels = {"app": name}
    container = client.V1Container(name="main", image="nginx", ports=[client.V1ContainerPort(container_port=80)])
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name=name, labels=labels),
        spec=client.V1DeploymentSpec(
            replicas=replicas,
            selector=client.V1LabelSelector(match_labels=labels),
            template=client.V1PodTemplateSpec(
                metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
            ),
        ),
    )


class Objects(ServerTest):
    def test_an_object_lives_from_create_to_delete(self):
        made = self.core.create_namespaced_config_map(self.namespace, config_map("one", key="a"))
        self.assertEqual(made.data, {"key": "a"})
        self.assertTrue(made.metadata.uid)
        self.assertIsNotNone(made.metadata.creation_timestamp.tzinfo)
        read = self.core.read_namespaced_config_map("one", self.namespace)
        self.assertEqual(read.metadata.resource_version, made.metadata.resource_version)
        read.data["key"] = "b"
        written = self.core.replace_namespaced_config_map("one", self.namespace, read)
        self.assertNotEqual(written.metadata.resource_version, made.metadata.resource_version)
        again = self.core.replace_namespaced_config_map("one", self.namespace, written)
        self.assertEqual(again.metadata.resource_version, written.metadata.resource_version, "nothing changed")
        ended = self.core.delete_namespaced_config_map("one", self.namespace)
        self.assertEqual(ended["status"], "Success")
        self.assertEqual(ended["details"], {"name": "one", "kind": "configmaps", "uid": made.metadata.uid})
        self.refused(404, "NotFound", self.core.read_namespaced_config_map, "one", self.namespace)

    def test_refusals_have_reasons(self):
        self.core.create_namespaced_config_map(self.namespace, config_map("one"))
        taken = self.refused(409, "AlreadyExists", self.core.create_namespaced_config_map, self.namespace, config_map("one"))
        self.assertEqual(taken["message"], 'configmaps "one" already exists')
        stale = self.core.read_namespaced_config_map("one", self.namespace)
        self.core.patch_namespaced_config_map("one", self.namespace, {"data": {"a": "1"}})
        stale.data = {"b": "2"}
        conflict = self.refused(409, "Conflict", self.core.replace_namespaced_config_map, "one", self.namespace, stale)
        self.assertIn("the object has been modified", conflict["message"])
        invalid = self.refused(422, "Invalid", self.core.create_namespaced_config_map, self.namespace, config_map("Not_A_Name"))
        self.assertEqual(invalid["details"]["causes"][0]["field"], "metadata.name")
        self.refused(404, "NotFound", self.core.create_namespaced_config_map, "no-such-namespace", config_map("one"))
        self.refused(400, "BadRequest", self.core.create_namespaced_config_map, "default", client.V1ConfigMap(
            metadata=client.V1ObjectMeta(name="one", namespace="other")))

    def test_generated_names_differ(self):
        names = {
            self.core.create_namespaced_config_map(
                self.namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="made-"))).metadata.name
            for _ in range(5)
        }
        self.assertEqual(len(names), 5)
        self.assertTrue(all(name.startswith("made-") and len(name) == 10 for name in names), names)

    def test_a_dry_run_stores_nothing(self):
        made = self.core.create_namespaced_config_map(self.namespace, config_map("dry"), dry_run="All")
        self.assertTrue(made.metadata.uid)
        self.refused(404, "NotFound", self.core.read_namespaced_config_map, "dry", self.namespace)
        self.core.create_namespaced_config_map(self.namespace, config_map("wet", a="1"))
        self.core.patch_namespaced_config_map("wet", self.namespace, {"data": {"a": "2"}}, dry_run="All")
        self.core.delete_namespaced_config_map("wet", self.namespace, dry_run="All")
        self.assertEqual(self.core.read_namespaced_config_map("wet", self.namespace).data, {"a": "1"})

    def test_unknown_fields_are_refused_warned_of_or_ignored(self):
        path = f"/api/v1/namespaces/{self.namespace}/configmaps?fieldValidation="
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "odd"}, "daata": {}}
        strict = self.refused(400, "BadRequest", self.raw, "POST", f"{path}Strict", body)
        self.assertIn('unknown field "daata"', strict["message"])
        _, headers, _ = self.raw("POST", f"{path}Warn", body)
        self.assertEqual(headers["Warning"], r'299 - "unknown field \"daata\""')
        self.core.delete_namespaced_config_map("odd", self.namespace)
        _, headers, _ = self.raw("POST", f"{path}Ignore", body)
        self.assertNotIn("Warning", headers)

    def test_preconditions_of_a_deletion(self):
        self.core.create_namespaced_config_map(self.namespace, config_map("kept"))
        wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="11111111-1111-1111-1111-111111111111"))
        self.refused(409, "Conflict", self.core.delete_namespaced_config_map, "kept", self.namespace, body=wrong)
        wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(resource_version="1"))
        self.refused(409, "Conflict", self.core.delete_namespaced_config_map, "kept", self.namespace, body=wrong)

    def test_a_finalizer_delays_the_end(self):
        body = config_map("held")
        body.metadata.finalizers = ["example.com/hold"]
        self.core.create_namespaced_config_map(self.namespace, body)
        self.core.delete_namespaced_config_map("held", self.namespace)
        held = self.core.read_namespaced_config_map("held", self.namespace)
        self.assertIsNotNone(held.metadata.deletion_timestamp)
        self.core.patch_namespaced_config_map("held", self.namespace, {"metadata": {"finalizers": None}})
        self.refused(404, "NotFound", self.core.read_namespaced_config_map, "held", self.namespace)


class Patches(ServerTest):
    """The client chooses the type by the body: a list is a JSON patch, a map a strategic one; others are named."""

    def setUp(self):
        super().setUp()
        self.apps.create_namespaced_deployment(self.namespace, deployment("web"))

    def typed(self, content_type, body, **options):
        return self.apps.patch_namespaced_deployment("web", self.namespace, body, _content_type=content_type, **options)

    def test_strategic_patches_merge_lists_by_their_keys(self):
        add = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
        merged = self.typed("application/strategic-merge-patch+json", add)
        self.assertEqual({c.name for c in merged.spec.template.spec.containers}, {"main", "side"})
        remove = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
        merged = self.typed("application/strategic-merge-patch+json", remove)
        self.assertEqual([c.name for c in merged.spec.template.spec.containers], ["main"])

    def test_merge_patches_replace_lists(self):
        replaced = self.typed("application/merge-patch+json",
                              {"spec": {"template": {"spec": {"containers": [{"name": "only", "image": "busybox"}]}}}})
        self.assertEqual([c.name for c in replaced.spec.template.spec.containers], ["only"])

    def test_json_patches_test_and_move(self):
        patched = self.apps.patch_namespaced_deployment("web", self.namespace, [
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 3},
            {"op": "add", "path": "/metadata/labels/tier~1x", "value": "front"},
        ])
        self.assertEqual(patched.spec.replicas, 3)
        self.assertEqual(patched.metadata.labels["tier/x"], "front")
        failed = [{"op": "test", "path": "/spec/replicas", "value": 9}, {"op": "remove", "path": "/metadata/labels"}]
        self.refused(422, "Invalid", self.apps.patch_namespaced_deployment, "web", self.namespace, failed)
        self.assertIsNotNone(self.apps.read_namespaced_deployment("web", self.namespace).metadata.labels)

    def test_applied_configurations_conflict_and_force(self):
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
        apply = "application/apply-patch+yaml"
        conflict = self.refused(409, "Conflict", self.typed, apply, body, field_manager="other")
        cause = conflict["details"]["causes"][0]
        self.assertEqual((cause["reason"], cause["field"]), ("FieldManagerConflict", ".spec.replicas"))
        forced = self.typed(apply, body, field_manager="other", force=True)
        self.assertEqual(forced.spec.replicas, 5)
        owners = {(entry.manager, entry.operation) for entry in forced.metadata.managed_fields}
        self.assertIn(("other", "Apply"), owners)
        self.refused(422, "Invalid", self.typed, apply, body)

    def test_scale_and_status_are_their_own(self):
        scale = self.apps.patch_namespaced_deployment_scale("web", self.namespace, {"spec": {"replicas": 4}})
        self.assertEqual((scale.kind, scale.spec.replicas), ("Scale", 4))
        # The deployment's controller writes, too: at any revision.
        scale.spec.replicas, scale.metadata.resource_version = 2, None
        self.assertEqual(self.apps.replace_namespaced_deployment_scale("web", self.namespace, scale).spec.replicas, 2)
        self.assertEqual(self.apps.read_namespaced_deployment_scale("web", self.namespace).status.selector, "app=web")
        before = self.apps.read_namespaced_deployment_status("web", self.namespace)
        patched = self.apps.patch_namespaced_deployment_status(
            "web", self.namespace, {"spec": {"replicas": 9}, "status": {"collisionCount": 3}})
        self.assertEqual((patched.spec.replicas, patched.status.collision_count), (before.spec.replicas, 3))


class Lists(ServerTest):
    def setUp(self):
        super().setUp()
        for number in range(7):
            self.core.create_namespaced_config_map(self.namespace, config_map(f"n{number}", {"parity": "odd" if number % 2 else "even"}))

    def names(self, **options):
        listed = self.core.list_namespaced_config_map(self.namespace, **options)
        return [item.metadata.name for item in listed.items if item.metadata.name != "kube-root-ca.crt"]

    def test_selectors(self):
        self.assertEqual(self.names(label_selector="parity=odd"), ["n1", "n3", "n5"])
        self.assertEqual(self.names(label_selector="parity notin (odd),parity"), ["n0", "n2", "n4", "n6"])
        self.assertEqual(self.names(field_selector="metadata.name=n3"), ["n3"])
        self.refused(400, "BadRequest", self.core.list_namespaced_config_map, self.namespace, field_selector="data.x=1")
        self.refused(400, "BadRequest", self.core.list_namespaced_config_map, self.namespace, label_selector="a in b")

    def test_pages_are_of_one_moment(self):
        first = self.core.list_namespaced_config_map(self.namespace, limit=3)
        self.assertEqual((len(first.items), bool(first.metadata._continue)), (3, True))
        self.core.create_namespaced_config_map(self.namespace, config_map("n2a"))
        seen, token = [item.metadata.name for item in first.items], first.metadata._continue
        while token:
            page = self.core.list_namespaced_config_map(self.namespace, limit=3, _continue=token)
            self.assertEqual(page.metadata.resource_version, first.metadata.resource_version)
            seen += [item.metadata.name for item in page.items]
            token = page.metadata._continue
        self.assertNotIn("n2a", seen)
        self.assertEqual(sorted(seen), seen)
        self.refused(400, "BadRequest", self.core.list_namespaced_config_map, self.namespace, limit=3, _continue="nonsense")

    def test_lists_at_a_revision(self):
        now = self.core.list_namespaced_config_map(self.namespace).metadata.resource_version
        self.core.delete_namespaced_config_map("n0", self.namespace)
        at = {"resource_version": now, "resource_version_match": "Exact"}
        self.assertIn("n0", self.names(**at))
        self.assertNotIn("n0", self.names(resource_version=now, resource_version_match="NotOlderThan"))
        self.assertNotIn("n0", self.names())
        self.refused(422, "Invalid", self.core.list_namespaced_config_map, self.namespace, resource_version_match="Exact")
        future = str(int(now) + 1_000_000)
        late = self.refused(504, "Timeout", self.core.list_namespaced_config_map, self.namespace, resource_version=future)
        self.assertIn("Too large resource version", late["message"])

    def test_a_collection_is_deleted_by_selector(self):
        self.core.delete_collection_namespaced_config_map(self.namespace, label_selector="parity=odd")
        self.assertEqual(self.names(), ["n0", "n2", "n4", "n6"])

    def test_metadata_and_tables(self):
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        _, _, partial = self.raw("GET", path, headers={
            "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"})
        self.assertEqual((partial["kind"], partial["apiVersion"]), ("PartialObjectMetadataList", "meta.k8s.io/v1"))
        self.assertTrue(all("data" not in item for item in partial["items"]))
        _, _, table = self.raw("GET", path, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
        self.assertEqual([column["name"] for column in table["columnDefinitions"]], ["Name", "Data", "Age"])
        self.assertEqual(table["rows"][1]["cells"][0], "n0")
        with self.assertRaises(ApiException) as caught:
            self.raw("GET", path, headers={"Accept": "text/csv"})
        self.assertEqual(caught.exception.status, 406)


class Subresources(ServerTest):
    def pod(self, name="pod"):
        # Nobody schedules it, so nobody else writes its conditions.
        spec = client.V1PodSpec(scheduler_name="nobody", containers=[client.V1Container(name="main", image="nginx")])
        return self.core.create_namespaced_pod(self.namespace, client.V1Pod(metadata=client.V1ObjectMeta(name=name), spec=spec))

    def test_a_pod_is_bound_evicted_and_deleted(self):
        self.pod()
        node = client.V1Node(metadata=client.V1ObjectMeta(name=f"node-{self.namespace}"))
        self.core.create_node(node)
        self.addCleanup(self.core.delete_node, node.metadata.name)
        binding = client.V1Binding(
            metadata=client.V1ObjectMeta(name="pod"),
            target=client.V1ObjectReference(api_version="v1", kind="Node", name=node.metadata.name))
        self.core.create_namespaced_pod_binding("pod", self.namespace, binding, _preload_content=False)
        bound = self.core.read_namespaced_pod("pod", self.namespace)
        self.assertEqual(bound.spec.node_name, node.metadata.name)
        self.assertEqual([(c.type, c.status) for c in bound.status.conditions], [("PodScheduled", "True")])
        self.refused(409, "Conflict", self.core.create_namespaced_pod_binding, "pod", self.namespace, binding)
        self.core.create_namespaced_pod_eviction("pod", self.namespace, client.V1Eviction(metadata=client.V1ObjectMeta(name="pod")))
        evicted = self.core.read_namespaced_pod("pod", self.namespace)
        self.assertIsNotNone(evicted.metadata.deletion_timestamp)
        self.core.delete_namespaced_pod("pod", self.namespace, grace_period_seconds=0)
        self.refused(404, "NotFound", self.core.read_namespaced_pod, "pod", self.namespace)

    def test_a_pods_spec_hardly_changes(self):
        self.pod()
        changed = self.core.patch_namespaced_pod("pod", self.namespace, {"spec": {"containers": [{"name": "main", "image": "busybox"}]}})
        self.assertEqual(changed.spec.containers[0].image, "busybox")
        forbidden = self.refused(422, "Invalid", self.core.patch_namespaced_pod, "pod", self.namespace, {"spec": {"hostNetwork": True}})
        self.assertIn("pod updates may not change fields other than", forbidden["message"])

    def test_tokens_and_reviews(self):
        self.core.create_namespaced_service_account(self.namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot")))
        asked = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
        token = self.core.create_namespaced_service_account_token("robot", self.namespace, asked).status.token
        review = client.AuthenticationV1Api(self.api).create_token_review(
            client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token)))
        self.assertTrue(review.status.authenticated)
        self.assertEqual(review.status.user.username, f"system:serviceaccount:{self.namespace}:robot")
        attributes = client.V1ResourceAttributes(namespace=self.namespace, verb="get", resource="pods")
        access = client.AuthorizationV1Api(self.api).create_subject_access_review(client.V1SubjectAccessReview(
            spec=client.V1SubjectAccessReviewSpec(user=review.status.user.username, resource_attributes=attributes)))
        self.assertFalse(access.status.allowed)
        mine = client.AuthorizationV1Api(self.api).create_self_subject_access_review(client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)))
        self.assertTrue(mine.status.allowed)

    def test_a_namespaces_end_is_its_own_subresource(self):
        self.core.patch_namespace_status(self.namespace, {"metadata": {"labels": {"a": "b"}}})
        read = self.core.read_namespace_status(self.namespace)
        self.assertEqual(read.status.phase, "Active")
        self.assertEqual(read.spec.finalizers, ["kubernetes"])

    def test_logs_of_a_pod_that_has_no_node_are_empty(self):
        self.pod()
        self.assertFalse(self.core.read_namespaced_pod_log("pod", self.namespace))


if __name__ == "__main__":
    unittest.main()
