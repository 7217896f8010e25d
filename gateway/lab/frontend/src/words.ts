/** Numbers as people read them, and clocks. Pure. */

/** Seconds as `0:07`, `12:30`, `1:02:03`; never negative. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const two = (n: number) => String(n).padStart(2, '0');
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** Seconds as `40 s`, `12 min`, `2 h 5 min`. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) {
    return `${whole} s`;
  }
  const minutes = Math.round(whole / 60);
  if (minutes < 120) {
    return `${minutes} min`;
  }
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
}

/**
 * Milliseconds that another clock is surely ahead of this one (less than 0: behind). It `said` a moment, in whole seconds, at some time
 * between `asked` and `heard` on this one; 0 where both may agree.
 */
export function skew(said: number, asked: number, heard: number): number {
  const [least, most] = [said - heard, said + 1000 - asked];
  return least > 0 ? least : most < 0 ? most : 0;
}

/** Bytes as `1.2 GB`. */
export function size(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${bytes >= 99.5 || unit === 0 ? Math.round(bytes) : Number(bytes.toPrecision(2))} ${units[unit]}`;
}

/** How large a GPU's memory is, as makers count it: `16 GiB`. */
export function memory(bytes: number): string {
  return `${Math.round(bytes / 2 ** 30)} GiB`;
}

/** The name of a notebook without its folders; of a kernel without one, the beginning of its id. */
export function called(lease: { notebook: string; kernel_id: string }): string {
  return lease.notebook.split('/').pop() || `kernel ${lease.kernel_id.slice(0, 8)}`;
}

/** So much of a name that it leaves room for what is said of it, its end too. */
export function brief(name: string, most: number): string {
  const characters = [...name];
  const half = Math.floor((most - 1) / 2);
  return characters.length <= most ? name : `${characters.slice(0, most - 1 - half).join('')}…${characters.slice(-half).join('')}`;
}

/** A GPU's UUID, short; any other name of one as it is. */
export function short(uuid: string): string {
  const bare = uuid.replace(/^GPU-/, '');
  return /^((?:MIG-)?[0-9a-f]{8})-[0-9a-f]{4}-/i.exec(bare)?.[1] ?? bare;
}
