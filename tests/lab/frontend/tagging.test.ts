import assert from 'node:assert/strict';
import { test } from 'node:test';
import { need, next, tagged } from '../../../gateway/lab/frontend/src/tagging';

test('tags say what a cell needs, whatever else is tagged', () => {
  assert.deepEqual([['gpu'], ['x', 'cpu'], ['cpu', 'gpu'], ['x'], undefined, 'gpu'].map(need), ['gpu', 'cpu', 'gpu', 'auto', 'auto', 'auto']);
});

test('a change keeps all other tags', () => {
  assert.deepEqual(tagged(['x', 'cpu', 'y'], 'gpu'), ['x', 'y', 'gpu']);
  assert.deepEqual(tagged(['x', 'cpu'], 'auto'), ['x']);
  assert.deepEqual(tagged(undefined, 'auto'), []);
});

test('three steps lead back', () => {
  assert.equal(next(next(next('auto'))), 'auto');
});
