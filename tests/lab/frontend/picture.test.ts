import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NOTHING } from '../../../gateway/lab/frontend/src/model';
import { after, first, holders, own, waiting } from '../../../gateway/lab/frontend/src/picture';
import { Reader } from '../../../gateway/lab/frontend/src/sse';
import { lease, wait } from './things';

const whole = { gpus: [], leases: [lease(), lease({ kernel_id: 'k2', user: 'bo', gpus: ['GPU-a'] })], queue: [wait()], drained: ['n1'] };

test('the whole state comes first and replaces all that was known', () => {
  const before = after(NOTHING, 'lease', lease({ kernel_id: 'old' }));
  assert.deepEqual([...after(before, 'state', whole).leases.keys()], ['k1', 'k2']);
});

test('a changed lease takes the place of the one before, a lease that is gone leaves', () => {
  const changed = after(first(whole), 'lease', lease({ phase: 'WAITING' }));
  assert.equal(changed.leases.get('k1')?.phase, 'WAITING');
  assert.deepEqual([...after(changed, 'lease_gone', { kernel_id: 'k1' }).leases.keys()], ['k2']);
});

test('a picture that was handed out is never changed', () => {
  const picture = first(whole);
  after(picture, 'lease_gone', { kernel_id: 'k1' });
  assert.equal(picture.leases.size, 2);
});

test('events of a later gateway that are not known here are passed over', () => {
  const picture = first(whole);
  assert.equal(after(picture, 'weather', { sun: true }), picture);
});

test('who waits and who holds is found', () => {
  const picture = first(whole);
  assert.equal(waiting(picture, 'k1')?.position, 2);
  assert.equal(waiting(picture, 'k2'), undefined);
  assert.deepEqual(holders(picture, 'GPU-a').map(each => each.user), ['bo']);
});

test("one's own leases are those of this Lab's kernels and the others of the same user, and nobody else's", () => {
  const picture = after(first(whole), 'lease', lease({ kernel_id: 'k3', notebook: 'papermill.ipynb' }));
  assert.deepEqual(own(picture, new Set(['k1'])).map(each => each.kernel_id), ['k1', 'k3']);
  assert.deepEqual(own(picture, new Set()), []);
});

test('events are read however the stream is cut', () => {
  const text = 'event: lease\ndata: {"kernel_id": "ä"}\n\n:\n\nevent: queue\ndata: []\n\n';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const reader = new Reader();
    const told = [...reader.take(text.slice(0, cut)), ...reader.take(text.slice(cut))];
    assert.deepEqual(told, [{ name: 'lease', value: { kernel_id: 'ä' } }, { name: 'queue', value: [] }]);
  }
});
