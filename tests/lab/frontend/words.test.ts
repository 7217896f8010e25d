import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brief, called, clock, memory, short, size, skew, span } from '../../../gateway/lab/frontend/src/words';
import { lease } from './things';

test('times', () => {
  assert.deepEqual([-1, 7, 750, 3723].map(clock), ['0:00', '0:07', '12:30', '1:02:03']);
  assert.deepEqual([40, 720, 7200, 7500].map(span), ['40 s', '12 min', '2 h', '2 h 5 min']);
});

test('sizes', () => {
  assert.deepEqual([0, 999, 1000, 1.24e9, 16e9, 250e9].map(size), ['0 B', '999 B', '1 kB', '1.2 GB', '16 GB', '250 GB']);
  assert.equal(memory(16 * 2 ** 30), '16 GiB');
});

test('names', () => {
  assert.equal(called(lease()), 'ann.ipynb');
  assert.equal(called(lease({ notebook: '', kernel_id: '0123456789ab' })), 'kernel 01234567');
  assert.equal(short('GPU-SIM-0'), 'SIM-0');
  assert.equal(short('GPU-5fe1a7c2-1111-2222-3333-444455556666'), '5fe1a7c2');
  assert.equal(short('MIG-5fe1a7c2-1111-2222-3333-444455556666'), 'MIG-5fe1a7c2');
  assert.equal(short('a-node-with-a-long-name/0'), 'a-node-with-a-long-name/0');
});

test('a slow answer is no wrong clock, a wrong clock is put right', () => {
  assert.equal(skew(10_000, 10_400, 10_600), 0);
  assert.equal(skew(10_000, 10_000, 15_000), 0);
  assert.equal(skew(60_000, 10_000, 10_100), 49_900);
  assert.equal(skew(10_000, 60_000, 60_100), -49_000);
  assert.equal(skew(NaN, 0, 0), 0);
});

test('a name that is too long keeps its beginning and its end', () => {
  assert.equal(brief('train.ipynb', 12), 'train.ipynb');
  assert.equal(brief('training-of-everything.ipynb', 12), 'traini…ipynb');
  assert.equal(brief('𝒜𝒜𝒜𝒜𝒜', 3), '𝒜…𝒜');
});
