// Every verb of the API through the JavaScript client: typed calls, untyped objects, watches and informers.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import * as k8s from '@kubernetes/client-node';

// How long anything may take that is awaited here; nothing is expected to take a tenth of it.
const PATIENCE_MS = 60_000;

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const namespace = `test-${randomUUID().slice(0, 8)}`;

/** Asks until the answer is true, and returns it. */
async function waitFor(what, condition) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await condition();
    if (answer) return answer;
    assert.ok(Date.now() < deadline, `${what}: not within ${PATIENCE_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Expects the call to be refused with this code and reason. */
async function refused(code, reason, call) {
  await assert.rejects(call, (error) => {
    const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    assert.deepEqual([error.code, status.reason, status.kind], [code, reason, 'Status']);
    return true;
  });
}

const configMap = (name, data) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data });

before(() => core.createNamespace({ body: { metadata: { name: namespace } } }));
after(async () => {
  await core.deleteNamespace({ name: namespace });
  await waitFor('end of the namespace', () => core.readNamespace({ name: namespace }).then(() => false, (error) => error.code === 404));
});

describe('typed calls', () => {
  it('an object lives from create to delete', async () => {
    const made = await core.createNamespacedConfigMap({ namespace, body: configMap('one', { a: '1' }) });
    assert.ok(made.metadata.creationTimestamp instanceof Date);
    await refused(409, 'AlreadyExists', core.createNamespacedConfigMap({ namespace, body: configMap('one') }));
    const written = await core.replaceNamespacedConfigMap({ name: 'one', namespace, body: { ...made, data: { a: '2' } } });
    assert.deepEqual(written.data, { a: '2' });
    await refused(409, 'Conflict', core.replaceNamespacedConfigMap({ name: 'one', namespace, body: { ...made, data: { a: '3' } } }));
    const listed = await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=one' });
    assert.deepEqual(listed.items.map((item) => item.metadata.name), ['one']);
    const ended = await core.deleteNamespacedConfigMap({ name: 'one', namespace });
    assert.equal(ended.status, 'Success');
    await refused(404, 'NotFound', core.readNamespacedConfigMap({ name: 'one', namespace }));
  });

  it('what is wrong is told with its field', async () => {
    await refused(422, 'Invalid', core.createNamespacedConfigMap({ namespace, body: configMap('Not_A_Name') }));
  });

  it('patches of every type', async () => {
    const labels = { app: 'web' };
    await apps.createNamespacedDeployment({
      namespace,
      body: {
        metadata: { name: 'web' },
        spec: { replicas: 0, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers: [{ name: 'main', image: 'nginx' }] } } },
      },
    });
    const patch = (type, body, more) => apps.patchNamespacedDeployment(
      { name: 'web', namespace, body, ...more }, k8s.setHeaderOptions('Content-Type', type));
    const side = { spec: { template: { spec: { containers: [{ name: 'side', image: 'busybox' }] } } } };
    assert.equal((await patch(k8s.PatchStrategy.StrategicMergePatch, side)).spec.template.spec.containers.length, 2);
    assert.equal((await patch(k8s.PatchStrategy.MergePatch, side)).spec.template.spec.containers.length, 1);
    assert.equal((await patch(k8s.PatchStrategy.JsonPatch, [{ op: 'replace', path: '/spec/replicas', value: 1 }])).spec.replicas, 1);
    const applied = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web' }, spec: { replicas: 2 } };
    await refused(409, 'Conflict', patch(k8s.PatchStrategy.ServerSideApply, applied, { fieldManager: 'me' }));
    assert.equal((await patch(k8s.PatchStrategy.ServerSideApply, applied, { fieldManager: 'me', force: true })).spec.replicas, 2);
    await apps.deleteNamespacedDeployment({ name: 'web', namespace, propagationPolicy: 'Background' });
  });
});

describe('untyped objects', () => {
  it('are found by discovery', async () => {
    const made = await objects.create(configMap('loose', { a: '1' }));
    assert.equal(made.metadata.namespace, namespace);
    const patched = await objects.patch({ ...configMap('loose'), data: { b: '2' } }, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
    assert.deepEqual(patched.data, { a: '1', b: '2' });
    const listed = await objects.list('v1', 'ConfigMap', namespace, undefined, undefined, undefined, 'metadata.name=loose');
    assert.equal(listed.items.length, 1);
    await objects.delete(configMap('loose'));
    await refused(404, 'NotFound', objects.read(configMap('loose')));
    await assert.rejects(objects.read({ apiVersion: 'v1', kind: 'Nothing', metadata: { name: 'x' } }), /Unrecognized API version and kind/);
  });
});

describe('watches', () => {
  it('tell changes in order', async () => {
    const { metadata } = await core.listNamespacedConfigMap({ namespace });
    const told = [];
    const ended = Promise.withResolvers ? Promise.withResolvers() : deferred();
    const stop = await new k8s.Watch(config).watch(
      `/api/v1/namespaces/${namespace}/configmaps`, { resourceVersion: metadata.resourceVersion, fieldSelector: 'metadata.name=seen' },
      (type, item) => {
        told.push([type, item.metadata.name]);
        if (type === 'DELETED') ended.resolve();
      },
      (error) => ended.reject(error ?? new Error('the watch ended')),
    );
    await core.createNamespacedConfigMap({ namespace, body: configMap('seen') });
    await core.deleteNamespacedConfigMap({ name: 'seen', namespace });
    await ended.promise;
    stop.abort();
    assert.deepEqual(told, [['ADDED', 'seen'], ['DELETED', 'seen']]);
  });

  it('keep an informer true', async () => {
    await core.createNamespacedConfigMap({ namespace, body: configMap('first') });
    const informer = k8s.makeInformer(
      config, `/api/v1/namespaces/${namespace}/configmaps`, () => core.listNamespacedConfigMap({ namespace }));
    await informer.start();
    assert.ok(informer.get('first', namespace));
    await core.createNamespacedConfigMap({ namespace, body: configMap('second') });
    await waitFor('second', () => informer.get('second', namespace));
    await core.deleteNamespacedConfigMap({ name: 'first', namespace });
    await waitFor('the end of first', () => !informer.get('first', namespace));
    await informer.stop();
  });
});

function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}
