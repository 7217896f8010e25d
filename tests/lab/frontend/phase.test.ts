import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shown } from '../../../gateway/lab/frontend/src/phase';
import { at, lease, NOW, wait } from './things';

test('a kernel that never asked for a GPU works on the CPU', () => {
  assert.equal(shown(lease(), undefined, NOW).text, 'CPU');
});

test('one that waits shows its place and for how long', () => {
  const now = shown(lease({ phase: 'WAITING' }), wait(), NOW);
  assert.deepEqual([now.kind, now.text, now.ticks], ['waiting', 'GPU queue: 2 · 0:34', true]);
});

test('one that waits for its own quota is told so', () => {
  const quota = 'One kernel of yours has to be idle first.';
  assert.match(shown(lease({ phase: 'WAITING' }), wait({ quota }), NOW).title, /One kernel of yours has to be idle first\./);
});

test('one whose place is not known yet still waits', () => {
  assert.equal(shown(lease({ phase: 'WAITING' }), undefined, NOW).text, 'GPU awaited');
});

test('while a cell runs there is no countdown, though the maximum hold is told', () => {
  const now = shown(lease({ phase: 'HOLDING', gpus: ['GPU-a'], executing: true, ends_by: at(600) }), undefined, NOW);
  assert.deepEqual([now.kind, now.text, now.ticks], ['running', 'GPU running', false]);
  assert.match(now.title, /maximum hold ends in 10 min/);
});

test('an idle one shows when it is released', () => {
  const now = shown(lease({ phase: 'HOLDING', gpus: ['GPU-a', 'GPU-b'], idle_since: at(-15), ends_by: at(105) }), undefined, NOW);
  assert.deepEqual([now.kind, now.text], ['idle', '2 GPUs idle · 1:45']);
});

test('a moment that has passed counts as now', () => {
  assert.equal(shown(lease({ phase: 'HOLDING', gpus: ['GPU-a'], idle_since: at(-9), ends_by: at(-3) }), undefined, NOW).text, 'GPU idle · 0:00');
});

test("a user's own hold is shown in place of the idle timeout, and no longer than it lasts", () => {
  const held = lease({ phase: 'HOLDING', gpus: ['GPU-a'], idle_since: at(-9), ends_by: at(90), hold_until: at(90) });
  assert.equal(shown(held, undefined, NOW).text, 'GPU held · 1:30');
  assert.equal(shown({ ...held, hold_until: at(-1) }, undefined, NOW).kind, 'idle');
});

test('a GPU that nobody takes back shows no countdown', () => {
  const now = shown(lease({ phase: 'HOLDING', gpus: ['GPU-a'], idle_since: at(-9) }), undefined, NOW);
  assert.deepEqual([now.text, now.ticks], ['GPU idle', false]);
});

test('parked memory is shown, and a kernel that has parked nothing is on the CPU', () => {
  assert.equal(shown(lease({ phase: 'PARKED', parked_bytes: 1.2e9 }), undefined, NOW).text, 'Parked · 1.2 GB');
  assert.equal(shown(lease({ phase: 'PARKED' }), undefined, NOW).text, 'CPU');
});

test('coming and going are shown', () => {
  assert.equal(shown(lease({ phase: 'RESUMING', gpus: ['GPU-a'] }), undefined, NOW).text, 'GPU attaching');
  assert.equal(shown(lease({ phase: 'PARKING', gpus: ['GPU-a'] }), undefined, NOW).text, 'GPU releasing');
});

test('a kernel that does not answer is an alarm, in whatever phase', () => {
  const now = shown(lease({ phase: 'HOLDING', gpus: ['GPU-a'], executing: true, alarm: 'Process 7 is stopped.' }), undefined, NOW);
  assert.deepEqual([now.kind, now.title], ['alarm', 'Process 7 is stopped.']);
});
