import assert from 'node:assert/strict';
import { test } from 'node:test';
import { total, untilNow } from '../../../gateway/lab/frontend/src/usage';
import { lease, NOW } from './things';

const counted = { gpu_seconds_held: 60, gpu_seconds_executed: 20, gpu_seconds_saved: 5 };

test('the time of several names of one user is added up', () => {
  assert.deepEqual(total([counted, counted]), { gpu_seconds_held: 120, gpu_seconds_executed: 40, gpu_seconds_saved: 10 });
  assert.deepEqual(total([]), { gpu_seconds_held: 0, gpu_seconds_executed: 0, gpu_seconds_saved: 0 });
});

test('what is held goes on counting though nobody is asked, once for each GPU, and executed only while a cell runs', () => {
  const leases = [
    lease({ phase: 'HOLDING', gpus: ['a', 'b'], executing: true }),
    lease({ phase: 'HOLDING', gpus: ['c'] }),
    lease({ phase: 'PARKED' })
  ];
  const now = untilNow(counted, NOW - 10_000, leases, NOW);
  assert.deepEqual(now, { gpu_seconds_held: 90, gpu_seconds_executed: 40, gpu_seconds_saved: 5 });
});
