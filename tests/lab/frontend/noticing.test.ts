import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NOTHING, Picture } from '../../../gateway/lab/frontend/src/model';
import { BEFORE, notice, upcoming } from '../../../gateway/lab/frontend/src/noticing';
import { at, lease, NOW, wait } from './things';

const gpu = { uuid: 'GPU-a', node: 'n1', flavor: 'a100', memory_bytes: 2 ** 34, simulated: false, leasable: true };
const site = (facts: Partial<Picture> = {}): Picture => ({ ...NOTHING, gpus: [gpu], ...facts });
const idle = (ends: number, since = -100) => lease({ phase: 'HOLDING', gpus: ['GPU-a'], idle_since: at(since), ends_by: at(ends) });
const busy = lease({ phase: 'HOLDING', gpus: ['GPU-a'], executing: true });
const other = wait({ kernel_id: 'k2', user: 'bo', notebook: 'bo.ipynb' });

test('an idle GPU is announced in its last seconds, and not before', () => {
  assert.equal(notice(idle(BEFORE + 1), site(), NOW), null);
  assert.equal(upcoming(idle(BEFORE + 1), NOW), 1000);
  const said = notice(idle(20), site(), NOW);
  assert.match(said?.text ?? '', /ann\.ipynb is idle: its GPU is released in 20 s\. Its state is parked/);
  assert.deepEqual([said?.left, said?.idle], [20_000, true]);
});

test('a site that takes GPUs back after seconds does not announce each pause', () => {
  assert.equal(notice(idle(5, -5), site(), NOW), null);
});

test('the same idle time is announced once, the next one again', () => {
  assert.equal(notice(idle(20), site(), NOW)?.key, notice(idle(20), site(), NOW + 5000)?.key);
  assert.notEqual(notice(idle(20), site(), NOW)?.key, notice(idle(20, -90), site(), NOW)?.key);
});

test('who works on a GPU hears that somebody waits for one of the same node', () => {
  const said = notice(busy, site({ queue: [other] }), NOW);
  assert.match(said?.text ?? '', /^bo waits: ann\.ipynb may lose its GPU when its cells have run\./);
  assert.equal(said?.idle, false);
  assert.equal(notice(busy, site({ queue: [{ ...other, node: 'n2' }] }), NOW), null);
});

test('who waits for a quota of their own takes a GPU from nobody else', () => {
  const quota = 'one of yours has to become idle';
  assert.equal(notice(busy, site({ queue: [{ ...other, quota }] }), NOW), null);
  assert.match(notice(busy, site({ queue: [{ ...other, user: 'ann', quota }] }), NOW)?.text ?? '', /^bo\.ipynb waits/);
});

test('one lease is spoken of once, however many come to wait for it', () => {
  const [one, two] = [other, { ...other, kernel_id: 'k3' }].map(each => notice(busy, site({ queue: [each] }), NOW)?.key);
  assert.equal(one, two);
});

test('who holds a GPU by a wish of their own is left in peace', () => {
  assert.equal(notice({ ...busy, hold_until: at(60) }, site({ queue: [other] }), NOW), null);
});

test('state that can not be parked is not promised to be', () => {
  assert.doesNotMatch(notice({ ...idle(20), unparkable: 'shared memory' }, site(), NOW)?.text ?? '', /parked/);
});

test('JupyterLab shows 140 characters, and every notice has fewer, however long the names', () => {
  for (const notebook of ['ann.ipynb', `${'a'.repeat(200)}.ipynb`]) {
    const queue = [{ ...other, user: notebook }];
    for (const said of [notice({ ...idle(20), notebook }, site(), NOW), notice({ ...busy, notebook }, site({ queue }), NOW)]) {
      assert.ok(said && said.text.length <= 140 && said.text.includes('comes back'), said?.text);
    }
  }
});
