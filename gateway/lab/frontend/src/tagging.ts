/** What a cell's tags say of GPUs. Pure. The gateway reads the same tags: see `gateway/pod/cells`. */

/** `auto`: the gateway decides from the code. */
export type Need = 'auto' | 'gpu' | 'cpu';

export const NEEDS: readonly Need[] = ['auto', 'gpu', 'cpu'];

/** Where a cell has both tags the gateway is told `gpu`: it then waits rather than fails. */
export function need(tags: unknown): Need {
  const known = Array.isArray(tags) ? tags : [];
  return known.includes('gpu') ? 'gpu' : known.includes('cpu') ? 'cpu' : 'auto';
}

/** The cell's tags with its need changed; all others stay as they are. */
export function tagged(tags: unknown, wish: Need): string[] {
  const others = (Array.isArray(tags) ? tags : []).filter((tag): tag is string => tag !== 'gpu' && tag !== 'cpu');
  return wish === 'auto' ? others : [...others, wish];
}

export function next(now: Need): Need {
  return NEEDS[(NEEDS.indexOf(now) + 1) % NEEDS.length] ?? 'auto';
}
