/** GPU time: what the gateway has counted, and what has run since it was asked. Pure. */

import { Lease, Usage } from './model';

export function total(rows: readonly Usage[]): Usage {
  const sum = (name: keyof Usage) => rows.reduce((seconds, row) => seconds + row[name], 0);
  return {
    gpu_seconds_held: sum('gpu_seconds_held'),
    gpu_seconds_executed: sum('gpu_seconds_executed'),
    gpu_seconds_saved: sum('gpu_seconds_saved')
  };
}

/** What was counted at `asked`, and what these leases have had from then until `now` (both milliseconds since 1970). */
export function untilNow(counted: Usage, asked: number, leases: readonly Lease[], now: number): Usage {
  const seconds = Math.max(0, now - asked) / 1000;
  const held = leases.filter(lease => lease.phase === 'HOLDING').map(lease => lease.gpus.length * seconds);
  const executed = leases.filter(lease => lease.phase === 'HOLDING' && lease.executing).map(lease => lease.gpus.length * seconds);
  const sum = (times: number[]) => times.reduce((all, each) => all + each, 0);
  return {
    ...counted,
    gpu_seconds_held: counted.gpu_seconds_held + sum(held),
    gpu_seconds_executed: counted.gpu_seconds_executed + sum(executed)
  };
}
