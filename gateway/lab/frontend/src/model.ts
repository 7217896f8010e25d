/** What `/api/gpu` and `/api/bursts` say, as far as it is shown. Moments are ISO 8601 in UTC, memory is bytes. */

export type Phase = 'COLD' | 'WAITING' | 'RESUMING' | 'HOLDING' | 'PARKING' | 'PARKED';

export interface Gpu {
  uuid: string;
  node: string;
  flavor: string;
  memory_bytes: number;
  simulated: boolean;
  leasable: boolean;
}

export interface Lease {
  kernel_id: string;
  user: string;
  notebook: string;
  phase: Phase;
  gpus: string[];
  executing: boolean;
  since: string | null;
  idle_since: string | null;
  /** When it ends if nothing else runs; while a cell runs, the end of the maximum hold. */
  ends_by: string | null;
  hold_until: string | null;
  parked_bytes: number;
  /** Why its state couldn't be parked. */
  unparkable: string;
  /** Why it doesn't answer. */
  alarm: string;
}

/** One that waits. */
export interface Wait {
  node: string;
  kernel_id: string;
  user: string;
  notebook: string;
  count: number;
  position: number;
  since: string;
  quota: string;
}

export interface Burst {
  id: string;
  name: string;
  kernel_id: string;
  user: string;
  engine: string;
  workers: number;
  gpus: number;
  /** Seconds since 1970. */
  created: number;
  started: number | null;
  ended: number | null;
  state: 'new' | 'waiting' | 'running' | 'ended';
  outcome: string;
  message: string;
  leased: string[];
}

/** Of an idle kernel: it is about to be ended, or no longer. */
export interface KernelNews {
  action: 'cull_warned' | 'cull_averted';
  kernel_id: string;
  ends_at?: string;
}

/** GPU time of one user, in seconds. */
export interface Usage {
  gpu_seconds_held: number;
  gpu_seconds_executed: number;
  /** For which a kernel had no lease that with a GPU for life it would have held. */
  gpu_seconds_saved: number;
}

export interface Picture {
  gpus: readonly Gpu[];
  leases: ReadonlyMap<string, Lease>;
  queue: readonly Wait[];
  drained: readonly string[];
}

export const NOTHING: Picture = { gpus: [], leases: new Map(), queue: [], drained: [] };
