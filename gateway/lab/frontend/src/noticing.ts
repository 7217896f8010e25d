/** When a user is told that a GPU is about to be taken back. Pure: `now` is milliseconds since 1970. */

import { Lease, Picture, Wait } from './model';
import { brief, called, span } from './words';

export const BEFORE = 30; // seconds before the release
const SHORTEST = 60; // an idle time shorter than this would be announced at every pause: it is not
const SHOWN = 12_000; // milliseconds that a notice without a moment stays
export const NAMED = 48; // characters of a name, where a notice has one
const NAMED_OF_TWO = 22; // and where it has two

export interface Notice {
  kernel: string;
  /** What it is about: said once for each idle time, and once for each lease however many wait for it. */
  key: string;
  text: string;
  /** Milliseconds until it is out of date. */
  left: number;
  /** Nothing runs, so that the GPU can be released at once. */
  idle: boolean;
}

/** What to say of a lease now, in 140 characters, as JupyterLab shows no more. Null: nothing. */
export function notice(lease: Lease, picture: Picture, now: number): Notice | null {
  return idleNotice(lease, now) ?? wantedNotice(lease, picture, now);
}

/** Milliseconds until there is something to say though nothing happens; null: nothing is coming. */
export function upcoming(lease: Lease, now: number): number | null {
  const left = due(lease, now);
  return left === null || left <= 0 ? null : Math.max(0, left - BEFORE * 1000);
}

/** Whoever else waits for a GPU of the node where this lease has its own; who waits for a quota waits for the same user's alone. */
export function rivals(lease: Lease, picture: Picture): Wait[] {
  const nodes = new Set(picture.gpus.filter(gpu => lease.gpus.includes(gpu.uuid)).map(gpu => gpu.node));
  return picture.queue.filter(wait => wait.kernel_id !== lease.kernel_id && nodes.has(wait.node) && (!wait.quota || wait.user === lease.user));
}

function idleNotice(lease: Lease, now: number): Notice | null {
  const left = due(lease, now);
  if (left === null || left > BEFORE * 1000 || left <= 0) {
    return null;
  }
  const when = span(left / 1000);
  const text = `${brief(called(lease), NAMED)} is idle: its GPU is released in ${when}.${parks(lease)}`;
  return { kernel: lease.kernel_id, key: `idle ${lease.kernel_id} ${lease.idle_since}`, text, left, idle: true };
}

function wantedNotice(lease: Lease, picture: Picture, now: number): Notice | null {
  if (lease.phase !== 'HOLDING' || !lease.executing || (lease.hold_until && Date.parse(lease.hold_until) > now)) {
    return null;
  }
  const [first] = rivals(lease, picture);
  if (!first) {
    return null;
  }
  const who = brief(first.user && first.user !== lease.user ? first.user : called(first), NAMED_OF_TWO);
  const text = `${who} waits: ${brief(called(lease), NAMED_OF_TWO)} may lose its GPU when its cells have run.${parks(lease)}`;
  return { kernel: lease.kernel_id, key: `wanted ${lease.kernel_id} ${lease.gpus.join()} ${lease.since}`, text, left: SHOWN, idle: false };
}

function parks(lease: Lease): string {
  return lease.unparkable ? '' : ' Its state is parked, and comes back.';
}

/** Milliseconds until an idle lease ends, where that is worth a word. */
function due(lease: Lease, now: number): number | null {
  if (lease.phase !== 'HOLDING' || lease.executing || !lease.gpus.length || !lease.idle_since || !lease.ends_by) {
    return null;
  }
  const ends = Date.parse(lease.ends_by);
  return ends - Date.parse(lease.idle_since) >= SHORTEST * 1000 ? ends - now : null;
}
