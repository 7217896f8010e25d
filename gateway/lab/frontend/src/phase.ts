/** What the status item shows of a kernel: from its lease and place in the queue. Pure: `now` is given, in milliseconds since 1970. */

import { Lease, Wait } from './model';
import { clock, size, short, span } from './words';

/** `cpu`: no GPU is wanted. `idle`: held, and nothing runs on it. `parked`: given back, its state waits in the machine's memory. */
export type Kind = 'cpu' | 'waiting' | 'moving' | 'running' | 'idle' | 'held' | 'parked' | 'alarm';

export interface Shown {
  kind: Kind;
  text: string;
  /** In whole sentences, for the tooltip and for screen readers. */
  title: string;
  /** Whether the text changes by itself every second. */
  ticks: boolean;
}

const until = (moment: string, now: number) => (Date.parse(moment) - now) / 1000;

export function shown(lease: Lease, wait: Wait | undefined, now: number): Shown {
  const many = lease.gpus.length > 1 ? `${lease.gpus.length} GPUs` : 'GPU';
  const names = lease.gpus.map(short).join(', ');
  if (lease.alarm) {
    return { kind: 'alarm', text: `${many} not answering`, title: lease.alarm, ticks: false };
  }
  switch (lease.phase) {
    case 'WAITING':
      return waits(wait, now);
    case 'RESUMING':
      return { kind: 'moving', text: `${many} attaching`, title: `The state is brought back to ${names || 'a GPU'}.`, ticks: false };
    case 'PARKING':
      return { kind: 'moving', text: `${many} releasing`, title: 'The state is moved from the GPU into memory.', ticks: false };
    case 'HOLDING':
      return lease.gpus.length ? holds(lease, many, names, now) : CPU;
    case 'PARKED':
      return lease.parked_bytes > 0 ? parks(lease) : CPU;
    default:
      return CPU;
  }
}

const CPU: Shown = {
  kind: 'cpu',
  text: 'CPU',
  title: 'This kernel holds no GPU. A cell that needs one asks for it.',
  ticks: false
};

function waits(wait: Wait | undefined, now: number): Shown {
  if (!wait) {
    return { kind: 'waiting', text: 'GPU awaited', title: 'A cell waits for a GPU.', ticks: false };
  }
  const so_far = -until(wait.since, now);
  const what = wait.count > 1 ? `${wait.count} GPUs` : 'a GPU';
  const why = wait.quota ? ` ${wait.quota}` : '';
  return {
    kind: 'waiting',
    text: `GPU queue: ${wait.position} · ${clock(so_far)}`,
    title: `A cell waits for ${what}, place ${wait.position} in the queue.${why} The stop button ends the wait.`,
    ticks: true
  };
}

function holds(lease: Lease, many: string, names: string, now: number): Shown {
  const unparkable = lease.unparkable ? ` Its state can't be parked now: ${lease.unparkable}` : '';
  const kept = lease.hold_until !== null && until(lease.hold_until, now) > 0;
  if (lease.executing || lease.idle_since === null) {
    const most = lease.ends_by && until(lease.ends_by, now);
    const bound = most === null || most === '' ? '' : ` The maximum hold ends ${most > 0 ? `in ${span(most)}` : 'with this cell'}.`;
    return { kind: 'running', text: `${many} running`, title: `A cell runs on ${names}.${bound}${unparkable}`, ticks: false };
  }
  if (kept && lease.hold_until) {
    const left = until(lease.hold_until, now);
    return { kind: 'held', text: `${many} held · ${clock(left)}`, title: `${names} is held for ${span(left)} more, as asked.${unparkable}`, ticks: true };
  }
  if (lease.ends_by === null) {
    return { kind: 'held', text: `${many} idle`, title: `${names} stays with this kernel until somebody else needs it.${unparkable}`, ticks: false };
  }
  const left = until(lease.ends_by, now);
  return {
    kind: 'idle',
    text: `${many} idle · ${clock(left)}`,
    title: `Nothing runs on ${names}. It is released in ${span(left)}, or as soon as somebody else needs it.${unparkable}`,
    ticks: true
  };
}

function parks(lease: Lease): Shown {
  const bytes = size(lease.parked_bytes);
  const title = `The GPU was given back. ${bytes} of its state wait in memory, and the next cell that needs a GPU brings them back.`;
  return { kind: 'parked', text: `Parked · ${bytes}`, title, ticks: false };
}
