/** What a burst's journal says: which ranks run, which has failed, what they have printed. Pure. */

/** One line of the journal; which fields there are depends on `t`. */
export interface Entry {
  t: string;
  rank?: number;
  text?: string;
  running?: number;
  of?: number;
  outcome?: string;
  message?: string;
}

export interface BurstLog {
  /** How many ranks have begun, and how many there are to be. */
  running: number;
  of: number;
  failed: ReadonlySet<number>;
  /** What each rank has printed, the last of it. */
  printed: ReadonlyMap<number, string>;
  /** What it waits for, or how far it is. */
  note: string;
  ended: boolean;
}

export const EMPTY: BurstLog = { running: 0, of: 0, failed: new Set(), printed: new Map(), note: '', ended: false };

const KEPT = 20_000; // characters of a rank

export function read(log: BurstLog, entries: readonly Entry[]): BurstLog {
  const failed = new Set(log.failed);
  const printed = new Map(log.printed);
  const next = { ...log, failed, printed };
  for (const entry of entries) {
    const rank = entry.rank ?? 0;
    switch (entry.t) {
      case 'out':
        printed.set(rank, print(printed.get(rank) ?? '', entry.text ?? ''));
        break;
      case 'failed':
        failed.add(rank);
        printed.set(rank, print(printed.get(rank) ?? '', `${entry.text ?? ''}\n`));
        break;
      case 'state':
        next.running = entry.running ?? next.running;
        next.of = entry.of ?? next.of;
        next.note = '';
        break;
      case 'waits':
      case 'step':
      case 'note':
        next.note = entry.text ?? '';
        break;
      case 'end':
        next.ended = true;
        next.note = entry.message ?? '';
        break;
    }
  }
  return next;
}

/** Text as a terminal leaves it: a carriage return begins the line again, colours are gone. Only the last of it is kept. */
export function print(before: string, text: string): string {
  // eslint-disable-next-line no-control-regex
  const plain = (before + text).replace(/\u001b\[[0-9;]*[A-Za-z]/g, '').replace(/\r+\n/g, '\n');
  const lines = plain.split('\n').map(line => line.slice(line.replace(/\r$/, '').lastIndexOf('\r') + 1));
  const all = lines.join('\n');
  return all.length > KEPT ? all.slice(all.indexOf('\n', all.length - KEPT) + 1) : all;
}
