/** Leases and waits for the tests, with only what a test is about said there. */

import { Lease, Wait } from '../../../gateway/lab/frontend/src/model';

export const NOW = Date.parse('2030-01-31T12:00:00Z');

/** The moment so many seconds from `NOW`. */
export const at = (seconds: number) => new Date(NOW + 1000 * seconds).toISOString();

export const lease = (facts: Partial<Lease> = {}): Lease => ({
  kernel_id: 'k1',
  user: 'ann',
  notebook: 'work/ann.ipynb',
  phase: 'COLD',
  gpus: [],
  executing: false,
  since: at(-60),
  idle_since: null,
  ends_by: null,
  hold_until: null,
  parked_bytes: 0,
  unparkable: '',
  alarm: '',
  ...facts
});

export const wait = (facts: Partial<Wait> = {}): Wait => ({
  kernel_id: 'k1',
  user: 'ann',
  notebook: 'work/ann.ipynb',
  node: 'n1',
  count: 1,
  position: 2,
  since: at(-34),
  quota: '',
  ...facts
});
